"""What becomes of an e-mail after one attempt: replies and verdicts in, one `Transition` out.

`after_attempt` is the seed's `handleFailedJob`, and the good end as well. It decides; the flow carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.mail import backoff
from staffetta.mail.backoff import Policy
from staffetta.mail.deadletter import dead_letter
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

BEFORE_MAIL = frozenset({"connect", "ehlo", "starttls", "auth"})
"""Stages at which nothing of the e-mail itself was said yet."""

DEAD_LETTER_TTL_MS = 604_800_000


class Rules(Value, frozen=True, kw_only=True):
    """What binds the sending of one e-mail: the settings, with the e-mail's own wishes laid over them."""

    policy: Policy
    in_doubt: InDoubtPolicy = "resend"
    in_doubt_delay_ms: int = 900_000
    dead_letter_ttl_ms: int = DEAD_LETTER_TTL_MS
    callback_due: bool = False
    """An owner waits to hear how it ended."""
    held_until: Millis = 0
    """When the transport is asked again, where a HOLD or its breaker keeps the e-mail back."""


def words(reply: Reply) -> str:
    """The server's own words whole, with its codes; an event's name where nobody spoke."""
    enhanced = "" if not reply.enhanced or reply.text.startswith(reply.enhanced) else f"{reply.enhanced} "
    code = f"{reply.code} " if reply.code else (f"{reply.name}: " if reply.name else "")
    return _printable(f"{code}{enhanced}{reply.text}".strip())


def code_of(reply: Reply) -> str:
    """The short code by which dead letters are counted: SMTP code, SES name or event."""
    return str(reply.code) if reply.code else (reply.name or "unknown")


def _printable(text: str) -> str:
    """Only control characters go: a reason keeps the server's own words."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text).strip()


def spends_no_attempt(reply: Reply, verdict: Verdict) -> bool:
    """Trouble of ours or of the transport, not of the e-mail: HOLD, or a failure before MAIL that reaches it."""
    return verdict.action == "HOLD" or (verdict.reach == "transport" and reply.stage in BEFORE_MAIL)


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
    first = delivery.replies[0]
    if len(verdicts) == 1 and verdicts[0].action == "DELIVERED" and not claim.settled:
        return _close(
            claim, delivery, rules, Status.SENT, Cause.DELIVERED, words(first.reply),
            decision=Decision(reply=first.reply, verdict=verdicts[0], attempt=claim.attempts + 1),
            counted=True, now=now, committed_at=committed_at,
        )  # fmt: skip
    return _weigh(claim, delivery, verdicts, rules, now=now, draw=draw, committed_at=committed_at)


def _weigh(
    claim: Claim,
    delivery: Delivery,
    verdicts: Sequence[Verdict],
    rules: Rules,
    *,
    now: Millis,
    draw: float,
    committed_at: Millis,
) -> Transition:
    """Several recipients, or a "no": what is finished, what is left, and when it is tried again."""
    resend_spent = claim.doubts >= 1 or rules.in_doubt == "hold"
    settled = list(claim.settled)
    waiting: list[tuple[RecipientReply, Verdict]] = []
    doubtful: list[tuple[RecipientReply, Verdict]] = []
    refused: list[tuple[RecipientReply, Verdict]] = []
    accepted: list[tuple[RecipientReply, Verdict]] = []
    for answer, verdict in zip(delivery.replies, verdicts, strict=True):
        pair = (answer, verdict)
        if verdict.action == "DELIVERED":
            accepted.append(pair)
            settled.append(_state(answer, "accepted"))
        elif verdict.in_doubt:
            doubtful.append(pair)
            if resend_spent:
                settled.append(_state(answer, "in-doubt"))
        elif verdict.action == "FAIL":
            refused.append(pair)
            settled.append(_state(answer, "refused"))
        else:
            waiting.append(pair)
    attempts, doubts = claim.attempts + 1, claim.doubts + (1 if doubtful else 0)
    some_accepted = any(state.state == "accepted" for state in settled)

    def close(
        target: Status, cause: Cause, pair: tuple[RecipientReply, Verdict], *, counted: bool = True,
        decision: Decision | None = None, due_at: Millis | None = None, left: Sequence[RecipientReply] = (),
        code: str = "", reason: str = "",
    ) -> Transition:  # fmt: skip
        answer, verdict = pair
        return _close(
            claim, delivery, rules, target, cause, reason or words(answer.reply),
            decision=decision or Decision(reply=answer.reply, verdict=verdict, attempt=attempts), counted=counted,
            now=now, committed_at=committed_at, due_at=due_at, settled=tuple(settled), doubts=doubts,
            left=tuple(r.address for r in left), code=code or code_of(answer.reply),
        )  # fmt: skip

    if doubtful and not resend_spent:
        again = [answer for answer, _ in (*doubtful, *waiting)]
        return close(Status.READY, Cause.IN_DOUBT, doubtful[0], left=again,
                     due_at=(committed_at or now) + rules.in_doubt_delay_ms)  # fmt: skip
    if waiting:
        answer, verdict = waiting[0]
        if any(spends_no_attempt(a.reply, v) for a, v in waiting):
            delay = backoff.wait_after(1, rules.policy, draw, verdict.min_delay_ms)
            due = max(now + delay, rules.held_until)
            decision = _decided(answer.reply, verdict, rules.policy, claim.attempts, draw, due - now, due)
            return close(Status.READY, Cause.HELD, waiting[0], counted=bool(doubtful or accepted), decision=decision,
                         due_at=due, left=[a for a, _ in waiting])  # fmt: skip
        limit = min((v.max_attempts for _, v in waiting if v.max_attempts), default=rules.policy.max_attempts)
        if attempts >= min(limit, rules.policy.max_attempts):
            settled.extend(_state(a, "given-up") for a, _ in waiting)
            if some_accepted:
                return close(Status.SENT, Cause.ENDED_IN_PART, waiting[0])
            return close(Status.FAILED, Cause.EXHAUSTED, waiting[0])
        least = max(v.min_delay_ms for _, v in waiting)
        delay = backoff.wait_after(attempts, rules.policy, draw, least)
        decision = _decided(answer.reply, verdict, rules.policy, attempts, draw, delay, now + delay)
        return close(Status.READY, Cause.DEFERRED, waiting[0], decision=decision, due_at=now + delay,
                     left=[a for a, _ in waiting])  # fmt: skip
    if accepted:
        return close(Status.SENT, Cause.DELIVERED, accepted[0])
    worst = (doubtful or refused)[0]
    if some_accepted:
        return close(Status.SENT, Cause.ENDED_IN_PART, worst)
    return close(Status.FAILED, Cause.IN_DOUBT if doubtful else Cause.REFUSED, worst)


def _state(answer: RecipientReply, state: str) -> RecipientState:
    return RecipientState(address=answer.address, state=state, reply=words(answer.reply))  # type: ignore[arg-type]  # the four literals above


def _decided(
    reply: Reply, verdict: Verdict, policy: Policy, attempt: int, draw: float, delay_ms: int, next_at: Millis
) -> Decision:
    return Decision(
        reply=reply, verdict=verdict, policy=policy.name, attempt=attempt, draw=draw, delay_ms=delay_ms, next_at=next_at
    )


def _close(
    claim: Claim,
    delivery: Delivery,
    rules: Rules,
    target: Status,
    cause: Cause,
    reason: str,
    *,
    decision: Decision | None,
    counted: bool,
    now: Millis,
    committed_at: Millis,
    due_at: Millis | None = None,
    settled: tuple[RecipientState, ...] | None = None,
    doubts: int | None = None,
    left: tuple[str, ...] = (),
    code: str = "",
) -> Transition:
    attempts = claim.attempts + 1 if counted else claim.attempts
    in_doubt = (doubts if doubts is not None else claim.doubts) > 0
    ended = target is not Status.READY
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
        doubts=doubts if doubts != claim.doubts else None,
        settled=settled,
        recipients=None if ended or left == claim.recipients else left,
        attempt=Attempt(
            attempt=claim.attempt,
            part=claim.part,
            token=claim.token,
            transport=delivery.transport,
            opened_at=claim.at,
            committed_at=committed_at,
            closed_at=now,
            counted=counted,
            replies=delivery.replies,
            decision=decision,
        ),
        dead_letter=dead_letter(
            claim.id, claim.company_id, attempts, reason, "IN-DOUBT" if in_doubt else code,
            enqueued_at=claim.created_at, now=now, ttl_ms=rules.dead_letter_ttl_ms,
        )
        if target is Status.FAILED
        else None,
        callback_due=rules.callback_due if ended else None,
    )  # fmt: skip


def after_stop(claim: Claim, *, transport: str, now: Millis, rules: Rules) -> Transition:
    """An orderly stop before the dot: back to READY at once, nothing counted."""
    stopped = Reply(stage="stopped", name="stopped", text="the worker was stopped before the message was handed over")
    return _close(
        claim, Delivery(transport=transport, replies=(), committed=False), rules, Status.READY, Cause.STOPPED,
        stopped.text, decision=None, counted=False, now=now, committed_at=0, due_at=now, left=claim.recipients,
    )  # fmt: skip


def after_hold(claim: Claim, *, reason: str, due_at: Millis, now: Millis, rules: Rules) -> Transition:
    """No transport that this e-mail may use is open: kept READY, nothing counted."""
    return _close(
        claim, Delivery(transport="", replies=(), committed=False), rules, Status.READY, Cause.HELD, reason,
        decision=None, counted=False, now=now, committed_at=0, due_at=due_at, left=claim.recipients,
    )  # fmt: skip
