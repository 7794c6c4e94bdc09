"""What is still to do, asked of the indexes: the sparse ones that `migrate` makes, or the seed's `StatusIndex`.

Indexes lag: nothing is concluded from one here, whoever takes an e-mail compares with its own record.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from staffetta.mail import journal
from staffetta.mail.lifecycle import IN_WORK, Status
from staffetta.mail.message import Job, Millis
from staffetta.mail.parting import Part
from staffetta.store.dynamodb import keys
from staffetta.store.dynamodb.keys import Entry, Kind
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.wire import Wire

PAGE = 1_000
SEEDS_PAGE = 25


class Mine(Protocol):
    """What of all this is this process's to send."""

    @property
    def part(self) -> Part: ...

    @property
    def shards(self) -> list[int]: ...


class Work(Protocol):
    """The questions that stages ask."""

    async def companies(self, *, now: Millis) -> list[str]:
        """Those with something READY and due."""

    async def line(
        self, company_id: str, *, now: Millis, limit: int, after: Job | None, mine: Mine
    ) -> list[Entry]:
        """What is READY and due of one company, in its order, of this process's part."""

    async def due(self, *, after: Millis, now: Millis, limit: int, mine: Mine) -> list[Entry]:
        """What is READY and became due after `after`, up to now, of this process's part."""

    async def next_due(self, *, now: Millis) -> Millis | None:
        """When the next one that is READY will be due."""

    async def delayed(self, *, now: Millis) -> int:
        """How many are READY and not yet due."""

    async def oldest(self, kind: Kind, *, limit: int, until: Millis | None = None) -> list[Entry]:
        """The oldest of a kind first."""

    async def some(self, kinds: Sequence[Kind], behind: str | None) -> tuple[list[Entry], str | None]:
        """A page of these kinds in no order, and where the next one begins."""


class Sparse:
    """By the indexes over what is still to do: the same cost however much is finished."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self._wire = wire
        self._todo = f'"{place.table}"."TodoIndex"'
        self._line = f'"{place.table}"."LineIndex"'

    async def companies(self, *, now: Millis) -> list[str]:
        found = await asyncio.gather(*(self._companies_in(one, now) for one in keys.all_lines()))
        return sorted(set().union(*found))

    async def _companies_in(self, line: str, now: Millis) -> set[str]:
        """Page by page, leaping over the rest of a company once something of it is known to be due."""
        text = f"SELECT LineAt FROM {self._line} WHERE Line=? AND LineAt>?"
        found: set[str] = set()
        behind = " "
        while True:
            page, token = await self._wire.page(text, (line, behind), limit=PAGE)
            entries = [_line_of(item) for item in page]
            found |= _with_due(entries, now)
            if token is None or not entries:
                return found
            last = entries[-1]
            behind = keys.line_end(last.company_id) if last.company_id in found else page[-1]["LineAt"]

    async def line(
        self, company_id: str, *, now: Millis, limit: int, after: Job | None, mine: Mine
    ) -> list[Entry]:
        lines = keys.lines_of(company_id, mine.shards)
        found = await asyncio.gather(
            *(self._line_in(one, company_id, now=now, limit=limit, after=after, mine=mine) for one in lines)
        )
        return heapq.nsmallest(limit, (entry for part in found for entry in part), key=_place)

    async def _line_in(
        self, line: str, company_id: str, *, now: Millis, limit: int, after: Job | None, mine: Mine
    ) -> list[Entry]:
        text = f"SELECT LineAt FROM {self._line} WHERE Line=? AND LineAt BETWEEN ? AND ?"
        first = keys.line_from(company_id, 0) if after is None else keys.line_behind(company_id, after)
        end = keys.line_end(company_id)
        found: list[Entry] = []
        while True:
            page, token = await self._wire.page(text, (line, first, end), limit=limit)
            entries = [_line_of(item) for item in page]
            found += [entry for entry in entries if entry.at <= now and mine.part.has(entry.id)]
            if token is None or not entries or len(found) >= limit:
                return found[:limit]
            last = entries[-1]
            # Within one priority the line is ordered by time: behind what is not due yet nothing is.
            ahead = last.at > now
            first = keys.line_from(company_id, last.priority + 1) if ahead else page[-1]["LineAt"] + " "

    async def due(self, *, after: Millis, now: Millis, limit: int, mine: Mine) -> list[Entry]:
        text = f"SELECT TodoAt FROM {self._todo} WHERE Todo=? AND TodoAt BETWEEN ? AND ?"
        bounds = (keys.to_time(after), keys.to_time(now))

        async def some(todo: str) -> list[Entry]:
            found: list[Entry] = []
            token: str | None = None
            while len(found) < limit:
                page, token = await self._wire.page(text, (todo, *bounds), limit=limit, token=token)
                entries = (keys.read_todo(item["TodoAt"]) for item in page)
                found += [entry for entry in entries if mine.part.has(entry.id)]
                if token is None:
                    break
            return found

        found = await asyncio.gather(*map(some, keys.todos("READY", shards=mine.shards)))
        return [entry for part in found for entry in part][:limit]

    async def next_due(self, *, now: Millis) -> Millis | None:
        text = f"SELECT TodoAt FROM {self._todo} WHERE Todo=? AND TodoAt>?"
        asked = (self._wire.page(text, (one, keys.to_time(now)), limit=1) for one in keys.todos("READY"))
        first = [keys.read_todo(item["TodoAt"]).at for page, _ in await asyncio.gather(*asked) for item in page]
        return min(first, default=None)

    async def delayed(self, *, now: Millis) -> int:
        text = f"SELECT Todo FROM {self._todo} WHERE Todo=? AND TodoAt>?"
        asked = (self._wire.execute(text, one, keys.to_time(now)) for one in keys.todos("READY"))
        return sum(map(len, await asyncio.gather(*asked)))

    async def oldest(self, kind: Kind, *, limit: int, until: Millis | None = None) -> list[Entry]:
        if limit < 1:
            return []
        # Each partition by itself: naming several at once, DynamoDB may walk through the whole index for them.
        last = "~" if until is None else keys.to_time(until)
        text = f"SELECT TodoAt FROM {self._todo} WHERE Todo=? AND TodoAt<=?"
        asked = (self._wire.page(text, (one, last), limit=limit) for one in keys.todos(kind))
        page = [item for some, _ in await asyncio.gather(*asked) for item in some]
        entries = (keys.read_todo(item["TodoAt"]) for item in page)
        return heapq.nsmallest(limit, entries, key=lambda entry: (entry.at, entry.id))

    async def some(self, kinds: Sequence[Kind], behind: str | None) -> tuple[list[Entry], str | None]:
        todos = keys.todos(*kinds)
        number, _, token = (behind or "0|").partition("|")
        text = f"SELECT TodoAt FROM {self._todo} WHERE Todo=?"
        page, more = await self._wire.page(text, (todos[int(number)],), limit=PAGE, token=token or None)
        entries = [keys.read_todo(item["TodoAt"]) for item in page]
        if more is not None:
            return entries, f"{number}|{more}"
        following = int(number) + 1
        return entries, f"{following}|" if following < len(todos) else None


class Seeds:
    """By the seed's own query, on a table that has only its own index: what it costs grows with the table."""

    def __init__(self, place: Place, wire: Wire, *, projects_ttl: bool) -> None:
        self._wire = wire
        ttl = ", TTL" if projects_ttl else ""
        self.query = (
            f'SELECT Id, Status, Attributes{ttl} FROM "{place.table}"."StatusIndex"'
            " WHERE Status=? AND Attributes.Latest=?"
        )

    async def rows(
        self, status: Status, *, limit: int | None, wanted: Callable[[Row], bool] = lambda _: True
    ) -> list[Row]:
        """E-mails in a status: 25 looked at a query, until so many are found or none are left. All of them (no
        limit): as many a query as DynamoDB looks at."""
        found: list[Row] = []
        token: str | None = None
        while limit is None or len(found) < limit:
            size = None if limit is None else SEEDS_PAGE
            page, token = await self._page(status, size, token)
            found += filter(wanted, page)
            if token is None:
                break
        return found

    async def _page(self, status: Status, size: int | None, token: str | None) -> tuple[list[Row], str | None]:
        page, token = await self._wire.page(self.query, (keys.META, str(status)), limit=size, token=token)
        return [row for row in map(Row.read, page) if row.status is status], token

    async def _ready(self) -> list[Row]:
        return await self.rows(Status.READY, limit=None, wanted=lambda row: row.composed)

    async def companies(self, *, now: Millis) -> list[str]:
        return sorted({row.company_id for row in await self._ready() if row.due_at <= now})

    async def line(
        self, company_id: str, *, now: Millis, limit: int, after: Job | None, mine: Mine
    ) -> list[Entry]:
        entries = [
            row.entry("READY")
            for row in await self._ready()
            if row.company_id == company_id and row.due_at <= now and mine.part.has(row.id)
        ]
        if after is not None:
            behind = (after.priority, after.due_at, after.id)
            entries = [entry for entry in entries if _place(entry) > behind]
        return heapq.nsmallest(limit, entries, key=_place)

    async def due(self, *, after: Millis, now: Millis, limit: int, mine: Mine) -> list[Entry]:
        def wanted(row: Row) -> bool:
            return after < row.due_at <= now and row.composed and mine.part.has(row.id)

        rows = await self.rows(Status.READY, limit=limit, wanted=wanted)
        return [row.entry("READY") for row in rows]

    async def next_due(self, *, now: Millis) -> Millis | None:
        return min((row.due_at for row in await self._ready() if row.due_at > now), default=None)

    async def delayed(self, *, now: Millis) -> int:
        return sum(row.due_at > now for row in await self._ready())

    async def oldest(self, kind: Kind, *, limit: int, until: Millis | None = None) -> list[Entry]:
        def wanted(row: Row) -> bool:
            return row.kind == kind and (until is None or row.entry(kind).at <= until)

        found: list[Row] = []
        for status in _STATUSES[kind]:
            found += await self.rows(status, limit=max(limit, SEEDS_PAGE), wanted=wanted)
        entries = (row.entry(kind) for row in found)
        return heapq.nsmallest(limit, entries, key=lambda entry: (entry.at, entry.id))

    async def some(self, kinds: Sequence[Kind], behind: str | None) -> tuple[list[Entry], str | None]:
        asked = [(kind, status) for kind in kinds for status in _STATUSES[kind]]
        number, _, token = (behind or "0|").partition("|")
        kind, status = asked[int(number)]
        page, more = await self._page(status, None, token or None)
        entries = [row.entry(kind) for row in page if row.kind == kind]
        if more is not None:
            return entries, f"{number}|{more}"
        following = int(number) + 1
        return entries, f"{following}|" if following < len(asked) else None


_STATUSES: dict[Kind, Iterable[Status]] = {
    "READY": (Status.READY,),
    "ACCEPTED": (Status.ACCEPTED,),
    "WORK": sorted(IN_WORK),
    "REPORT": sorted(journal.ENDS),
    "ENDED": sorted((*journal.ENDS, *journal.CALLING, Status.INVALID, Status.SENT_ACKNOWLEDGED,
                     Status.FAILED_ACKNOWLEDGED)),
    "ERASED": (),
    "VISITOR": (Status.READY,),
}  # fmt: skip
"""Where the e-mails of a kind stand. The index does not tell which have lost their content already."""


def _line_of(item: dict[str, str]) -> Entry:
    return keys.read_line(item["LineAt"])


def _with_due(entries: Iterable[Entry], now: Millis) -> set[str]:
    return {entry.company_id for entry in entries if entry.at <= now}


def _place(entry: Entry) -> tuple[int, Millis, str]:
    return entry.priority, entry.at, entry.id
