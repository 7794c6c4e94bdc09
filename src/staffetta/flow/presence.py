"""Knows whether the store answers. While it is away nothing is claimed, and outcomes wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from staffetta.errors import StoreError, StoreUnusable
from staffetta.mail.events import Emit, Troubled
from staffetta.mail.message import Millis

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.03
LONGEST_WAIT_SECONDS = 1.0


class Presence:
    """Whether the store is here. Who meets its absence says `lost`; who gets an answer again says `found`."""

    def __init__(self, *, clock: Callable[[], Millis], draw: Callable[[], float], emit: Emit) -> None:
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._back = asyncio.Event()
        self._back.set()
        self._gone = asyncio.Event()
        self._broken = asyncio.Event()
        self.here = True
        self.outages = 0
        self.unusable: StoreUnusable | None = None
        """Why somebody must mend the store before anything more may be done with it."""

    def lost(self, error: StoreError) -> None:
        if isinstance(error, StoreUnusable) and self.unusable is None:
            self.unusable = error
            self._broken.set()
        if not self.here:
            return
        self.here = False
        self.outages += 1
        self._back.clear()
        self._gone.set()
        message = "the store does not answer: nothing is claimed, outcomes wait for it; see that it is up"
        self._emit(Troubled(at=self._clock(), part="store", message=message, error=str(error)))

    def found(self) -> None:
        if not self.here:
            self.here = True
            self._gone.clear()
            self._back.set()

    async def until_here(self) -> None:
        await self._back.wait()

    async def until_lost(self) -> None:
        await self._gone.wait()

    async def until_unusable(self) -> None:
        await self._broken.wait()

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call until the store answers it, however long: what was heard must not be forgotten.

        Only for calls that are safe to repeat: a compare-and-set that took effect unseen loses the second time.
        """
        tries = 0
        while True:
            try:
                answer = await call()
            except StoreError as error:
                self.lost(error)
                await asyncio.sleep(self._draw() * wait_seconds(tries))
                tries += 1
            else:
                self.found()
                return answer


def wait_seconds(tries: int) -> float:
    """The longest wait before one more call to a store that was away."""
    return float(min(FIRST_WAIT_SECONDS * 2 ** min(tries, 10), LONGEST_WAIT_SECONDS))
