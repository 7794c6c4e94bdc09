"""Believes a reply that came too late for its own claim: the journal has it, so nothing is sent again."""

from __future__ import annotations

import msgspec

from staffetta.mail.attempt import Rules, after_attempt
from staffetta.mail.message import Claim, Delivery, Millis, RecipientReply, Reply, Transition
from staffetta.mail.verdict import judge

_UNHEARD = Reply(stage="stopped", name="stopped", text="the late reply did not speak of this recipient")


def late_reply(claim: Claim, rules: Rules, *, now: Millis, draw: float, committed_at: Millis = 0) -> Transition:
    """The move that follows from a late reply, as if it had been read in time.

    `committed_at` is the mark of the attempt that is open now, where its worker is gone; nothing was sent in it
    otherwise. That attempt is closed without replies: they stand where they came from, one attempt earlier.
    """
    late = claim.late
    assert late is not None, "only called for a claim that carries a late reply"
    known = {answer.address: answer.reply for answer in late.replies}
    replies = tuple(
        RecipientReply(address=address, reply=known.get(address, _UNHEARD)) for address in claim.recipients
    )
    delivery = Delivery(transport=late.transport, replies=replies, committed=late.committed_at > 0)
    verdicts = [judge(answer.reply) for answer in replies]
    move = after_attempt(heard(claim), delivery, verdicts, rules, now=now, draw=draw, committed_at=committed_at)
    if move.attempt is None:
        return move
    unsaid = msgspec.structs.replace(move.attempt, replies=())
    return msgspec.structs.replace(move, attempt=unsaid, believed=late)


def heard(claim: Claim) -> Claim:
    """The claim as it would be had the late reply been read in time: that attempt is not in doubt any more."""
    late = claim.late
    if late is None:
        return claim
    if not late.committed_at:
        return msgspec.structs.replace(claim, late=None)
    # The attempt was closed as in doubt, and counted: it is counted again by the move that believes the reply.
    return msgspec.structs.replace(
        claim, late=None, attempts=max(0, claim.attempts - 1), doubts=max(0, claim.doubts - 1)
    )
