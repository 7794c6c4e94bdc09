"""This process's part of the e-mails, where several workers keep queues of their own on one store."""

from __future__ import annotations

import time

from staffetta.mail import parting
from staffetta.mail.message import Millis
from staffetta.mail.parting import NOTHING, WHOLE, Part
from staffetta.store.mysql import codes
from staffetta.store.mysql.pool import Pool

LOOK_SECONDS = 1.0
"""How often it is looked who lives: whose part grows, and whose shrinks."""

_LIVING = f"SELECT id FROM staffetta_workers WHERE feeds AND seen_at > {codes.NOW_MS} - %s"


class Parts:
    """Follows who lives. `after_ms`: a worker silent for this long has no part of the work any more; None: the workers
    share one queue, and everything is everybody's."""

    def __init__(self, pool: Pool, after_ms: Millis | None) -> None:
        self._pool = pool
        self._after_ms = after_ms
        self._me = ""
        self._looked_at = 0.0
        self.part: Part = WHOLE if after_ms is None else NOTHING
        self.turn = 0
        """Grows whenever the part became another one: what others had until now is ours."""

    async def join(self, worker_id: str) -> None:
        """This process feeds a queue of its own, under this name."""
        self._me = worker_id
        await self._look()

    def leave(self, worker_id: str) -> None:
        if worker_id == self._me:
            self._me = ""
            self._take(WHOLE if self._after_ms is None else NOTHING)

    async def look_around(self) -> None:
        """Who lives may have changed since the last look, unless that was just now."""
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            await self._look()

    async def _look(self) -> None:
        after_ms = self._after_ms
        self._looked_at = time.monotonic()
        if after_ms is not None and self._me:
            living = await self._pool.read(lambda session: session.rows(_LIVING, after_ms))
            self._take(parting.part_of(self._me, [id for (id,) in living]))

    def _take(self, part: Part) -> None:
        if part != self.part:
            self.turn += self.part != NOTHING
            self.part = part
