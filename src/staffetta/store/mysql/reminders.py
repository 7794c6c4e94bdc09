"""What the queue is reminded of: whose e-mails wait, in which order, and what became due.

Where several workers keep queues of their own on this store, each is told of its part only (`mail/parting.py`).
"""

from __future__ import annotations

from typing import Any

from staffetta.mail.message import Job, Millis
from staffetta.mail.rescue import SUSPECT_CRASHES
from staffetta.store.mysql import codes
from staffetta.store.mysql.parts import Parts
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

OVERLAP_SECONDS = 2
"""How far news are looked at again: what was written before may be committed later."""
FEW = 1_000
"""So many are remembered without asking how old they are."""
TOLD_MAX = 20_000
"""How many are remembered as told, or as our own doing."""

# From company to company and, within one, from priority to priority, each by one step into the index: what is not
# due yet is never walked through.
COMPANIES = f"""
    WITH RECURSIVE whose (company_id) AS (
        SELECT (SELECT e.company_id FROM emails e FORCE INDEX (staffetta_line) WHERE e.status = 'READY'
                ORDER BY e.company_id LIMIT 1)
        UNION ALL
        SELECT (SELECT e.company_id FROM emails e FORCE INDEX (staffetta_line)
                WHERE e.status = 'READY' AND e.company_id > whose.company_id ORDER BY e.company_id LIMIT 1)
        FROM whose WHERE whose.company_id IS NOT NULL
    ), line (company_id, priority) AS (
        SELECT company_id, (SELECT e.priority FROM emails e FORCE INDEX (staffetta_line)
                            WHERE e.status = 'READY' AND e.company_id = whose.company_id ORDER BY e.priority LIMIT 1)
        FROM whose WHERE company_id IS NOT NULL
        UNION ALL
        SELECT company_id, (SELECT e.priority FROM emails e FORCE INDEX (staffetta_line)
                            WHERE e.status = 'READY' AND e.company_id = line.company_id AND e.priority > line.priority
                            ORDER BY e.priority LIMIT 1)
        FROM line WHERE priority IS NOT NULL
    )
    SELECT DISTINCT company_id FROM line WHERE priority IS NOT NULL AND (
        SELECT e.next_attempt_at FROM emails e FORCE INDEX (staffetta_line)
        WHERE e.status = 'READY' AND e.company_id = line.company_id AND e.priority = line.priority
        ORDER BY e.next_attempt_at LIMIT 1
    ) <= {codes.NOW_MS}
    ORDER BY company_id
"""
NEXT_PRIORITY = """
    SELECT e.priority FROM emails e FORCE INDEX (staffetta_line)
    WHERE e.status = 'READY' AND e.company_id = %s AND e.priority >= %s ORDER BY e.priority LIMIT 1
"""
_JOB = "e.id, e.company_id, e.priority, e.next_attempt_at, e.crashes"
_MINE = "e.expires_at IS NOT NULL AND CRC32(e.id) %% %s = %s"
WAITING = f"""
    SELECT {_JOB} FROM emails e FORCE INDEX (staffetta_line)
    WHERE e.status = 'READY' AND e.company_id = %s AND e.priority = %s AND e.next_attempt_at <= {codes.NOW_MS}
      AND (e.next_attempt_at > %s OR (e.next_attempt_at = %s AND e.id > %s)) AND {_MINE}
    ORDER BY e.next_attempt_at, e.id LIMIT %s
"""
NEW = f"""
    SELECT {_JOB}, CAST(UNIX_TIMESTAMP(e.updated_at) AS SIGNED) FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = 'READY' AND (e.updated_at > FROM_UNIXTIME(%s) OR (e.updated_at = FROM_UNIXTIME(%s) AND e.id > %s))
      AND e.next_attempt_at <= {codes.NOW_MS} AND {_MINE}
    ORDER BY e.updated_at, e.id LIMIT %s
"""
WOKEN = f"""
    SELECT {_JOB} FROM emails e FORCE INDEX (staffetta_wakes)
    WHERE e.wakes_at > %s AND e.wakes_at <= {codes.NOW_MS} AND e.status = 'READY' AND {_MINE}
    ORDER BY e.wakes_at LIMIT %s
"""
_NEXT_DUE = f"""
    SELECT e.wakes_at FROM emails e FORCE INDEX (staffetta_wakes)
    WHERE e.wakes_at > {codes.NOW_MS} AND e.status = 'READY' ORDER BY e.wakes_at LIMIT 1
"""
_BEFORE_ALL: Millis = -(1 << 62)


class Told:
    """What was told lately, or was our own doing: looked at again for a while, it is no news any more."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Millis]] = {}
        """By id: the second in which it became READY, and its due time."""

    def note(self, id: str, due_at: Millis, now: Millis) -> None:
        """This process had a hand in it."""
        if len(self._known) < TOLD_MAX:
            self._known[id] = (now // 1_000, due_at)

    def tell(self, job: Job, second: int) -> bool:
        """Whether it is news; from now on it is not."""
        known = self._known.get(job.id)
        if known is not None and known[1] == job.due_at and abs(second - known[0]) <= 2 * OVERLAP_SECONDS:
            return False
        self._known[job.id] = (second, job.due_at)
        return True

    def forget(self, before: int | None = None) -> None:
        """What became READY before this second; None: everything."""
        if before is None:
            self._known.clear()
        elif len(self._known) > FEW:
            self._known = {id: seen for id, seen in self._known.items() if seen[0] >= before}


class Reminders:
    _pool: Pool
    _parts: Parts

    def __init__(self) -> None:
        self._turn = 0
        self._news_at, self._news_id = 0, ""
        self._woken_until: Millis = 0
        self._told = Told()

    async def waiting_companies(self, *, now: Millis) -> list[str]:
        del now  # the server's clock decides
        return [name for (name,) in await self._pool.read(lambda session: session.rows(COMPANIES))]

    async def waiting(self, company_id: str, *, now: Millis, limit: int, after: Job | None = None) -> list[Job]:
        del now

        async def look(session: Session) -> list[Job]:
            found: list[Job] = []
            # Behind `after` without looking at what stands before it: that may have been sent a moment ago, and the
            # server would walk over its traces.
            at: int | None = after.priority if after is not None else 0
            place = (after.due_at, after.id) if after is not None else (_BEFORE_ALL, "")
            if after is None:
                at = await session.one(NEXT_PRIORITY, company_id, 0)
            while at is not None:
                due_at, last = place
                rows = await session.rows(
                    WAITING, company_id, at, due_at, due_at, last, *self._mine(), limit - len(found)
                )
                found += [job_of(row) for row in rows]
                if len(found) >= limit:
                    break
                at, place = await session.one(NEXT_PRIORITY, company_id, at + 1), (_BEFORE_ALL, "")
            return found

        return await self._pool.read(look)

    def _mine(self) -> tuple[int, int]:
        """The remainder of a part; nothing has one that no number has."""
        part = self._parts.part
        return (part.count, part.index) if part.count else (1, 1)

    async def _begin_news(self) -> None:
        """From here on it is news; what is READY and due already comes company by company."""
        server = int(await self._pool.read(lambda session: session.one(codes.SERVER_MS)))
        self._news_at, self._news_id = server // 1_000 - 1, ""
        self._woken_until = server - OVERLAP_SECONDS * 1_000
        self._turn = self._parts.turn

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        del now
        await self._parts.look_around()
        if self._turn != self._parts.turn:
            # Another part than before: all of it that waits is news, for others had it until now.
            self._turn = self._parts.turn
            self._news_at, self._news_id, self._woken_until = 0, "", 0
            self._told.forget()
        rows, woken, server = await self._pool.read(lambda session: self._look_for_news(session, limit))
        jobs = [job for row in rows if self._told.tell(job := job_of(row), row[-1])]
        jobs += [job for row in woken if self._told.tell(job := job_of(row), server // 1_000)]
        if len(rows) == limit:
            self._news_at, self._news_id = rows[-1][-1], rows[-1][0]
        else:
            self._news_at, self._news_id = max(self._news_at, server // 1_000 - OVERLAP_SECONDS), ""
        if len(woken) < limit:
            self._woken_until = server - OVERLAP_SECONDS * 1_000
        elif woken:
            self._woken_until = max(row[3] for row in woken) - 1
        self._told.forget(server // 1_000 - 2 * OVERLAP_SECONDS)
        return jobs

    async def _look_for_news(
        self, session: Session, limit: int
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], Millis]:
        server = int(await session.one(codes.SERVER_MS))
        rows = await session.rows(NEW, self._news_at, self._news_at, self._news_id, *self._mine(), limit)
        woken = await session.rows(WOKEN, self._woken_until, *self._mine(), limit)
        return rows, woken, server

    async def next_due(self, *, now: Millis) -> Millis | None:
        del now
        found: Millis | None = await self._pool.read(lambda session: session.one(_NEXT_DUE))
        return found

    def mine(self, id: str) -> bool:
        """Whether this process is the one to send it, of those that live."""
        return self._parts.part.has(id)


def job_of(row: tuple[Any, ...]) -> Job:
    id, company_id, priority, due_at, crashes = row[:5]
    return Job(
        id=id, company_id=company_id, priority=priority, due_at=due_at, suspect=crashes >= SUSPECT_CRASHES
    )
