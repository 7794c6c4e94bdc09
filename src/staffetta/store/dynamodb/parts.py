"""This process's part of the e-mails, where several workers keep queues of their own on one table."""

from __future__ import annotations

import math
from collections.abc import Callable

from staffetta.mail import parting
from staffetta.mail.message import Millis
from staffetta.mail.operators import Worker
from staffetta.mail.parting import NOTHING, WHOLE, Part
from staffetta.store.dynamodb import keys
from staffetta.store.dynamodb.beats import Beats
from staffetta.store.dynamodb.steering import EngineTable, told_worker

LOOK_SECONDS = 1.0
"""How often it is looked who lives: whose part grows, and whose shrinks."""


class Parts:
    """Follows who lives. `after_ms`: a worker silent for this long has no part of the work any more; None: the workers
    share one queue, and everything is everybody's."""

    def __init__(
        self, engine: EngineTable, beats: Beats, monotonic: Callable[[], float], after_ms: Millis | None
    ) -> None:
        self._engine = engine
        self._beats = beats
        self._monotonic = monotonic
        self._after_ms = after_ms
        self._me = ""
        self._looked_at = float("-inf")
        self.part: Part = WHOLE if after_ms is None else NOTHING
        self.turn = 0
        """Grows whenever the part became another one: what others had until now is ours."""

    async def join(self, worker: Worker) -> None:
        """This process feeds a queue of its own, under this name."""
        self._me = worker.id
        await self._look()

    def leave(self, worker_id: str) -> None:
        if worker_id == self._me:
            self._me = ""
            self._take(WHOLE if self._after_ms is None else NOTHING)

    async def look_around(self) -> None:
        """Who lives may have changed since the last look, unless that was just now."""
        if self._monotonic() - self._looked_at > LOOK_SECONDS:
            await self._look()

    async def _look(self) -> None:
        self._looked_at = self._monotonic()
        if self._after_ms is None or not self._me:
            return
        known = await self._engine.all("WORKER")
        silent = self._beats.dead(known, after_ms=self._after_ms)
        feeding = [worker.id for worker in map(told_worker, known) if worker.feeds]
        self._take(parting.part_of(self._me, [id for id in feeding if id not in silent]))

    def _take(self, part: Part) -> None:
        if part != self.part:
            self.turn += self.part != NOTHING
            self.part = part

    @property
    def shards(self) -> list[int]:
        """The shards in which anything of this part can be: an e-mail's shard and part come from one number."""
        if self.part.count == 0:
            return []
        step = math.gcd(keys.SHARDS, self.part.count)
        return [number for number in range(keys.SHARDS) if (number - self.part.index) % step == 0]
