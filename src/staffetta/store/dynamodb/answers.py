"""Answers to requests that carried an idempotency key, in the engine's table.

free -> taken -> answered       `taken`: its e-mails are being written; the same request may go on with it
free ----------> answered       one e-mail: written in the e-mail's own transaction
"""

from __future__ import annotations

from staffetta.mail import journal
from staffetta.mail.message import KeptAnswer, Millis, Value
from staffetta.store.dynamodb import keys
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.wire import Refused, Statement, Wire

FAMILY = "ANSWER"
_TRIES_MAX = 5


class Kept(Value, frozen=True, kw_only=True):
    answer: KeptAnswer
    taken: bool
    """Not answered yet."""

    def gives_way_to(self, keep: KeptAnswer) -> bool:
        """It is too old, or it is this very request's."""
        old = self.answer.at <= keep.at - journal.KEPT_ANSWER_MS
        return old or (self.taken and self.answer.fingerprint == keep.fingerprint)


class Answers:
    """Kept apart in several partitions, each key always in the same one."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self._wire = wire
        self._table = f'"{place.engine_table}"'
        self._behind: str | None = None

    async def find(self, company_id: str, key: str) -> Kept | None:
        text = f"SELECT * FROM {self._table} WHERE Family=? AND Member=?"
        found = await self._wire.execute(text, *_names(company_id, key), consistent=True)
        return _read(found[0], company_id, key) if found else None

    def put(self, keep: KeptAnswer, kept: Kept | None, *, taken: bool = False) -> Statement:
        """The answer in place of what is kept there now."""
        told: Item = {
            "Fingerprint": keep.fingerprint,
            "Answer": keep.answer,
            "SavedAt": keep.at,
            "Taken": taken,
        }
        told["TTL"] = (keep.at + 2 * journal.KEPT_ANSWER_MS) // 1_000
        names = _names(keep.company_id, keep.key)
        if kept is None:
            fields = ", ".join(f"'{name}': ?" for name in ("Family", "Member", *told))
            return f"INSERT INTO {self._table} VALUE {{{fields}}}", (*names, *told.values())
        changes = ", ".join(f"{name}=?" for name in told)
        text = f"UPDATE {self._table} SET {changes} WHERE Family=? AND Member=? AND Fingerprint=? AND SavedAt=?"
        return text, (*told.values(), *names, kept.answer.fingerprint, kept.answer.at)

    async def put_alone(self, keep: KeptAnswer, kept: Kept | None, *, taken: bool = False) -> bool:
        """Whether it was still free to be put there."""
        try:
            await self._wire.transact([self.put(keep, kept, taken=taken)])
        except Refused as refused:
            if refused.lost or refused.duplicate:
                return False
            raise
        return True

    async def take(self, keep: KeptAnswer) -> bool:
        """Whether this request may go on; nobody else's may from here on."""
        for _ in range(_TRIES_MAX):
            kept = await self.find(keep.company_id, keep.key)
            if kept is not None and not kept.gives_way_to(keep):
                return False
            if await self.put_alone(keep, kept, taken=True):
                return True
        return False

    async def settle(self, keep: KeptAnswer) -> None:
        """Its e-mails are there: from here on the answer is given again."""
        text = f"UPDATE {self._table} SET Taken=? WHERE Family=? AND Member=?"
        await self._wire.execute(text, False, *_names(keep.company_id, keep.key))  # a value

    async def forget(self, *, now: Millis, limit: int) -> None:
        """Old ones go, a page of them looked at a call; DynamoDB's own TTL takes what this never meets."""
        families = keys.shards_of(FAMILY)
        number, _, token = (self._behind or "0|").partition("|")
        text = f"SELECT Family, Member, SavedAt FROM {self._table} WHERE Family=?"
        page: list[Item] = []
        for place in range(int(number), len(families)):
            some, more = await self._wire.page(text, (families[place],), limit=limit, token=token or None)
            page, token = page + some, ""
            if more is not None:
                self._behind = f"{place}|{more}"
                break
        else:
            self._behind = None
        for item in page:
            if item["SavedAt"] <= now - journal.KEPT_ANSWER_MS:
                gone = f"DELETE FROM {self._table} WHERE Family=? AND Member=?"
                await self._wire.execute(gone, item["Family"], item["Member"])


def _names(company_id: str, key: str) -> tuple[str, str]:
    member = f"{company_id}\x01{key}"
    return keys.listing(FAMILY, member), member


def _read(item: Item, company_id: str, key: str) -> Kept:
    answer = KeptAnswer(
        company_id=company_id,
        key=key,
        fingerprint=item["Fingerprint"],
        answer=item["Answer"],
        at=item["SavedAt"],
    )
    return Kept(answer=answer, taken=item.get("Taken", False))
