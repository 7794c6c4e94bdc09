"""What becomes of an e-mail whose worker is gone: found in work, with or without a mark, with or without a reply.

The journal decides: no mark means that the dot never left; a mark without a reply means doubt; a reply is believed.
"""

from __future__ import annotations

from staffetta.mail import lifecycle
from staffetta.mail.attempt import Rules, words
from staffetta.mail.deadletter import dead_letter
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, InWork, Millis, RecipientState, Transition

SUSPECT_CRASHES = 3
"""Found open in this many crashes: from now on sent alone, after the others."""
ALONE_CRASHES = 2
"""Killed its worker this often while nothing else was in flight: given up."""


def after_crash(found: InWork, rules: Rules, *, now: Millis) -> Transition:
    """The move that takes an e-mail back from a dead worker. A crash uses up no attempt."""
    claim = found.claim
    if found.status is not Status.PROCESSING:
        target = lifecycle.restored_to(found.status)
        return Transition(
            id=claim.id, ref=claim.ref, token=claim.token, source=found.status, target=target,
            cause=Cause.RESTORED, at=now, reason=f"worker {worker_of(claim.token)} is gone",
        )  # fmt: skip
    if found.committed_at or not claim.attempt:
        return _in_doubt(found, rules, now=now)
    crashes, alone = claim.crashes + 1, claim.alone_crashes + (1 if found.alone else 0)
    if alone >= ALONE_CRASHES:
        reason = f"its worker died {alone} times while nothing else was being sent"
        return _move(found, rules, Status.FAILED, Cause.CRASHED, reason, now=now, crashes=crashes, alone=alone,
                     code="IN-DOUBT" if claim.doubts else "CRASHED")  # fmt: skip
    reason = f"worker {worker_of(claim.token)} died before the message was handed over"
    return _move(found, rules, Status.READY, Cause.RESTORED, reason, now=now, crashes=crashes, alone=alone, due_at=now)


def _in_doubt(found: InWork, rules: Rules, *, now: Millis) -> Transition:
    claim = found.claim
    doubts, attempts = claim.doubts + 1, claim.attempts + 1
    reason = (
        f"in doubt: the message was handed to {found.transport or 'the next server'} and no reply was read"
        f" (worker {worker_of(claim.token)} is gone)"
    )
    if rules.in_doubt == "resend" and claim.doubts == 0:
        due = (found.committed_at or now) + rules.in_doubt_delay_ms
        return _move(found, rules, Status.READY, Cause.IN_DOUBT, reason, now=now, doubts=doubts, attempts=attempts,
                     due_at=due)  # fmt: skip
    settled = (
        *claim.settled,
        *(RecipientState(address=address, state="in-doubt", reply=reason) for address in claim.recipients),
    )
    if any(state.state == "accepted" for state in claim.settled):
        return _move(found, rules, Status.SENT, Cause.ENDED_IN_PART, reason, now=now, doubts=doubts,
                     attempts=attempts, settled=settled)  # fmt: skip
    return _move(found, rules, Status.FAILED, Cause.IN_DOUBT, reason, now=now, doubts=doubts, attempts=attempts,
                 settled=settled, code="IN-DOUBT")  # fmt: skip


def _move(
    found: InWork,
    rules: Rules,
    target: Status,
    cause: Cause,
    reason: str,
    *,
    now: Millis,
    due_at: Millis | None = None,
    attempts: int | None = None,
    doubts: int | None = None,
    crashes: int | None = None,
    alone: int | None = None,
    settled: tuple[RecipientState, ...] | None = None,
    code: str = "",
) -> Transition:
    claim = found.claim
    return Transition(
        id=claim.id,
        ref=claim.ref,
        token=claim.token,
        source=Status.PROCESSING,
        target=target,
        cause=cause,
        at=now,
        reason=reason,
        due_at=due_at,
        attempts=attempts,
        doubts=doubts,
        crashes=crashes,
        alone_crashes=alone,
        settled=settled,
        attempt=Attempt(
            attempt=claim.attempt, part=claim.part, token=claim.token, transport=found.transport, opened_at=claim.at,
            committed_at=found.committed_at, closed_at=now, counted=attempts is not None,
        ),
        dead_letter=dead_letter(
            claim.id, claim.company_id, attempts or claim.attempts, reason, code,
            enqueued_at=claim.created_at, now=now, ttl_ms=rules.dead_letter_ttl_ms,
        )
        if target is Status.FAILED
        else None,
        callback_due=rules.callback_due if target is not Status.READY else None,
    )  # fmt: skip


def worker_of(token: str) -> str:
    """A token names its worker before the first dot."""
    return token.partition(".")[0]


def reply_words(attempt: Attempt) -> str:
    """The words of a late reply, for the reason of the move that believes it."""
    return "; ".join(words(answer.reply) for answer in attempt.replies)
