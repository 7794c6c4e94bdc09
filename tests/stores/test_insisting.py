"""The runner that both shared databases use for errors that pass by themselves."""

from __future__ import annotations

import asyncio

import pytest

from staffetta.errors import LockNotAcquired
from staffetta.store.insisting import insist


class Busy(Exception):
    """A driver's error that passes by itself."""


class Script:
    """A transaction that fails so often, then answers; and the waits between."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.runs = 0
        self.waits: list[float] = []

    async def __call__(self) -> str:
        self.runs += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    async def pause(self, seconds: float) -> None:
        self.waits.append(seconds)


def passes(error: Exception) -> bool:
    return isinstance(error, Busy)


async def test_what_passes_is_run_again_from_its_start() -> None:
    """With the seed's waits between."""
    script = Script(*[Busy()] * 7)
    assert await insist(script, passes=passes, draw=lambda: 0.5, pause=script.pause) == "done"
    assert script.runs == 8
    assert [0.015, 0.030, 0.060, 0.120, 0.240, 0.480, 0.500] == script.waits


async def test_the_last_error_is_raised_as_it_is() -> None:
    """Whoever mends the database must see what it said last."""
    last = Busy("the eighth")
    script = Script(*[Busy()] * 7, last)
    with pytest.raises(Busy) as told:
        await insist(script, passes=passes, draw=lambda: 0.5, pause=script.pause)
    assert told.value is last
    assert script.runs == 8


@pytest.mark.parametrize("error", [LockNotAcquired(), ValueError("a bad row")], ids=["lost", "bad"])
async def test_what_does_not_pass_is_never_run_again(error: Exception) -> None:
    script = Script(error)
    with pytest.raises(type(error)):
        await insist(script, passes=passes, pause=script.pause)
    assert script.runs == 1


async def test_cancellation_ends_it_at_once() -> None:
    """In the midst of a wait too, with the cancellation and not with the database's error."""
    waiting = asyncio.Event()
    script = Script(*[Busy()] * 8)

    async def pause(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(insist(script, passes=passes, draw=lambda: 0.5, pause=pause))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert script.runs == 1
