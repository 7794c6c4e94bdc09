"""The last hour in steps: what was counted is told once, in its step, whoever looks when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail.tally import BOUNDS_MS, Tally
from staffetta.mail.trend import KEPT_MS, Trend, Waits

START = 1_800_000_000_000


def counted(tally: Tally, sent: int, failed: int = 0, wait_ms: int = 40) -> None:
    tally.count("ended", "SENT", sent)
    tally.count("ended", "FAILED", failed)
    for _ in range(sent):
        tally.spread("to_sent").add(wait_ms)


def test_each_step_tells_what_was_sent_in_it() -> None:
    tally, trend = Tally(), Trend()
    for second in range(0, 22, 2):
        trend.note(tally, at=START + second * 1_000)
        counted(tally, 4, 2)
    steps = trend.steps(now=START + 20_000, step_ms=5_000, count=4)
    assert [START + n * 5_000 for n in range(4)] == [one.since for one in steps]
    assert [10, 10, 10, 10] == [one.sent for one in steps]
    assert [5, 5, 5, 5] == [one.failed for one in steps]


@given(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 50)), max_size=60))
def test_all_steps_together_are_all_that_was_sent(looks: list[tuple[int, int]]) -> None:
    """Nothing is told twice and nothing is lost, however unevenly samples were taken."""
    tally, trend, now = Tally(), Trend(), START
    trend.note(tally, at=now)
    for later, sent in looks:
        now += later
        counted(tally, sent)
        trend.note(tally, at=now)
    steps = trend.steps(now=now + 60_000, step_ms=60_000, count=60)
    assert sum(sent for _, sent in looks) == sum(one.sent for one in steps)


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    tally, trend = Tally(), Trend()
    trend.note(tally, at=START)
    counted(tally, 5)
    trend.note(tally, at=START + 2_000)
    trend.note(tally, at=START + KEPT_MS + 4_000)
    over, waits = trend.over(now=START + KEPT_MS + 4_000, span_ms=KEPT_MS)
    assert (0, 0) == (over.sent, waits.count)


@given(st.lists(st.integers(0, BOUNDS_MS[-1]), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(waits: list[int], share: float) -> None:
    tally, trend = Tally(), Trend()
    trend.note(tally, at=START)
    for wait in waits:
        counted(tally, 1, wait_ms=wait)
    trend.note(tally, at=START + 1_000)
    _, found = trend.over(now=START + 1_000, span_ms=60_000)
    told = found.percentile(share)
    ordered = sorted(waits)
    true = next(wait for place, wait in enumerate(ordered, 1) if place >= share * len(ordered))
    above = next(bound for bound in BOUNDS_MS if true <= bound)
    below = max((bound for bound in BOUNDS_MS if bound < true), default=0)
    assert told is not None
    assert below <= told <= above


def test_without_anything_sent_there_is_no_percentile() -> None:
    assert Waits().percentile(0.5) is None
    over, waits = Trend().over(now=START, span_ms=60_000)
    assert (0, 0) == (over.sent, waits.count)
