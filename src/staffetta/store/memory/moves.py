"""The life of e-mails in memory: hand-in, claims, marks, moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from staffetta.errors import Conflict, LockNotAcquired, Unstorable
from staffetta.mail import journal
from staffetta.mail.lifecycle import IN_WORK, Cause, Status
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
from staffetta.store.memory.rows import Row, State


def _check_storable(value: object) -> None:
    """Refuse what no database could keep, so that nobody relies on it."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError) as error:
        raise Unstorable(f"a value cannot be kept ({error})") from error


class Moves:
    state: State
    owner: bool

    # --- hand-in -----------------------------------------------------

    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        if keep is not None:
            kept = self.state.answers.get((keep.company_id, keep.key))
            if kept is not None and kept.at > keep.at - journal.KEPT_ANSWER_MS:
                return [Conflict("this idempotency key was answered before") for _ in emails]
            try:
                _check_storable([keep, emails])
            except Unstorable as error:
                return [error for _ in emails]
            self.state.answers[keep.company_id, keep.key] = keep
        return [self._add(new) for new in emails]

    def _add(self, new: NewEmail) -> Added | Exception:
        known = self.state.rows.get(new.id)
        if known is not None:
            if (known.company_id, known.fingerprint) != (new.company_id, new.fingerprint):
                return Conflict(f"e-mail {new.id} is known with another content")
            return Added(id=known.id, status=known.status, fresh=False, ref=known.number)
        try:
            journal.check_new(new)
            _check_storable(new)
        except ValueError as error:
            return error
        self.state.numbers += 1
        row = self.state.rows[new.id] = Row.of(new, self.state.numbers)
        self.state.place(row, now=new.created_at)
        self._tell_owner(row, at=new.created_at)
        return Added(id=row.id, status=row.status, fresh=True, ref=row.number)

    async def recall(self, company_id: str, key: str, *, newer_than: Millis) -> KeptAnswer | None:
        kept = self.state.answers.get((company_id, key))
        return kept if kept is not None and kept.at >= newer_than else None

    # --- sending ------------------------------------------------------------

    async def claim(self, job: Job, *, token: str, now: Millis, alone: bool = False) -> Claim | None:
        row = self.state.rows.get(job.id)
        if row is None:
            return None
        if row.status is Status.PROCESSING and row.token == token and row.open and not row.open.committed_at:
            return row.claim()  # the same claim asked for again: its answer was lost on the way
        if row.status is not Status.READY or row.due_at > now:
            return None
        row.opened += 1
        self._take(row, Status.PROCESSING, Cause.CLAIMED, token, now)
        row.open = Attempt(attempt=row.opened, token=token, opened_at=now)
        row.alone = alone
        return row.claim()

    def _take(self, row: Row, status: Status, cause: Cause, token: str, now: Millis) -> None:
        row.enter(status, cause, at=now, token=token)
        row.token, row.alone = token, False
        self.state.place(row, now=now)

    async def commit(self, claim: Claim, *, transport: str, now: Millis) -> None:
        row = self._held(claim)
        if row is None or row.open is None or row.open.part != claim.part:
            raise LockNotAcquired
        row.open = msgspec.structs.replace(row.open, committed_at=now, transport=transport)

    def _held(self, claim: Claim) -> Row | None:
        row = self.state.rows.get(claim.id)
        return row if row is not None and row.status is Status.PROCESSING and row.token == claim.token else None

    async def next_part(self, claim: Claim, closed: Attempt) -> Claim:
        row = self._held(claim)
        if row is None or row.open is None:
            self._keep_reply(self.state.rows.get(claim.id), closed)
            raise LockNotAcquired
        if row.open.part == claim.part:
            row.settled, row.left = journal.after_part(claim, closed)
            row.closed.append(self._complete(closed, row.open, claim.at))
            row.open = Attempt(
                attempt=row.opened, part=claim.part + 1, token=claim.token, opened_at=row.open.opened_at
            )
        elif row.open.part != claim.part + 1 or row.open.committed_at:
            raise LockNotAcquired
        return row.claim()

    async def apply(self, move: Transition) -> None:
        journal.check_move(move)
        _check_storable(move)
        row = self.state.rows.get(move.id)
        if row is None or not self._expected(row, move):
            if row is not None and self._was_mine(row, move):
                return
            if move.attempt is not None:
                self._keep_reply(row, move.attempt)
            raise LockNotAcquired
        if row.open is not None:
            attempt = move.attempt or Attempt(attempt=row.open.attempt, part=row.open.part, closed_at=move.at)
            row.closed.append(self._complete(attempt, row.open, move.at))
        self._change(row, move)
        if not journal.keeps_reason(move.source, move.target, move.cause):
            row.reason = move.reason
        row.enter(move.target, move.cause, at=move.at, reason=move.reason, token=move.token or "")
        self._bury(row, move)
        self.state.place(row, now=move.at)
        self._tell_owner(row, at=move.at, always=move.cause is Cause.RETRIED)

    def _tell_owner(self, row: Row, *, at: Millis, always: bool = False) -> None:
        """What is due and the owner's queue cannot know of yet."""
        if (always or not self.owner) and row.status is Status.READY and row.due_at <= at:
            self.state.tidings.append(row.id)

    def _expected(self, row: Row, move: Transition) -> bool:
        return (
            row.status is move.source
            and (move.version is None or row.version == move.version)
            and (move.source not in IN_WORK or row.token == (move.token or ""))
        )

    def _was_mine(self, row: Row, move: Transition) -> bool:
        """The move was made already, by this very claim: its answer was lost on the way."""
        return (
            move.source in IN_WORK
            and bool(move.token)
            and any(
                token == move.token
                and (entry.status, entry.cause, entry.at) == (move.target, move.cause, move.at)
                for entry, token in row.history
            )
        )

    @staticmethod
    def _complete(attempt: Attempt, held: Attempt, at: Millis) -> Attempt:
        """What a move says of its attempt, with what the journal knows already."""
        return msgspec.structs.replace(
            attempt,
            attempt=held.attempt,
            part=held.part,
            token=held.token,
            transport=attempt.transport or held.transport,
            opened_at=held.opened_at,
            committed_at=attempt.committed_at or held.committed_at,
            closed_at=attempt.closed_at or at,
        )

    @staticmethod
    def _change(row: Row, move: Transition) -> None:
        for name in ("due_at", "expires_at", "attempts", "doubts", "crashes", "alone_crashes", "callback_due"):
            value = getattr(move, name)
            if value is not None:
                setattr(row, name, value)
        settled = journal.settled_by(move)
        if settled is not None:
            row.settled = settled
        if move.recipients is not None:
            row.left = move.recipients
        if move.believed is not None:
            row.late = [late for late in row.late if not journal.is_this_part(late, move.believed)]
        if move.intaken is not None:
            made = move.intaken
            row.sender, row.envelope, row.options = made.sender, made.recipients, made.options
            row.message, row.eml_file_path = made.message, made.eml_file_path
            row.due_at, row.expires_at, row.priority = made.due_at, made.expires_at, made.priority
            row.company_id = made.company_id or row.company_id
        if move.cause in (Cause.RETRIED, Cause.RESOLVED):
            row.callback_exhausted = False
        if move.cause is Cause.ACKNOWLEDGED:
            row.callback_due = False
        if journal.enters_end(move):
            row.sequence += 1
            row.reached_at = move.at
            row.batch = None

    def _bury(self, row: Row, move: Transition) -> None:
        dead = self.state.dead
        if move.dead_letter is not None:
            dead.pop(row.id, None)
            dead[row.id] = move.dead_letter
        elif journal.enters_end(move):
            dead.pop(row.id, None)
        elif move.cause is Cause.RETRIED and row.id in dead:
            dead[row.id] = msgspec.structs.replace(dead[row.id], retrying_since=move.at)

    @staticmethod
    def _keep_reply(row: Row | None, attempt: Attempt) -> None:
        """The claim is gone, the reply is not lost: it goes to its attempt, and the next claim will read it."""
        if row is None or not attempt.replies:
            return
        for place, kept in enumerate(row.closed):
            if journal.is_this_part(kept, attempt) and not kept.replies:
                row.closed[place] = msgspec.structs.replace(
                    kept,
                    replies=attempt.replies,
                    committed_at=kept.committed_at or attempt.committed_at,
                    decision=attempt.decision,
                )
                row.late.append(row.closed[place])

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        return [await self._tried(move) for move in moves]

    async def _tried(self, move: Transition) -> Exception | None:
        try:
            await self.apply(move)
        except (LockNotAcquired, ValueError) as error:
            return error
        return None

    # --- the other stages ------------------------------------------------------------

    async def claim_intake(self, *, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
        rows = sorted(self.state.accepted.values(), key=lambda row: (row.created_at, row.number))
        for row, token in zip(rows, tokens, strict=False):
            self._take(row, Status.INTAKING, Cause.CLAIMED, token, now)
        return [
            IntakeClaim(id=row.id, ref=row.number, token=row.token, company_id=row.company_id,
                        created_at=row.created_at, payload=row.payload, payload_file_path=row.payload_file_path)
            for row in rows[: len(tokens)]
        ]  # fmt: skip

    async def claim_reports(self, *, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
        due = [row for row in self.state.rows.values() if row.status in journal.ENDS and row.callback_due]
        due.sort(key=lambda row: (row.updated_at, row.number))
        return [self._report(row, token, now) for row, token in zip(due, tokens, strict=False)]

    def _report(self, row: Row, token: str, now: Millis) -> ReportClaim:
        sent, updated_at = row.status is Status.SENT, row.updated_at
        calling = Status.CALLING_SENT_CALLBACK if sent else Status.CALLING_FAILED_CALLBACK
        self._take(row, calling, Cause.REPORTING, token, now)
        return ReportClaim(
            id=row.id, ref=row.number, token=token, company_id=row.company_id, status=calling,
            reason=row.reason, reached_at=row.reached_at, sequence=row.sequence,
            refused=journal.without_it(row.settled), options=row.options, batch=row.batch,
            updated_at=updated_at,
        )  # fmt: skip

    async def release_reports(
        self, claims: Sequence[ReportClaim], *, now: Millis, exhausted: bool = False
    ) -> list[Exception | None]:
        return [self._release(claim, now, exhausted=exhausted) for claim in claims]

    def _release(self, claim: ReportClaim, now: Millis, *, exhausted: bool) -> Exception | None:
        row = self.state.rows.get(claim.id)
        if row is None or row.status not in journal.CALLING or row.token != claim.token:
            return LockNotAcquired()
        row.token, row.updated_at = "", now
        row.callback_exhausted = exhausted
        return None

    async def bind_batch(self, batch: str, claims: Sequence[ReportClaim]) -> None:
        self.state.batches[batch] = list(dict.fromkeys(claim.id for claim in claims))
        for row in self._known(claim.id for claim in claims):
            row.batch = batch

    def _known(self, ids: Iterable[str]) -> list[Row]:
        return [row for one in ids if (row := self.state.rows.get(one))]

    async def batch_members(self, batch: str) -> list[str]:
        return list(self.state.batches.get(batch, []))
