"""`staffetta send` in each of its forms: an id printed is an e-mail kept, and what is wrong is named."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from uuid import UUID

import pytest

from doubles.shell import PATIENCE_SECONDS, Shell

FLAGS = ("send", "--from", "shop@example.com", "--to", "ada@example.org", "--subject", "Hello", "--text", "Hi")
PAYLOAD = {"from": "shop@example.com", "to": "ada@example.org", "subject": "Hello", "body_text": "Hi"}


def line(number: int, **more: object) -> str:
    return json.dumps({**PAYLOAD, "subject": f"Number {number}", **more}) + "\n"


def kept(shell: Shell) -> int:
    return int(sum(shell("status", "--json").json["emails"].values()))


def story(shell: Shell, id: str) -> dict[str, object]:
    found: dict[str, object] = shell("show", id, "--json").json
    return found


def test_flags_make_an_email_and_its_id_is_printed(shell: Shell) -> None:
    """The shortest way in: nothing set, nothing running."""
    said = shell(
        *FLAGS, "--company", "acme", "--priority", "2", "--tag", "one", "--tag", "two", "--cc", "c@example.org"
    )
    (id,) = said.lines

    assert UUID(id).version == 7
    told = story(shell, id)
    assert ("READY", "acme", 2, ["one", "two"]) == tuple(
        told[name] for name in ("status", "company_id", "priority", "tags")
    )
    assert ["ada@example.org", "c@example.org"] == [one["address"] for one in told["recipients"]]  # type: ignore[attr-defined]  # JSON


def test_json_says_id_and_status(shell: Shell) -> None:
    """The shape that scripts rely on."""
    said = shell(*FLAGS, "--json").json

    assert {"id", "status"} == set(said)
    assert "READY" == said["status"]


def test_a_payload_file_is_handed_in_and_flags_win_over_it(shell: Shell) -> None:
    (shell.folder / "p.json").write_text(json.dumps({**PAYLOAD, "company_id": "acme"}))

    id = shell("send", "p.json", "--company", "bistro").lines[0]

    assert "bistro" == story(shell, id)["company_id"]


@pytest.mark.parametrize(
    "text", ["not json", "[1]", '"text"', "{" * 100_000, '{"from": NaN}', '{"from": "a", "from": "b"}']
)
def test_a_file_that_is_no_payload_is_named(shell: Shell, text: str) -> None:
    (shell.folder / "p.json").write_text(text)

    said = shell("send", "p.json", code=2)

    assert "  p.json: " in said.err or "  from: stands twice" in said.err
    assert not said.out


def test_a_message_file_becomes_the_same_email_again(shell: Shell) -> None:
    """What another program wrote as .eml: addresses, text, HTML, attachments and its own headers are kept."""
    message = EmailMessage()
    message["From"] = "Müller <shop@example.com>"
    message["To"] = "Ada <ada@example.org>, bob@example.org"
    message["Bcc"] = "archive@example.com"
    message["Subject"] = "Grüße ✓"
    message["X-Invoice"] = "17"
    message["Message-ID"] = "<old@example.com>"
    message.set_content("Hällo\n")
    message.add_alternative("<p>Hällo <img src='cid:p1'></p>\n", subtype="html")
    message.get_payload()[1].add_related(b"\x89PNG", "image", "png", cid="<p1>", filename="p1.png")  # type: ignore[union-attr,index]  # a part of this message
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="rechnung ü.pdf")
    inner = EmailMessage()
    inner["Subject"] = "the forwarded one"
    inner.set_content("inside\n")
    message.add_attachment(inner)
    (shell.folder / "m.eml").write_bytes(message.as_bytes(policy=policy.SMTP))

    id = shell("send", "m.eml").lines[0]
    composed = _message(shell, id)

    assert "Grüße ✓" == composed["Subject"]
    assert "17" == composed["X-Invoice"]
    assert f"<{id}@example.com>" == composed["Message-ID"]
    assert composed["Bcc"] is None
    assert "Hällo\n" == composed.get_body(("plain",)).get_content().replace("\r\n", "\n")  # type: ignore[union-attr]  # it has one
    files = {part.get_filename(): part.get_content_type() for part in composed.iter_attachments()}
    assert {
        "p1.png": "image/png", "rechnung ü.pdf": "application/pdf", "message.eml": "application/octet-stream",
    } == files  # fmt: skip
    addresses = [one["address"] for one in story(shell, id)["recipients"]]  # type: ignore[attr-defined]  # JSON
    assert ["ada@example.org", "bob@example.org", "archive@example.com"] == addresses


def _message(shell: Shell, id: str) -> EmailMessage:
    """The composed message as it lies in the store."""
    import apsw

    with apsw.Connection(str(shell.folder / "staffetta.db")) as db:
        raw = db.execute("SELECT message FROM contents JOIN mail USING (ref) WHERE id = ?", (id,)).get
    return BytesParser(policy=policy.default).parsebytes(raw)


def test_a_file_that_is_no_message_is_named(shell: Shell) -> None:
    (shell.folder / "m.eml").write_text("Subject: only this\n\nbody\n")

    assert "no From header" in shell("send", "m.eml", code=2).err


def test_bodies_are_read_from_files(shell: Shell) -> None:
    (shell.folder / "letter.txt").write_text("Grüße\n", encoding="utf-8")
    id = shell(*FLAGS[:-1], "@letter.txt").lines[0]

    assert "Grüße\n" == _message(shell, id).get_content().replace("\r\n", "\n")
    assert "body_text: missing.txt cannot be read" in shell(*FLAGS[:-1], "@missing.txt", code=2).err


def test_every_wrong_flag_is_named_and_nothing_is_kept(shell: Shell) -> None:
    """Exit code 2, as for any wrong input; a script tells it from a store that is away (1)."""
    said = shell(
        "send", "--from", "nobody", "--to", "ada@example.org", "--subject", "a\nBcc: x@example.org", "--priority",
        "11", "--header", "Received: x", "--send-at", "soon", "--expires-in", "0", "--callback-url", "ftp://x",
        "--attach", "/etc/passwd", "--id", "7", code=2,
    )  # fmt: skip

    for field in (
        "from", "subject", "body_text", "priority", "custom_headers.Received", "send_at", "expires_in",
        "callback_url", "id",
    ):  # fmt: skip
        assert f"  {field}: " in said.err, field
    assert 0 == kept(shell)


@pytest.mark.parametrize(
    "path", ["../p.json", "/etc/passwd", "file:///etc/passwd", "missing.txt", "out/../../p.json"]
)
def test_attachments_come_from_their_folder_only(shell: Shell, path: str) -> None:
    (shell.folder / "p.json").write_text("{}")
    (shell.folder / "out").mkdir()

    said = shell(*FLAGS, "--attach", path, code=2, STAFFETTA_ATTACHMENTS__BASE_PATH="out")

    assert "attachments[0]: " in said.err
    assert 0 == kept(shell)


def test_the_same_key_gives_the_same_id(shell: Shell) -> None:
    first, second = (shell(*FLAGS, "--key", "order-1").out for _ in range(2))

    assert first == second
    assert 1 == kept(shell)


def test_the_same_key_with_another_content_is_refused(shell: Shell) -> None:
    shell(*FLAGS, "--key", "order-1")

    said = shell(*FLAGS, "--key", "order-1", "--tag", "other", code=1)

    assert "idempotency key" in said.err


def test_a_known_id_is_kept_once_or_refused(shell: Shell) -> None:
    id = "0198f0a0-0000-7000-8000-000000000001"
    assert [id] == shell(*FLAGS, "--id", id).lines == shell(*FLAGS, "--id", id).lines

    assert "known with another content" in shell(*FLAGS, "--id", id, "--tag", "other", code=1).err
    assert 1 == kept(shell)


# ------------------------------------------------------------------------------------------ many


def test_json_lines_print_an_id_each_in_their_order(shell: Shell) -> None:
    said = shell("send", "--jsonl", "-", stdin="".join(line(n, company_id=f"c{n}") for n in range(3)) + "\n\n")

    assert [f"c{n}" for n in range(3)] == [story(shell, id)["company_id"] for id in said.lines]
    assert "3 handed in, 0 refused\n" == said.err


def test_wrong_lines_are_named_by_number_and_the_right_ones_kept(shell: Shell) -> None:
    """Of a night's export nobody wants to start again at line 1."""
    lines = line(1) + "not json\n" + line(3, subject="") + '{"to": 7}\n' + line(5) + "[" * 50_000 + "\n"
    said = shell("send", "--jsonl", "-", "--json", stdin=lines, code=2)

    assert ["READY", "READY"] == [one["status"] for one in said.jsonl]
    assert 2 == kept(shell)
    for number, words in (
        (2, "not valid JSON"),
        (3, "subject: "),
        (4, "to: must be"),
        (6, "nested too deeply"),
    ):
        assert any(text.startswith(f"line {number}: ") and words in text for text in said.err.splitlines())
    assert said.err.endswith("2 handed in, 4 refused\n")


def test_lines_come_from_a_file_too(shell: Shell) -> None:
    (shell.folder / "many.jsonl").write_text("".join(line(n) for n in range(5)))

    assert 5 == len(shell("send", "--jsonl", "many.jsonl").lines)
    assert 2 == len(shell("send", "-", stdin=line(1) + line(2)).lines), "a dash alone means the same"
    assert "missing.jsonl" in shell("send", "--jsonl", "missing.jsonl", code=1).err


def test_ten_thousand_are_told_as_they_go(shell: Shell) -> None:
    """Plain lines where nobody watches: a log shows how far it is."""
    said = shell("send", "--jsonl", "-", stdin="".join(line(n) for n in range(10_000)))

    assert 10_000 == len(set(said.lines))
    assert ["5000 handed in, 0 refused", "10000 handed in, 0 refused"] == said.err.splitlines()[:2]


def test_on_a_terminal_it_is_a_bar(shell: Shell, tmp_path: Path) -> None:
    """On standard error: the ids on standard output stay clean for a pipe."""
    (shell.folder / "many.jsonl").write_text("".join(line(n) for n in range(1_500)))
    leader, follower = pty.openpty()
    done = subprocess.Popen(
        shell.command("send", "--jsonl", "many.jsonl"), cwd=shell.folder,
        env={**shell.environment, "TERM": "xterm", "COLUMNS": "80"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    ids, _ = done.communicate(timeout=PATIENCE_SECONDS)
    shown = os.read(leader, 1 << 20).decode()
    os.close(leader)

    assert 0 == done.returncode
    assert 1_500 == len(ids.splitlines())
    assert "/1500" in shown
    assert "1500 handed in, 0 refused" in shown
