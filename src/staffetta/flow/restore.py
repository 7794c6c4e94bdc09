"""Takes back e-mails whose worker is gone, and tells the queue. Never touches what this process itself holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staffetta.errors import LockNotAcquired
from staffetta.flow import believe
from staffetta.mail import rescue
from staffetta.mail.events import Emit, LockLost, Restored
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import InWork, Job, Millis, Transition
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

PAGE = 1_000


async def restore(
    *,
    store: Store,
    queue: Queue,
    rulebook: RuleBook,
    now: Millis,
    draw: Callable[[], float],
    emit: Emit,
    own_worker: str,
    dead_after_ms: int | None,
    timeout_ms: int,
    workers: Sequence[str] = (),
    own_claims_too: bool = False,
) -> int:
    """Restore what is stuck, page by page; how many were moved."""
    restored = 0
    while True:
        found = await store.stuck(
            now=now, dead_after_ms=dead_after_ms, timeout_ms=timeout_ms, workers=workers, limit=PAGE
        )
        moves = [
            _decide(one, rulebook, now=now, draw=draw())
            for one in found
            if own_claims_too or rescue.worker_of(one.claim.token) != own_worker
        ]
        results = await store.apply_all(moves)
        moved = 0
        for move, result in zip(moves, results, strict=True):
            company_id = next(one.claim.company_id for one in found if one.claim.id == move.id)
            if isinstance(result, LockNotAcquired):
                emit(LockLost(at=now, id=move.id, company_id=company_id, step="restore"))
            elif result is not None:
                raise result
            else:
                moved += 1
                worker = rescue.worker_of(move.token or "")
                emit(Restored(at=now, id=move.id, company_id=company_id, source=move.source, target=move.target,
                              worker=worker))  # fmt: skip
        await queue.offer([_job(one, move) for one, move in _ready(found, moves, results)])
        restored += moved
        if len(found) < PAGE or not moved:
            return restored


def _decide(found: InWork, rulebook: RuleBook, *, now: Millis, draw: float) -> Transition:
    rules = rulebook.rules_for(found.claim.company_id, found.claim.options)
    if found.status is Status.PROCESSING and found.claim.late is not None:
        return believe.late_reply(found.claim, rules, now=now, draw=draw, committed_at=found.committed_at)
    return rescue.after_crash(found, rules, now=now)


def _ready(
    found: Sequence[InWork], moves: Sequence[Transition], results: Sequence[None | Exception]
) -> list[tuple[InWork, Transition]]:
    by_id = {one.claim.id: one for one in found}
    return [
        (by_id[move.id], move)
        for move, result in zip(moves, results, strict=True)
        if result is None and move.target is Status.READY
    ]


def _job(found: InWork, move: Transition) -> Job:
    return Job(
        id=move.id,
        company_id=found.claim.company_id,
        priority=found.claim.priority,
        due_at=move.due_at if move.due_at is not None else move.at,
        suspect=(move.crashes or found.claim.crashes) >= rescue.SUSPECT_CRASHES,
    )
