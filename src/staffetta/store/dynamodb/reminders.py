"""Reminding the queue, and looking for what is stuck or over: questions to the indexes, answers from the records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from staffetta.mail.lifecycle import IN_WORK, Status
from staffetta.mail.message import Email, InWork, Job, Millis
from staffetta.mail.rescue import worker_of
from staffetta.store.dynamodb.beats import Beats
from staffetta.store.dynamodb.keys import Entry
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.parts import Parts
from staffetta.store.dynamodb.steering import EngineTable
from staffetta.store.dynamodb.work import Work

OVERLAP_MS = 10_000
"""How far `news` looks back behind what it told last: others' clocks differ, their transactions take a while, and
indexes lag."""
PAGES_MAX = 12
"""Pages that one look for expired e-mails reads (in a small table one of each partition); the next look goes on."""


Told: TypeAlias = tuple[Millis, str]
"""When it was due, and how often it had moved until then: what is retried at the same moment is news all the same."""


class Reminders:
    ledger: Ledger
    work: Work
    engine: EngineTable
    beats: Beats
    told: dict[str, Told]
    """What this process knows of already."""
    told_until: Millis | None
    parts: Parts
    turn: int
    walk: str | None
    """Where a walk through everything that waits goes on; None: there is none."""
    expired_behind: str | None

    # --- reminding the queue -----------------------------------------------------------------------------------

    async def waiting_companies(self, *, now: Millis) -> list[str]:
        return await self.work.companies(now=now)

    async def waiting(self, company_id: str, *, now: Millis, limit: int, after: Job | None = None) -> list[Job]:
        entries = await self.work.line(company_id, now=now, limit=limit, after=after, mine=self.parts)
        return [entry.job() for entry in entries]

    def mine(self, id: str) -> bool:
        """Whether this process is the one to send it, of those that live."""
        return self.parts.part.has(id)

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        await self.parts.look_around()
        if self.turn != self.parts.turn:
            # Another part than before: all of it that waits is news, for others had it until now.
            self.turn, self.walk = self.parts.turn, ""
            self.told.clear()
        if self.walk is not None:
            return await self._walk_on(now, limit)
        since = (now if self.told_until is None else min(self.told_until, now)) - OVERLAP_MS
        entries = await self.work.due(after=since, now=now, limit=limit + len(self.told), mine=self.parts)
        fresh = [one for one in entries if self.told.get(one.id) != (one.at, one.token)][:limit]
        self.told.update((one.id, (one.at, one.token)) for one in fresh)
        if len(fresh) < limit:
            self.told_until = now
            self.told = {id: one for id, one in self.told.items() if one[0] > now - OVERLAP_MS}
        return [one.job() for one in fresh]

    async def _walk_on(self, now: Millis, limit: int) -> list[Job]:
        """Through everything that is READY, as far as the limit goes."""
        found: list[Job] = []
        while self.walk is not None and len(found) < limit:
            page, self.walk = await self.work.some(("READY",), self.walk or None)
            fresh = [one for one in page if one.at <= now and self.mine(one.id)]
            self.told.update((one.id, (one.at, one.token)) for one in fresh)
            found += [one.job() for one in fresh]
        return found

    async def next_due(self, *, now: Millis) -> Millis | None:
        return await self.work.next_due(now=now)

    # --- what is stuck, what is over -----------------------------------------------------------------------------

    async def stuck(
        self,
        *,
        now: Millis,
        dead_after_ms: int | None,
        timeout_ms: int,
        workers: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[InWork]:
        dead = set(workers)
        if dead_after_ms is not None:
            dead |= self.beats.dead(await self.engine.all("WORKER"), after_ms=dead_after_ms)

        def is_stuck(one: Entry) -> bool:
            if one.at + timeout_ms <= now:
                return True
            return bool(one.token) and (dead_after_ms is None or worker_of(one.token) in dead)

        found: list[Entry] = []
        behind: str | None = None
        while True:
            page, behind = await self.work.some(("WORK",), behind)
            found += filter(is_stuck, page)
            if behind is None:
                break
        oldest = sorted(found, key=lambda one: (one.at, one.id))[:limit]
        held = await asyncio.gather(*(self._stuck(one) for one in oldest))
        return [one for one in held if one is not None]

    async def _stuck(self, one: Entry) -> InWork | None:
        """As its record has it now: None where it moved since."""
        held = await self.ledger.held(one.id)
        if held is None or held.row.callback_exhausted or held.row.token != one.token:
            return None
        row = held.row
        if row.status not in IN_WORK or row.updated_at != one.at:
            return None
        return row.in_work(await self.ledger.late(row))

    async def held(self, id: str) -> InWork | None:
        held = await self.ledger.held(id)
        if held is None or held.row.status not in IN_WORK:
            return None
        return held.row.in_work(await self.ledger.late(held.row))

    async def expired(self, *, now: Millis, limit: int) -> list[Email]:
        found: list[str] = []
        for _ in range(PAGES_MAX):
            page, self.expired_behind = await self.work.some(("READY", "ACCEPTED"), self.expired_behind)
            found += [one.id for one in page if one.expires_at <= now]
            if self.expired_behind is None or len(found) >= limit:
                break
        rows = await self.ledger.rows(found[:limit])
        return [
            row.email()
            for row in sorted(rows.values(), key=lambda row: (row.created_at, row.id))
            if row.status in (Status.READY, Status.ACCEPTED) and row.expires_at <= now
        ]

    async def queue_counts(self, *, now: Millis) -> tuple[int, int, int]:
        counts, delayed = await asyncio.gather(self.counts(), self.work.delayed(now=now))
        ready = max(counts[Status.READY], delayed)
        return ready - delayed, delayed, counts[Status.PROCESSING]

    async def counts(self) -> dict[Status, int]:
        return await self.ledger.counting.counts()
