"""The calls that move e-mails: hand-in, claims, marks, moves, and the stages that take many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from staffetta.errors import LockNotAcquired, StoreError
from staffetta.mail import journal
from staffetta.mail.message import (
    Added,
    Attempt,
    Claim,
    IntakeClaim,
    Job,
    KeptAnswer,
    Millis,
    NewEmail,
    ReportClaim,
    Transition,
)
from staffetta.store.sqlite import claims, codes, latecomers, moves, stages
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.orders import Add, Mark, Move, Take
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.writer import Writer

_RECALL = "SELECT fingerprint, answer, at FROM answers WHERE company_id = ? AND key = ? AND at >= ?"


class Lives:
    _writer: Writer
    _reader: Reader

    # --- hand-in ----------------------------------------------------------------------------------

    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        result: list[Added | Exception] = await self._writer.ask(Add(emails, keep))
        return result

    async def recall(self, company_id: str, key: str, *, newer_than: Millis) -> KeptAnswer | None:
        row = await self._reader.read(
            lambda connection: connection.execute(_RECALL, (company_id, key, newer_than)).fetchone()
        )
        if row is None:
            return None
        return KeptAnswer(company_id=company_id, key=key, fingerprint=row[0], answer=row[1], at=row[2])

    # --- sending ----------------------------------------------------------------------------------

    async def claim(self, job: Job, *, token: str, now: Millis, alone: bool = False) -> Claim | None:
        claim: Claim | None = await self._writer.ask(Take(job.id, job.ref, token, now, alone))
        return claim

    async def commit(self, claim: Claim, *, transport: str, now: Millis) -> None:
        await self._writer.ask(Mark(claim.id, claim.ref, claim.token, claim.part, transport, now))

    async def next_part(self, claim: Claim, closed: Attempt) -> Claim:
        opened: Claim | Exception = await self._writer.do(lambda group: _next_part(group, claim, closed))
        if isinstance(opened, Exception):
            raise opened
        return opened

    async def apply(self, move: Transition) -> None:
        journal.check_move(move)
        await self._writer.ask(Move(move))

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        asked: list[Any] = []
        for move in moves:
            try:
                journal.check_move(move)
                asked.append(self._writer.ask(Move(move)))
            except ValueError as error:
                asked.append(error)
        results = [one if isinstance(one, Exception) else await _outcome(one) for one in asked]
        for result in results:
            if isinstance(result, StoreError):
                raise result  # no move's own fault: whoever insists makes them all again
        return results

    # --- the other stages -------------------------------------------------------------------------

    async def claim_intake(self, *, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
        return await self._writer.do(lambda group: stages.claim_intake(group, tokens, now))

    async def claim_reports(self, *, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
        return await self._writer.do(lambda group: stages.claim_reports(group, tokens, now))

    async def release_reports(
        self, claims: Sequence[ReportClaim], *, now: Millis, exhausted: bool = False
    ) -> list[Exception | None]:
        return await self._writer.do(
            lambda group: stages.release_reports(group, claims, now, exhausted=exhausted)
        )

    async def bind_batch(self, batch: str, claims: Sequence[ReportClaim]) -> None:
        await self._writer.do(lambda group: stages.bind_batch(group, batch, claims))

    async def batch_members(self, batch: str) -> list[str]:
        return await self._reader.read(lambda connection: stages.batch_members(connection, batch))


async def _outcome(answer: Any) -> Exception | None:
    try:
        await answer
    except Exception as error:  # noqa: BLE001  # each move has its own result, whatever it is
        return error
    return None


_OPEN = (
    "SELECT attempt, part, token, at, committed_at, transport, entry FROM claims WHERE ref = ? AND status = 4"
)


def _next_part(group: Group, claim: Claim, closed: Attempt) -> Claim | Exception:
    """Returns its refusal: the reply that was kept must stay."""
    connection = group.connection
    ref = claim.ref or group.refs([claim.id]).get(claim.id, 0)
    row = connection.execute(_OPEN, (ref,)).fetchone()
    if row is None or row[2] != claim.token:
        latecomers.keep(group, ref, closed)
        return LockNotAcquired()
    attempt, part, token, at, committed_at, transport, entry = row
    if part == claim.part:
        held = moves.Held(ref, attempt, part, token, at, transport)
        done = moves.completed(closed, held, closed_at=closed.closed_at)
        done = msgspec.structs.replace(done, committed_at=done.committed_at or committed_at)
        settled, left = journal.after_part(claim, closed)
        connection.execute(
            "INSERT INTO journal (ref, prev, at, token, attempt) VALUES (?, ?, ?, ?, ?)",
            (ref, entry, closed.closed_at, token, codes.attempt_bytes(done)),
        )
        connection.execute(
            "UPDATE claims SET part = part + 1, committed_at = 0, transport = '', entry = ? WHERE ref = ?",
            (connection.last_insert_rowid(), ref),
        )
        connection.execute(
            "UPDATE mail SET settled = ?, remaining = ? WHERE ref = ?",
            (codes.states_text(settled), codes.addresses_text(left), ref),
        )
    elif part != claim.part + 1 or committed_at:
        return LockNotAcquired()
    return claims.read(connection, [ref])[0]
