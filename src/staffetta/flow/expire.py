"""Ends e-mails whose time is over before they could be sent; also while everything is paused or held."""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.errors import LockNotAcquired, QueueError, StoreError
from staffetta.mail import steering
from staffetta.mail.events import Emit, LockLost, Moved, Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email, Millis, Transition
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

PAGE = 500
_EXPIRABLE = (Status.ACCEPTED, Status.READY)


async def expire(
    *, store: Store, queue: Queue | None, rulebook: RuleBook, now: Millis, emit: Emit, limit: int = PAGE
) -> int:
    """End what the store names as over, at most `limit`; how many it named."""
    emails = await store.expired(now=now, limit=limit)
    if not emails:
        return 0
    moves = [_move(email, rulebook, now=now) for email in emails]
    results = await store.apply_all(moves)
    ended = []
    for email, move, result in zip(emails, moves, results, strict=True):
        if _told(email, move, result, emit):
            ended.append(email.id)
    if queue is not None and ended:
        await _forget(ended, queue, emit, now=now)
    return len(emails)


async def end_expired(id: str, *, store: Store, rulebook: RuleBook, now: Millis, emit: Emit) -> None:
    """End one e-mail that was just found to be over. Whatever hinders it, `expire` comes by again."""
    try:
        email = await store.get(id)
        if email is None or email.expires_at > now or email.status not in _EXPIRABLE:
            return
        move = _move(email, rulebook, now=now)
        results = await store.apply_all([move])
    except StoreError as error:
        message = f"e-mail {id} is over and could not be ended now; it is tried again"
        emit(Troubled(at=now, part="expire", message=message, error=str(error)))
        return
    _told(email, move, results[0], emit)


def _move(email: Email, rulebook: RuleBook, *, now: Millis) -> Transition:
    return steering.expire(email, rulebook.rules_for(email.company_id, email.options), now=now)


def _told(email: Email, move: Transition, result: Exception | None, emit: Emit) -> bool:
    if isinstance(result, LockNotAcquired):
        emit(LockLost(at=move.at, id=email.id, company_id=email.company_id, step="expire"))
        return False
    if result is not None:
        message = f"e-mail {email.id} of {email.company_id} is over and could not be ended; it is tried again"
        emit(Troubled(at=move.at, part="expire", message=message, error=str(result)))
        return False
    emit(
        Moved(at=move.at, id=email.id, company_id=email.company_id, source=move.source, target=move.target,
              cause=move.cause, reason=move.reason)
    )  # fmt: skip
    return True


async def _forget(ids: Sequence[str], queue: Queue, emit: Emit, *, now: Millis) -> None:
    try:
        await queue.settle(ids)
        await queue.bury(ids, now=now)
    except QueueError as error:
        message = "the queue was not told of expired e-mails; their reminders find nothing to do"
        emit(Troubled(at=now, part="queue", message=message, error=str(error)))
