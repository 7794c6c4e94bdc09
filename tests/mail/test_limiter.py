"""At most so many in any stretch of time, and nearly as many as that when there is more to give."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail.limiter import Limit, Window, per_second

START = 1_800_000_000_123


def test_a_burst_uses_the_whole_limit_and_then_waits_for_the_window() -> None:
    """Seed 004: at most 100 in 60,000 ms."""
    window = Window(Limit(max=100, duration_ms=60_000))
    assert window.room(START) == 100
    window.spend(100, START)
    assert window.room(START) == 0
    opens = window.next_at(START)
    assert 60_000 <= opens - START <= 60_300
    assert window.room(opens - 1) == 0
    assert window.room(opens) == 100


@given(
    limit=st.builds(Limit, max=st.integers(1, 50), duration_ms=st.integers(1, 5_000)),
    asks=st.lists(st.tuples(st.integers(0, 700), st.integers(1, 60)), max_size=80),
)
def test_never_more_than_the_limit_in_any_stretch(limit: Limit, asks: list[tuple[int, int]]) -> None:
    window = Window(limit)
    given_at: deque[int] = deque()
    now = START
    for pause, wanted in asks:
        now += pause
        count = min(wanted, window.room(now))
        window.spend(count, now)
        given_at.extend([now] * count)
        while given_at and given_at[0] <= now - limit.duration_ms:
            given_at.popleft()
        assert len(given_at) <= limit.max


@pytest.mark.parametrize(
    ("most", "duration_ms"), [(1_000, 1_000), (100, 60_000), (14, 1_000), (7, 100), (50, 333)]
)
def test_under_load_it_is_exact_to_one_percent_over_minutes(most: int, duration_ms: int) -> None:
    """Walked by `next_at` alone: whoever sleeps until then never spins and loses next to nothing."""
    window = Window(Limit(max=most, duration_ms=duration_ms))
    minutes = 20
    now, given_, walks = START, 0, 0
    while now < START + minutes * 60_000:
        walks += 1
        count = min(window.room(now), 37)
        window.spend(count, now)
        given_ += count
        now = window.next_at(now)
    expected = minutes * 60_000 / duration_ms * most
    assert expected * 0.99 <= given_ <= expected + most
    assert walks <= given_


def test_a_clock_put_back_stops_nothing_for_longer_than_the_window() -> None:
    window = Window(Limit(max=10, duration_ms=1_000))
    window.spend(10, START)
    assert window.room(START - 400) == 0
    assert window.room(START - 3_600_000) == 10


@pytest.mark.parametrize(
    ("rate", "limit"),
    [
        (50, (50, 1_000)),
        (0.5, (1, 2_000)),
        (2.5, (5, 2_000)),
        (0.001, (1, 1_000_000)),
        (1e6, (1_000_000, 1_000)),
    ],
)
def test_a_rate_becomes_whole_jobs_in_whole_milliseconds(rate: float, limit: tuple[int, int]) -> None:
    made = per_second(rate)
    assert (made.max, made.duration_ms) == limit


@pytest.mark.parametrize(("most", "duration_ms"), [(0, 1_000), (1, 0), (-3, 5)])
def test_a_limit_that_lets_nothing_through_is_refused(most: int, duration_ms: int) -> None:
    with pytest.raises(ValueError, match="at least 1 job"):
        Limit(max=most, duration_ms=duration_ms)
