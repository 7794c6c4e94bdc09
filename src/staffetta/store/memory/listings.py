"""Reading the memory store: records, stories, counts, dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from staffetta.mail import position
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry, Millis
from staffetta.mail.operators import Filter, Page
from staffetta.store.contract import Content, DeadLetterCounts
from staffetta.store.memory.rows import Row, State

T = TypeVar("T")


class Listings:
    state: State

    async def get(self, id: str) -> Email | None:
        row = self.state.rows.get(id)
        return row.email() if row is not None else None

    async def history(self, id: str) -> list[HistoryEntry]:
        row = self.state.rows.get(id)
        return [entry for entry, _ in row.history] if row is not None else []

    async def attempts(self, id: str) -> list[Attempt]:
        row = self.state.rows.get(id)
        if row is None:
            return []
        return [*row.closed, row.open] if row.open is not None else list(row.closed)

    async def content(self, id: str) -> Content | None:
        row = self.state.rows.get(id)
        if row is None or row.erased:
            return None
        return Content(payload=row.payload, message=row.message, payload_file_path=row.payload_file_path,
                       eml_file_path=row.eml_file_path)  # fmt: skip

    async def emails(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        rows = (row for row in self.state.rows.values() if self._wanted(row, filter))
        return _page(rows, lambda row: (row.created_at, row.number), Row.email, limit, cursor)

    def _wanted(self, row: Row, filter: Filter) -> bool:
        letter = self.state.dead.get(row.id)
        return (
            (not filter.status or row.status in filter.status)
            and (filter.code is None or (letter is not None and letter.last_failure_code == filter.code))
            and _narrow(filter, row, row.created_at)
        )

    async def counts(self) -> dict[Status, int]:
        found = Counter(row.status for row in self.state.rows.values())
        return {status: found[status] for status in Status}

    async def queue_counts(self, *, now: Millis) -> tuple[int, int, int]:
        due = [row.due_at <= now for line in self.state.ready.values() for row in line.values()]
        active = sum(row.status is Status.PROCESSING for row in self.state.in_work.values())
        return due.count(True), due.count(False), active

    # --- dead letters ------------------------------------------------------------

    async def dead_letter(self, id: str) -> DeadLetter | None:
        return self.state.dead.get(id)

    async def dead_letters(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        def wanted(letter: DeadLetter) -> bool:
            row = self.state.rows[letter.outbox_id]
            return (
                (not filter.status or row.status in filter.status)
                and (filter.code is None or letter.last_failure_code == filter.code)
                and _narrow(filter, row, letter.moved_at)
            )

        letters = [letter for letter in self.state.dead.values() if wanted(letter)]
        return _page(
            letters, lambda x: (x.moved_at, self.state.rows[x.outbox_id].number), lambda x: x, limit, cursor
        )

    async def dead_letter_counts(self) -> DeadLetterCounts:
        letters = self.state.dead.values()
        return DeadLetterCounts(
            size=len(letters),
            by_code=dict(Counter(letter.last_failure_code or "" for letter in letters)),
            by_company=dict(Counter(letter.company_id for letter in letters)),
            oldest_at=min((letter.moved_at for letter in letters), default=None),
        )


def _narrow(filter: Filter, row: Row, at: Millis) -> bool:
    return (
        (filter.company_id is None or row.company_id == filter.company_id)
        and (filter.recipient is None or filter.recipient in row.envelope)
        and (filter.since is None or at >= filter.since)
        and (filter.until is None or at < filter.until)
    )


def _page(
    found: Iterable[T],
    place: Callable[[T], tuple[Millis, int]],
    show: Callable[[T], object],
    limit: int,
    cursor: str | None,
) -> Page:
    before = position.read(cursor) if cursor is not None else None
    rows = sorted((one for one in found if before is None or place(one) < before), key=place, reverse=True)
    shown = rows[:limit]
    return Page(
        items=tuple(show(one) for one in shown),
        cursor=position.write(*place(shown[-1])) if len(rows) > limit and shown else None,
    )
