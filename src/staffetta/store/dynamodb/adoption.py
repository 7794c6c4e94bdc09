"""E-mails that another program brought or moved: given the keys by which our indexes find them, and counted.

Nothing of their life changes: no status, no `UpdatedAt`, no history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from staffetta.mail import journal
from staffetta.mail.message import Millis, Options, Value
from staffetta.store.dynamodb import keys
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.wire import Refused


class Owners(Value, frozen=True, kw_only=True):
    """Whose outcomes are told, of e-mails that other programs ended."""

    window_ms: Millis
    """Older ones are not told any more."""
    waits: Callable[[str, Options], bool]
    """Whether an owner of this company waits to hear."""
    clock: Callable[[], Millis]


class Adoption:
    """Goes through the seed's index, a page at a time, round and round."""

    def __init__(self, ledger: Ledger, owners: Owners | None = None) -> None:
        self._ledger = ledger
        self._owners = owners
        self._behind: str | None = None

    async def look(self) -> int:
        """Adopt what the next page of the index shows; how many that were."""
        adopted, self._behind = await self._page(self._behind)
        return adopted

    async def _page(self, behind: str | None) -> tuple[int, str | None]:
        text = (
            f'SELECT Id FROM "{self._ledger.place.table}"."StatusIndex"'
            " WHERE Status=? AND (Attributes.Ours IS MISSING OR Attributes.Ours <> Attributes.Latest)"
        )
        found, behind = await self._ledger.wire.page(text, (keys.META,), token=behind)
        adopted = await asyncio.gather(*(self.adopt(item["Id"]) for item in found))
        return sum(adopted), behind

    async def all(self) -> int:
        """The whole table once."""
        adopted, behind = await self._page(None)
        while behind is not None:
            more, behind = await self._page(behind)
            adopted += more
        return adopted

    async def adopt(self, id: str) -> bool:
        held = await self._ledger.held(id)
        if held is None or held.row.ours == held.row.status:
            return False
        row = held.row
        before, row.ours = row.ours, row.status
        row.forget_claim()
        self._fix_owner(row)
        for _ in range(2):
            parts = [("meta", self._ledger.update(row))]
            if before is None:
                parts.append(("listed", self._ledger.listed(row)))
            try:
                await self._ledger.transact(parts, before, row.status)
            except Refused as refused:
                if not _unlisted(row, refused):
                    return False  # it moved meanwhile: the next round meets it
            else:
                return True
        return False

    def _fix_owner(self, row: Row) -> None:
        """Whether a callback is due is fixed on entering SENT or FAILED: here, when that is first seen."""
        owners = self._owners
        if owners is None or row.status not in journal.ENDS:
            return
        row.reached_at, row.sequence = row.updated_at, row.sequence + 1
        young = row.updated_at > owners.clock() - owners.window_ms
        row.callback_due = young and owners.waits(row.company_id, row.options)


def _unlisted(row: Row, refused: Refused) -> bool:
    """It has no record of its beginning that could carry the keys of listings: one of ours must."""
    if row.begun and refused.reasons[:1] == ("None",):
        row.begun = False
        return True
    return False
