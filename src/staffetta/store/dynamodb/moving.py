"""E-mails on their way from another store into this one, or out of it."""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.mail.lifecycle import Status
from staffetta.store.contract import Unlisted, Whole
from staffetta.store.dynamodb import keys, values
from staffetta.store.dynamodb.handin import CONTENT_MAX_BYTES
from staffetta.store.dynamodb.ledger import Ledger, Part
from staffetta.store.dynamodb.letters import Letters
from staffetta.store.dynamodb.moves import file_record, recipient_record
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.steering import EngineTable
from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.wire import DUPLICATE, Refused

TOGETHER_MAX = 90
"""Records that go in one transaction; of a longer life the rest goes before, and the record last."""


class Moving:
    ledger: Ledger
    letters: Letters
    engine: EngineTable

    # --- into this store -----------------------------------------------------------------------------------------

    async def take_over(self, whole: Whole) -> bool:
        if await self.ledger.held(whole.email.id) is not None:
            return False
        row = row_of(whole)
        life_ms = self.ledger.place.life_ms
        if life_ms is not None:
            row.ttl = -(-(row.expires_at + life_ms) // 1_000)
        meta: Part = (
            "meta",
            self.ledger.insert(row, keys.META, {"Attributes": row.attributes(), **row.root()}),
        )
        parts = [*self._histories(whole, row), *self._contents_of(whole, row)]
        parts += [("attempt", self.ledger.insert_attempt(row, attempt)) for attempt in whole.closed]
        if whole.dead_letter is not None:
            parts += [("letter", one) for one in self.letters.bury(whole.dead_letter, None, row.ttl)]
        if len(parts) > TOGETHER_MAX:
            # Records without a meta record are nobody's: what a broken try left of them makes room.
            for name in await self.ledger.names(row.id):
                text, parameters = self.ledger.delete(row.id, name)
                await self.ledger.wire.execute(text, *parameters)
        while len(parts) > TOGETHER_MAX:
            some, parts = parts[:TOGETHER_MAX], parts[TOGETHER_MAX:]
            await self.ledger.wire.transact([statement for _, statement in some])
        try:
            await self.ledger.transact([meta, *parts], None, row.status)
        except Refused as refused:
            if refused.reasons[:1] == (DUPLICATE,):
                return False
            raise
        return True

    def _histories(self, whole: Whole, row: Row) -> list[Part]:
        entered: dict[str, int] = {}
        parts: list[Part] = []
        for number, entry in enumerate(whole.history, 1):
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
            parts.append(("history", self.ledger.insert(row, name, item)))
        return parts

    def _contents_of(self, whole: Whole, row: Row) -> list[Part]:
        parts: list[Part] = [
            ("recipient", recipient_record(self.ledger, row, address))
            for address in dict.fromkeys(row.envelope)
        ]
        content = whole.content
        if content is None:
            return parts
        parts += [("file", file_record(self.ledger, row, path)) for path in dict.fromkeys(row.file_paths())]
        told: Item = {}
        if content.message is not None:
            told["Message"] = content.message
        apart = len(content.payload or b"") + len(content.message or b"") > CONTENT_MAX_BYTES
        if content.payload is not None and not apart:
            told["Payload"] = content.payload
        parts.append(("content", self.ledger.insert(row, keys.CONTENT, told)))
        if content.payload is not None and apart:
            parts.append(("payload", self.ledger.insert(row, keys.PAYLOAD, {"Payload": content.payload})))
        return parts

    # --- out of this store ---------------------------------------------------------------------------------------

    async def unlisted(self, ids: Sequence[str]) -> list[Unlisted]:
        rows = await self.ledger.rows(ids)
        found: list[Unlisted] = []
        for id in ids:
            row = rows.get(id)
            if row is None:
                found.append(Unlisted())
                continue
            late = [await self.ledger.attempt(id, item) for item in row.late]
            known = tuple(one for one in late if one is not None)
            found.append(Unlisted(fingerprint=row.fingerprint, late=known, batch=row.batch))
        return found

    async def settings(self) -> dict[str, bytes]:
        return {item["Member"]: item["Told"] for item in await self.engine.all("SETTING")}


def row_of(whole: Whole) -> Row:
    """The record of an e-mail that another store kept."""
    email, held = whole.email, whole.open
    entered: dict[str, int] = {}
    for entry in whole.history:
        entered[entry.status] = entered.get(entry.status, 0) + 1
    waiting = tuple(one.address for one in email.recipients if one.state == "waiting")
    settled = tuple(one for one in email.recipients if one.state != "waiting")
    return Row(
        id=email.id, status=email.status, company_id=email.company_id, reason=email.reason,
        created_at=email.created_at, updated_at=email.updated_at, due_at=email.due_at,
        expires_at=email.expires_at, priority=email.priority, moves=len(whole.history), attempts=email.attempts,
        opened=email.opened, doubts=email.doubts, crashes=email.crashes, alone_crashes=email.alone_crashes,
        sequence=email.sequence, reached_at=email.reached_at, callback_due=email.callback_due,
        callback_exhausted=email.callback_exhausted, token=email.token or "", eml_file_path=email.eml_file_path,
        payload_file_path=email.payload_file_path, ours=email.status, entered=entered, sender=email.sender,
        envelope=tuple(one.address for one in email.recipients), settled=settled,
        left=waiting if settled and waiting else None, options=email.options,
        fingerprint=whole.unlisted.fingerprint, composed=email.status is Status.READY or bool(email.recipients),
        part=held.part if held else 0,
        opened_at=held.opened_at if held else 0, marked_at=held.committed_at if held else 0,
        marked_by=held.transport if held else "",
        late=tuple(keys.attempt_item(one.attempt, one.part) for one in whole.unlisted.late),
        batch=whole.unlisted.batch, erased=whole.content is None,
    )  # fmt: skip
