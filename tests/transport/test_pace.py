"""How fast messages go to SES: bounded, halved by a "too fast", given back by what goes well."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from staffetta.transport.ses.pace import BURST_SECONDS, PAUSE_SECONDS, SLOWEST_SECONDS, Pace


@given(rate=st.floats(min_value=0.5, max_value=500), count=st.integers(2, 200))
def test_no_more_go_than_the_rate_allows(rate: float, count: int) -> None:
    pace, now, gone = Pace(rate), 0.0, []
    for _ in range(count):
        while ahead := pace.wait(now):
            now += ahead
        pace.go(now)
        gone.append(now)

    assert gone[-1] - gone[0] >= (count - 1) / rate - BURST_SECONDS - 1e-6


@given(heard=st.lists(st.tuples(st.floats(min_value=0, max_value=3), st.booleans()), max_size=200))
def test_it_is_never_slower_than_the_slowest_nor_faster_than_set(heard: list[tuple[float, bool]]) -> None:
    pace, now = Pace(100.0), 0.0
    for passed, well in heard:
        now += passed
        if well:
            pace.went_well()
        else:
            pace.too_fast(now)
        assert 0.01 <= pace.interval <= SLOWEST_SECONDS
        assert pace.wait(now) <= SLOWEST_SECONDS + PAUSE_SECONDS


def test_a_too_fast_pauses_all_and_counts_once() -> None:
    """A hundred in flight hear it together: that is one word, not a hundred."""
    pace = Pace()
    for _ in range(100):
        pace.too_fast(10.0)

    assert pace.wait(10.0) == PAUSE_SECONDS
    assert pace.interval == 0.05
    pace.too_fast(10.0 + PAUSE_SECONDS)
    assert pace.interval == 0.1


def test_what_goes_well_brings_the_set_rate_back() -> None:
    pace = Pace()
    pace.too_fast(0.0)
    for _ in range(500):
        pace.went_well()

    assert pace.interval == 0.0
