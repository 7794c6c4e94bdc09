"""Takes back e-mails whose worker is gone, and tells the queue. Never touches what this process holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from staffetta.errors import LockNotAcquired, QueueError
from staffetta.flow import believe
from staffetta.mail import rescue
from staffetta.mail.events import Emit, LockLost, Restored, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import InWork, Job, Millis, Transition
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

PAGE = 1_000


async def restore(
    *,
    store: Store,
    queue: Queue | None,
    rulebook: RuleBook,
    now: Millis,
    draw: Callable[[], float],
    emit: Emit,
    live: Callable[[InWork], bool],
    dead_after_ms: int | None,
    timeout_ms: int,
    workers: Sequence[str] = (),
) -> int:
    """Restore what is stuck, page by page; how many were moved. `live`: this process works on it now."""
    restored = 0
    while True:
        page = await store.stuck(
            now=now, dead_after_ms=dead_after_ms, timeout_ms=timeout_ms, workers=workers, limit=PAGE
        )
        found = [one for one in page if not live(one)]
        moved = await restore_these(
            found, store=store, queue=queue, rulebook=rulebook, now=now, draw=draw, emit=emit
        )
        restored += moved
        if len(page) < PAGE or not moved:
            return restored


async def restore_these(
    found: Sequence[InWork],
    *,
    store: Store,
    queue: Queue | None,
    rulebook: RuleBook,
    now: Millis,
    draw: Callable[[], float],
    emit: Emit,
) -> int:
    """Restore these e-mails, whose workers are known to be gone; how many were moved."""
    if not found:
        return 0
    moves = [decide(one, rulebook, now=now, draw=draw()) for one in found]
    ready: list[Job] = []
    dead: list[str] = []
    moved = 0
    for one, move, result in zip(found, moves, await store.apply_all(moves), strict=True):
        claim = one.claim
        if isinstance(result, LockNotAcquired):
            emit(LockLost(at=now, id=claim.id, company_id=claim.company_id, step="restore"))
        elif result is not None:
            message = f"e-mail {claim.id} of {claim.company_id} could not be restored; it is tried again"
            emit(Troubled(at=now, part="restore", message=message, error=str(result)))
        else:
            moved += 1
            emit(
                Restored(at=now, id=claim.id, company_id=claim.company_id, source=move.source,
                         target=move.target, worker=rescue.worker_of(claim.token))
            )  # fmt: skip
            if move.target is Status.READY:
                ready.append(_job(one, move))
            elif move.dead_letter is not None:
                dead.append(move.id)
    if queue is not None and (ready or dead):
        await _remind(ready, dead, queue, emit, now=now)
    return moved


def decide(found: InWork, rulebook: RuleBook, *, now: Millis, draw: float) -> Transition:
    """What becomes of an e-mail whose worker is gone: a late reply is believed, then the journal."""
    rules = rulebook.rules_for(found.claim.company_id, found.claim.options)
    if found.status is not Status.PROCESSING or found.claim.late is None:
        return rescue.after_crash(found, rules, now=now)
    move = believe.late_reply(found.claim, rules, now=now, draw=draw, committed_at=found.committed_at)
    if found.committed_at and move.cause is not Cause.DELIVERED:
        # The reply speaks of an earlier attempt; the one that is open now was committed too, and is in doubt.
        found = msgspec.structs.replace(found, claim=believe.heard(found.claim))
        return msgspec.structs.replace(rescue.after_crash(found, rules, now=now), believed=move.believed)
    return move


async def _remind(jobs: Sequence[Job], dead: Sequence[str], queue: Queue, emit: Emit, *, now: Millis) -> None:
    """The queue may still know these as active, leased to the dead: forget first, then offer."""
    try:
        await queue.settle([*(job.id for job in jobs), *dead])
        await queue.bury(dead, now=now)
        for company_id in {job.company_id for job in await queue.offer(jobs)}:
            await queue.full(company_id, more=True)
    except QueueError as error:
        message = "the queue was not told of restored e-mails; it hears of them from the store"
        emit(Troubled(at=now, part="queue", message=message, error=str(error)))


def _job(found: InWork, move: Transition) -> Job:
    return Job(
        id=move.id,
        company_id=found.claim.company_id,
        priority=found.claim.priority,
        due_at=move.due_at if move.due_at is not None else move.at,
        suspect=(move.crashes or found.claim.crashes) >= rescue.SUSPECT_CRASHES,
        ref=found.claim.ref,
    )
