"""SIGKILL just before and just after every commit, every write to a network and every read."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of, rounds
from staffetta.failpoints import POINTS

PER_SECOND = 200
ROOMS = sorted({point.partition(".")[0] for point in POINTS})
SENDING = sorted(point for point in POINTS if point.startswith(("transport.", "flow.", "keeper.")))
"""Those that a sending process comes to."""
SHARE = ("flow.marked", "keeper.after-write", "transport.read")
ERRORS = sorted(
    point for point in POINTS if point.startswith(("store.", "spool.")) or point == "transport.read"
)
"""Those where a driver may fail instead of the process. (A callback that fails there comes again, but by and by.)"""
SELDOM = ("spool.", "http.")
"""Large content and callbacks: not so many of them."""


def points_of(room: str) -> list[str]:
    return sorted(point for point in POINTS if point.partition(".")[0] == room)


@pytest.mark.parametrize("room", ROOMS)
def test_a_process_that_dies_there_loses_and_doubles_nothing(tmp_path: Path, room: str) -> None:
    through(tmp_path, points_of(room), times=1)


def test_a_sending_process_that_dies_there_takes_nobody_with_it(tmp_path: Path) -> None:
    """The keeper goes on, takes its claims back at once, and starts another."""
    through_senders(tmp_path, [*SHARE])


def test_a_driver_that_fails_there_costs_nothing_but_time(tmp_path: Path) -> None:
    """A commit whose answer was lost may have taken effect: it is looked up, never made twice."""
    seed, chance = chance_of()
    with Ordeal(tmp_path, seed=seed) as ordeal:
        with ordeal.calling(PER_SECOND):
            for point in ERRORS:
                ordeal.start(wait=False, STAFFETTA_FAILPOINT=f"{point}:error:{_count(point, chance.random())}")
                ordeal.until_ready()
                ordeal.call(100)
                ordeal.until_done_with(ordeal.answered + 60)
                ordeal.stop()
            ordeal.start()
        check(ordeal.finish())


@pytest.mark.soak
def test_at_every_failpoint_again_and_again(tmp_path: Path) -> None:
    times = rounds(100)
    through(tmp_path, sorted(POINTS), times=times)


@pytest.mark.soak
def test_sending_processes_at_every_failpoint_again_and_again(tmp_path: Path) -> None:
    through_senders(tmp_path, SENDING * rounds(200))


def through(folder: Path, points: list[str], *, times: int) -> None:
    seed, chance = chance_of()
    with Ordeal(folder, seed=seed) as ordeal:
        with ordeal.calling(PER_SECOND):
            for point in points * times:
                count = _count(point, chance.random())
                print(f"{point}:kill:{count}")
                processes = "2" if point.startswith("keeper.") else "1"
                ordeal.start("--processes", processes, wait=False, STAFFETTA_FAILPOINT=f"{point}:kill:{count}")
                assert 9 == ordeal.until_dead(), point
            ordeal.start()
        check(ordeal.finish())


def through_senders(folder: Path, points: list[str]) -> None:
    seed, chance = chance_of()
    with Ordeal(folder, seed=seed) as ordeal:
        with ordeal.calling(PER_SECOND):
            for number, point in enumerate(points, 1):
                count = _count(point, chance.random())
                print(f"{point}:kill:{count}")
                ordeal.start(
                    "--processes", "2", wait=False, STAFFETTA_FAILPOINT_SENDING=f"{point}:kill:{count}"
                )
                ordeal.until_said("a sending process ended", number)
                ordeal.until_ready()
                ordeal.stop()
            ordeal.start()
        check(ordeal.finish())


def _count(point: str, drawn: float) -> int:
    """For the how manieth time: sometimes at once, sometimes in the middle of the work."""
    return 1 if point.startswith(SELDOM) else 1 + int(drawn * 60)
