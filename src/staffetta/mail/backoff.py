"""When to try again: pure functions of (attempt, policy, draw).

Attempts count from 1; a draw is uniform in [0, 1).

The seeds' functions stand here under our names, side by side with theirs:

    should_retry     shouldRetry (003)              next_retry_at   calculateNextRetry (003)
    delay_ms         calculateBackoffDelay (004)    after_attempt   handleFailedJob (003), in `attempt`
    is_retryable     isRetryableError (002, 004), in `explain`
    validate_dead_letter  validateDLQEntry (004), in `deadletter`
    company_priority      calculateRoundRobinPriority (004), in `fairness`
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypedDict

import msgspec

from staffetta.mail.message import Millis, RetryLimits, Value

JITTER = 0.25
"""A draw moves the delay by at most this share, up or down."""
HINT_MAX_MS = 3_600_000
"""A server's own hint is honoured up to an hour, whatever the policy's cap."""
_DOUBLINGS_MAX = 62


class Policy(Value, frozen=True, kw_only=True):
    """A curve of waiting times and how often it is walked."""

    name: str
    first_ms: int
    cap_ms: int
    max_attempts: int
    curve: Literal["around", "under", "plain"]
    """Where the draw acts: around the capped delay (004), under the cap (002), nowhere (003)."""


GATEWAY = Policy(name="gateway", first_ms=1_000, cap_ms=60_000, max_attempts=5, curve="around")
WORKER = Policy(name="worker", first_ms=1_000, cap_ms=300_000, max_attempts=5, curve="under")
WORKER_DEVELOPMENT = Policy(
    name="worker-development", first_ms=500, cap_ms=30_000, max_attempts=3, curve="under"
)
PATIENT = Policy(name="patient", first_ms=300_000, cap_ms=86_400_000, max_attempts=3, curve="plain")
COURIER = Policy(name="courier", first_ms=60_000, cap_ms=3_600_000, max_attempts=30, curve="around")

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {policy.name: policy for policy in (GATEWAY, WORKER, WORKER_DEVELOPMENT, PATIENT, COURIER)}
)


def base_ms(attempt: int, policy: Policy) -> int:
    """The delay after failed attempt `attempt`, before any draw: doubling, up to the cap."""
    return min(policy.cap_ms, _doubled(attempt, policy))


def wait_after(attempt: int, policy: Policy, draw: float, least_ms: int = 0) -> int:
    """How long to wait after failed attempt `attempt`. `least_ms` raises it, never lowers it."""
    if policy.curve == "around":
        capped = min(policy.cap_ms, _doubled(attempt, policy))
        delay = _rounded(capped + (draw * 2 - 1) * (capped * JITTER))
    elif policy.curve == "under":
        doubled = _doubled(attempt, policy)
        delay = _rounded(min(policy.cap_ms, doubled + (draw * 2 - 1) * (doubled * JITTER)))
    else:
        delay = base_ms(attempt, policy)
    return max(delay, least_ms)


def with_limits(policy: Policy, limits: RetryLimits | None) -> Policy:
    """Own limits over the policy. Either delay selects 003's curve, with 003's figures for the rest."""
    if limits is None:
        return policy
    if limits.retry_delay_ms is None and limits.max_retry_delay_ms is None:
        if limits.max_attempts is None:
            return policy
        return msgspec.structs.replace(policy, max_attempts=limits.max_attempts)
    return Policy(
        name=PATIENT.name,
        first_ms=PATIENT.first_ms if limits.retry_delay_ms is None else limits.retry_delay_ms,
        cap_ms=PATIENT.cap_ms if limits.max_retry_delay_ms is None else limits.max_retry_delay_ms,
        max_attempts=PATIENT.max_attempts if limits.max_attempts is None else limits.max_attempts,
        curve=PATIENT.curve,
    )


def over(own: RetryLimits | None, company: RetryLimits | None) -> RetryLimits | None:
    """An e-mail's own limits laid over its company's, field by field."""
    if own is None or company is None:
        return own or company
    return RetryLimits(
        max_attempts=company.max_attempts if own.max_attempts is None else own.max_attempts,
        retry_delay_ms=company.retry_delay_ms if own.retry_delay_ms is None else own.retry_delay_ms,
        max_retry_delay_ms=company.max_retry_delay_ms
        if own.max_retry_delay_ms is None
        else own.max_retry_delay_ms,
    )


# ------------------------------------------------------------------------------------- the seeds' functions


def should_retry(attempts: int, policy: Policy = GATEWAY, *, retryable: bool = True) -> bool:
    """003's shouldRetry: the error is of the kind that is retried, and `attempts` failures leave room."""
    return retryable and attempts < policy.max_attempts


def next_retry_at(attempt: int, policy: Policy, *, now: Millis, draw: float, least_ms: int = 0) -> Millis:
    """003's calculateNextRetry: the moment at which the next attempt is due."""
    return now + wait_after(attempt, policy, draw, least_ms)


def delay_ms(attempt: int, draw: float) -> int:
    """004's calculateBackoffDelay, to the millisecond: what `gateway` waits after failed attempt `attempt`."""
    return wait_after(attempt, GATEWAY, draw)


class DelayRow(TypedDict):
    attempt: int
    base_ms: int
    min_ms: int
    max_ms: int


def table(policy: Policy) -> list[DelayRow]:
    """The delays of a policy, one row for each failed attempt that is followed by another."""
    return [
        DelayRow(
            attempt=attempt,
            base_ms=base_ms(attempt, policy),
            min_ms=wait_after(attempt, policy, 0.0),
            max_ms=wait_after(attempt, policy, 1.0),
        )
        for attempt in range(1, policy.max_attempts + 1)
    ]


def _doubled(attempt: int, policy: Policy) -> int:
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not from {attempt}")
    return policy.first_ms << min(attempt - 1, _DOUBLINGS_MAX)


def _rounded(delay: float) -> int:
    """To the nearest millisecond, halves up as the seed's Math.round, never below 0."""
    return max(0, int(delay + 0.5))
