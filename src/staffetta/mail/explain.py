"""Answers "why": the verdict on a reply that somebody has as text; kept decisions, taken again or told.

`is_retryable` is the seeds' isRetryableError (002 asks with a code, 004 with a code or a name): true for what
is tried again by itself. HOLD is not: the e-mail waits until the transport is well, and nothing counts.
"""

from __future__ import annotations

from typing import TypedDict

import msgspec

from staffetta.mail import backoff, bounce_text
from staffetta.mail.attempt import decide, decide_resend, words
from staffetta.mail.backoff import POLICIES, Policy
from staffetta.mail.message import Decision, Reply, Verdict
from staffetta.mail.verdict import DEFAULT, Table


class Explained(TypedDict):
    """One answer of `explain --jsonl`."""

    category: str
    retry: bool
    action: str
    reach: str
    rule: str
    code: str
    enhanced: str
    label: str
    least_delay_ms: int
    max_attempts: int
    in_doubt: bool


def explain(text: str, stage: str = "", *, table: Table = DEFAULT) -> Explained:
    """The verdict on a reply as somebody has it: `550 5.7.1 …`, a bounce's line, an exception, a name."""
    return as_explained(judge_text(text, stage, table=table))


def judge_text(text: str, stage: str = "", *, table: Table = DEFAULT) -> Verdict:
    reply = bounce_text.read_reply(text, stage, names=table.names)
    if 200 <= reply.code < 300 and not reply.stage:
        # A yes that somebody kept is the last one: who was lost on the way keeps the "no".
        reply = msgspec.structs.replace(reply, stage="dot")
    verdict = table.judge(reply)
    if reply.stage in ("quit", "rset") or _may_be_out(reply, verdict):
        return table.judge(msgspec.structs.replace(reply, committed=True))
    return verdict


def _may_be_out(reply: Reply, verdict: Verdict) -> bool:
    """The line was lost after the final dot (or the request): a transport would have said so."""
    lost = verdict.rule in ("words-connection", "words-timeout", "connection-lost", "timeout")
    said = "may be sent more than once" in reply.text or "timed out while sending end of data" in reply.text
    if reply.code:
        return False
    return said or (
        lost and (reply.stage == "dot" or (reply.stage == "request" and "refused" not in reply.text))
    )


def as_explained(verdict: Verdict) -> Explained:
    return Explained(
        category=verdict.category,
        retry=verdict.retry,
        action=verdict.action,
        reach=verdict.reach,
        rule=verdict.rule,
        code=verdict.code,
        enhanced=verdict.enhanced,
        label=verdict.label,
        least_delay_ms=verdict.min_delay_ms,
        max_attempts=verdict.max_attempts,
        in_doubt=verdict.in_doubt,
    )


def is_retryable(error: str | int, *, table: Table = DEFAULT) -> bool:
    """002's and 004's isRetryableError: of a code, a name, or any text that has one in it."""
    return judge_text(str(error), table=table).retry


# ------------------------------------------------------------------------------------------- decisions again


def decide_again(kept: Decision, *, table: Table = DEFAULT) -> Decision:
    """The decision that the kept inputs give today. With the same rules it is the one that was kept."""
    verdict = table.judge(kept.reply)
    if kept.verdict.action == "HOLD" and verdict.retry and verdict.reach == "transport":
        verdict = msgspec.structs.replace(verdict, action="HOLD")  # no transport was open that could have tried
    if not kept.next_at:
        return msgspec.structs.replace(kept, verdict=verdict)
    if kept.figures is None:
        return decide_resend(kept.reply, verdict, attempt=kept.attempt, at=kept.at, not_before=kept.not_before)
    return decide(
        kept.reply, verdict, policy_of(kept), attempt=kept.attempt, draw=kept.draw, at=kept.at,
        not_before=kept.not_before,
    )  # fmt: skip


def same_decision(kept: Decision, *, table: Table = DEFAULT) -> bool:
    return decide_again(kept, table=table) == kept


def policy_of(kept: Decision) -> Policy:
    """The policy as it held for this e-mail: the curve by its name, the figures as they were."""
    named = POLICIES.get(kept.policy, backoff.GATEWAY)
    if kept.figures is None:
        return named
    first_ms, cap_ms, max_attempts = kept.figures
    return msgspec.structs.replace(named, first_ms=first_ms, cap_ms=cap_ms, max_attempts=max_attempts)


def tell(kept: Decision) -> str:
    """A decision in words, for whoever asks what became of an attempt and why."""
    verdict = kept.verdict
    said = f"{words(kept.reply)}: {_meaning(verdict)} (rule {verdict.rule})"
    if not kept.next_at:
        if kept.figures is None:
            return said
        return f"{said}; no attempt is left: {kept.attempt} of {kept.figures[2]} by policy {kept.policy}"
    seconds = f"{kept.delay_ms / 1000:g} s"
    if kept.figures is None:
        why = (
            "the in-doubt delay counts from the mark"
            if verdict.in_doubt
            else "the transport is asked again then"
        )
        return f"{said}; again after {seconds}: {why}"
    asked = f"policy {kept.policy}, attempt {kept.attempt}, draw {kept.draw:.4f}"
    return f"{said}; again after {seconds}: {asked}{_least(kept)}"


def _least(kept: Decision) -> str:
    least = kept.verdict.min_delay_ms
    return f", at least {least / 1000:g} s by the rule or the server's word" if least else ""


def _meaning(verdict: Verdict) -> str:
    if verdict.action == "DELIVERED":
        return "delivered"
    if verdict.in_doubt:
        return "in doubt, the message may be out"
    done = {
        "RETRY": "tried again",
        "RETRY_SLOW": "tried again, slowly",
        "SPLIT": "the rest goes at once",
        "HOLD": "held, nothing counts",
        "FAIL": "never tried again",
    }
    return f"{verdict.category} of the {verdict.reach}, {done[verdict.action]}"
