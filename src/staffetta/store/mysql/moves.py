"""Moves as sets: every row locked and compared, then changed, told in the history and followed up as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from staffetta.errors import LockNotAcquired
from staffetta.mail import journal
from staffetta.mail.lifecycle import IN_WORK, Cause, Status
from staffetta.mail.message import Attempt, Intaken, Millis, Transition
from staffetta.store.mysql import codes, handin, history, latecomers
from staffetta.store.mysql.session import Session

REASON_IN_SET = 500
"""Longer reasons are written one by one: a set's rows have a fixed width."""

LOCK = """
    SELECT e.id, e.status, e.version, COALESCE(e.our_version, 0), e.token, e.opened, e.part, e.claimed_ms,
           e.committed_ms, e.transport, e.sequence, e.late
    FROM emails e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) FOR UPDATE
"""
_COLUMNS = (
    f"id CHAR(36), status VARCHAR(30), version INT, moved BIGINT, told INT, reason VARCHAR({REASON_IN_SET}), "
    "due BIGINT, wakes BIGINT, expires BIGINT, attempts INT, doubts INT, crashes INT, alone_crashes INT, callback INT,"
    " reached BIGINT, sequence INT"
)
_SET = """
    e.status = w.status, e.version = w.version, e.our_version = w.version, e.moved_ms = w.moved, e.token = '',
    e.reason = IF(w.told, w.reason, e.reason), e.next_attempt_at = COALESCE(w.due, e.next_attempt_at),
    e.wakes_at = w.wakes, e.expires_at = COALESCE(w.expires, e.expires_at),
    e.attempts = COALESCE(w.attempts, e.attempts), e.doubts = COALESCE(w.doubts, e.doubts),
    e.crashes = COALESCE(w.crashes, e.crashes), e.alone_crashes = COALESCE(w.alone_crashes, e.alone_crashes),
    e.callback = COALESCE(w.callback, e.callback), e.reached_ms = COALESCE(w.reached, e.reached_ms),
    e.sequence = COALESCE(w.sequence, e.sequence),
    e.updated_at = IF(w.status = 'ACCEPTED', e.created_at, CURRENT_TIMESTAMP)
"""
"""What waits for intake again keeps its place: it waits since it came."""
_MOVE = f"UPDATE {codes.table('w', _COLUMNS)} STRAIGHT_JOIN emails e ON e.id = w.id SET {_SET}"
_REASON = "UPDATE emails SET reason = %s WHERE id = %s"
_RECIPIENTS = (
    "UPDATE emails SET settled = COALESCE(%s, settled), remaining = COALESCE(%s, remaining) WHERE id = %s"
)
_RETRYING = "UPDATE staffetta_dead_letters SET retrying_since = %s WHERE email_id = %s"
_EXHUME = f"DELETE d FROM staffetta_dead_letters d JOIN {codes.IDS} ON d.email_id = w.id"
_UNBIND = f"DELETE b FROM staffetta_batches b JOIN {codes.IDS} ON b.email_id = w.id"
_BURY = """
    INSERT INTO staffetta_dead_letters (email_id, company_id, failed_attempts, reason, code, failed_at, enqueued_at,
                                        moved_at, ttl_ms)
"""
_BURY_FORM = "(%s, %s, %s, %s, %s, %s, %s, %s, %s)"


class Row(NamedTuple):
    """What a move is compared with."""

    id: str
    status: str
    version: int
    our_version: int
    token: str
    opened: int
    part: int
    claimed_ms: Millis
    committed_ms: Millis
    transport: str
    sequence: int
    late: int

    @property
    def ours(self) -> bool:
        return self.version == self.our_version

    @property
    def held_by(self) -> str:
        """The claim's token. Where another program holds it: its version, which no later claim has again."""
        return self.token if self.ours else foreign_token(self.version)


def foreign_token(version: int) -> str:
    """Stands for the claim of a program that has no tokens. It names no worker."""
    return f".{version}"


async def make(session: Session, moving: Mapping[int, Transition]) -> dict[int, Exception | None]:
    """The outcome of each move, by its order's place."""
    found = await session.rows_of(LOCK, sorted(move.id for move in moving.values()))
    rows = {facts[0]: Row(*facts) for facts in found}
    outcomes: dict[int, Exception | None] = {}
    made: list[tuple[Transition, Row]] = []
    for place, move in moving.items():
        row = rows.get(move.id)
        if row is not None and _expected(row, move):
            made.append((move, row))
            outcomes[place] = None
        else:
            outcomes[place] = await _lost(session, row, move)
    if made:
        await _make(session, made)
    return outcomes


async def locked(session: Session, id: str) -> Row | None:
    """One e-mail's row, locked until the transaction ends."""
    found = await session.rows_of(LOCK, [id])
    return Row(*found[0]) if found else None


def _expected(row: Row, move: Transition) -> bool:
    return (
        row.status == move.source
        and (move.version is None or row.version == move.version)
        and (move.source not in IN_WORK or row.held_by == (move.token or ""))
    )


async def _lost(session: Session, row: Row | None, move: Transition) -> Exception | None:
    if row is not None:
        if move.source in IN_WORK and await history.was_made(session, move):
            return None
        if move.attempt is not None:
            await latecomers.keep(session, move.id, move.attempt)
    return LockNotAcquired()


async def _make(session: Session, made: Sequence[tuple[Transition, Row]]) -> None:
    await session.run(_MOVE, codes.to_json([_set_row(move, row) for move, row in made]))
    await history.write(session, [_entry(move, row) for move, row in made])
    for move, row in made:
        await _follow_up(session, move, row)
    buried = [_letter(move) for move, _ in made if move.dead_letter is not None]
    again = [move.id for move, row in made if journal.enters_end(move) and row.sequence]
    if again:  # it had ended before: what stood for that end goes
        await session.run(_EXHUME, codes.ids(again))
        await session.run(_UNBIND, codes.ids(again))
    if buried:
        await session.insert(_BURY, _BURY_FORM, buried)


def _set_row(move: Transition, row: Row) -> tuple[Any, ...]:
    made = move.intaken
    due, expires = (move.due_at, move.expires_at) if made is None else (made.due_at, made.expires_at)
    told = not journal.keeps_reason(move.source, move.target, move.cause)
    reason = move.reason if told and len(move.reason) <= REASON_IN_SET else None
    ends = journal.enters_end(move)
    wakes = due if move.target is Status.READY and due is not None and due > move.at else None
    return (
        move.id, move.target, row.version + 1, move.at, int(told), reason, due, wakes, expires, move.attempts,
        move.doubts, move.crashes, move.alone_crashes, _callback(move), move.at if ends else None,
        row.sequence + 1 if ends else None,
    )  # fmt: skip


def _callback(move: Transition) -> int | None:
    """`emails.callback` after the move; None: as it was."""
    if move.cause is Cause.ACKNOWLEDGED:
        return codes.NOBODY
    if move.callback_due is not None:
        return codes.DUE if move.callback_due else codes.NOBODY
    if move.source in journal.CALLING:
        return codes.DUE  # nobody has him on the line any more
    return None


def _entry(move: Transition, row: Row) -> history.Entry:
    attempt = move.attempt
    packed = None
    if move.source is Status.PROCESSING and row.ours and row.token:
        packed = codes.attempt_bytes(_completed(attempt, row, move.at))
    return history.Entry(
        move.id, move.target, move.cause, move.at, move.reason or None, move.token or None, packed
    )


def _completed(attempt: Attempt | None, row: Row, at: Millis) -> Attempt:
    """What a move says of its attempt, with what the journal knows already."""
    return completed(attempt or Attempt(attempt=row.opened), row, at)


def completed(said: Attempt, row: Row, at: Millis) -> Attempt:
    return msgspec.structs.replace(
        said,
        attempt=row.opened,
        part=row.part,
        token=row.token,
        transport=said.transport or row.transport,
        opened_at=row.claimed_ms,
        committed_at=said.committed_at or row.committed_ms,
        closed_at=said.closed_at or at,
    )


async def _follow_up(session: Session, move: Transition, row: Row) -> None:
    """What few moves bring with them."""
    if len(move.reason) > REASON_IN_SET and not journal.keeps_reason(move.source, move.target, move.cause):
        await session.run(_REASON, move.reason, move.id)
    settled = journal.settled_by(move)
    if settled is not None or move.recipients is not None:
        texts = codes.states_text(settled), codes.addresses_text(move.recipients)
        await session.run(_RECIPIENTS, *texts, move.id)
    if move.believed is not None and row.late:
        await latecomers.believe(session, move.id, move.believed)
    if move.cause is Cause.RETRIED:
        await session.run(_RETRYING, move.at, move.id)
    if move.intaken is not None:
        await _keep_composed(session, move.id, move.intaken)


async def _keep_composed(session: Session, id: str, made: Intaken) -> None:
    """What intake made of the payload goes to record and content."""
    await session.run(
        "UPDATE emails SET priority = %s, company_id = COALESCE(%s, company_id),"
        " eml_file_path = COALESCE(%s, eml_file_path) WHERE id = %s",
        made.priority, made.company_id, made.eml_file_path, id,
    )  # fmt: skip
    await handin.keep_composed(session, id, made)


def _letter(move: Transition) -> tuple[Any, ...]:
    letter = move.dead_letter
    assert letter is not None, "only those that have one are buried"
    return (
        move.id, letter.company_id, letter.failed_attempts, letter.last_failure_reason, letter.last_failure_code,
        letter.last_failure_at, letter.enqueued_at, letter.moved_at, letter.ttl_ms,
    )  # fmt: skip
