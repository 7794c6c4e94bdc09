"""The local queue of one of several workers on one store: it carries the e-mails of its part and no others.

The parts change when a worker comes or goes. What is somebody else's by then is let go of unbegun: he finds it in the
store, as everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staffetta.mail.message import Job, Millis
from staffetta.queue.local import LocalQueue


class PartedQueue(LocalQueue):
    """See `queue/contract.py`. `mine`: whether this process is the one to send an e-mail, asked whenever it matters."""

    def __init__(self, *, mine: Callable[[str], bool], **settings: Any) -> None:
        super().__init__(**settings)
        self._mine = mine

    async def offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        return await super().offer([job for job in jobs if self._mine(job.id)])

    async def take(self, limit: int, *, now: Millis, lease_ms: int) -> list[Job]:
        taken = await super().take(limit, now=now, lease_ms=lease_ms)
        others = [job.id for job in taken if not self._mine(job.id)]
        if not others:
            return taken
        await self.settle(others)
        gone = set(others)
        return [job for job in taken if job.id not in gone]

    async def postpone(self, jobs: Sequence[Job]) -> None:
        await self.settle([job.id for job in jobs if not self._mine(job.id)])
        await super().postpone([job for job in jobs if self._mine(job.id)])
