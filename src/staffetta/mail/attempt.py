"""What becomes of an e-mail after one attempt: replies and verdicts in, one `Transition` out.

`after_attempt` is the seed's `handleFailedJob`, and the good end as well. It decides; the flow carries it out.

    every recipient's reply ─▶ accepted ──────────────────────────────────────────▶ settled
                               refused ────────────────────────────────────────────▶ settled
                               in doubt ── the one resend is left ─▶ READY at the mark + delay
                                        └─ it is not ──────────────────────────────▶ settled
                               waiting ─── trouble of the transport ─▶ READY, nothing counted
                                        ├─ attempts left ─▶ READY after the policy's delay
                                        └─ none left ──────────────────────────────▶ settled, given up
    all settled: SENT when somebody accepted, else FAILED with a dead letter
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from staffetta.mail import backoff
from staffetta.mail.backoff import Policy
from staffetta.mail.deadletter import TTL_MS, dead_letter
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import (
    Attempt,
    Claim,
    Decision,
    Delivery,
    InDoubtPolicy,
    Millis,
    RecipientReply,
    RecipientState,
    Reply,
    Transition,
    Value,
    Verdict,
)

BEFORE_MAIL = frozenset({"connect", "ehlo", "starttls", "auth", "stopped"})
"""Stages at which nothing of the e-mail itself was said yet."""
IN_DOUBT_CODE = "IN-DOUBT"

_Pair: TypeAlias = tuple[RecipientReply, Verdict]


class Rules(Value, frozen=True, kw_only=True):
    """What binds the sending of one e-mail: the settings, with the e-mail's own wishes laid over them."""

    policy: Policy
    in_doubt: InDoubtPolicy = "resend"
    in_doubt_delay_ms: int = 900_000
    dead_letter_ttl_ms: int = TTL_MS
    callback_due: bool = False
    """An owner waits to hear how it ended."""
    held_until: Millis = 0
    """When the transport is asked again, where a HOLD or its breaker keeps the e-mail back."""


# -------------------------------------------------------------------------------------------------- words


def words(reply: Reply) -> str:
    """The server's own words whole, with its codes; an event's name where nobody spoke."""
    text = reply.text
    if reply.enhanced and not text.startswith(reply.enhanced):
        text = f"{reply.enhanced} {text}"
    if reply.name:
        text = f"{reply.name}: {text}"
    if reply.code:
        text = f"{reply.code} {text}"
    return _without_controls(text)


def code_of(reply: Reply) -> str:
    """The short code by which dead letters are counted: SMTP code, SES name or event."""
    return reply.name or (str(reply.code) if reply.code else "unknown")


_CONTROLS = dict.fromkeys((*range(32), *range(127, 160), *range(0xD800, 0xE000)), " ")
"""Control characters, and halves of surrogate pairs, which no store could keep."""


def _without_controls(text: str) -> str:
    """Only control characters go: a reason keeps the server's own words."""
    return text.strip() if text.isprintable() else text.translate(_CONTROLS).strip()


# ---------------------------------------------------------------------------------------------- decisions


def spends_no_attempt(reply: Reply, verdict: Verdict) -> bool:
    """Trouble of ours or of the transport, not of the e-mail: HOLD, or a failure before MAIL that reaches it.

    For SES, where there is no MAIL, the request takes its place: before it nothing of the e-mail was said.
    """
    if verdict.action == "HOLD":
        return True
    if verdict.reach != "transport":
        return False
    return reply.stage in BEFORE_MAIL or (reply.stage == "request" and not reply.code and not reply.committed)


def decide(
    reply: Reply,
    verdict: Verdict,
    policy: Policy,
    *,
    attempt: int,
    draw: float,
    at: Millis,
    not_before: Millis = 0,
) -> Decision:
    """When this e-mail is tried again. The same arguments give the same decision, and it keeps them all."""
    next_at = at + backoff.wait_after(attempt, policy, draw, verdict.min_delay_ms)
    next_at = max(next_at, not_before)
    return Decision(
        reply=reply,
        verdict=verdict,
        policy=policy.name,
        attempt=attempt,
        draw=draw,
        delay_ms=next_at - at,
        next_at=next_at,
        figures=(policy.first_ms, policy.cap_ms, policy.max_attempts),
        at=at,
        not_before=not_before,
    )


def decide_resend(reply: Reply, verdict: Verdict, *, attempt: int, at: Millis, not_before: Millis) -> Decision:
    """When an e-mail in doubt is sent once more: the delay counts from the mark before the dot."""
    next_at = max(at, not_before)
    return Decision(
        reply=reply,
        verdict=verdict,
        attempt=attempt,
        delay_ms=next_at - at,
        next_at=next_at,
        at=at,
        not_before=not_before,
    )


# ---------------------------------------------------------------------------------------- after an attempt


def after_attempt(
    claim: Claim,
    delivery: Delivery,
    verdicts: Sequence[Verdict],
    rules: Rules,
    *,
    now: Millis,
    draw: float,
    committed_at: Millis,
) -> Transition:
    """The move that follows one attempt. `verdicts` judge `delivery.replies`, one for each."""
    if len(verdicts) == 1 and verdicts[0].action == "DELIVERED" and not claim.settled:
        reply = delivery.replies[0].reply
        return Transition(
            id=claim.id,
            ref=claim.ref,
            token=claim.token,
            source=Status.PROCESSING,
            target=Status.SENT,
            cause=Cause.DELIVERED,
            at=now,
            reason=words(reply),
            attempts=claim.attempts + 1,
            doubts=claim.doubts,
            attempt=Attempt(
                attempt=claim.attempt,
                part=claim.part,
                token=claim.token,
                transport=delivery.transport,
                opened_at=claim.at,
                committed_at=committed_at,
                closed_at=now,
                counted=True,
                replies=delivery.replies,
                decision=Decision(reply=reply, verdict=verdicts[0], attempt=claim.attempts + 1),
            ),
            callback_due=rules.callback_due,
        )
    end = _End(claim=claim, delivery=delivery, rules=rules, now=now, committed_at=committed_at)
    if len(verdicts) == 1 and _is_deferred(delivery.replies[0].reply, verdicts[0], claim, rules.policy):
        # One recipient and an ordinary "not now": the same as below, without sorting anything out.
        reply, attempts = delivery.replies[0].reply, claim.attempts + 1
        decision = decide(reply, verdicts[0], rules.policy, attempt=attempts, draw=draw, at=now)
        return _again(end, Cause.DEFERRED, decision, left=claim.recipients)
    return _decide(_sort_out(claim, delivery, verdicts, rules), end, draw)


def _is_deferred(reply: Reply, verdict: Verdict, claim: Claim, policy: Policy) -> bool:
    return (
        verdict.retry
        and not verdict.in_doubt
        and not spends_no_attempt(reply, verdict)
        and claim.attempts + 1 < limit_of(verdict, policy)
    )


class _Sorted(msgspec.Struct, kw_only=True):
    """The recipients of one attempt, by what became of them."""

    accepted: list[_Pair]
    refused: list[_Pair]
    doubtful: list[_Pair]
    waiting: list[_Pair]
    settled: list[RecipientState]
    resend: bool
    """The one resend of an e-mail in doubt is needed and still left."""


class _End(msgspec.Struct, kw_only=True):
    """What every move that ends this attempt carries."""

    claim: Claim
    delivery: Delivery
    rules: Rules
    now: Millis
    committed_at: Millis


def _sort_out(claim: Claim, delivery: Delivery, verdicts: Sequence[Verdict], rules: Rules) -> _Sorted:
    found = _Sorted(accepted=[], refused=[], doubtful=[], waiting=[], settled=list(claim.settled), resend=False)
    resend_left = rules.in_doubt == "resend" and not claim.doubts
    for answer, verdict in zip(delivery.replies, verdicts, strict=True):
        pair = (answer, verdict)
        if verdict.action == "DELIVERED":
            found.accepted.append(pair)
            found.settled.append(_state(answer, "accepted"))
        elif verdict.in_doubt:
            found.doubtful.append(pair)
            if not resend_left:
                found.settled.append(_state(answer, "in-doubt"))
        elif verdict.action == "FAIL":
            found.refused.append(pair)
            found.settled.append(_state(answer, "refused"))
        else:
            found.waiting.append(pair)
    found.resend = resend_left and bool(found.doubtful)
    return found


def _decide(found: _Sorted, end: _End, draw: float) -> Transition:
    claim, rules, now = end.claim, end.rules, end.now
    attempts = claim.attempts + 1
    if found.resend:
        answer, verdict = found.doubtful[0]
        due = (end.committed_at or now) + rules.in_doubt_delay_ms
        decision = decide_resend(answer.reply, verdict, attempt=attempts, at=now, not_before=due)
        left = _addresses([*found.doubtful, *found.waiting])
        return _again(end, Cause.IN_DOUBT, decision, left=left, found=found)
    free = [pair for pair in found.waiting if spends_no_attempt(pair[0].reply, pair[1])]
    if free:
        decision = _held(free[0], end, draw)
        return _again(end, Cause.HELD, decision, left=_addresses(found.waiting), found=found)
    given_up = [pair for pair in found.waiting if attempts >= limit_of(pair[1], rules.policy)]
    found.settled.extend(_state(answer, "given-up") for answer, _ in given_up)
    going_on = [pair for pair in found.waiting if attempts < limit_of(pair[1], rules.policy)]
    if going_on:
        answer, verdict = max(going_on, key=lambda pair: pair[1].min_delay_ms)
        decision = decide(answer.reply, verdict, rules.policy, attempt=attempts, draw=draw, at=now)
        return _again(end, Cause.DEFERRED, decision, left=_addresses(going_on), found=found)
    return _over(found, end, given_up)


def limit_of(verdict: Verdict, policy: Policy) -> int:
    """How many attempts a recipient with this verdict gets: the policy's, or fewer where the rule says so."""
    return min(policy.max_attempts, verdict.max_attempts or policy.max_attempts)


def _held(pair: _Pair, end: _End, draw: float) -> Decision:
    """An uncounted try has no number of its own: the wait grows with how many there were, by the seed's curve.

    An open breaker knows better when to come back: then its moment is the only one that counts.
    """
    answer, verdict = pair
    claim, now, until = end.claim, end.now, end.rules.held_until
    if until > now:
        return decide_resend(answer.reply, verdict, attempt=claim.attempts, at=now, not_before=until)
    tries = max(1, claim.attempt - claim.attempts)
    return decide(answer.reply, verdict, backoff.GATEWAY, attempt=tries, draw=draw, at=now)


def _addresses(pairs: Sequence[_Pair]) -> tuple[str, ...]:
    return tuple(answer.address for answer, _ in pairs)


def _again(
    end: _End, cause: Cause, decision: Decision, *, left: tuple[str, ...], found: _Sorted | None = None
) -> Transition:
    """Back to READY, for those who are left. A HOLD counts nothing, unless somebody came into doubt."""
    claim = end.claim
    doubtful = found is not None and bool(found.doubtful)
    counted = cause is not Cause.HELD or doubtful
    return Transition(
        id=claim.id,
        ref=claim.ref,
        token=claim.token,
        source=Status.PROCESSING,
        target=Status.READY,
        cause=cause,
        at=end.now,
        reason=words(decision.reply),
        due_at=decision.next_at,
        attempts=claim.attempts + counted,
        doubts=claim.doubts + doubtful,
        settled=tuple(found.settled) if found and len(found.settled) > len(claim.settled) else None,
        recipients=None if left == claim.recipients else left,
        attempt=_closed(end, decision, counted=counted),
    )


def _over(found: _Sorted, end: _End, given_up: Sequence[_Pair]) -> Transition:
    """Nobody is left to try: SENT when somebody accepted, else FAILED with a dead letter."""
    claim, rules = end.claim, end.rules
    missed = given_up or found.doubtful
    if found.accepted and not missed:
        target, cause, pair = Status.SENT, Cause.DELIVERED, found.accepted[0]
    else:
        pair = (missed or found.refused)[0]
        if any(state.state == "accepted" for state in found.settled):
            target, cause = Status.SENT, Cause.ENDED_IN_PART
        elif given_up:
            target, cause = Status.FAILED, Cause.EXHAUSTED
        else:
            target, cause = Status.FAILED, Cause.IN_DOUBT if found.doubtful else Cause.REFUSED
    answer, verdict = pair
    attempts, doubts = claim.attempts + 1, claim.doubts + bool(found.doubtful)
    reason = words(answer.reply)
    policy = rules.policy
    decision = Decision(
        reply=answer.reply,
        verdict=verdict,
        attempt=attempts,
        policy=policy.name if given_up else "",
        figures=(policy.first_ms, policy.cap_ms, policy.max_attempts) if given_up else None,
        at=end.now,
    )
    return Transition(
        id=claim.id,
        ref=claim.ref,
        token=claim.token,
        source=Status.PROCESSING,
        target=target,
        cause=cause,
        at=end.now,
        reason=reason,
        attempts=attempts,
        doubts=doubts,
        settled=tuple(found.settled),
        attempt=_closed(end, decision, counted=True),
        dead_letter=dead_letter(
            claim.id, claim.company_id, attempts, reason, IN_DOUBT_CODE if doubts else code_of(answer.reply),
            enqueued_at=claim.created_at, now=end.now, ttl_ms=rules.dead_letter_ttl_ms,
        )
        if target is Status.FAILED
        else None,
        callback_due=rules.callback_due,
    )  # fmt: skip


def _closed(end: _End, decision: Decision | None, *, counted: bool) -> Attempt:
    claim = end.claim
    return Attempt(
        attempt=claim.attempt,
        part=claim.part,
        token=claim.token,
        transport=end.delivery.transport,
        opened_at=claim.at,
        committed_at=end.committed_at,
        closed_at=end.now,
        counted=counted,
        replies=end.delivery.replies,
        decision=decision,
    )


def _state(
    answer: RecipientReply, state: Literal["accepted", "refused", "given-up", "in-doubt"]
) -> RecipientState:
    return RecipientState(address=answer.address, state=state, reply=words(answer.reply))


# ---------------------------------------------------------------------------------------- without a reply


def after_stop(claim: Claim, *, transport: str, now: Millis, rules: Rules) -> Transition:  # noqa: ARG001  # one form
    """An orderly stop before the dot: back to READY at once, nothing counted."""
    reason = "the worker was stopped before the message was handed over"
    return _untried(claim, Cause.STOPPED, reason, transport=transport, due_at=now, now=now)


def after_hold(claim: Claim, *, reason: str, due_at: Millis, now: Millis, rules: Rules) -> Transition:  # noqa: ARG001  # one form
    """No transport that this e-mail may use is open: kept READY, nothing counted."""
    return _untried(claim, Cause.HELD, reason, transport="", due_at=due_at, now=now)


def _untried(
    claim: Claim, cause: Cause, reason: str, *, transport: str, due_at: Millis, now: Millis
) -> Transition:
    return Transition(
        id=claim.id,
        ref=claim.ref,
        token=claim.token,
        source=Status.PROCESSING,
        target=Status.READY,
        cause=cause,
        at=now,
        reason=_without_controls(reason),
        due_at=due_at,
        attempts=claim.attempts,
        doubts=claim.doubts,
        attempt=Attempt(
            attempt=claim.attempt,
            part=claim.part,
            token=claim.token,
            transport=transport,
            opened_at=claim.at,
            closed_at=now,
        ),
    )
