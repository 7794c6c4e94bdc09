"""Moves as sets: compare-and-set, history, closed attempt and record of many e-mails in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from staffetta.mail import journal
from staffetta.mail.lifecycle import IN_WORK, Cause, Status
from staffetta.mail.message import Attempt, Transition
from staffetta.store.sqlite import codes, handin, latecomers
from staffetta.store.sqlite.orders import Move

if TYPE_CHECKING:
    from staffetta.store.sqlite.group import Group


class Held(msgspec.Struct, array_like=True):
    """What a claim's row knows of its open attempt."""

    ref: int
    attempt: int
    part: int
    token: str
    at: int
    transport: str


_held = msgspec.json.Decoder(list[Held])
_HELD = """
    SELECT json_group_array(json_array(c.ref, c.attempt, c.part, c.token, c.at, c.transport))
    FROM json_each(?) w CROSS JOIN claims c ON c.ref = w.value
"""


def make(group: Group, moving: Mapping[int, Move]) -> None:
    """Make the moves. Those that lose are in `lost` afterwards."""
    refs = _refs(group, moving)
    for order in moving.values():
        order.ref = (
            order.move.ref if order.move.source in IN_WORK and order.move.ref else refs.get(order.move.id, 0)
        )
    held = _open_attempts(group, moving)
    rows = [_row(group, place, order, held.get(order.ref)) for place, order in moving.items()]
    group.batches["leave"].run(group.connection, rows)


def _refs(group: Group, moving: Mapping[int, Move]) -> dict[str, int]:
    return group.refs(
        order.move.id for order in moving.values() if not order.move.ref or order.move.source not in IN_WORK
    )


def _open_attempts(group: Group, moving: Mapping[int, Move]) -> dict[int, Held]:
    """Of those moves that do not say all about the attempt they close."""
    unsaid = [
        order.ref
        for order in moving.values()
        if order.move.source is Status.PROCESSING and not _says_all(order.move.attempt)
    ]
    if not unsaid:
        return {}
    found = group.connection.execute(_HELD, (codes.to_json(unsaid),)).get
    return {one.ref: one for one in _held.decode(found)}


def _says_all(attempt: Attempt | None) -> bool:
    return (
        attempt is not None and bool(attempt.transport) and bool(attempt.opened_at) and bool(attempt.closed_at)
    )


def _row(group: Group, place: int, order: Move, held: Held | None) -> tuple[Any, ...]:
    move = order.move
    attempt = move.attempt
    if held is not None:
        attempt = completed(attempt, held, closed_at=move.at)
    made = move.intaken
    due_at, expires_at = move.due_at, move.expires_at
    priority = company = None
    if made is not None:
        due_at, expires_at, priority = made.due_at, made.expires_at, made.priority
        company = group.company(made.company_id) if made.company_id else None
    return (
        place,
        order.ref,
        move.version,
        codes.STATUS[move.source],
        move.token or "",
        codes.STATUS[move.target],
        codes.CAUSE[move.cause],
        move.at,
        move.reason or None,
        codes.attempt_bytes(attempt) if attempt is not None else None,
        attempt.committed_at if attempt is not None else 0,
        due_at,
        expires_at,
        move.attempts,
        move.doubts,
        move.crashes,
        move.alone_crashes,
        codes.states_text(journal.settled_by(move)),
        codes.addresses_text(move.recipients),
        _callback(move),
        not journal.keeps_reason(move.source, move.target, move.cause),
        journal.enters_end(move),
        priority,
        company,
    )


def completed(attempt: Attempt | None, held: Held, *, closed_at: int) -> Attempt:
    """What a move says of its attempt, with what the claim knows already."""
    said = attempt or Attempt(attempt=held.attempt)
    return msgspec.structs.replace(
        said,
        attempt=held.attempt,
        part=held.part,
        token=held.token,
        transport=said.transport or held.transport,
        opened_at=held.at,
        closed_at=said.closed_at or closed_at,
    )


def _callback(move: Transition) -> int | None:
    """`mail.callback` after the move; None: as it was."""
    if move.cause is Cause.ACKNOWLEDGED:
        return codes.NOBODY
    if move.callback_due is None:
        return codes.DUE if move.source in journal.CALLING else None  # nobody has him on the line any more
    return int(move.callback_due)


def follow_up(group: Group, moving: Mapping[int, Move], lost: set[int], results: list[Any]) -> None:
    """What goes with the moves that were made, and what is kept of those that were not."""
    buried: list[tuple[Any, ...]] = []
    composed: list[tuple[Any, ...]] = []
    for place, order in moving.items():
        move, ref = order.move, order.ref
        if place in lost:
            if latecomers.was_made(group.connection, ref, move):
                results[place] = None
            elif move.attempt is not None:
                latecomers.keep(group, ref, move.attempt)
            continue
        source, target = codes.STATUS[move.source], codes.STATUS[move.target]
        group.count(codes.RESTS_IN.get(source, source), -1)
        group.count(target)
        if target == codes.READY:
            _ready_again(group, order)
        elif move.target in journal.ENDS:
            group.ended += 1
        if move.dead_letter is not None:
            letter = move.dead_letter
            buried.append(
                (ref, letter.failed_attempts, letter.last_failure_reason, letter.last_failure_code,
                 letter.last_failure_at, letter.enqueued_at, letter.moved_at, letter.ttl_ms)
            )  # fmt: skip
        if move.believed is not None:
            latecomers.believe(group, ref, move.believed)
        if move.intaken is not None:
            composed.append(handin.composed_row(ref, move.intaken))
    if composed:
        group.batches["compose"].run(group.connection, composed, most=handin.ROWS_AT_ONCE)
    if buried:
        group.batches["bury"].run(group.connection, buried)


def _ready_again(group: Group, order: Move) -> None:
    move = order.move
    due_at = move.intaken.due_at if move.intaken is not None else move.due_at
    is_due = due_at is None or due_at <= move.at
    if is_due and (not group.owner or move.cause is Cause.RETRIED):
        group.tell_owner([order.ref])
