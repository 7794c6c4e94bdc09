"""E-mails become durable: one transaction each, all of them at once; answers are kept under their keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from staffetta.errors import Conflict, StaffettaError, Unstorable
from staffetta.mail import journal
from staffetta.mail.message import Added, KeptAnswer, Millis, NewEmail
from staffetta.store.dynamodb import keys, values
from staffetta.store.dynamodb.answers import Answers
from staffetta.store.dynamodb.ledger import Ledger, Part
from staffetta.store.dynamodb.moves import file_record, recipient_record
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.wire import DUPLICATE, LOST, Refused, storable

CONTENT_MAX_BYTES = 300_000
"""Payload and message together in one item up to here; beyond, the payload has an item of its own."""
KNOWN_KEY = "this idempotency key was answered before"


class HandIn:
    ledger: Ledger
    answers: Answers
    told: dict[str, tuple[Millis, str]]

    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        if keep is None:
            return await self._all(emails)
        if len(emails) == 1:
            return [await self._add_answered(emails[0], keep)]
        wrong = [error for error in map(self._unstorable, emails) if error is not None]
        if wrong:  # the answer tells of every e-mail: half of it must not be given again
            return [wrong[0] for _ in emails]
        # One transaction cannot hold them all. The key is taken first, marked as not answered yet; whoever
        # comes with it again after a crash goes on where this one stood, under the same ids.
        if not await self.answers.take(keep):
            return [Conflict(KNOWN_KEY) for _ in emails]
        added = await self._all(emails)
        await self.answers.settle(keep)
        return added

    async def recall(self, company_id: str, key: str, *, newer_than: Millis) -> KeptAnswer | None:
        kept = await self.answers.find(company_id, key)
        if kept is None or kept.taken or kept.answer.at < newer_than:
            return None
        return kept.answer

    async def _add_answered(self, new: NewEmail, keep: KeptAnswer) -> Added | Exception:
        """One e-mail and the answer to its request, in one transaction."""
        for _ in range(3):
            kept = await self.answers.find(keep.company_id, keep.key)
            if kept is not None and not kept.gives_way_to(keep):
                return Conflict(KNOWN_KEY)
            added = await self._add(new, keep=[("answer", self.answers.put(keep, kept))])
            if added is None:
                continue
            if not (isinstance(added, Added) and added.fresh):
                # The e-mail's own transaction did not carry it: its id was known, or nothing could keep it.
                await self.answers.put_alone(keep, kept)
            return added
        return Conflict(KNOWN_KEY)

    async def _all(self, emails: Sequence[NewEmail]) -> list[Added | Exception]:
        """All at once, but the same id one after the other: the first of them is the one that is new."""
        turns: dict[str, asyncio.Lock] = {}

        async def one(new: NewEmail) -> Added | Exception:
            async with turns.setdefault(new.id, asyncio.Lock()):
                return await self._added(new)

        return list(await asyncio.gather(*map(one, emails)))

    def _unstorable(self, new: NewEmail) -> Unstorable | None:
        try:
            with storable():
                for _, (_, parameters) in self._records(new, Row.of(new)):
                    msgspec.json.encode([values.written(one) for one in parameters])
        except Unstorable as error:
            return error
        return None

    async def _added(self, new: NewEmail) -> Added | Exception:
        added = await self._add(new)
        assert added is not None, "there is no key that could be taken"
        return added

    async def _add(self, new: NewEmail, keep: Sequence[Part] = ()) -> Added | Exception | None:
        """None where the answer's key was taken meanwhile."""
        try:
            journal.check_new(new)
        except ValueError as error:
            return error
        row = Row.of(new)
        if self.ledger.place.life_ms is not None:
            row.ttl = -(-(row.expires_at + self.ledger.place.life_ms) // 1_000)
        try:
            with storable():
                parts: list[Part] = [*self._records(new, row), *keep]
        except Unstorable as error:
            return error
        # Not news to this process: who hands in here reminds the queue here.
        if new.due_at <= new.history[-1].at:
            self.told[new.id] = (new.due_at, str(row.moves))
        try:
            await self.ledger.transact(parts, None, new.status)
        except Refused as refused:
            self.told.pop(new.id, None)
            reasons = dict(zip((what for what, _ in parts), refused.reasons, strict=False))
            if reasons.get("meta") == DUPLICATE or not refused.reasons:
                return await self._known(new)
            if reasons.get("answer") not in (DUPLICATE, LOST):
                raise
            return None
        except Unstorable as error:
            self.told.pop(new.id, None)
            return error  # it fails alone
        except StaffettaError:
            self.told.pop(new.id, None)
            raise
        self.ledger.stirred(row.kind)
        return Added(id=new.id, status=new.status, fresh=True)

    async def _known(self, new: NewEmail) -> Added | Exception:
        held = await self.ledger.held(new.id)
        if held is None or (held.row.company_id, held.row.fingerprint) != (new.company_id, new.fingerprint):
            return Conflict(f"e-mail {new.id} is known with another content")
        return Added(id=new.id, status=held.row.status, fresh=False)

    def _records(self, new: NewEmail, row: Row) -> list[Part]:
        ledger = self.ledger
        meta: Item = {"Attributes": row.attributes(), **row.root()}
        parts: list[Part] = [("meta", ledger.insert(row, keys.META, meta))]
        entered: dict[str, int] = {}
        for number, entry in enumerate(new.history, 1):
            entered[entry.status] = entered.get(entry.status, 0) + 1
            told: Item = {
                "UpdatedAt": values.moment(entry.at), "Reason": values.reason(entry.reason),
                "Cause": str(entry.cause), "Nth": number,
            }  # fmt: skip
            item: Item = {"Attributes": told}
            if number == 1:
                item["Listed"] = keys.listing(keys.EVERY, row.id)
                item["ListedAt"] = keys.listed_at(row.created_at, row.id)
                item["Company"] = keys.listing(row.company_id, row.id)
            name = keys.history_item(entry.status, entered[entry.status])
            parts.append(("history", ledger.insert(row, name, item)))
        return [*parts, *self._contents(new, row), *(
            ("file", file_record(ledger, row, path)) for path in dict.fromkeys(row.file_paths())
        ), *(
            ("recipient", recipient_record(ledger, row, address)) for address in dict.fromkeys(row.envelope)
        )]  # fmt: skip

    def _contents(self, new: NewEmail, row: Row) -> list[Part]:
        told: Item = {}
        if new.message is not None:
            told["Message"] = new.message
        apart = len(new.payload or b"") + len(new.message or b"") > CONTENT_MAX_BYTES
        if new.payload is not None and not apart:
            told["Payload"] = new.payload
        parts: list[Part] = [("content", self.ledger.insert(row, keys.CONTENT, told))]
        if new.payload is not None and apart:
            parts.append(("payload", self.ledger.insert(row, keys.PAYLOAD, {"Payload": new.payload})))
        return parts
