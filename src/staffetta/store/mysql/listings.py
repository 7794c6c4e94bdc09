"""Reading the store: records, stories, counts, pages."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry, Millis
from staffetta.mail.operators import Filter, Page
from staffetta.store.contract import Content, DeadLetterCounts
from staffetta.store.mysql import browsing, codes, history, records
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

T = TypeVar("T")

CHEAP_SECONDS = 0.05
REST = 20
"""A count that is not cheap is used for so many times as long as it took. Nobody can keep counts here: other programs
move e-mails too, and a row that all of them change would make them wait for each other."""

_COUNTS = "SELECT status, COUNT(*) FROM emails FORCE INDEX (idx_status) GROUP BY status"
_QUEUE = f"""
    SELECT (SELECT COUNT(*) FROM emails e FORCE INDEX (idx_status) WHERE e.status = 'READY'),
           (SELECT COUNT(*) FROM emails e FORCE INDEX (staffetta_wakes)
            WHERE e.wakes_at > {codes.NOW_MS} AND e.status = 'READY'),
           (SELECT COUNT(*) FROM emails e FORCE INDEX (idx_status) WHERE e.status = 'PROCESSING')
"""
_BY_CODE = "SELECT COALESCE(code, ''), COUNT(*) FROM staffetta_dead_letters GROUP BY 1"
_BY_COMPANY = "SELECT company_id, COUNT(*) FROM staffetta_dead_letters GROUP BY company_id"


class Listings:
    _pool: Pool

    def __init__(self) -> None:
        self._counted: dict[str, tuple[float, list[tuple[Any, ...]]]] = {}

    # --- one e-mail -------------------------------------------------------------------------------

    async def get(self, id: str) -> Email | None:
        found = await self._pool.read(lambda session: records.emails(session, [id]))
        return found[0] if found else None

    async def history(self, id: str) -> list[HistoryEntry]:
        return await self._pool.read(lambda session: history.read(session, id))

    async def attempts(self, id: str) -> list[Attempt]:
        return await self._pool.read(lambda session: history.attempts(session, id))

    async def content(self, id: str) -> Content | None:
        return await self._pool.read(lambda session: records.content(session, id))

    async def dead_letter(self, id: str) -> DeadLetter | None:
        found = await self._pool.read(lambda session: records.dead_letters(session, [id]))
        return found[0] if found else None

    # --- counts -----------------------------------------------------------------------------------

    async def _count(self, sql: str) -> list[tuple[Any, ...]]:
        until, rows = self._counted.get(sql, (0.0, []))
        began = time.monotonic()
        if began < until:
            return rows
        rows = await self._pool.read(lambda session: session.rows(sql))
        took = time.monotonic() - began
        self._counted[sql] = (began + took * REST if took > CHEAP_SECONDS else 0.0, rows)
        return rows

    async def counts(self) -> dict[Status, int]:
        told = dict(await self._count(_COUNTS))
        return {status: told.get(status, 0) for status in Status}

    async def queue_counts(self, *, now: Millis) -> tuple[int, int, int]:
        del now  # the server's clock decides
        ready, delayed, active = (await self._count(_QUEUE))[0]
        return ready - delayed, delayed, active

    async def dead_letter_counts(self) -> DeadLetterCounts:
        async def look(session: Session) -> DeadLetterCounts:
            by_company = dict(await session.rows(_BY_COMPANY))
            return DeadLetterCounts(
                size=sum(by_company.values()),
                by_code=dict(await session.rows(_BY_CODE)),
                by_company=by_company,
                oldest_at=await session.one("SELECT MIN(moved_at) FROM staffetta_dead_letters"),
            )

        return await self._pool.read(look)

    # --- pages ------------------------------------------------------------------------------------

    async def emails(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._page(browsing.emails, records.emails, filter, limit, cursor)

    async def dead_letters(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._page(browsing.dead_letters, records.dead_letters, filter, limit, cursor)

    async def _page(
        self,
        find: Callable[..., Awaitable[list[browsing.Place]]],
        show: Callable[[Session, list[str]], Awaitable[Sequence[Any]]],
        filter: Filter,
        limit: int,
        cursor: str | None,
    ) -> Page:
        before = browsing.read_cursor(cursor) if cursor is not None else None

        async def look(session: Session) -> Page:
            places = await find(session, filter, limit=limit + 1, before=before)
            shown = places[:limit]
            return Page(
                items=tuple(await show(session, [id for _, id in shown])),
                cursor=browsing.write_cursor(shown[-1]) if len(places) > limit and shown else None,
            )

        return await self._pool.read(look)
