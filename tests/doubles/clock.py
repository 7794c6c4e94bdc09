"""A clock that is turned: an event loop whose time jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_MS = 1_800_000_000_000
"""When the turned clock starts: a day in January 2027."""


THREAD_SECONDS = 0.05
STUCK_SECONDS = 20.0


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

    selector: type[_Selector] = _Selector

    def __init__(self) -> None:
        selector = self.selector()
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


class _Patient(_Selector):
    loop: TalkingLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        # What is written to this machine is there at once; only threads take real time.
        ready = selectors.DefaultSelector.select(self, 0)
        if ready or timeout == 0:
            return ready
        if self.loop.threads:
            return selectors.DefaultSelector.select(self, THREAD_SECONDS)
        if timeout is None:  # the loop's own end waits for its threads in a way that does not count them
            ready = selectors.DefaultSelector.select(self, STUCK_SECONDS)
        return ready or super().select(timeout)


class TalkingLoop(TurnedLoop):
    """A turned clock beside real connections to this machine: it jumps when they are silent."""

    selector = _Patient

    def __init__(self) -> None:
        self.threads = 0
        """At work now; the clock stands meanwhile."""
        super().__init__()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # the same call, typed less
        self.threads += 1
        found: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        found.add_done_callback(self._ended)
        return found

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self.threads -= 1


def run(work: Callable[[], Coroutine[Any, Any, T]], loop: Callable[[], TurnedLoop] = TurnedLoop) -> T:
    """Run a test under a turned clock; an hour takes no time."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work())


def turned() -> TurnedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TurnedLoop), "this double belongs under `run`"
    return loop
