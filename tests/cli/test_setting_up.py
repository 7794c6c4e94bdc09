"""`doctor`, `migrate`, `keys`, `sink`: what somebody types while setting up, and the remedy for each trouble."""

from __future__ import annotations

import json
import smtplib
import socket
from pathlib import Path

import pytest

from doubles import shell as shells
from doubles.shell import Shell


def findings(shell: Shell, code: int = 0, **settings: str) -> dict[str, dict[str, object]]:
    return {one["part"]: one for one in shell("doctor", "--json", code=code, **settings).json}


def test_doctor_in_an_empty_folder_names_the_one_thing_missing(shell: Shell) -> None:
    """Nothing is made by looking: no store, no spool."""
    told = findings(shell, code=1)

    assert ["transport"] == [part for part, one in told.items() if not one["ok"]]
    assert "STAFFETTA_TRANSPORT=" in str(told["transport"]["remedy"])
    assert [] == list(shell.folder.iterdir())


def test_doctor_is_content_where_all_is_well(shell: Shell) -> None:
    said = shell("doctor", STAFFETTA_TRANSPORT="sink://")

    assert "BAD" not in said.out
    assert "transport.url = sink:// (from the environment variable STAFFETTA_TRANSPORT)" in said.out


def test_doctor_names_each_trouble_with_its_remedy(shell: Shell) -> None:
    """All of them at once: whoever sets up mends them in one go."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        told = findings(
            shell, code=1, STAFFETTA_TRANSPORT=f"smtp://127.0.0.1:{port}?tls=none#relay",
            STAFFETTA_CALLBACK_URL=f"http://127.0.0.1:{port}/", STAFFETTA_LISTEN="0.0.0.0:8025",
            STAFFETTA_ATTACHMENTS__BASE_PATH="not-there", STAFFETTA_INTAKE__PAYLOAD_BASE_PATH="nor-there",
        )  # fmt: skip

    bad = {part for part, one in told.items() if not one["ok"]}
    assert {"transport relay", "callback", "keys", "folder of attachments", "folder of payload files"} == bad
    assert all(told[part]["remedy"] for part in bad)


def test_doctor_refuses_a_database_of_someone_elses(shell: Shell) -> None:
    import sqlite3

    with sqlite3.connect(shell.folder / "staffetta.db") as other:
        other.execute("CREATE TABLE customers (name TEXT)")
    other.close()

    assert "is a database of another program" in str(
        findings(shell, code=1, STAFFETTA_TRANSPORT="sink://")["store"]
    )
    assert "is a database of another program" in shell("status", code=1).err


def test_migrate_makes_a_store_and_is_safe_to_repeat(shell: Shell) -> None:
    assert shell("migrate").out.strip()
    assert "up to date: nothing to do" in shell("migrate").out


def test_a_store_that_a_later_release_wrote_is_left_alone(shell: Shell) -> None:
    import apsw

    shell("migrate")
    with apsw.Connection(str(shell.folder / "staffetta.db")) as db:
        db.pragma("user_version", 999)
    db.close()

    for command in ("status", "migrate", "serve"):
        said = shell.process(command, code=1, STAFFETTA_TRANSPORT="sink://", STAFFETTA_LISTEN="127.0.0.1:0")
        assert "later release" in said.err


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8025"])
def test_without_a_key_serve_refuses_other_addresses(shell: Shell, listen: str) -> None:
    """Nobody puts an open relay on the network by a line in a file."""
    said = shell.process("serve", code=2, STAFFETTA_TRANSPORT="sink://", STAFFETTA_LISTEN=listen)

    assert "api.listen" in said.err
    assert "keys create" in said.err


def test_a_key_is_shown_once(shell: Shell) -> None:
    """On standard output alone, so that it goes into a file and its advice does not."""
    said = shell("keys", "create", "--role", "send", "--all-companies")
    (key,) = said.lines

    assert key.startswith("sk_")
    assert "not shown again" in said.err
    assert key not in (shell.folder / "staffetta.db").read_bytes().decode("latin-1")
    id = shell("keys", "list", "--json").json[0]["id"]
    assert [id] == shell("keys", "revoke", id).lines
    assert shell("keys", "list", "--json").json[0]["revoked_at"]
    assert "(all)" in shell("keys", "list").out
    assert shell("keys", "revoke", "unknown", code=1).err


# ------------------------------------------------------------------------------------------ the sink


def test_a_sink_says_its_port_first_and_logs_before_it_answers(shell: Shell) -> None:
    """The counter of every crash test: what is not in its log was not acknowledged."""
    with shells.sink(shell, "--log", "taken.jsonl") as (transport, _):
        port = int(transport.partition(":")[2].rpartition(":")[2].partition("?")[0])
        with smtplib.SMTP("127.0.0.1", port, timeout=10) as caller:
            caller.sendmail("a@b.example", ["c@d.example", "e@f.example"], "Message-ID: <1@x>\r\n\r\nhello\r\n")
            (line,) = (shell.folder / "taken.jsonl").read_text().splitlines()

    told = json.loads(line)
    assert ["c@d.example", "e@f.example"] == told["recipients"]
    assert "<1@x>" in json.dumps(told)
    assert {"size", "sha256"} <= set(told)


def test_a_sinks_script_answers_as_it_says(shell: Shell) -> None:
    (shell.folder / "s.toml").write_text(
        '[[rule]]\nat = "rcpt"\nrecipient = "gone@*"\nreply = "550 5.1.1 gone"\n'
        '[[rule]]\nat = "mail"\nsender = "second@*"\ncount = 1\nreply = "451 4.7.1 later"\n'
    )
    with shells.sink(shell, "--script", "s.toml") as (transport, _):
        port = int(transport.partition(":")[2].rpartition(":")[2].partition("?")[0])
        with smtplib.SMTP("127.0.0.1", port, timeout=10) as caller:
            caller.ehlo()
            assert [250, 550, 250] == [
                caller.mail("a@b.example")[0], caller.rcpt("gone@d.example")[0], caller.rcpt("c@d.example")[0]
            ]  # fmt: skip
            caller.rset()
            assert 451 == caller.mail("second@b.example")[0]
            caller.rset()
            assert 250 == caller.mail("second@b.example")[0]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('[[rule]]\nat = "lunch"\nreply = "450 x"\n', "at"),
        ('[[rule]]\nat = "rcpt"\nreply = "hello"\n', "reply"),
        ("[[rule]\n", "script"),
        ('colour = "red"\n', "colour"),
    ],
)
def test_a_wrong_script_is_named(shell: Shell, script: str, words: str) -> None:
    (shell.folder / "s.toml").write_text(script)

    said = shell.process("sink", "--port", "0", "--script", "s.toml", code=2)

    assert words in said.err


def test_a_port_in_use_is_said(shell: Shell, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = shell.process("sink", "--port", str(taken.getsockname()[1]), code=2)

    assert "--port: cannot listen on" in said.err
