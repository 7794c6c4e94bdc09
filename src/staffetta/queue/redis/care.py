"""Keeps Redis in the picture: what only this process knows is told again when Redis has forgotten or was away."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from staffetta.errors import QueueError
from staffetta.mail.message import Job, Millis
from staffetta.queue.redis.checks import Gauge, read
from staffetta.queue.redis.companies import Companies
from staffetta.queue.redis.link import Link
from staffetta.queue.redis.moves import Moves
from staffetta.queue.redis.tasks import ended

KEEP_SECONDS = 10.0
"""How often blocks are renewed and gauges read."""
BLOCK_MS = 30_000
"""A company is blocked for so long, unless who blocked it says so again."""
UNSAID_MAX = 50_000
"""Of what ended while Redis is away, so much is remembered; of the rest the leases end."""
ROOM_AGAIN = 0.99
"""Below this share of its memory Redis is not full any more, even if nobody has offered anything since."""
TOGETHER = 500
LAST_WORDS = "redis: give back"
LAST_SECONDS = 1.0
"""How long a closing queue waits for what it was given too late to be given back."""


class Care:
    """Blocks, weights, and what could not be said."""

    def __init__(
        self,
        link: Link,
        moves: Moves,
        companies: Companies,
        *,
        clock: Callable[[], Millis],
        figures_of: Callable[[str], bytes],
    ) -> None:
        self._link = link
        self._moves = moves
        self._companies = companies
        self._clock = clock
        self._figures_of = figures_of
        self.blocks: set[str] = set()
        self.gauge: Gauge | None = None
        self._unsaid: dict[str, Job | None] = {}
        """Settled (None) or given back while Redis was away."""
        self._tasks: list[asyncio.Task[None]] = []

    def keep(self) -> None:
        self.begin(self._keep(), "redis: blocks and gauges")

    async def close(self) -> None:
        """What was begun and is at its last word may say it."""
        last = [task for task in self._tasks if task.get_name() == LAST_WORDS]
        if last and self._link.here.is_set():
            await asyncio.wait(last, timeout=LAST_SECONDS)
        await ended(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(work, name=name))

    def arrived(self) -> None:
        """Redis is here: say what was not said, and let the companies it knows weigh what they weigh here."""
        self.begin(self._speak(), "redis: what was not said")

    def note(self, unsaid: Mapping[str, Job | None]) -> None:
        """Redis is away: nothing is lost by it, and it is said when it is back."""
        if len(self._unsaid) < UNSAID_MAX:
            self._unsaid |= unsaid

    async def _speak(self) -> None:
        await self._link.here.wait()
        unsaid, self._unsaid = self._unsaid, {}
        settled = [(name, 0) for name, job in unsaid.items() if job is None]
        back = [job for job in unsaid.values() if job is not None]
        try:
            await self.renew_blocks()
            for start in range(0, len(settled), TOGETHER):
                await self._link.call(self._moves.settle, settled[start : start + TOGETHER], TOGETHER)
            for start in range(0, len(back), TOGETHER):
                await self._link.call(self._moves.postpone, back[start : start + TOGETHER], TOGETHER)
            await self._weigh()
        except QueueError:
            return  # Away again: leases end by themselves, and the rest is done at the next arrival.

    async def _weigh(self) -> None:
        """The settings may be other ones than when these companies were met."""
        other = [
            one.company_id
            for one in await self._companies.figures(self._clock())
            if one.weight != struct.unpack_from(">d", self._figures_of(one.company_id))[0]
        ]
        for start in range(0, len(other), TOGETHER):
            await self._link.call(self._moves.weigh, other[start : start + TOGETHER])

    async def _keep(self) -> None:
        """Blocks end by themselves, should this process be gone; until then they are renewed. And the gauges."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                await self.renew_blocks()
                text = await self._link.ask("INFO")
            except QueueError:
                continue
            self.gauge = read(text)
            if self.gauge.memory_share < ROOM_AGAIN:
                self._link.full = ""

    async def renew_blocks(self) -> None:
        names = sorted(self.blocks)
        for start in range(0, len(names), TOGETHER):
            until = float(self._clock() + BLOCK_MS)
            await self._link.call(self._moves.block, (names[start : start + TOGETHER], until))
