"""Several `staffetta work` processes on one database, each with a queue of its own: parted, fair, and safe when one of
them is killed, sleeps or leaves. Real processes, real SMTP, a sink that logs what it took before it answers.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from doubles.databases import Server, mariadb
from doubles.shell import Program, Shell, sink

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]
COMPANIES = ("acme", "bolt", "corn", "dune")
SLOW = '[[rule]]\nat = "mail"\ndelay_ms = 40\n'
PATIENCE_SECONDS = 90.0


class Yard:
    """One database, one sink, and as many workers as a test starts."""

    def __init__(self, server: Server, folder: Path, stack: ExitStack) -> None:
        self.server = server
        self.database = server.emptied()
        folder.mkdir(exist_ok=True)
        self._stack = stack
        self.log = folder / "taken.jsonl"
        script = folder / "script.toml"
        script.write_text(SLOW)
        self.shell = Shell(
            folder,
            STAFFETTA_STORE=server.url(self.database),
            STAFFETTA_WORKER__HEARTBEAT="500ms",
            STAFFETTA_WORKER__DEAD_AFTER="3s",
            STAFFETTA_RESTORE__INTERVAL="500ms",
            STAFFETTA_DELIVERY__CONCURRENCY="20",
            STAFFETTA_DELIVERY__IN_DOUBT_DELAY="1s",
            STAFFETTA_DELIVERY__SHUTDOWN_GRACE="2s",
        )
        address, _ = stack.enter_context(sink(self.shell, "--log", str(self.log), "--script", str(script)))
        self.shell.environment["STAFFETTA_TRANSPORT"] = address
        self.workers: list[Program] = []

    def fill(self, count: int) -> None:
        lines = [
            json.dumps({"company_id": COMPANIES[n % len(COMPANIES)], "from": "us@example.com", "subject": f"no {n}",
                        "to": f"you{n}@example.org", "body_text": "hello"})
            for n in range(count)
        ]  # fmt: skip
        self.shell("send", "--jsonl", "-", stdin="\n".join(lines))

    def start(self) -> Program:
        worker = Program(self.shell, "work")
        self._stack.callback(_ended, worker)
        worker.told("Staffetta is ready")
        self.workers.append(worker)
        return worker

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.ask(sql, database=self.database)

    def count(self, *statuses: str) -> int:
        names = ", ".join(f"'{status}'" for status in statuses)
        return int(self.ask(f"SELECT COUNT(*) FROM emails WHERE status IN ({names})")[0][0])

    def until(self, holds: Callable[[], bool], why: str) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, (
                f"{why}: {self.ask('SELECT status, COUNT(*) FROM emails GROUP BY 1')}"
            )
            time.sleep(0.05)

    def taken(self) -> Counter[str]:
        """How often the sink accepted each message."""
        lines = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        return Counter(json.loads(line)["message_id"] for line in lines)

    def doubts(self) -> int:
        return int(self.ask("SELECT COALESCE(SUM(doubts), 0) FROM emails")[0][0])

    def shares(self) -> Counter[str]:
        """Claims by worker: a token names its worker before the first dot."""
        rows = self.ask("SELECT SUBSTRING_INDEX(token, '.', 1) FROM email_statuses WHERE status = 'PROCESSING'")
        return Counter(name for (name,) in rows)


def _ended(worker: Program) -> None:
    worker.receives(signal.SIGCONT)
    worker.stop(signal.SIGKILL)


@pytest.fixture
def yard(mariadb_server: Server, tmp_path: Path) -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(mariadb_server, tmp_path, stack)


def test_two_workers_share_the_work_and_hand_no_email_to_both(yard: Yard) -> None:
    """Parted by ids: no claim is lost, every company is served by both, an orderly stop leaves nothing in work."""
    workers = [yard.start(), yard.start()]
    # Both must have heard of each other: from then on the parts stand still.
    yard.until(lambda: yard.ask("SELECT COUNT(*) FROM staffetta_workers WHERE feeds")[0][0] == 2, "both live")
    time.sleep(2.0)
    yard.fill(400)
    yard.until(lambda: yard.count("SENT") == 400, "not all were sent")
    assert set(yard.taken().values()) == {1}
    assert len(yard.taken()) == 400
    shares = yard.shares()
    assert sum(shares.values()) == 400, "every claim was the only one of its e-mail"
    assert len(shares) == 2
    assert min(shares.values()) > 100
    for worker in workers:
        assert worker.stop() == 0
        assert not [line for line in worker.heard if "failed to acquire processing lock" in line]
    assert yard.ask("SELECT COUNT(*) FROM staffetta_workers WHERE feeds") == [(0,)]


def test_what_a_killed_worker_held_comes_back(yard: Yard) -> None:
    """Its claims after `dead_after`, and what it had only read for its queue at once with its part of the work."""
    victim, _ = yard.start(), yard.start()
    yard.fill(400)
    yard.until(lambda: yard.count("SENT") > 60, "nobody began")
    victim.receives(signal.SIGKILL)
    killed = time.monotonic()
    yard.until(lambda: yard.count("SENT") == 400, "some never came back")
    assert time.monotonic() - killed < 75
    assert sum(times - 1 for times in yard.taken().values()) <= yard.doubts()
    assert len(yard.taken()) == 400
    assert yard.doubts() <= 20, "no more than it had in flight"


def test_a_sleeper_sends_nothing_twice_when_it_wakes(yard: Yard) -> None:
    """It was taken for dead and overtaken: its claims are no longer its own, and the marks that it asks for are refused."""
    sleeper, _ = yard.start(), yard.start()
    yard.fill(400)
    yard.until(lambda: yard.count("SENT") > 60, "nobody began")
    sleeper.receives(signal.SIGSTOP)
    yard.until(lambda: yard.count("SENT") == 400, "some never came back")
    sleeper.receives(signal.SIGCONT)
    yard.until(
        lambda: yard.ask("SELECT COUNT(*) FROM staffetta_workers WHERE feeds")[0][0] == 2, "it never woke"
    )
    yard.fill(40)
    yard.until(lambda: yard.count("SENT") == 440, "it does not work any more")
    assert sum(times - 1 for times in yard.taken().values()) <= yard.doubts()
    assert len(yard.taken()) == 440
    assert yard.count("PROCESSING", "INTAKING") == 0


def test_the_server_is_killed_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    """A database that dies and comes back, set as the guide says: work goes on by itself; what was in doubt follows
    its rule, no more."""
    durable = ("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1")
    with mariadb(tmp_path / "server", *durable) as server, ExitStack() as stack:
        yard = Yard(server, tmp_path / "yard", stack)
        yard.start()
        yard.fill(300)
        yard.until(lambda: yard.count("SENT") > 60, "nobody began")
        server.kill()
        server.start()
        yard.until(lambda: yard.count("SENT") == 300, "some were never sent")
        assert len(yard.taken()) == 300
        assert sum(times - 1 for times in yard.taken().values()) <= yard.doubts()
