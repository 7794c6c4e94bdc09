"""E-mails that another program made READY: nobody is given them to send until what sending needs is known."""

from __future__ import annotations

import asyncio

from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Intaken
from staffetta.store.contract import Visitor
from staffetta.store.dynamodb.ledger import Held, Ledger, Part
from staffetta.store.dynamodb.moves import take_in, taken_in
from staffetta.store.dynamodb.parts import Parts
from staffetta.store.dynamodb.wire import DUPLICATE, LOST, Refused
from staffetta.store.dynamodb.work import Work

TRIES = 3


class Visitors:
    ledger: Ledger
    work: Work
    parts: Parts

    async def visitors(self, *, limit: int) -> list[Visitor]:
        if not self.parts.part.count:
            return []
        entries = [one for one in await self.work.oldest("VISITOR", limit=limit) if self.parts.part.has(one.id)]
        held = await asyncio.gather(*(self.ledger.held(one.id, "Payload") for one in entries))
        return [_visitor(one) for one in held if one is not None and _unknown(one)]

    async def welcome(self, visitor: Visitor, made: Intaken) -> None:
        begun = True
        for _ in range(TRIES):
            held = await self.ledger.held(visitor.id)
            if held is None or not _unknown(held) or held.row.moves != visitor.version:
                raise LockNotAcquired
            row = held.row
            before, row.ours, row.begun = row.ours, row.status, begun
            take_in(row, made)
            parts: list[Part] = [
                ("meta", self.ledger.update(row)),
                ("listed", self.ledger.listed(row)),
                *taken_in(self.ledger, row, made),
            ]
            try:
                await self.ledger.transact(parts, before, row.status)
            except Refused as refused:
                if not refused.reasons or refused.reasons[0] == LOST:
                    raise LockNotAcquired from refused
                if refused.reasons[1] in (LOST, DUPLICATE):
                    begun = not begun
            else:
                self.ledger.stirred(row.kind)
                return
        raise LockNotAcquired


def _unknown(held: Held) -> bool:
    return held.row.status is Status.READY and not held.row.composed


def _visitor(held: Held) -> Visitor:
    row = held.row
    return Visitor(
        id=row.id, version=row.moves, due_at=row.due_at, payload_file_path=row.payload_file_path,
        eml_file_path=row.eml_file_path, payload=held.content.get("Payload"),
    )  # fmt: skip
