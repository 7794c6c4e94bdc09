"""What the journal of an e-mail says about its recipients, and what a store makes of replies that were late.

Every store keeps the same three facts of the recipients: the envelope, those settled so far, and, where they
became fewer, those left to try. These functions read them, so that all stores answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staffetta.errors import MoveNotAllowed
from staffetta.mail import lifecycle
from staffetta.mail.attempt import words
from staffetta.mail.lifecycle import FINISHED, IN_WORK, Cause, Status
from staffetta.mail.message import Attempt, Claim, NewEmail, RecipientReply, RecipientState, Transition

SENT_FAMILY = frozenset({Status.SENT, Status.CALLING_SENT_CALLBACK, Status.SENT_ACKNOWLEDGED})
CALLING = frozenset({Status.CALLING_SENT_CALLBACK, Status.CALLING_FAILED_CALLBACK})
ENDS = frozenset({Status.SENT, Status.FAILED})
KEPT_ANSWER_MS = 86_400_000
"""How long the answer to an idempotency key is given again."""


def check_new(new: NewEmail) -> None:
    """Refuse a new e-mail whose history is not a walk through the table, or that nobody could take up."""
    before: Status | None = None
    for entry in new.history:
        lifecycle.check(before, entry.status, entry.cause)
        before = entry.status
    if before is None or before in IN_WORK:
        lifecycle.check(None, before or Status.INVALID, Cause.ACCEPTED)


def check_move(move: Transition) -> None:
    """Refuse a move that is not in the table, and one that only a claim can make."""
    lifecycle.check(move.source, move.target, move.cause)
    if move.target in IN_WORK:
        raise MoveNotAllowed(f"e-mail {move.id}: {move.target} is entered by a claim, never by a move")


def keeps_reason(source: Status, target: Status, cause: Cause) -> bool:
    """Moves that leave the e-mail's reason as it is: the words of a claim or a call do not say how it ended."""
    return cause in (Cause.CLAIMED, Cause.REPORTING, Cause.ACKNOWLEDGED) or (
        cause is Cause.RESTORED and (source in CALLING or target in CALLING)
    )


def enters_end(move: Transition) -> bool:
    """The move is an outcome: its time is `reached_at`, and the outcomes are counted."""
    return move.target in ENDS and move.cause is not Cause.RESTORED


def is_over(status: Status, *, callback_due: bool, callback_exhausted: bool) -> bool:
    """Nothing will ever be done with this e-mail by itself any more."""
    if status in CALLING:
        return callback_exhausted
    return status in FINISHED and not (status in ENDS and callback_due)


# ------------------------------------------------------------------------------------------------ recipients


def to_try(
    envelope: Sequence[str], settled: Sequence[RecipientState], left: Sequence[str] | None
) -> tuple[str, ...]:
    """The recipients that the next attempt goes to."""
    if left is not None:
        return tuple(left)
    if not settled:
        return tuple(envelope)
    done = {state.address for state in settled}
    return tuple(address for address in envelope if address not in done)


def states(
    envelope: Sequence[str],
    settled: Sequence[RecipientState],
    status: Status,
    replies: Sequence[RecipientReply],
) -> tuple[RecipientState, ...]:
    """What is known of each recipient. `replies` are those of the attempt that made it SENT, where one did."""
    known = {state.address: state for state in settled}
    if status in SENT_FAMILY:
        for answer in replies:
            if answer.address not in known and answer.reply.delivered:
                known[answer.address] = RecipientState(
                    address=answer.address, state="accepted", reply=words(answer.reply)
                )
    return tuple(known.get(address) or RecipientState(address=address, state="waiting") for address in envelope)


def settled_by(move: Transition) -> tuple[RecipientState, ...] | None:
    """What a move settles; None: nothing new, or what its own attempt's replies tell."""
    if move.settled is not None or move.believed is None or move.target is not Status.SENT:
        return move.settled
    return tuple(
        RecipientState(address=answer.address, state="accepted", reply=words(answer.reply))
        for answer in move.believed.replies
        if answer.reply.delivered
    )


def without_it(settled: Iterable[RecipientState]) -> tuple[RecipientState, ...]:
    """The recipients that an owner must be told of: they did not get it."""
    return tuple(state for state in settled if state.state in ("refused", "given-up", "in-doubt"))


def after_part(claim: Claim, closed: Attempt) -> tuple[tuple[RecipientState, ...], tuple[str, ...]]:
    """Settled and left after one part: an acceptance or a refusal by code 5yz is final, nothing else is."""
    answers = {answer.address: answer.reply for answer in closed.replies}
    settled, left = list(claim.settled), []
    for address in claim.recipients:
        reply = answers.get(address)
        if reply is not None and reply.delivered:
            settled.append(RecipientState(address=address, state="accepted", reply=words(reply)))
        elif reply is not None and 500 <= reply.code <= 599:
            settled.append(RecipientState(address=address, state="refused", reply=words(reply)))
        else:
            left.append(address)
    return tuple(settled), tuple(left)


# ------------------------------------------------------------------------------------------------ late replies


def choose_late(late: Sequence[Attempt], waiting: Sequence[str]) -> Attempt | None:
    """The late reply that a claim carries, of those not yet believed: an acceptance before anything else.

    One that speaks of nobody who is still to be tried tells nothing new.
    """
    news = [one for one in late if any(answer.address in waiting for answer in one.replies)]
    accepted = (one for one in news if any(a.reply.delivered for a in one.replies if a.address in waiting))
    return next(accepted, news[0] if news else None)


def is_this_part(kept: Attempt, attempt: Attempt) -> bool:
    """The same part of the same attempt under the same claim."""
    return (kept.attempt, kept.part, kept.token) == (attempt.attempt, attempt.part, attempt.token)
