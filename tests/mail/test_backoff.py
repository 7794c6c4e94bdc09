"""When to try again: the seeds' figures and formulas, under the seeds' functions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import backoff
from staffetta.mail.backoff import COURIER, GATEWAY, PATIENT, POLICIES, WORKER, WORKER_DEVELOPMENT, Policy
from staffetta.mail.message import RetryLimits

attempts = st.integers(1, 40)
draws = st.floats(0, 1, exclude_max=True)
policies = st.sampled_from(sorted(POLICIES.values(), key=lambda one: one.name))


# ------------------------------------------------------------------------------------------ the policies' figures


@pytest.mark.parametrize(
    ("policy", "first_ms", "cap_ms", "most"),
    [
        (GATEWAY, 1_000, 60_000, 5),
        (WORKER, 1_000, 300_000, 5),
        (WORKER_DEVELOPMENT, 500, 30_000, 3),
        (PATIENT, 300_000, 86_400_000, 3),
        (COURIER, 60_000, 3_600_000, 30),
    ],
    ids=lambda value: value.name if isinstance(value, Policy) else "",
)
def test_a_policy_has_the_figures_of_its_text(policy: Policy, first_ms: int, cap_ms: int, most: int) -> None:
    assert (first_ms, cap_ms, most) == (policy.first_ms, policy.cap_ms, policy.max_attempts)
    assert POLICIES[policy.name] is policy


# 004's own table, its fifth rows as they stand; its sixth says "60 s", where the formula gives 32 s (SPEC.md, section 14).
@pytest.mark.parametrize(
    ("attempt", "low", "high"),
    [(1, 750, 1_250), (2, 1_500, 2_500), (3, 3_000, 5_000), (4, 6_000, 10_000), (5, 12_000, 20_000),
     (6, 24_000, 40_000), (7, 45_000, 75_000), (8, 45_000, 75_000), (30, 45_000, 75_000)],
)  # fmt: skip
def test_delay_ms_keeps_to_the_ranges_of_004(attempt: int, low: int, high: int) -> None:
    assert low == backoff.delay_ms(attempt, 0.0)
    assert (low + high) // 2 == backoff.delay_ms(attempt, 0.5)
    assert backoff.delay_ms(attempt, math.nextafter(1, 0)) == high


@given(attempts, draws)
def test_delay_ms_is_the_formula_of_004(attempt: int, draw: float) -> None:
    """Math.max(0, Math.round(capped + (random * 2 - 1) * capped * 0.25)), halves up as Math.round does."""
    capped = min(1_000 * 2 ** (attempt - 1), 60_000)
    wanted = math.floor(capped + (draw * 2 - 1) * (capped * 0.25) + 0.5)

    assert max(0, wanted) == backoff.delay_ms(attempt, draw)


@given(attempts, draws)
def test_worker_adds_its_jitter_before_the_cap(attempt: int, draw: float) -> None:
    """002: min(max_delay, base_delay * 2^attempt + random_jitter), jitter ±25 % of the calculated delay."""
    base = 1_000 * 2 ** (attempt - 1)
    wanted = math.floor(min(300_000, base + (draw * 2 - 1) * (base * 0.25)) + 0.5)

    assert wanted == backoff.wait_after(attempt, WORKER, draw)


def test_worker_waits_a_second_first() -> None:
    """002's formula counts attempts from 0, as its Bull configuration does."""
    assert backoff.wait_after(1, WORKER, 0.5) == 1_000
    assert backoff.wait_after(1, WORKER_DEVELOPMENT, 0.5) == 500


@pytest.mark.parametrize(
    ("attempt", "wanted"), [(1, 300_000), (2, 600_000), (3, 1_200_000), (9, 76_800_000), (10, 86_400_000)]
)
def test_patient_is_the_formula_of_003_without_chance(attempt: int, wanted: int) -> None:
    """min(retry_delay * 2^(attempts-1), max_retry_delay)."""
    for draw in (0.0, 0.3, 0.999):
        assert wanted == backoff.wait_after(attempt, PATIENT, draw)


def test_the_example_of_003() -> None:
    """max_attempts 5, retry_delay one minute, max_retry_delay one hour."""
    limits = RetryLimits(max_attempts=5, retry_delay_ms=60_000, max_retry_delay_ms=3_600_000)
    policy = backoff.with_limits(GATEWAY, limits)

    waits = [backoff.wait_after(attempt, policy, 0.7) for attempt in range(1, 8)]

    assert [60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 3_600_000] == waits
    assert policy.max_attempts == 5


def test_courier_begins_with_a_minute_and_ends_at_an_hour() -> None:
    assert (45_000, 75_000) == (backoff.wait_after(1, COURIER, 0.0), backoff.wait_after(1, COURIER, 1.0))
    assert (2_700_000, 4_500_000) == (
        backoff.wait_after(30, COURIER, 0.0),
        backoff.wait_after(30, COURIER, 1.0),
    )


# ------------------------------------------------------------------------------------------ laws


@given(policies, attempts, draws)
def test_a_delay_is_never_negative_and_never_far_beyond_the_cap(
    policy: Policy, attempt: int, draw: float
) -> None:
    delay = backoff.wait_after(attempt, policy, draw)

    assert 0 <= delay <= policy.cap_ms * 1.25


@given(policies, attempts, draws)
def test_with_the_same_draw_a_later_attempt_never_waits_less(policy: Policy, attempt: int, draw: float) -> None:
    assert backoff.wait_after(attempt, policy, draw) <= backoff.wait_after(attempt + 1, policy, draw)


@given(policies, attempts, draws, st.integers(0, 7_200_000))
def test_a_hint_raises_the_delay_and_never_lowers_it(
    policy: Policy, attempt: int, draw: float, hint: int
) -> None:
    plain = backoff.wait_after(attempt, policy, draw)

    assert max(plain, hint) == backoff.wait_after(attempt, policy, draw, hint)


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_one(attempt: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        backoff.delay_ms(attempt, 0.5)


def test_an_attempt_of_any_size_has_a_delay() -> None:
    assert backoff.wait_after(10**6, GATEWAY, 0.5) == 60_000


# ------------------------------------------------------------------------------------------ own limits


def test_own_attempts_replace_the_policys_and_keep_its_curve() -> None:
    policy = backoff.with_limits(GATEWAY, RetryLimits(max_attempts=9))

    assert (policy.max_attempts, policy.first_ms, policy.curve) == (9, 1_000, "around")


@pytest.mark.parametrize(
    ("limits", "first_ms", "cap_ms", "most"),
    [
        (RetryLimits(retry_delay_ms=7), 7, 86_400_000, 3),
        (RetryLimits(max_retry_delay_ms=7), 300_000, 7, 3),
        (RetryLimits(retry_delay_ms=7, max_attempts=2), 7, 86_400_000, 2),
    ],
)
def test_either_delay_selects_patients_curve_with_003s_figures_for_the_rest(
    limits: RetryLimits, first_ms: int, cap_ms: int, most: int
) -> None:
    policy = backoff.with_limits(COURIER, limits)

    assert (policy.name, policy.curve) == ("patient", "plain")
    assert (first_ms, cap_ms, most) == (policy.first_ms, policy.cap_ms, policy.max_attempts)


@pytest.mark.parametrize("limits", [None, RetryLimits()])
def test_without_own_limits_the_policy_stands(limits: RetryLimits | None) -> None:
    assert backoff.with_limits(WORKER, limits) is WORKER


def test_an_emails_own_limits_lie_over_its_companys_field_by_field() -> None:
    company = RetryLimits(max_attempts=9, retry_delay_ms=9)
    own = RetryLimits(max_attempts=2, max_retry_delay_ms=2)

    assert backoff.over(own, company) == RetryLimits(max_attempts=2, retry_delay_ms=9, max_retry_delay_ms=2)
    assert backoff.over(own, None) is own
    assert backoff.over(None, company) is company
    assert backoff.over(None, None) is None


# ------------------------------------------------------------------------------------------ the seeds' functions


@pytest.mark.parametrize(("failures", "again"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_should_retry_stops_at_the_limit(failures: int, again: bool) -> None:
    assert backoff.should_retry(failures, PATIENT) is again


def test_should_retry_never_retries_what_is_not_retryable() -> None:
    """003: some errors (validation) set off no retry."""
    assert not backoff.should_retry(0, PATIENT, retryable=False)


@given(attempts, draws, st.integers(0, 2 * 10**12))
def test_next_retry_at_is_the_delay_from_now(attempt: int, draw: float, now: int) -> None:
    assert now + backoff.delay_ms(attempt, draw) == backoff.next_retry_at(attempt, GATEWAY, now=now, draw=draw)


def test_the_table_of_a_policy_tells_each_delay_with_its_range() -> None:
    rows = backoff.table(GATEWAY)

    assert rows[0] == {"attempt": 1, "base_ms": 1_000, "min_ms": 750, "max_ms": 1_250}
    assert [row["base_ms"] for row in rows] == [1_000, 2_000, 4_000, 8_000, 16_000]
