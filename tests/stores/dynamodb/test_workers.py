"""Real `staffetta work` processes on one table: each e-mail is sent by one of them, whoever dies on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.letters import email_id
from doubles.dynamodb_local import DynamoDBLocal
from doubles.seeds_table import SeedsProgram
from doubles.shell import Program, Shell, program, sink
from staffetta.store.dynamodb import DynamoStore, read
from staffetta.store.dynamodb.values import moment

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("dynamodb workers")]

SETTINGS = {
    "STAFFETTA_DELIVERY__CONCURRENCY": "8",
    "STAFFETTA_DELIVERY__IN_DOUBT_DELAY": "1s",
    "STAFFETTA_RESTORE__INTERVAL": "500ms",
    "STAFFETTA_WORKER__HEARTBEAT": "500ms",
    "STAFFETTA_WORKER__DEAD_AFTER": "4s",
    "STAFFETTA_LOG__LEVEL": "info",
}
SLOW = '[[rule]]\nat = "rcpt"\nevery = 1\nreply = "250 2.1.5 Ok"\ndelay_ms = 300\n'
"""Every e-mail takes a while, so that whoever is killed holds some."""
PATIENCE_SECONDS = 75.0


@pytest.fixture
def shell(tmp_path: Path, dynamodb_local: DynamoDBLocal) -> Iterator[Shell]:
    """A table of its own, and a slow relay that writes down what it takes."""
    shell = Shell(tmp_path, **SETTINGS, STAFFETTA_STORE=dynamodb_local.url(dynamodb_local.table()))
    (tmp_path / "slow.toml").write_text(SLOW)
    shell("migrate")
    with sink(shell, "--log", "taken.jsonl", "--script", "slow.toml") as (address, _):
        shell.environment["STAFFETTA_TRANSPORT"] = address
        yield shell


def hand_in(shell: Shell, count: int) -> list[str]:
    lines = [
        json.dumps({"company_id": f"c{n % 5}", "from": "a@example.com", "to": f"b{n}@example.com", "subject": "s",
                    "body_text": "t"})
        for n in range(count)
    ]  # fmt: skip
    return shell("send", "--jsonl", "-", stdin="\n".join(lines)).lines


def taken(shell: Shell) -> Counter[str]:
    """How often each recipient's message was taken by the relay."""
    text = (shell.folder / "taken.jsonl").read_text() if (shell.folder / "taken.jsonl").exists() else ""
    return Counter(one for line in text.splitlines() for one in json.loads(line)["recipients"])


def until(shell: Shell, status: str, count: int) -> None:
    """Until so many e-mails have come so far: processes have no other way to tell a test."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        counts = shell("status", "--json").json["emails"]
        if counts[status] >= count:
            return
        assert time.monotonic() < ends, counts
        time.sleep(0.2)


def until_taken(shell: Shell, count: int) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while len(taken(shell)) < count:
        assert time.monotonic() < ends, taken(shell)
        time.sleep(0.05)


@contextlib.contextmanager
def working(shell: Shell) -> Iterator[Program]:
    with program(shell, "work") as running:
        running.told("Staffetta is ready")
        yield running


def test_two_workers_share_what_there_is_and_nothing_is_sent_twice(shell: Shell) -> None:
    with working(shell) as first, working(shell) as second:
        ids = hand_in(shell, 40)
        until(shell, "SENT", len(ids))

    assert taken(shell) == Counter({f"b{n}@example.com": 1 for n in range(40)})
    sent = [sum('"Job sent"' in line for line in one.heard) for one in (first, second)]
    assert sum(sent) == 40
    assert min(sent) > 0
    lost = sum("failed to acquire processing lock" in line for one in (first, second) for line in one.heard)
    assert lost == 0


def test_what_a_killed_worker_held_comes_back_and_nothing_is_lost(shell: Shell) -> None:
    ids = hand_in(shell, 40)
    killed = Program(shell, "work")
    killed.told("Staffetta is ready")
    with working(shell):
        until_taken(shell, 4)
        killed.stop(signal.SIGKILL)
        until(shell, "SENT", len(ids))

    counted = taken(shell)
    assert set(counted) == {f"b{n}@example.com" for n in range(40)}
    # Twice only where the dot had left and no answer was read: then the rule sends once more, and says so.
    doubled = {address for address, times in counted.items() if times > 1}
    doubts = [
        id
        for id in ids
        if any(one["cause"] == "in-doubt" for one in shell("show", id, "--json").json["history"])
    ]
    assert len(doubled) <= len(doubts) <= 8


def test_a_paused_worker_sends_nothing_twice_when_it_wakes(shell: Shell) -> None:
    with working(shell) as paused:
        ids = hand_in(shell, 24)
        until_taken(shell, 3)
        paused.receives(signal.SIGSTOP)
        try:
            with working(shell):
                until(shell, "SENT", len(ids))
                paused.receives(signal.SIGCONT)
        finally:
            paused.receives(signal.SIGCONT)

    doubled = {address for address, times in taken(shell).items() if times > 1}
    doubts = [
        id
        for id in ids
        if any(one["cause"] == "in-doubt" for one in shell("show", id, "--json").json["history"])
    ]
    assert len(doubled) <= len(doubts)


def test_what_the_seeds_program_brings_is_sent_too(shell: Shell) -> None:
    """It knows the table, its own statements and a folder of payload files, and nothing of us."""
    payloads = shell.folder / "in"
    payloads.mkdir()
    ids = {"brought": email_id(1), "made ready": email_id(2)}
    for name in ids:
        told = {
            "from": "a@example.com",
            "to": f"{name.replace(' ', '.')}@example.com",
            "subject": "s",
            "body_text": "t",
        }
        (payloads / f"{name}.json").write_text(json.dumps(told))

    async def bring() -> None:
        store = DynamoStore(read(shell.environment["STAFFETTA_STORE"]))
        at = moment(time.time_ns() // 1_000_000)
        theirs = SeedsProgram(store.wire, store.place.table)
        for name, id in ids.items():
            await theirs.create(id, payload_path=str(payloads / f"{name}.json"), at=at)
        assert await theirs.move(ids["made ready"], "ACCEPTED", "INTAKING", at=at)
        assert await theirs.move(ids["made ready"], "INTAKING", "READY", at=at)
        await store.close()

    asyncio.run(bring())
    shell.environment["STAFFETTA_STORE__SHARED"] = "true"
    shell.environment["STAFFETTA_INTAKE__PAYLOAD_BASE_PATH"] = str(payloads)
    with working(shell):
        until(shell, "SENT", 2)

    assert taken(shell) == Counter({"brought@example.com": 1, "made.ready@example.com": 1})
