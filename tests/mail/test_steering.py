"""What the clock and operators may do with an e-mail that nobody holds."""

from __future__ import annotations

from typing import Any

import pytest

from staffetta.errors import MoveNotAllowed
from staffetta.mail import backoff, lifecycle, steering
from staffetta.mail.attempt import Rules
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Email, RecipientState, Transition

NOW = 1_800_000_000_000
RULES = Rules(policy=backoff.GATEWAY, callback_due=True)
FAILED_FAMILY = (Status.FAILED, Status.FAILED_ACKNOWLEDGED, Status.CALLING_FAILED_CALLBACK)


def an_email(status: Status, *states: str, **facts: Any) -> Email:
    recipients = tuple(
        RecipientState(address=f"r{n}@example.org", state=state, reply="its words")  # type: ignore[arg-type]  # its words
        for n, state in enumerate(states or ("waiting",))
    )
    values = {"version": 7, "reason": "450 4.2.0 busy", "attempts": 2, "token": None, **facts}
    return Email(
        id="e1", status=status, company_id="acme", created_at=NOW - 10**6, updated_at=NOW - 1_000, due_at=NOW,
        expires_at=NOW - 1, recipients=recipients, **values,
    )  # fmt: skip


def checked(move: Transition) -> Transition:
    lifecycle.check(move.source, move.target, move.cause)
    assert move.version == 7
    return move


def states(move: Transition) -> list[str]:
    return [one.state for one in move.settled or ()]


# ------------------------------------------------------------------------------------------ expiry


@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.READY])
def test_over_before_it_was_sent_is_failed_expired_with_a_dead_letter(status: Status) -> None:
    move = checked(steering.expire(an_email(status), RULES, now=NOW))

    assert (move.target, move.cause, move.callback_due) == (Status.FAILED, Cause.EXPIRED, True)
    assert move.dead_letter is not None
    assert (move.dead_letter.last_failure_code, move.dead_letter.failed_attempts) == ("EXPIRED", 2)
    assert "450 4.2.0 busy" in move.reason
    assert states(move) == ["given-up"]


def test_over_with_somebody_accepted_is_sent_in_part_and_the_rest_named() -> None:
    move = checked(steering.expire(an_email(Status.READY, "accepted", "waiting", "refused"), RULES, now=NOW))

    assert (move.target, move.cause, move.dead_letter) == (Status.SENT, Cause.ENDED_IN_PART, None)
    assert states(move) == ["accepted", "given-up", "refused"]


def test_over_while_in_doubt_says_in_doubt() -> None:
    move = checked(steering.expire(an_email(Status.READY, doubts=1), RULES, now=NOW))

    assert move.dead_letter is not None
    assert move.dead_letter.last_failure_code == "IN-DOUBT"
    assert states(move) == ["in-doubt"]


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.ACCEPTED, Status.READY)])
def test_nothing_else_expires(status: Status) -> None:
    with pytest.raises(MoveNotAllowed):
        steering.expire(an_email(status), RULES, now=NOW)


# ------------------------------------------------------------------------------------------ cancel


@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.READY])
def test_cancelled_is_failed_without_a_dead_letter(status: Status) -> None:
    move = checked(steering.cancel(an_email(status), RULES, now=NOW))

    assert (move.target, move.cause, move.dead_letter) == (Status.FAILED, Cause.CANCELLED, None)
    assert move.reason.startswith("CANCELLED")
    assert move.callback_due


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.ACCEPTED, Status.READY)])
def test_what_is_in_work_or_over_cannot_be_cancelled(status: Status) -> None:
    with pytest.raises(MoveNotAllowed, match=status):
        steering.cancel(an_email(status), RULES, now=NOW)


def test_accepted_by_some_or_in_doubt_cannot_be_cancelled() -> None:
    with pytest.raises(MoveNotAllowed, match="accepted for some"):
        steering.cancel(an_email(Status.READY, "accepted", "waiting"), RULES, now=NOW)
    with pytest.raises(MoveNotAllowed, match="in doubt"):
        steering.cancel(an_email(Status.READY, doubts=1), RULES, now=NOW)


# ------------------------------------------------------------------------------------------ retry, resolve


@pytest.mark.parametrize("status", FAILED_FAMILY)
def test_a_failed_one_goes_back_with_attempts_reset_and_expiry_anew(status: Status) -> None:
    email = an_email(status, "refused", "accepted", "given-up", "in-doubt", crashes=4, token="w1.3")

    move = checked(steering.retry(email, now=NOW, expires_in_ms=5_000))

    assert (move.target, move.cause) == (Status.READY, Cause.RETRIED)
    assert (move.attempts, move.crashes, move.alone_crashes) == (0, 0, 0)
    assert (move.due_at, move.expires_at, move.callback_due) == (NOW, NOW + 5_000, False)
    assert move.recipients == ("r0@example.org", "r2@example.org", "r3@example.org")
    assert states(move) == ["accepted"]
    assert move.token == "w1.3", "out of CALLING-FAILED-CALLBACK the token that was read decides"
    assert move.doubts is None, "the doubt is about the past: a later failure must still say so"


@pytest.mark.parametrize("status", [s for s in Status if s not in FAILED_FAMILY])
def test_only_failed_ones_are_retried(status: Status) -> None:
    with pytest.raises(MoveNotAllowed, match="only failed ones"):
        steering.retry(an_email(status), now=NOW, expires_in_ms=1)


@pytest.mark.parametrize("status", FAILED_FAMILY)
def test_one_in_doubt_is_resolved_as_sent(status: Status) -> None:
    move = checked(steering.resolve(an_email(status, "in-doubt", "refused", doubts=1), RULES, now=NOW))

    assert (move.target, move.cause, move.callback_due) == (Status.SENT, Cause.RESOLVED, True)
    assert states(move) == ["accepted", "refused"]


def test_refused_after_a_doubt_the_operator_speaks_for_all() -> None:
    move = steering.resolve(an_email(Status.FAILED, "refused", "given-up", doubts=1), RULES, now=NOW)

    assert states(move) == ["accepted", "accepted"]


@pytest.mark.parametrize(
    ("status", "doubts"), [(s, 0) for s in FAILED_FAMILY] + [(Status.READY, 1), (Status.SENT, 1)]
)
def test_only_one_in_doubt_is_resolved(status: Status, doubts: int) -> None:
    with pytest.raises(MoveNotAllowed, match="not in doubt"):
        steering.resolve(an_email(status, doubts=doubts), RULES, now=NOW)
