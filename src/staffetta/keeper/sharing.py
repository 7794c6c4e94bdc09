"""One queue for several parties: what each holds and blocks is known, so that the dead leave nothing behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staffetta.mail.message import Job, Millis
from staffetta.queue.contract import CompanyFigures, Depth, Health, Queue


class Sharing:
    """The queue, and who blocks which company: it is blocked while anybody blocks it."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._blocked: dict[str, set[View]] = {}

    def view(self) -> View:
        """The queue as one party sees it."""
        return View(self)

    async def block(self, company_id: str, view: View) -> None:
        self._blocked.setdefault(company_id, set()).add(view)
        await self.queue.block(company_id)

    async def unblock(self, company_id: str, view: View) -> None:
        parties = self._blocked.get(company_id, set())
        parties.discard(view)
        if not parties:
            self._blocked.pop(company_id, None)
            await self.queue.unblock(company_id)


class View:
    """A queue for one party."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._queue = sharing.queue
        self._held: dict[str, Job] = {}
        """Given to this party, and neither settled nor given back."""
        self._blocks: set[str] = set()

    async def open(self) -> None:
        """Whoever shares the queue opens it."""

    async def close(self) -> None:
        """And closes it."""

    async def leave(self) -> None:
        """This party is gone, or counts as gone: others get what it holds, and its blocks end."""
        held, self._held = list(self._held.values()), {}
        await self._queue.postpone(held)
        for company_id in list(self._blocks):
            await self.unblock(company_id)

    # --- what is known of this party ---------------------------------------------------------------------

    async def take(self, limit: int, *, now: Millis, lease_ms: int) -> list[Job]:
        taken = await self._queue.take(limit, now=now, lease_ms=lease_ms)
        for job in taken:
            self._held[job.id] = job
        return taken

    async def settle(self, ids: Sequence[str]) -> None:
        for one in ids:
            self._held.pop(one, None)
        await self._queue.settle(ids)

    async def postpone(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._held.pop(job.id, None)
        await self._queue.postpone(jobs)

    async def block(self, company_id: str) -> None:
        self._blocks.add(company_id)
        await self._sharing.block(company_id, self)

    async def unblock(self, company_id: str) -> None:
        self._blocks.discard(company_id)
        await self._sharing.unblock(company_id, self)

    # --- what is the same for all ------------------------------------------------------------------------

    async def offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        return await self._queue.offer(jobs)

    async def wait(self, timeout_seconds: float) -> None:
        await self._queue.wait(timeout_seconds)

    async def extend(self, ids: Sequence[str], *, now: Millis, lease_ms: int) -> Sequence[str]:
        return await self._queue.extend(ids, now=now, lease_ms=lease_ms)

    async def bury(self, ids: Sequence[str], *, now: Millis) -> None:
        await self._queue.bury(ids, now=now)

    async def revive(self, ids: Sequence[str]) -> None:
        await self._queue.revive(ids)

    async def index_dead(self, ids: Sequence[str], *, now: Millis) -> None:
        await self._queue.index_dead(ids, now=now)

    async def health(self) -> Health:
        return await self._queue.health()

    async def depth(self) -> Depth:
        return await self._queue.depth()

    async def hungry(self) -> Mapping[str, Job | None]:
        return await self._queue.hungry()

    async def until_hungry(self, timeout_seconds: float) -> None:
        await self._queue.until_hungry(timeout_seconds)

    async def room(self, company_id: str) -> int:
        return await self._queue.room(company_id)

    async def stock(self, company_id: str, jobs: Sequence[Job], *, after: Job | None, more: bool) -> int:
        return await self._queue.stock(company_id, jobs, after=after, more=more)

    async def full(self, company_id: str, *, more: bool) -> None:
        await self._queue.full(company_id, more=more)

    async def set_weight(self, company_id: str, weight: float) -> None:
        await self._queue.set_weight(company_id, weight)

    async def figures(self) -> list[CompanyFigures]:
        return await self._queue.figures()
