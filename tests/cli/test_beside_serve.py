"""Commands beside a running `serve`: what they change takes effect within a second, and they never disturb it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from doubles import shell as shells
from doubles.shell import Program, Shell

pytestmark = pytest.mark.xdist_group("beside")
"""One service for all of them: they share it, and its process."""

EFFECT_SECONDS = 1.0
SLACK_SECONDS = 9.0
"""What a busy machine may take on top: the promise is a second, the test is not about this machine."""
RELAY = """
[[rule]]
at = "rcpt"
recipient = "gone@*"
reply = "550 5.1.1 No such user here"
count = 1
per = "recipient"
"""
FLAGS = ("send", "--from", "shop@example.com", "--subject", "Hello", "--text", "Hi")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("beside"))
    (shell.folder / "relay.toml").write_text(RELAY)
    return shell


@pytest.fixture(scope="module")
def api(shell: Shell) -> Iterator[str]:
    """A service and its relay, once for all tests here."""
    with shells.sink(shell, "--script", "relay.toml", "--log", "taken.jsonl") as (transport, _):
        shell.environment["STAFFETTA_TRANSPORT"] = transport
        with shells.serve(shell) as (url, _):
            yield url


def until(look: Callable[[], Any], wanted: Any) -> float:
    """Look again until it is so; how long that took. The other side is another process: there is no signal."""
    began = time.monotonic()
    while (found := look()) != wanted:
        if time.monotonic() - began > EFFECT_SECONDS + SLACK_SECONDS:
            raise AssertionError(f"it stayed {found!r}, {wanted!r} was wanted")
        time.sleep(0.05)
    return time.monotonic() - began


def sent_to(shell: Shell, address: str, *more: str) -> str:
    return shell(*FLAGS, "--to", address, *more).lines[0]


def status_of(shell: Shell, id: str) -> str:
    return str(shell("show", id, "--json").json["status"])


def test_what_is_sent_by_command_leaves_within_a_second(shell: Shell, api: str) -> None:
    id = sent_to(shell, "ada@example.org")

    until(lambda: status_of(shell, id), "SENT")


def test_a_pause_holds_and_a_resume_lets_go(shell: Shell, api: str) -> None:
    """All, a company, a transport: each binds the running engine."""
    for narrow, more in (
        ((), ()),
        (("--company", "acme"), ("--company", "acme")),
        (("--transport", "relay"), ()),
    ):
        shell("pause", *narrow)
        held: list[str] = []

        def holds(more: tuple[str, ...] = more, held: list[str] = held) -> bool:
            held.append(sent_to(shell, "ada@example.org", *more))
            time.sleep(0.3)  # what leaves leaves sooner than this
            return status_of(shell, held[-1]) == "READY"

        until(holds, wanted=True)
        id = held[-1]
        if narrow == ("--company", "acme"):
            other = sent_to(shell, "bob@example.org", "--company", "bistro")
            until(partial(status_of, shell, other), "SENT")
        told = shell("status", "--json").json["paused"]
        assert "READY" == status_of(shell, id)
        assert 1 == len(told)
        assert "PAUSED since " in shell("status").out
        shell("resume", *narrow)
        until(partial(status_of, shell, id), "SENT")


def test_a_failed_one_is_sent_again_by_command(shell: Shell, api: str) -> None:
    """Refused once, mended, retried: SENT, and no dead letter is left."""
    id = sent_to(shell, "gone@example.org")
    until(lambda: status_of(shell, id), "FAILED")

    assert [id] == shell("dlq", "retry", id).lines

    until(lambda: status_of(shell, id), "SENT")
    assert [] == shell("dlq", "list", "--json").json


def test_a_waiting_one_is_cancelled_by_command(shell: Shell, api: str) -> None:
    id = sent_to(shell, "ada@example.org", "--send-at", "2999-01-01T00:00:00Z")

    shell("cancel", id)

    assert "FAILED" == status_of(shell, id)
    with urllib.request.urlopen(f"{api}/v1/emails/{id}", timeout=10) as answer:
        assert json.load(answer)["reason"].startswith("CANCELLED: ")


def test_figures_of_the_running_engine_are_shown(shell: Shell, api: str) -> None:
    """They live in its process; it writes them to the store every second."""
    sent_to(shell, "ada@example.org", "--company", "figures-inc")

    def known() -> bool:
        return "figures-inc" in {one["company_id"] for one in shell("tenants", "--json").json}

    until(known, wanted=True)
    (told,) = (one for one in shell("tenants", "--json").json if one["company_id"] == "figures-inc")
    assert {
        "roundsWithoutProcessing", "currentPriority", "consecutiveBatchCount", "totalProcessed", "lastProcessedAt",
    } <= set(told)  # fmt: skip


def test_a_weight_changes_while_it_runs(shell: Shell, api: str) -> None:
    sent_to(shell, "ada@example.org", "--company", "heavy")

    assert "heavy now weighs 3" in shell("tenants", "weight", "heavy", "3").out

    def weight() -> float | None:
        return next(
            (one["weight"] for one in shell("tenants", "--json").json if one["company_id"] == "heavy"), None
        )

    until(weight, 3.0)


def test_doctor_sees_the_service_and_its_relay(shell: Shell, api: str) -> None:
    told = {one["part"]: one for one in shell("doctor", "--json").json}

    assert all(one["ok"] for one in told.values()), told
    assert "workers alive: process" in told["store"]["words"]
    assert "250" in told["transport relay"]["words"]


def test_a_second_service_is_refused_with_the_first_ones_process(shell: Shell, api: str) -> None:
    """Two owners of one file would damage each other."""
    for command in ("serve", "work", "api"):
        said = shell.process(command, code=1, STAFFETTA_LISTEN="127.0.0.1:0")

        assert "is owned by process" in said.err


def test_a_thousand_lines_beside_it_are_all_sent(shell: Shell, api: str) -> None:
    """Handing in by command and sending share the file; neither waits long, none is lost or doubled."""
    lines = "".join(
        json.dumps({"from": "a@b.example", "to": f"many-{n}@example.org", "subject": "s", "body_text": "b"})
        + "\n"
        for n in range(1_000)
    )
    ids = set(shell("send", "--jsonl", "-", stdin=lines).lines)
    assert 1_000 == len(ids)

    def waiting() -> int:
        emails = shell("status", "--json").json["emails"]
        return int(emails["READY"] + emails["PROCESSING"])

    began = time.monotonic()
    while waiting() and time.monotonic() - began < 30:
        time.sleep(0.1)
    log = (shell.folder / "taken.jsonl").read_text().splitlines()
    many = [one for line in log for one in json.loads(line)["recipients"] if one.startswith("many-")]
    assert 1_000 == len(many) == len(set(many))


def test_keys_bind_the_running_service_within_a_second(shell: Shell, api: str) -> None:
    """The last test here: with the first key, every call needs one."""

    def answered(key: str = "") -> int:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{api}/v1/emails", headers=headers), timeout=10
            ) as got:
                return int(got.status)
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code

    assert 200 == answered()
    made = shell("keys", "create", "--role", "read", "--company", "acme", "--note", "test", "--json").json
    assert made["key"].startswith("sk_")
    until(answered, 401)
    assert 200 == answered(made["key"])
    listed = shell("keys", "list", "--json")
    assert [(made["id"], "read", "acme", "test", None)] == [
        tuple(one[name] for name in ("id", "role", "company_id", "note", "revoked_at")) for one in listed.json
    ]
    assert made["key"] not in listed.out
    shell("keys", "revoke", made["id"])
    until(lambda: answered(made["key"]), 401)


def test_an_orderly_stop_leaves_nothing_in_work(tmp_path: Path) -> None:
    """SIGTERM in the middle of a thousand: what is in flight ends or goes back, and the rest waits for the next start."""
    shell = Shell(tmp_path)
    lines = "".join(
        json.dumps({"from": "a@b.example", "to": f"x-{n}@example.org", "subject": "s", "body_text": "b"}) + "\n"
        for n in range(1_000)
    )
    shell("send", "--jsonl", "-", stdin=lines)
    with shells.sink(shell, "--log", "taken.jsonl") as (transport, _):
        for _ in range(2):
            with shells.serve(
                shell, STAFFETTA_TRANSPORT=transport, STAFFETTA_TRANSPORT__MESSAGES_PER_SECOND="200"
            ):
                time.sleep(0.5)
            emails = shell("status", "--json").json["emails"]
            assert 1_000 == emails["SENT"] + emails["READY"]
        log = (tmp_path / "taken.jsonl").read_text().splitlines()
        taken = [one for line in log for one in json.loads(line)["recipients"]]
        assert emails["SENT"] == len(taken) == len(set(taken))


def test_work_sends_without_an_api(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    id = shell(*FLAGS, "--to", "ada@example.org").lines[0]
    running = Program(shell, "work", STAFFETTA_TRANSPORT="sink://")
    try:
        running.told("Staffetta is ready")
        until(lambda: status_of(shell, id), "SENT")
    finally:
        assert 0 == running.stop()


def test_api_takes_in_and_sends_nothing(tmp_path: Path) -> None:
    """Only the door: it needs no transport."""
    shell = Shell(tmp_path)
    running = Program(shell, "api", STAFFETTA_LISTEN="127.0.0.1:0")
    try:
        url = running.told("Staffetta is ready")["api"]
        body = json.dumps(
            {"from": "a@b.example", "to": "c@d.example", "subject": "s", "body_text": "b"}
        ).encode()
        asked = urllib.request.Request(f"{url}/v1/emails", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            id = json.load(answer)["id"]
    finally:
        assert 0 == running.stop()

    assert "READY" == status_of(shell, id)
