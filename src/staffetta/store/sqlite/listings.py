"""Reading the store: records, stories, counts, pages. Never on the connection that writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from staffetta.mail import position
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry, Millis
from staffetta.mail.operators import Filter, Page
from staffetta.store.contract import Content, DeadLetterCounts
from staffetta.store.sqlite import browsing, codes, records
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.rows import Db

T = TypeVar("T")

_NO_LETTERS: list[DeadLetter] = []
_RESTING = "SELECT code, total FROM statuses"
_HELD = "SELECT status, count(*) FROM claims GROUP BY status"
_DELAYED = "SELECT (SELECT total FROM delayed) - (SELECT count(*) FROM agenda WHERE due_at <= ?)"
_BY_CODE = "SELECT coalesce(code, ''), count(*) FROM dead_letters GROUP BY 1"
_BY_COMPANY = """
    SELECT o.name, n FROM (SELECT company, count(*) AS n FROM dead_letters GROUP BY company) d
    CROSS JOIN companies o ON o.company = d.company
"""


class Listings:
    _reader: Reader
    _browser: Reader

    # --- one e-mail -------------------------------------------------------------------------------

    async def _look(self, id: str, look: Callable[[Db, int], T], otherwise: T) -> T:
        def find(connection: Db) -> T:
            ref = records.ref_of(connection, id)
            return otherwise if ref is None else look(connection, ref)

        return await self._reader.read(find)

    async def get(self, id: str) -> Email | None:
        return await self._look(id, lambda connection, ref: records.emails(connection, [ref])[0], None)

    async def history(self, id: str) -> list[HistoryEntry]:
        return await self._look(id, records.history, [])

    async def attempts(self, id: str) -> list[Attempt]:
        return await self._look(id, records.attempts, [])

    async def content(self, id: str) -> Content | None:
        return await self._look(id, records.content, None)

    async def dead_letter(self, id: str) -> DeadLetter | None:
        found = await self._look(
            id, lambda connection, ref: records.dead_letters(connection, [ref]), _NO_LETTERS
        )
        return found[0] if found else None

    # --- counts -----------------------------------------------------------------------------------

    async def counts(self) -> dict[Status, int]:
        return await self._reader.read(_counts)

    async def queue_counts(self, *, now: Millis) -> tuple[int, int, int]:
        def look(connection: Db) -> tuple[int, int, int]:
            counts = _counts(connection)
            delayed: int = connection.execute(_DELAYED, (now,)).get
            return counts[Status.READY] - delayed, delayed, counts[Status.PROCESSING]

        return await self._reader.read(look)

    async def dead_letter_counts(self) -> DeadLetterCounts:
        def look(connection: Db) -> DeadLetterCounts:
            by_company = dict(connection.execute(_BY_COMPANY).fetchall())
            return DeadLetterCounts(
                size=sum(by_company.values()),
                by_code=dict(connection.execute(_BY_CODE).fetchall()),
                by_company=by_company,
                oldest_at=connection.execute("SELECT min(moved_at) FROM dead_letters").get,
            )

        return await self._browser.read(look)

    # --- pages ------------------------------------------------------------------------------------

    async def emails(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._page(browsing.emails, records.emails, filter, limit, cursor)

    async def dead_letters(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        return await self._page(browsing.dead_letters, records.dead_letters, filter, limit, cursor)

    async def _page(
        self,
        find: Callable[..., list[browsing.Place]],
        show: Callable[[Db, list[int]], Sequence[Any]],
        filter: Filter,
        limit: int,
        cursor: str | None,
    ) -> Page:
        before = position.read(cursor) if cursor is not None else None

        def look(connection: Db) -> Page:
            places = find(connection, filter, limit=limit + 1, before=before)
            shown = places[:limit]
            return Page(
                items=tuple(show(connection, [ref for _, ref in shown])),
                cursor=position.write(*shown[-1]) if len(places) > limit and shown else None,
            )

        return await self._browser.read(look)


def _counts(connection: Db) -> dict[Status, int]:
    """Each e-mail is counted where it rests; those in somebody's hands are taken from there."""
    counts = dict.fromkeys(Status, 0)
    for code, total in connection.execute(_RESTING).fetchall():
        counts[codes.STATUS_OF[code]] += total
    for code, held in connection.execute(_HELD).fetchall():
        counts[codes.STATUS_OF[code]] += held
        counts[codes.STATUS_OF[codes.RESTS_IN[code]]] -= held
    return counts
