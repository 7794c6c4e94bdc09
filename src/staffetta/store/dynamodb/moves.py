"""The life of an e-mail while it is sent: claimed, marked, moved. One e-mail a transaction; calls overlap freely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from staffetta.errors import LockNotAcquired, StoreUnavailable
from staffetta.mail import journal
from staffetta.mail.lifecycle import IN_WORK, Cause, Status
from staffetta.mail.message import Attempt, Claim, Intaken, Job, Millis, RecipientState, Transition
from staffetta.store.dynamodb import keys, values
from staffetta.store.dynamodb.ledger import Ledger, Part, Stale
from staffetta.store.dynamodb.letters import Letters
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.wire import Refused, Statement, storable

LIVES_MAX = 20_000
"""Claims of this process whose records are remembered, so that their next move need not read them again."""
TRIES_MAX = 5
TOGETHER_MAX = 40
"""Records whose TTL is set in the move's own transaction."""


class Turn:
    """Whose turn it is among the calls under one claim."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class Moves:
    ledger: Ledger
    letters: Letters
    living: dict[str, Row]
    """By token: what this process holds, as its record stands."""
    turns: dict[str, Turn]
    """By token: calls under one claim are made one after the other, in the order in which they came."""

    # --- claims ----------------------------------------------------------------------------------------------

    async def claim(self, job: Job, *, token: str, now: Millis, alone: bool = False) -> Claim | None:
        held = await self.ledger.held(job.id, "Message")
        if held is None:
            return None
        row, message = held.row, held.content.get("Message", b"")
        if row.status is Status.PROCESSING and row.token == token and row.part and not row.marked_at:
            self._remember(row)  # the same claim asked for again: its answer was lost on the way
            return row.claim(message, await self.ledger.late(row))
        if row.status is not Status.READY or row.due_at > now or not row.composed:
            return None
        late = await self.ledger.late(row)
        entry = self.ledger.enter(row, Status.PROCESSING, Cause.CLAIMED, at=now, token=token)
        row.opened += 1
        row.part, row.opened_at, row.marked_at, row.marked_by, row.alone = 1, now, 0, "", alone
        try:
            await self.ledger.move(row, entry, token=token)
        except LockNotAcquired:
            return None
        self._remember(row)
        return row.claim(message, late)

    def _remember(self, row: Row) -> None:
        if len(self.living) >= LIVES_MAX:
            del self.living[next(iter(self.living))]
        self.living[row.token] = row

    @asynccontextmanager
    async def _turn(self, token: str | None) -> AsyncIterator[None]:
        if not token:
            yield
            return
        turn = self.turns.setdefault(token, Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self.turns.pop(token, None)

    async def _row(self, id: str, token: str | None) -> Row | None:
        """The record, without reading it where this process holds the e-mail."""
        row = self.living.get(token) if token else None
        if row is not None and row.id == id:
            return row
        held = await self.ledger.held(id)
        return held.row if held is not None else None

    async def _of_claim(self, claim: Claim) -> Row | None:
        row = await self._row(claim.id, claim.token)
        held = row is not None and row.status is Status.PROCESSING and row.token == claim.token and row.part
        return row if held else None

    async def commit(self, claim: Claim, *, transport: str, now: Millis) -> None:
        async with self._turn(claim.token):
            await self._commit(claim, transport, now)

    async def _commit(self, claim: Claim, transport: str, now: Millis) -> None:
        row = await self._of_claim(claim)
        if row is None or row.part != claim.part:
            raise LockNotAcquired
        row.marked_at, row.marked_by = now, transport
        self.living.pop(claim.token, None)
        await self.ledger.note(row)
        self._remember(row)

    async def next_part(self, claim: Claim, closed: Attempt) -> Claim:
        async with self._turn(claim.token):
            return await self._next_part(claim, closed)

    async def _next_part(self, claim: Claim, closed: Attempt) -> Claim:
        row = await self._of_claim(claim)
        if row is None:
            await self._keep_reply(claim.id, closed)
            raise LockNotAcquired
        if row.part == claim.part:
            held = row.open_attempt()
            assert held is not None, "a claim holds an attempt open"
            done = _complete(closed, held, claim.at)
            row.settled, row.left = journal.after_part(claim, closed)
            row.part, row.marked_at, row.marked_by = claim.part + 1, 0, ""
            try:
                await self._together(row, self.ledger.insert_attempt(row, done))
            except LockNotAcquired:
                await self._keep_reply(claim.id, closed)
                raise
        elif row.part != claim.part + 1 or row.marked_at:
            raise LockNotAcquired
        return row.claim(claim.message, await self.ledger.late(row))

    async def _together(self, row: Row, *also: Statement) -> None:
        """Changes without a move, all or none, on the condition that the record is as it was read."""
        remembered = self.living.pop(row.token, None)
        try:
            await self.ledger.wire.transact([self.ledger.update(row), *also])
        except Refused as refused:
            raise LockNotAcquired from refused
        self.ledger.settled(row)
        if remembered is not None:
            self._remember(row)

    # --- moves -----------------------------------------------------------------------------------------------

    async def apply(self, move: Transition) -> None:
        journal.check_move(move)
        async with self._turn(move.token):
            await self._move(move)

    async def _move(self, move: Transition) -> None:
        # Forgotten as soon as it is used: whatever becomes of this move, the record tells what is true.
        row = self.living.pop(move.token, None) if move.token else None
        with storable():
            if row is not None and row.id == move.id:
                try:
                    await self._apply(row, move)
                except (LockNotAcquired, Stale):
                    # What was remembered is not what is there: decide on the record itself.
                    await self._apply_anew(move)
            else:
                await self._apply_anew(move)

    async def _apply_anew(self, move: Transition) -> None:
        for _ in range(TRIES_MAX):
            held = await self.ledger.held(move.id)
            try:
                await self._apply(held.row if held is not None else None, move)
            except LockNotAcquired:
                await self._lose(move)
            except Stale:
                continue
            return
        raise StoreUnavailable(f"e-mail {move.id}: its dead letter is being changed all the time; try again")

    async def _lose(self, move: Transition) -> None:
        if await self._was_mine(move):
            return
        if move.attempt is not None:
            await self._keep_reply(move.id, move.attempt)
        raise LockNotAcquired

    async def _was_mine(self, move: Transition) -> bool:
        """The move was made already, by this very claim: its answer was lost on the way."""
        if move.source not in IN_WORK or not move.token:
            return False
        table = self.ledger.table
        text = f"SELECT Status, Attributes FROM {table} WHERE Id=? AND Status BETWEEN ? AND ?"
        first, last = str(move.target), f"{move.target}#~"
        return any(
            told.get("Claim") == move.token
            and told.get("Cause") == move.cause
            and values.millis(told.get("UpdatedAt")) == move.at
            for item in await self.ledger.wire.execute(text, move.id, first, last, consistent=True)
            if item["Status"].partition("#")[0] == move.target
            for told in (item.get("Attributes") or {},)
        )

    async def _apply(self, row: Row | None, move: Transition) -> None:
        if row is None or not _expected(row, move):
            raise LockNotAcquired
        attempt = self._closed(row, move)
        _change(row, move, attempt)
        if not journal.keeps_reason(move.source, move.target, move.cause):
            row.reason = move.reason
        entry = self.ledger.enter(row, move.target, move.cause, at=move.at, reason=move.reason)
        row.forget_claim()
        more = await self._lengthened(row, move)
        letters = await self._letters_of(row, move)

        def build() -> list[Part]:
            parts: list[Part] = list(more)
            if attempt is not None:
                parts.append(("attempt", self.ledger.insert_attempt(row, attempt)))
            if move.intaken is not None:
                parts += taken_in(self.ledger, row, move.intaken)
                if move.intaken.company_id is not None:
                    parts.append(("listed", self.ledger.listed(row)))
            return [*parts, *(("letter", one) for one in letters)]

        await self.ledger.move(row, entry, build, token=move.token or "")

    def _closed(self, row: Row, move: Transition) -> Attempt | None:
        """The attempt that this move closes."""
        held = row.open_attempt()
        if held is None:
            return None
        told = move.attempt or Attempt(attempt=held.attempt, part=held.part, closed_at=move.at)
        if move.cause is Cause.RESTORED and told.committed_at != held.committed_at and move.attempt is not None:
            # It was marked after restore looked at it: the message may be out. Restore looks at it again.
            raise LockNotAcquired
        return _complete(told, held, move.at)

    async def _letters_of(self, row: Row, move: Transition) -> list[Statement]:
        """What becomes of its dead letter: written, renewed, marked as being retried, or gone."""
        old = await self.letters.one(row.id) if row.has_letter else None
        if move.dead_letter is not None:
            return self.letters.bury(move.dead_letter, old, row.ttl)
        if old is None:
            return []
        if journal.enters_end(move):
            return self.letters.remove(old)
        if move.cause is Cause.RETRIED:
            return self.letters.bury(msgspec.structs.replace(old, retrying_since=move.at), old, row.ttl)
        return []

    async def _lengthened(self, row: Row, move: Transition) -> list[Part]:
        """A move that lengthens an e-mail's life sets its TTL on all of its records."""
        life_ms = self.ledger.place.life_ms
        if life_ms is None:
            return []
        ttl = -(-(row.expires_at + life_ms) // 1_000)
        if row.ttl is not None and ttl <= row.ttl:
            return []
        row.ttl = ttl
        text = f"UPDATE {self.ledger.table} SET TTL=? WHERE Id=? AND Status=?"
        # The move itself writes these two, where it does, with the new one on them.
        written = {keys.META, keys.DEAD} | ({keys.CONTENT} if move.intaken is not None else set())
        others = [name for name in await self.ledger.names(row.id) if name not in written]
        updates: list[Part] = [(f"ttl {name}", (text, (ttl, row.id, name))) for name in others]
        while len(updates) > TOGETHER_MAX:
            # A long life: what does not fit is set before the move. A record that stays longer does no harm.
            some, updates = updates[:TOGETHER_MAX], updates[TOGETHER_MAX:]
            await self.ledger.wire.transact([statement for _, statement in some])
        return updates

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        return list(await asyncio.gather(*map(self._tried, moves)))

    async def _tried(self, move: Transition) -> Exception | None:
        try:
            await self.apply(move)
        except (LockNotAcquired, ValueError) as error:
            return error
        return None

    # --- late replies ----------------------------------------------------------------------------------------

    async def _keep_reply(self, id: str, attempt: Attempt) -> None:
        """The claim is gone, the reply is not lost: it goes to its attempt, and the next claim will read it."""
        if not attempt.replies:
            return
        item = keys.attempt_item(attempt.attempt, attempt.part)
        for _ in range(TRIES_MAX):
            held = await self.ledger.held(id)
            kept = await self.ledger.attempt(id, item)
            if held is None or kept is None or kept.replies or not journal.is_this_part(kept, attempt):
                return
            row = held.row
            row.late = (*row.late, item)
            heard = msgspec.structs.replace(
                kept,
                replies=attempt.replies,
                committed_at=kept.committed_at or attempt.committed_at,
                decision=attempt.decision,
            )
            text = f"UPDATE {self.ledger.table} SET Journal=? WHERE Id=? AND Status=? AND Journal=?"
            packed = (values.pack_attempt(heard), id, item, values.pack_attempt(kept))
            try:
                await self._together(row, (text, packed))
            except LockNotAcquired:
                continue
            return


# ------------------------------------------------------------------------------------------------ beneath


def take_in(row: Row, made: Intaken) -> None:
    """What intake made of a payload becomes the e-mail's."""
    row.sender, row.envelope, row.options = made.sender, made.recipients, made.options
    row.eml_file_path, row.composed = made.eml_file_path, True
    row.due_at, row.expires_at, row.priority = made.due_at, made.expires_at, made.priority
    row.company_id = made.company_id or row.company_id


def taken_in(ledger: Ledger, row: Row, made: Intaken) -> list[Part]:
    """The records that go with it: the message, one for each recipient, by which it is found, and its file's."""
    parts: list[Part] = [("recipient", recipient_record(ledger, row, address)) for address in _once(row)]
    if made.message is not None:
        if row.has_content:
            lived = () if row.ttl is None else (row.ttl,)
            changes = "Message=?, TTL=?" if lived else "Message=?"
            text = f"UPDATE {ledger.table} SET {changes} WHERE Id=? AND Status='{keys.CONTENT}'"
            parts.append(("content", (text, (made.message, *lived, row.id))))
        else:
            parts.append(("content", ledger.insert(row, keys.CONTENT, {"Message": made.message})))
    if made.eml_file_path:
        parts.append(("file", file_record(ledger, row, made.eml_file_path)))
    return parts


def recipient_record(ledger: Ledger, row: Row, address: str) -> Statement:
    """By it the e-mail is found when somebody asks for this address."""
    told = {"Listed": keys.recipient_listing(address), "ListedAt": keys.listed_at(row.created_at, row.id)}
    return ledger.insert(row, keys.RECIPIENT + address, told)


def file_record(ledger: Ledger, row: Row, path: str) -> Statement:
    """By it everybody who names this file is found, before it is removed."""
    told = {"Listed": keys.file_listing(path), "ListedAt": keys.listed_at(row.created_at, row.id)}
    return ledger.insert(row, keys.FILE + path, told)


def _once(row: Row) -> list[str]:
    return list(dict.fromkeys(row.envelope))


def _expected(row: Row, move: Transition) -> bool:
    return row.status is move.source and (move.source not in IN_WORK or row.token == (move.token or ""))


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


def _change(row: Row, move: Transition, closed: Attempt | None) -> None:
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
        heard = keys.attempt_item(move.believed.attempt, move.believed.part)
        row.late = tuple(item for item in row.late if item != heard)
    if move.intaken is not None:
        take_in(row, move.intaken)
    if move.cause in (Cause.RETRIED, Cause.RESOLVED):
        row.callback_exhausted = False
    if move.cause is Cause.ACKNOWLEDGED:
        row.callback_due = False
    if journal.enters_end(move):
        row.sequence += 1
        row.reached_at = move.at
        row.batch = None
    if move.target is Status.SENT:
        row.settled = _accepted(row, closed)


def _accepted(row: Row, closed: Attempt | None) -> tuple[RecipientState, ...]:
    """Who has it: kept with the record, so that a listing need not read every attempt."""
    replies = closed.replies if closed is not None else ()
    known = journal.states(row.envelope, row.settled, Status.SENT, replies)
    return tuple(one for one in known if one.state != "waiting")
