"""The disk is full: callers hear that, nothing half is written, and all goes on by itself once there is room."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from doubles.disks import small_disk
from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of
from doubles.shell import Shell

MEGABYTES = 96
"""Room for what the test itself needs: SQLite's log alone may take 16."""
PAYLOAD = {
    "from": "a@example.com",
    "to": "b@example.org",
    "subject": "Order",
    "body_text": "On its way.\n" * 50,
}


@pytest.mark.service
@pytest.mark.parametrize("processes", ["1", "2"])
def test_work_stops_on_a_full_disk_and_goes_on_when_there_is_room(tmp_path: Path, processes: str) -> None:
    """What was sent meanwhile waits in memory until its record can be written; nothing new is begun."""
    seed, _ = chance_of()
    with small_disk(tmp_path / "disk", megabytes=MEGABYTES) as disk:
        with Ordeal(tmp_path, seed=seed, data=disk.path) as ordeal:
            ordeal.start("--processes", processes)
            with ordeal.calling(300):
                for _ in range(2):
                    ordeal.until_done_with(ordeal.answered + 150)
                    disk.fill()
                    until(lambda: ordeal.get("/readyz")[0] == 503)
                    assert "the disk is full; free some space" in ordeal.log.read_text()
                    disk.make_room()
                    until(lambda: ordeal.get("/readyz")[0] == 200)
            facts = ordeal.finish()
        check(facts)


@pytest.mark.service
def test_a_caller_hears_that_the_disk_is_full(tmp_path: Path) -> None:
    """And that trying again later is right: the same call is taken once there is room."""
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        shell = Shell(tmp_path, STAFFETTA_STORE=f"sqlite:///{disk.path / 'outbox.db'}")
        shell.process("migrate")
        disk.fill()
        lines = "".join(json.dumps({**PAYLOAD, "subject": f"Order {n}"}) + "\n" for n in range(50))
        said = shell.process("send", "--jsonl", "-", stdin=lines, code=1)
        assert "the disk is full; free some space" in said.err
        disk.make_room()
        assert 0 == sum(shell.process("status", "--json").json["emails"].values())
        assert 50 == len(shell.process("send", "--jsonl", "-", stdin=lines).lines)


def until(true: object, seconds: float = 20.0) -> None:
    assert callable(true)
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it never became so"
        time.sleep(0.05)
