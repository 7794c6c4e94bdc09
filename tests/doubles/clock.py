"""A clock that is turned: an event loop whose time jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_800_000_000_000
"""When the turned clock starts: a day in January 2027."""


class Stuck(AssertionError):
    """Nothing can ever happen again: everybody waits for something that nobody will do."""


class _Selector(selectors.DefaultSelector):
    loop: TurnedLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("everybody waits, and no timer is set")
        self.loop.turn(timeout)
        return super().select(0)


class TurnedLoop(asyncio.SelectorEventLoop):
    """Time stands still while there is something to do, then jumps to the next timer. Without threads or sockets."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self._turned = 0.0
        self.shift_ms = 0
        super().__init__(selector)

    def time(self) -> float:
        return self._turned

    def turn(self, seconds: float) -> None:
        self._turned += max(0.0, seconds)

    def clock(self) -> int:
        """The wall clock, which may jump (`shift_ms`) while timers go on."""
        return EPOCH_MS + int(self._turned * 1000) + self.shift_ms


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test under a turned clock; an hour takes no time."""
    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        return runner.run(work())


def turned() -> TurnedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TurnedLoop), "this double belongs under `run`"
    return loop
