"""What an operator (or the clock) may do to an e-mail that no worker holds: expire, cancel, retry, resolve.

Each returns the move that follows from what was read; its `version` makes it lose when the e-mail moved since.
"""

from __future__ import annotations

from typing import Literal

from staffetta.errors import MoveNotAllowed
from staffetta.mail import lifecycle
from staffetta.mail.attempt import IN_DOUBT_CODE, Rules
from staffetta.mail.deadletter import dead_letter
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Email, Millis, RecipientState, Transition

EXPIRED_CODE = "EXPIRED"
CANCELLED_CODE = "CANCELLED"


def accepted_by_some(email: Email) -> bool:
    return any(recipient.state == "accepted" for recipient in email.recipients)


def expire(email: Email, rules: Rules, *, now: Millis) -> Transition:
    """Its time is over: SENT in part where some recipient has it, else FAILED with a dead letter."""
    lifecycle.check(email.status, Status.FAILED, Cause.EXPIRED)
    in_part = accepted_by_some(email)
    reason = "expired before it could be sent" + (f"; last: {email.reason}" if email.reason else "")
    # Who waits while the e-mail is in doubt may have it already.
    given_up: Literal["in-doubt", "given-up"] = "in-doubt" if email.doubts else "given-up"
    settled = tuple(
        RecipientState(address=one.address, state=given_up, reply=one.reply) if one.state == "waiting" else one
        for one in email.recipients
    )
    return Transition(
        id=email.id,
        source=email.status,
        target=Status.SENT if in_part else Status.FAILED,
        cause=Cause.ENDED_IN_PART if in_part else Cause.EXPIRED,
        at=now,
        reason=reason,
        version=email.version,
        settled=settled,
        recipients=(),
        callback_due=rules.callback_due,
        dead_letter=None
        if in_part
        else dead_letter(
            email.id, email.company_id, email.attempts, reason, IN_DOUBT_CODE if email.doubts else EXPIRED_CODE,
            enqueued_at=email.created_at, now=now, ttl_ms=rules.dead_letter_ttl_ms,
        ),
    )  # fmt: skip


def cancel(email: Email, rules: Rules, *, now: Millis) -> Transition:
    """Not sent yet, accepted by nobody, no attempt in doubt: FAILED without a dead letter."""
    if email.status not in (Status.ACCEPTED, Status.READY):
        raise MoveNotAllowed(
            f"e-mail {email.id} is {email.status}: only ACCEPTED or READY ones can be cancelled"
        )
    if accepted_by_some(email):
        raise MoveNotAllowed(
            f"e-mail {email.id} was already accepted for some recipient: it cannot be cancelled"
        )
    if email.doubts:
        raise MoveNotAllowed(f"e-mail {email.id} has an attempt in doubt: it cannot be cancelled")
    return Transition(
        id=email.id, source=email.status, target=Status.FAILED, cause=Cause.CANCELLED, at=now,
        reason=f"{CANCELLED_CODE}: by request, before it was sent", version=email.version,
        callback_due=rules.callback_due,
    )  # fmt: skip


def retry(email: Email, *, now: Millis, expires_in_ms: int) -> Transition:
    """Back on its way: attempts reset, expiry starts anew, history kept; only those not yet accepted are tried.

    What was in doubt stays so: the doubt is about the past, and a later failure must still say IN-DOUBT.
    """
    if (email.status, Status.READY, Cause.RETRIED) not in lifecycle.MOVES:
        raise MoveNotAllowed(f"e-mail {email.id} is {email.status}: only failed ones can be retried")
    return Transition(
        id=email.id,
        source=email.status,
        target=Status.READY,
        cause=Cause.RETRIED,
        at=now,
        reason="retried by an operator",
        version=email.version,
        token=email.token,
        due_at=now,
        expires_at=now + expires_in_ms,
        attempts=0,
        crashes=0,
        alone_crashes=0,
        settled=tuple(one for one in email.recipients if one.state == "accepted"),
        recipients=tuple(one.address for one in email.recipients if one.state != "accepted"),
        callback_due=False,
    )


def resolve(email: Email, rules: Rules, *, now: Millis) -> Transition:
    """An operator knows that an e-mail in doubt was delivered: SENT, for those who may have it."""
    if (email.status, Status.SENT, Cause.RESOLVED) not in lifecycle.MOVES or not email.doubts:
        raise MoveNotAllowed(f"e-mail {email.id} is {email.status} and not in doubt: nothing to resolve")
    doubtful = [one.address for one in email.recipients if one.state in ("in-doubt", "waiting")]
    # In doubt once and refused later: whom it reached is not known, so the operator speaks for all of them.
    reached = doubtful or [one.address for one in email.recipients]
    return Transition(
        id=email.id,
        source=email.status,
        target=Status.SENT,
        cause=Cause.RESOLVED,
        at=now,
        reason="resolved by an operator: it was delivered",
        version=email.version,
        token=email.token,
        settled=tuple(
            RecipientState(address=one.address, state="accepted", reply=one.reply)
            if one.address in reached
            else one
            for one in email.recipients
        ),
        recipients=(),
        callback_due=rules.callback_due,
    )
