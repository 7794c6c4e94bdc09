"""Reading the records: stories, and listings by every filter, newest first, each from an index of its own."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from staffetta.errors import StoreUnusable
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry, Millis
from staffetta.mail.operators import Filter, Page
from staffetta.store.contract import Content
from staffetta.store.dynamodb import keys, values
from staffetta.store.dynamodb.keys import read_cursor, write_cursor
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.letters import FAMILY, Letters
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.work import Seeds, Work

PAGE = 100
LOOKED_AT_MAX = 2_000
"""Candidates that one page looks at; the next goes on behind them."""
INDEXES = {"Listed": "ListIndex", "Company": "CompanyIndex"}
"""By the name of their partition's key."""
NO_INDEX = (
    "this listing would have to read the whole table: run `staffetta migrate`, which adds the indexes for it"
)


class Listings:
    ledger: Ledger
    work: Work
    sparse: bool
    letters: Letters

    # --- one e-mail ------------------------------------------------------------------------------------------

    async def get(self, id: str) -> Email | None:
        rows = await self.ledger.rows([id])
        return rows[id].email() if id in rows else None

    async def history(self, id: str) -> list[HistoryEntry]:
        text = f"SELECT Status, Attributes FROM {self.ledger.table} WHERE Id=? AND Status<'_'"
        found = [_entry(item) for item in await self.ledger.wire.execute(text, id, consistent=True)]
        # Ours are numbered; another program's stand by their time.
        numbered = all(number for number, _ in found)
        found.sort(key=lambda one: (0 if numbered else one[1].at, one[0]))
        return [entry for _, entry in found]

    async def attempts(self, id: str) -> list[Attempt]:
        text = f"SELECT Journal FROM {self.ledger.table} WHERE Id=? AND Status BETWEEN ? AND ?"
        names = (keys.ATTEMPT, f"{keys.ATTEMPT}~")
        items, held = await asyncio.gather(
            self.ledger.wire.execute(text, id, *names, consistent=True), self.ledger.rows([id])
        )
        closed = sorted(
            (values.attempt_of(item["Journal"]) for item in items), key=lambda one: (one.attempt, one.part)
        )
        row = held.get(id)
        open_one = row.open_attempt() if row is not None else None
        return closed if open_one is None else [*closed, open_one]

    async def content(self, id: str) -> Content | None:
        held = await self.ledger.held(id, "Message")
        if held is None or held.row.erased:
            return None
        row, message = held.row, held.content.get("Message")
        again = await self.ledger.held(id, "Payload")
        return Content(
            payload=again.content.get("Payload") if again is not None else None, message=message,
            payload_file_path=row.payload_file_path, eml_file_path=row.eml_file_path,
        )  # fmt: skip

    async def dead_letter(self, id: str) -> DeadLetter | None:
        return await self.letters.one(id)

    # --- listings --------------------------------------------------------------------------------------------

    async def emails(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        before = read_cursor(cursor) if cursor is not None else None
        if filter.code is not None:
            return await self._by_code(filter, limit, before)
        if not self.sparse:
            return await self._by_the_seeds_query(filter, limit, before)

        async def shown(ids: list[str]) -> list[Email]:
            rows = await self.ledger.rows(ids)
            return [rows[id].email() for id in ids if id in rows and _wanted(filter, rows[id])]

        place = self._candidates(filter, before)
        return await _paged(place, shown, lambda one: (one.created_at, one.id), limit)

    async def dead_letters(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        before = read_cursor(cursor) if cursor is not None else None

        async def shown(ids: list[str]) -> list[DeadLetter]:
            letters = await self.letters.many(ids)
            rows = await self.ledger.rows(ids) if filter.status or filter.recipient else {}
            return [
                letters[id] for id in ids if id in letters and _letter_wanted(filter, letters[id], rows.get(id))
            ]

        text = f"SELECT Member FROM {self.letters.entries} WHERE Family=? AND Member BETWEEN ? AND ?"
        places = self._merged(text, keys.shards_of(FAMILY), filter.since, filter.until, before)
        return await _paged(places, shown, lambda one: (one.moved_at, one.outbox_id), limit)

    def _candidates(
        self, filter: Filter, before: tuple[Millis, str] | None
    ) -> AsyncIterator[list[tuple[Millis, str]]]:
        """Places by the narrowest index there is for this filter, newest first, in pages."""
        since, until = filter.since, filter.until
        if filter.recipient is not None:
            lists, index = [keys.recipient_listing(filter.recipient)], "Listed"
        elif filter.status:
            statuses = dict.fromkeys(filter.status)
            lists = [one for status in statuses for one in keys.shards_of(keys.status_listing(status))]
            index = "Listed"
        elif filter.company_id is not None:
            lists, index = keys.shards_of(filter.company_id), "Company"
        else:
            lists, index = keys.shards_of(keys.EVERY), "Listed"
        table = f'"{self.ledger.place.table}"."{INDEXES[index]}"'
        text = f"SELECT ListedAt FROM {table} WHERE {index}=? AND ListedAt BETWEEN ? AND ?"
        return self._merged(text, lists, since, until, before)

    async def _merged(
        self,
        text: str,
        lists: Sequence[str],
        since: Millis | None,
        until: Millis | None,
        before: tuple[Millis, str] | None,
    ) -> AsyncIterator[list[tuple[Millis, str]]]:
        """Pages of places, the partitions' orders merged into one."""
        first, last = keys.listed_range(since, until)
        if before is not None:
            first = max(first, keys.listed_at(*before) + "\x7f")
        heads: dict[str, list[str]] = {one: [] for one in lists}
        behind = dict.fromkeys(lists, first)
        while heads:
            short = [one for one, places in heads.items() if not places and one in behind]
            pages = await asyncio.gather(
                *(self.ledger.wire.page(text, (one, behind[one], last), limit=PAGE) for one in short)
            )
            for one, (page, token) in zip(short, pages, strict=True):
                heads[one] = [place for item in page for place in item.values()]
                if token is None:
                    del behind[one]  # that was all of it
                elif page:
                    behind[one] = heads[one][-1] + "\x7f"
            # Up to the nearest of the places where a partition may go on, the order is known.
            edge = min((heads[one][-1] for one in behind if heads[one]), default="\x7f")
            ready = [place for place in heapq.merge(*heads.values()) if place <= edge]
            heads = {one: [place for place in places if place > edge] for one, places in heads.items()}
            heads = {one: places for one, places in heads.items() if places or one in behind}
            if ready:
                yield list(dict.fromkeys(keys.read_listed(place)[:2] for place in ready))

    async def _by_code(self, filter: Filter, limit: int, before: tuple[Millis, str] | None) -> Page:
        """By the list of dead letters: it tells every code, and it is short."""
        letters = [one for one in await self.letters.listed() if one.code == filter.code]
        rows = await self.ledger.rows([one.id for one in letters])
        found = [row.email() for row in rows.values() if _wanted(filter, row)]
        return _sorted_page(found, before, limit)

    async def _by_the_seeds_query(self, filter: Filter, limit: int, before: tuple[Millis, str] | None) -> Page:
        """A table without our indexes: by status alone, as the seed asks; anything else would read all of it."""
        if not filter.status or filter.recipient is not None:
            raise StoreUnusable(NO_INDEX)
        assert isinstance(self.work, Seeds), "the store opened so"
        rows: list[Row] = []
        for status in dict.fromkeys(filter.status):
            rows += await self.work.rows(status, limit=None)
        return _sorted_page([row.email() for row in rows if _wanted(filter, row)], before, limit)


def _sorted_page(found: list[Email], before: tuple[Millis, str] | None, limit: int) -> Page:
    found.sort(key=lambda one: (one.created_at, one.id), reverse=True)
    behind = [one for one in found if before is None or (one.created_at, one.id) < before]
    return _page(behind, lambda one: (one.created_at, one.id), limit)


def _wanted(filter: Filter, row: Row) -> bool:
    at = row.created_at
    return (
        (not filter.status or row.status in filter.status)
        and (filter.company_id is None or row.company_id == filter.company_id)
        and (filter.recipient is None or filter.recipient in row.envelope)
        and (filter.since is None or at >= filter.since)
        and (filter.until is None or at < filter.until)
    )


def _letter_wanted(filter: Filter, letter: DeadLetter, row: Row | None) -> bool:
    return (
        (not filter.status or (row is not None and row.status in filter.status))
        and (filter.recipient is None or (row is not None and filter.recipient in row.envelope))
        and (filter.code is None or letter.last_failure_code == filter.code)
        and (filter.company_id is None or letter.company_id == filter.company_id)
        and (filter.since is None or letter.moved_at >= filter.since)
        and (filter.until is None or letter.moved_at < filter.until)
    )


async def _paged(
    places: AsyncIterator[list[tuple[Millis, str]]],
    shown: Callable[[list[str]], Awaitable[Sequence[Any]]],
    place: Callable[[Any], tuple[Millis, str]],
    limit: int,
) -> Page:
    """Reads candidates until a page is full. One that had to look at very many ends early; its cursor goes on."""
    found: list[Any] = []
    looked_at = 0
    async for some in places:
        found += await shown([id for _, id in some])
        looked_at += len(some)
        if len(found) > limit:
            break
        if looked_at >= LOOKED_AT_MAX:
            return Page(items=tuple(found), cursor=write_cursor(*some[-1]))
    return _page(found, place, limit)


def _page(found: Sequence[Any], place: Callable[[Any], tuple[Millis, str]], limit: int) -> Page:
    shown = found[:limit]
    more = len(found) > limit and bool(shown)
    return Page(items=tuple(shown), cursor=write_cursor(*place(shown[-1])) if more else None)


def _entry(item: Item) -> tuple[int, HistoryEntry]:
    """Another program's records tell no cause and no number: they stand by their time."""
    told: Item = item.get("Attributes") or {}
    at = values.millis(told.get("UpdatedAt"))
    status = Status(item["Status"].partition("#")[0])
    cause = told.get("Cause")
    entry = HistoryEntry(
        status=status, cause=Cause(cause) if cause else _CAUSES.get(status, Cause.CLAIMED),
        reason=told.get("Reason") or "", at=at,
    )  # fmt: skip
    return told.get("Nth", 0), entry


_CAUSES = {
    Status.ACCEPTED: Cause.ACCEPTED, Status.READY: Cause.COMPOSED, Status.SENT: Cause.DELIVERED,
    Status.FAILED: Cause.REFUSED, Status.INVALID: Cause.INVALID, Status.SENT_ACKNOWLEDGED: Cause.ACKNOWLEDGED,
    Status.FAILED_ACKNOWLEDGED: Cause.ACKNOWLEDGED, Status.CALLING_SENT_CALLBACK: Cause.REPORTING,
    Status.CALLING_FAILED_CALLBACK: Cause.REPORTING,
}  # fmt: skip
"""What most likely moved an e-mail there, where its record does not tell."""
