"""The calls that move e-mails: hand-in, claims, marks, moves, and the stages that take many at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from staffetta.errors import LockNotAcquired
from staffetta.mail import journal
from staffetta.mail.lifecycle import Status
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
from staffetta.store.mysql import claims, codes, latecomers, moves, stages
from staffetta.store.mysql.lanes import Lanes
from staffetta.store.mysql.orders import Add, Mark, Move, Take
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.reminders import Told
from staffetta.store.mysql.session import Session

_RECALL = (
    "SELECT fingerprint, answer, at FROM staffetta_answers WHERE company_id = %s AND name = %s AND at >= %s"
)


class Lives:
    _lanes: Lanes
    _pool: Pool
    _told: Told

    # --- hand-in ----------------------------------------------------------------------------------

    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        results: list[Added | Exception] = await self._lanes.ask(Add(emails, keep))
        for new, result in zip(emails, results, strict=True):
            if new.status is Status.READY and isinstance(result, Added) and result.fresh:
                self._told.note(new.id, new.due_at, new.history[-1].at)
        return results

    async def recall(self, company_id: str, key: str, *, newer_than: Millis) -> KeptAnswer | None:
        row = await self._pool.read(lambda session: session.row(_RECALL, company_id, key, newer_than))
        if row is None:
            return None
        return KeptAnswer(company_id=company_id, key=key, fingerprint=row[0], answer=row[1], at=row[2])

    # --- sending ----------------------------------------------------------------------------------

    async def claim(self, job: Job, *, token: str, now: Millis, alone: bool = False) -> Claim | None:
        claim: Claim | None = await self._lanes.ask(Take(job.id, token, now, alone))
        return claim

    async def commit(self, claim: Claim, *, transport: str, now: Millis) -> None:
        await self._lanes.ask(Mark(claim.id, claim.token, claim.part, transport, now))

    async def next_part(self, claim: Claim, closed: Attempt) -> Claim:
        opened = await self._pool.write(lambda session: _next_part(session, claim, closed))
        if isinstance(opened, Exception):
            raise opened
        return opened

    async def apply(self, move: Transition) -> None:
        journal.check_move(move)
        await self._lanes.ask(Move(move))

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        asked: list[Exception | asyncio.Future[Any]] = []
        for move in moves:
            try:
                journal.check_move(move)
                asked.append(self._lanes.ask(Move(move)))
            except ValueError as error:
                asked.append(error)
        return [one if isinstance(one, Exception) else await _outcome(one) for one in asked]

    # --- the other stages -------------------------------------------------------------------------

    async def claim_intake(self, *, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
        if not await self._pool.read(stages.any_accepted):
            return []
        runs = itertools.count()
        return await self._pool.write(
            lambda session: stages.claim_intake(session, tokens, now, again=next(runs) > 0)
        )

    async def claim_reports(self, *, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
        runs = itertools.count()
        if self._ends_are_due():
            await self._pool.write(self._fix_ends)
        if not await self._pool.read(stages.any_owed):
            return []  # nearly always: nothing is begun for nothing
        return await self._pool.write(
            lambda session: stages.claim_reports(session, tokens, now, again=next(runs) > 0)
        )

    def _ends_are_due(self) -> bool:
        """Whether the ends that other programs made are to be looked at again. The half in `visitors` does both."""
        raise NotImplementedError

    async def _fix_ends(self, session: Session) -> None:
        """Fix for each of those ends whether its owner is to be told."""
        raise NotImplementedError

    async def release_reports(
        self, claims: Sequence[ReportClaim], *, now: Millis, exhausted: bool = False
    ) -> list[Exception | None]:
        return await self._pool.write(
            lambda session: stages.release_reports(session, claims, now, exhausted=exhausted)
        )

    async def bind_batch(self, batch: str, claims: Sequence[ReportClaim]) -> None:
        await self._pool.write(lambda session: stages.bind_batch(session, batch, claims))

    async def batch_members(self, batch: str) -> list[str]:
        return await self._pool.read(lambda session: stages.batch_members(session, batch))


async def _outcome(answer: asyncio.Future[Any]) -> Exception | None:
    try:
        await answer
    except Exception as error:  # noqa: BLE001  # each move has its own result, whatever it is
        return error
    return None


_PART = """
    UPDATE emails SET part = part + 1, committed_ms = 0, transport = '', settled = %s, remaining = %s,
                      updated_at = updated_at
    WHERE id = %s
"""
_HELD = f"""
    SELECT {claims.FACTS}, e.part, e.claimed_ms FROM emails e WHERE e.id = %s
"""


async def _next_part(session: Session, claim: Claim, closed: Attempt) -> Claim | Exception:
    """Returns its refusal: the reply that was kept must stay."""
    row = await moves.locked(session, claim.id)
    if row is None or row.status != "PROCESSING" or row.held_by != claim.token:
        if row is not None:
            await latecomers.keep(session, claim.id, closed)
        return LockNotAcquired()
    if row.part == claim.part:
        done = codes.attempt_bytes(moves.completed(closed, row, closed.closed_at))
        await session.run("INSERT INTO staffetta_parts (email_id, attempt) VALUES (%s, %s)", claim.id, done)
        settled, left = journal.after_part(claim, closed)
        await session.run(_PART, codes.states_text(settled), codes.addresses_text(left), claim.id)
    elif row.part != claim.part + 1 or row.committed_ms:
        return LockNotAcquired()
    facts = await session.row(_HELD, claim.id)
    assert facts is not None, "its row is locked"
    (opened,) = await claims.whole(session, [(facts, claim.token)])
    return msgspec.structs.replace(opened, message=opened.message or claim.message)
