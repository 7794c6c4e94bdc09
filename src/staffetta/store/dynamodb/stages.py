"""The stages beside sending: what was handed in is taken in, and owners are told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from staffetta.errors import LockNotAcquired
from staffetta.mail import journal
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import IntakeClaim, Millis, ReportClaim
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.work import Work


class Stages:
    ledger: Ledger
    work: Work
    living: dict[str, Row]

    async def claim_intake(self, *, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
        entries = await self.work.oldest("ACCEPTED", limit=len(tokens))
        claimed = await asyncio.gather(
            *(self._take_in(one.id, token, now) for one, token in zip(entries, tokens, strict=False))
        )
        return [one for one in claimed if one is not None]

    async def _take_in(self, id: str, token: str, now: Millis) -> IntakeClaim | None:
        held = await self.ledger.held(id, "Payload")
        if held is None or held.row.status is not Status.ACCEPTED:
            return None
        if not await self._took(held.row, Status.INTAKING, Cause.CLAIMED, token, now):
            return None
        return held.row.intake_claim(held.content.get("Payload"))

    async def _took(self, row: Row, status: Status, cause: Cause, token: str, now: Millis) -> bool:
        entry = self.ledger.enter(row, status, cause, at=now, token=token)
        try:
            await self.ledger.move(row, entry, token=token)
        except LockNotAcquired:
            return False
        self.living[token] = row
        return True

    async def claim_reports(self, *, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
        entries = await self.work.oldest("REPORT", limit=len(tokens))
        claimed = await asyncio.gather(
            *(self._report(one.id, token, now) for one, token in zip(entries, tokens, strict=False))
        )
        return [one for one in claimed if one is not None]

    async def _report(self, id: str, token: str, now: Millis) -> ReportClaim | None:
        held = await self.ledger.held(id)
        if held is None or held.row.status not in journal.ENDS or not held.row.callback_due:
            return None
        row, updated_at = held.row, held.row.updated_at
        sent = row.status is Status.SENT
        calling = Status.CALLING_SENT_CALLBACK if sent else Status.CALLING_FAILED_CALLBACK
        if not await self._took(row, calling, Cause.REPORTING, token, now):
            return None
        return row.report_claim(updated_at)

    async def release_reports(
        self, claims: Sequence[ReportClaim], *, now: Millis, exhausted: bool = False
    ) -> list[Exception | None]:
        return list(await asyncio.gather(*(self._release(claim, now, exhausted=exhausted) for claim in claims)))

    async def _release(self, claim: ReportClaim, now: Millis, *, exhausted: bool) -> Exception | None:
        self.living.pop(claim.token, None)
        held = await self.ledger.held(claim.id)
        if held is None or held.row.status not in journal.CALLING or held.row.token != claim.token:
            return LockNotAcquired()
        row = held.row
        row.token, row.updated_at, row.callback_exhausted = "", now, exhausted
        try:
            await self.ledger.note(row)
        except LockNotAcquired as error:
            return error
        return None
