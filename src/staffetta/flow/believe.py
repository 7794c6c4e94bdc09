"""Believes a reply that came too late for its own claim: the journal has it, so nothing is sent again."""

from __future__ import annotations

import msgspec

from staffetta.mail.attempt import Rules, after_attempt
from staffetta.mail.message import Claim, Delivery, Millis, RecipientReply, Reply, Transition
from staffetta.mail.verdict import judge

_UNHEARD = Reply(stage="stopped", name="stopped", text="the late reply did not speak of this recipient")


def late_reply(claim: Claim, rules: Rules, *, now: Millis, draw: float, committed_at: Millis) -> Transition:
    """The move that follows from a late reply, as if it had been read in time."""
    late = claim.late
    assert late is not None, "only called for a claim that carries a late reply"
    known = {answer.address: answer.reply for answer in late.replies}
    replies = tuple(
        RecipientReply(address=address, reply=known.get(address, _UNHEARD)) for address in claim.recipients
    )
    # The attempt in doubt was counted when it was closed, and it is in doubt no more.
    claim = msgspec.structs.replace(
        claim, attempts=max(0, claim.attempts - 1), doubts=max(0, claim.doubts - 1)
    )
    delivery = Delivery(transport=late.transport, replies=replies, committed=True)
    verdicts = [judge(answer.reply) for answer in replies]
    return after_attempt(
        claim, delivery, verdicts, rules, now=now, draw=draw, committed_at=committed_at or late.committed_at
    )
