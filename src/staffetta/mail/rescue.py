"""What becomes of an e-mail whose worker is gone: found in work, with or without a mark or a journal.

    mark   what is known                              then
    no     the dot never left                         sent again at once; a crash uses up no attempt
    yes    the message may be out, no reply is read   in doubt: the one resend after the delay, else given up
    none   no journal at all: another program's row   in doubt, not unsent

A reply that was read is believed instead (`after_attempt`, by way of the flow): then nothing is sent again.
"""

from __future__ import annotations

from typing import Literal

from staffetta.mail import lifecycle
from staffetta.mail.attempt import IN_DOUBT_CODE, Rules
from staffetta.mail.deadletter import dead_letter
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, InWork, Millis, RecipientState, Transition

SUSPECT_CRASHES = 3
"""Found open in this many crashes: from now on sent alone, after the others."""
ALONE_CRASHES = 2
"""A suspect that killed its worker this often while nothing else was in flight is given up."""
CRASHED_CODE = "CRASHED"


def worker_of(token: str) -> str:
    """A token names its worker before the first dot."""
    return token.partition(".")[0]


def after_crash(found: InWork, rules: Rules, *, now: Millis) -> Transition:
    """The move that takes an e-mail back from a dead worker."""
    claim = found.claim
    if found.status is not Status.PROCESSING:
        target = lifecycle.restored_to(found.status)
        return Transition(
            id=claim.id, ref=claim.ref, token=claim.token, source=found.status, target=target,
            cause=Cause.RESTORED, at=now, reason=f"{_worker(found)} is gone",
        )  # fmt: skip
    if found.committed_at or not claim.attempt:
        return _in_doubt(found, rules, now=now)
    # One e-mail in flight is alone by chance; only a suspect is sent alone on purpose, so only then it tells.
    suspect = claim.crashes >= SUSPECT_CRASHES
    crashes, alone = claim.crashes + 1, claim.alone_crashes + (1 if suspect and found.alone else 0)
    if alone < ALONE_CRASHES:
        reason = f"{_worker(found)} died before the message was handed over"
        return _move(
            found,
            rules,
            Status.READY,
            Cause.RESTORED,
            reason,
            now=now,
            due_at=now,
            crashes=crashes,
            alone=alone,
        )
    reason = f"its worker died {alone} times while nothing else was being sent"
    code = IN_DOUBT_CODE if claim.doubts else CRASHED_CODE
    return _end(
        found, rules, Cause.CRASHED, reason, "given-up", now=now, code=code, crashes=crashes, alone=alone
    )


def _in_doubt(found: InWork, rules: Rules, *, now: Millis) -> Transition:
    claim = found.claim
    doubts, attempts = claim.doubts + 1, claim.attempts + 1
    reason = _doubt(found)
    if rules.in_doubt == "resend" and not claim.doubts:
        due_at = max(now, (found.committed_at or now) + rules.in_doubt_delay_ms)
        return _move(
            found, rules, Status.READY, Cause.IN_DOUBT, reason,
            now=now, due_at=due_at, doubts=doubts, attempts=attempts,
        )  # fmt: skip
    return _end(
        found, rules, Cause.IN_DOUBT, reason, "in-doubt",
        now=now, code=IN_DOUBT_CODE, doubts=doubts, attempts=attempts,
    )  # fmt: skip


def _worker(found: InWork) -> str:
    name = worker_of(found.claim.token)
    return f"worker {name}" if name else "its worker"


def _doubt(found: InWork) -> str:
    if not found.claim.attempt:
        return "in doubt: found in work without a journal of ours, so it may have been sent"
    where = found.transport or "the next server"
    return f"in doubt: the message was handed to {where}, and {_worker(found)} was gone before a reply was read"


def _end(
    found: InWork,
    rules: Rules,
    cause: Cause,
    reason: str,
    state: Literal["in-doubt", "given-up"],
    *,
    now: Millis,
    code: str,
    attempts: int | None = None,
    doubts: int | None = None,
    crashes: int | None = None,
    alone: int | None = None,
) -> Transition:
    """Given up: SENT where somebody has it already, the rest named; else FAILED with a dead letter."""
    claim = found.claim
    in_part = any(one.state == "accepted" for one in claim.settled)
    settled = (
        *claim.settled,
        *(RecipientState(address=address, state=state, reply=reason) for address in claim.recipients),
    )
    target, cause = (Status.SENT, Cause.ENDED_IN_PART) if in_part else (Status.FAILED, cause)
    return _move(
        found, rules, target, cause, reason,
        now=now, attempts=attempts, doubts=doubts, crashes=crashes, alone=alone, settled=settled, code=code,
    )  # fmt: skip


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
        attempts=claim.attempts if attempts is None else attempts,
        doubts=claim.doubts if doubts is None else doubts,
        crashes=crashes,
        alone_crashes=alone,
        settled=settled,
        attempt=Attempt(
            attempt=claim.attempt, part=claim.part, token=claim.token, transport=found.transport,
            opened_at=claim.at, committed_at=found.committed_at, closed_at=now, counted=attempts is not None,
        )
        if claim.attempt
        else None,
        dead_letter=dead_letter(
            claim.id, claim.company_id, claim.attempts if attempts is None else attempts, reason, code,
            enqueued_at=claim.created_at, now=now, ttl_ms=rules.dead_letter_ttl_ms,
        )
        if target is Status.FAILED
        else None,
        callback_due=None if target is Status.READY else rules.callback_due,
    )  # fmt: skip
