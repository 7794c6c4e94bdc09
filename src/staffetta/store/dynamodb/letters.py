"""Dead letters: beside the e-mail as `_DLQ`, and as an entry of the list in the engine's own table.

An entry's name tells when, who and why, so that listing and counting read no letter; there are at most some ten
thousand of them. The list needs no index of the outbox and never lags.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from staffetta.mail.message import DeadLetter, Millis, Value
from staffetta.store.contract import DeadLetterCounts
from staffetta.store.dynamodb import keys
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.wire import Refused, Statement, Wire

FAMILY = "DLQ"


class Listed(Value, frozen=True, kw_only=True):
    """A dead letter as its entry tells of it."""

    id: str
    at: Millis
    ttl_ms: int
    code: str
    company_id: str


class Letters:
    """Those of one table."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self._wire = wire
        self._table = f'"{place.table}"'
        self.entries = f'"{place.engine_table}"'

    # --- reading ---------------------------------------------------------------------------------------------

    async def one(self, id: str) -> DeadLetter | None:
        return (await self.many([id])).get(id)

    async def many(self, ids: Sequence[str]) -> dict[str, DeadLetter]:
        text = f"SELECT Id, Letter FROM {self._table} WHERE Id=? AND Status='{keys.DEAD}'"
        return {
            item["Id"]: msgspec.msgpack.decode(item["Letter"], type=DeadLetter)
            for item in await self._wire.pick(text, [(id,) for id in dict.fromkeys(ids)])
        }

    async def listed(self) -> list[Listed]:
        """All that are there, newest first."""
        text = f"SELECT Member FROM {self.entries} WHERE Family=?"
        asked = (self._wire.execute(text, one) for one in keys.shards_of(FAMILY))
        found = [_listed(item["Member"]) for some in await asyncio.gather(*asked) for item in some]
        return sorted(found, key=lambda one: (one.at, one.id), reverse=True)

    async def counts(self) -> DeadLetterCounts:
        letters = await self.listed()
        by_code: dict[str, int] = {}
        by_company: dict[str, int] = {}
        for one in letters:
            by_code[one.code] = by_code.get(one.code, 0) + 1
            by_company[one.company_id] = by_company.get(one.company_id, 0) + 1
        return DeadLetterCounts(
            size=len(letters), by_code=by_code, by_company=by_company,
            oldest_at=letters[-1].at if letters else None,
        )  # fmt: skip

    # --- writing ---------------------------------------------------------------------------------------------

    def bury(self, letter: DeadLetter, old: DeadLetter | None, ttl: int | None) -> list[Statement]:
        """Put there, or in the place of the one that is there."""
        packed = msgspec.msgpack.encode(letter)
        if old is None:
            item: dict[str, object] = {"Id": letter.outbox_id, "Status": keys.DEAD, "Letter": packed}
            if ttl is not None:
                item["TTL"] = ttl
            fields = ", ".join(f"'{name}': ?" for name in item)
            return [
                (f"INSERT INTO {self._table} VALUE {{{fields}}}", tuple(item.values())),
                self._entry(letter),
            ]
        lived = () if ttl is None else (ttl,)
        text = (
            f"UPDATE {self._table} SET Letter=?{', TTL=?' if lived else ''}"
            f" WHERE Id=? AND Status='{keys.DEAD}' AND Letter=?"
        )
        renewed: Statement = (text, (packed, *lived, letter.outbox_id, msgspec.msgpack.encode(old)))
        if _name(letter) == _name(old):
            return [renewed]
        return [renewed, self._entry(letter), self._forget(old)]

    def remove(self, letter: DeadLetter) -> list[Statement]:
        text = f"DELETE FROM {self._table} WHERE Id=? AND Status='{keys.DEAD}' AND Letter=?"
        return [(text, (letter.outbox_id, msgspec.msgpack.encode(letter))), self._forget(letter)]

    def _entry(self, letter: DeadLetter) -> Statement:
        text = f"INSERT INTO {self.entries} VALUE {{'Family': ?, 'Member': ?}}"
        return text, (keys.listing(FAMILY, letter.outbox_id), _name(letter))

    def _forget(self, letter: DeadLetter) -> Statement:
        text = f"DELETE FROM {self.entries} WHERE Family=? AND Member=?"
        return text, (keys.listing(FAMILY, letter.outbox_id), _name(letter))

    async def discard(self, ids: Sequence[str]) -> int:
        """How many were there."""
        gone = 0
        for letter in (await self.many(ids)).values():
            try:
                await self._wire.transact(self.remove(letter))
            except Refused as refused:
                if not refused.lost:
                    raise
            else:
                gone += 1
        return gone


def _name(letter: DeadLetter) -> str:
    """Its place, and what counting needs of it. The company last, for it may hold any sign."""
    return keys.listed_at(
        letter.moved_at, letter.outbox_id, str(letter.ttl_ms), letter.last_failure_code or "", letter.company_id
    )


def _listed(name: str) -> Listed:
    at, id, more = keys.read_listed(name)
    ttl_ms, code, company_id = more.split("\x01", 2)
    return Listed(id=id, at=at, ttl_ms=int(ttl_ms), code=code, company_id=company_id)
