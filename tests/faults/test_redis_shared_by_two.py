"""Two workers on one MariaDB and one Redis: each e-mail is sent by one of them, whoever of them is cut off or dies."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.databases import mariadb
from doubles.redis import SAFE, running
from doubles.shell import Program, Shell, sink
from doubles.wire import Wire, wire

pytestmark = pytest.mark.service
COUNT = 600
SCRIPT = '[[rule]]\nat = "dot"\nevery = 2\ndelay_ms = 40\n'
ENDS_WITHIN_SECONDS = 60.0


class Two:
    """The two workers, and what came of the e-mails."""

    def __init__(self, shell: Shell, taken: Path, way: Wire, first: Program, second: Program) -> None:
        self.shell = shell
        self.way = way
        self.first = first
        self.second = second
        """Its way to Redis can be cut."""
        self._taken = taken

    def hand_in(self, count: int) -> None:
        lines = [
            json.dumps({"company_id": f"company-{n % 7}", "from": "us@example.com", "to": f"user{n}@example.org",
                        "subject": f"Order {n}", "body_text": "It is on its way."})
            for n in range(count)
        ]  # fmt: skip
        self.shell.process("send", "--jsonl", "-", stdin="\n".join(lines))

    def taken(self) -> int:
        return len(self._taken.read_text().splitlines()) if self._taken.exists() else 0

    def until_taken(self, count: int) -> None:
        ends = time.monotonic() + ENDS_WITHIN_SECONDS
        while self.taken() < count:
            assert time.monotonic() < ends, f"only {self.taken()} of {count} were sent"
            time.sleep(0.05)

    def check(self, count: int) -> None:
        """Everything was sent, and nothing twice."""
        ends = time.monotonic() + ENDS_WITHIN_SECONDS
        while (counts := self.shell.process("status", "--json").json["emails"])["SENT"] < count:
            assert time.monotonic() < ends, counts
            time.sleep(0.2)
        copies = Counter(json.loads(line)["message_id"] for line in self._taken.read_text().splitlines())
        assert {1} == set(copies.values()), copies.most_common(3)
        assert count == len(copies)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    (tmp_path / "script.toml").write_text(SCRIPT)
    taken = tmp_path / "taken.jsonl"
    shell = Shell(
        tmp_path,
        STAFFETTA_DELIVERY__CONCURRENCY="20",
        STAFFETTA_TRANSPORT__CONNECTIONS="10",
        STAFFETTA_RESTORE__INTERVAL="1s",
        STAFFETTA_WORKER__HEARTBEAT="500ms",
        STAFFETTA_WORKER__DEAD_AFTER="4s",
        STAFFETTA_LISTEN="127.0.0.1:0",
        STAFFETTA_LOG__LEVEL="info",
    )
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(sink(shell, "--log", str(taken), "--script", "script.toml"))
        database = stack.enter_context(mariadb(tmp_path / "mariadb"))
        name = stack.enter_context(database.database())
        redis = stack.enter_context(running(tmp_path / "redis", *SAFE))
        way = stack.enter_context(wire(redis.port))
        shell.environment |= {
            "STAFFETTA_TRANSPORT": address,
            "STAFFETTA_STORE": database.url(name),
            "STAFFETTA_QUEUE": redis.url,
        }
        shell.process("migrate")
        cut = f"redis://127.0.0.1:{way.port}/0?timeout=1"
        workers = [Program(shell, "work"), Program(shell, "work", STAFFETTA_QUEUE=cut)]
        for worker in workers:
            stack.callback(worker.stop, signal.SIGKILL)
            worker.line(lambda line: "is ready" in line)
        yield Two(shell, taken, way, *workers)


def test_one_of_two_workers_is_cut_off_from_redis(two: Two) -> None:
    """The other one does its work; what the lonely one had in hand it ends, and nobody sends it again."""
    two.hand_in(COUNT)
    two.until_taken(COUNT // 6)
    two.way.cut = True
    two.until_taken(COUNT)
    two.way.cut = False
    two.check(COUNT)


def test_one_of_two_workers_dies(two: Two) -> None:
    """Its leases end, its claims are restored: an e-mail it had handed over without hearing the reply is in doubt."""
    two.hand_in(COUNT)
    two.until_taken(COUNT // 6)
    two.second.stop(signal.SIGKILL)
    two.until_taken(COUNT - 20)
    ends = time.monotonic() + ENDS_WITHIN_SECONDS
    while (emails := two.shell.process("status", "--json").json["emails"])["SENT"] + emails["READY"] < COUNT:
        assert time.monotonic() < ends, emails
        time.sleep(0.2)
    assert emails["READY"] <= 20, "more than it had in hand wait for the in-doubt delay"
