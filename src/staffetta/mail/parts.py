"""Decides whether an attempt goes on with another part: the rest of a split one, or the next transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from staffetta.mail.breaker import counts_against
from staffetta.mail.message import Attempt, Claim, Decision, Delivery, Millis, Verdict

Next = Literal["", "split", "fallback"]


def next_part(delivery: Delivery, verdicts: Sequence[Verdict], *, another: bool) -> Next:
    """What follows in the same attempt. `another`: a transport of the chain is open and was not tried yet.

    SPLIT goes on only when someone was accepted, so that every part makes progress. Another transport is tried
    only when nothing was committed and the trouble reaches the transport.
    """
    actions = [verdict.action for verdict in verdicts]
    if "SPLIT" in actions and "DELIVERED" in actions and not any(verdict.in_doubt for verdict in verdicts):
        return "split"
    if another and not delivery.committed and any(counts_against(verdict) for verdict in verdicts):
        return "fallback"
    return ""


def close_part(
    claim: Claim, delivery: Delivery, verdicts: Sequence[Verdict], *, now: Millis, committed_at: Millis
) -> Attempt:
    """The journal's entry for a part that another one follows.

    Of the refusals by code only the final ones are kept by recipient: the store reads from them who is still to
    be tried; what made the next part necessary stands in the decision.
    """
    pairs = list(zip(delivery.replies, verdicts, strict=True))
    answer, verdict = next((pair for pair in pairs if pair[1].action not in ("DELIVERED", "FAIL")), pairs[0])
    return Attempt(
        attempt=claim.attempt,
        part=claim.part,
        token=claim.token,
        transport=delivery.transport,
        opened_at=claim.at,
        committed_at=committed_at,
        closed_at=now,
        replies=tuple(a for a, v in pairs if v.action in ("DELIVERED", "FAIL") or a.reply.code < 500),
        decision=Decision(reply=answer.reply, verdict=verdict, attempt=claim.attempts + 1),
    )


def held(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The same verdicts while no transport is open for the e-mail: trouble of the transport counts nothing."""
    return [
        msgspec.structs.replace(verdict, action="HOLD")
        if verdict.retry and verdict.reach == "transport" and not verdict.in_doubt
        else verdict
        for verdict in verdicts
    ]
