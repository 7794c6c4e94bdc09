"""Each alert fires on its condition and on nothing less; what turned is told once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import alerts
from staffetta.mail.alerts import Reading, State
from staffetta.mail.tally import BOUNDS_MS

NOW = 1_800_000_000_000
MINUTE = 60_000


def waits(**by_bound: int) -> tuple[int, ...]:
    """Attempts by their time: `s300=5` are five of at most 300 seconds; `beyond` of more than a day."""
    named = {f"s{bound // 1000}": place for place, bound in enumerate(BOUNDS_MS)} | {"beyond": len(BOUNDS_MS)}
    buckets = [0] * (len(BOUNDS_MS) + 1)
    for name, count in by_bound.items():
        buckets[named[name]] = count
    return tuple(buckets)


def past(*steps: tuple[int, dict[str, Any]]) -> tuple[Reading, ...]:
    """Readings at so many minutes before now."""
    kept: tuple[Reading, ...] = ()
    for minutes, figures in steps:
        kept = alerts.remember(kept, Reading(at=NOW - minutes * MINUTE, **figures))
    return kept


def firing(readings: Sequence[Reading]) -> set[str]:
    return {state.name for state in alerts.evaluate(readings, ()) if state.firing}


CASES: dict[str, tuple[Sequence[Reading], Sequence[Reading]]] = {
    # alert: (readings that fire, readings that just do not)
    "failure-rate": (
        past((5, {}), (0, {"sent": 89, "failed": 11})),
        past((5, {}), (0, {"sent": 90, "failed": 10})),
    ),
    "dlq-size": (past((0, {"letters": 101})), past((0, {"letters": 100}))),
    "dlq-rate": (
        past((5, {}), (0, {"sent": 97, "failed": 3, "dead_letters": 3})),
        past((5, {}), (0, {"sent": 98, "failed": 2, "dead_letters": 2})),
    ),
    "dlq-company": (
        past((0, {"letters_by_company": {"acme": 51, "bistro": 3}})),
        past((0, {"letters_by_company": {"acme": 50, "bistro": 50}})),
    ),
    "processing-time": (
        past((5, {}), (0, {"processing": waits(s1=94, s900=6)})),
        past((5, {}), (0, {"processing": waits(s1=94, s300=6)})),
    ),
    "redis-memory-80": (past((0, {"redis_memory": 0.81})), past((0, {"redis_memory": 0.8}))),
    "redis-memory-90": (past((0, {"redis_memory": 0.91})), past((0, {"redis_memory": 0.9}))),
    "redis-rejected": (
        past((5, {"redis_rejected": 0}), (0, {"redis_rejected": 1})),
        past((5, {"redis_rejected": 7}), (0, {"redis_rejected": 7})),
    ),
    "stalled": (
        past((3, {"waiting": 1}), (1, {"waiting": 1}), (0, {"waiting": 2})),
        past((3, {"waiting": 1}), (1, {"waiting": 1}), (0, {"waiting": 2, "sent": 1})),
    ),
    "breaker-open": (
        past((0, {"breakers": (("relay", "open", "refused"), ("other", "closed", ""))})),
        past((0, {"breakers": (("relay", "closed", ""), ("other", "paused", ""))})),
    ),
    "fallback-in-use": (
        past((2, {}), (0, {"sent": 5, "breakers": (("relay", "open", "x"), ("other", "closed", ""))})),
        past((2, {}), (0, {"sent": 5, "breakers": (("relay", "closed", ""), ("other", "closed", ""))})),
    ),
    "error-anomaly": (
        past(
            (120, {}),
            (5, {"attempts": 1000, "codes": {"250": 980, "421": 20}}),
            (0, {"attempts": 1200, "codes": {"250": 1167, "421": 33}}),
        ),
        past(
            (120, {}),
            (5, {"attempts": 1000, "codes": {"250": 980, "421": 20}}),
            (0, {"attempts": 1200, "codes": {"250": 1168, "421": 32}}),
        ),
    ),
    "callbacks-failing": (
        past((5, {}), (0, {"callbacks": 20, "callbacks_failed": 11})),
        past((5, {}), (0, {"callbacks": 20, "callbacks_failed": 10})),
    ),
    "in-doubt": (past((0, {"in_doubt": 1})), past((0, {"in_doubt": 0}))),
    "store-down": (past((0, {"store_up": False})), past((0, {"store_up": True}))),
}


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_on_its_condition_and_on_nothing_less(name: str) -> None:
    fires, rests = CASES[name]
    assert name in firing(fires)
    assert name not in firing(rests)


def test_every_alert_has_its_case() -> None:
    assert set(CASES) == set(alerts.BY_NAME)
    assert len(alerts.ALERTS) == len(alerts.BY_NAME)


def test_a_few_e_mails_make_no_rate() -> None:
    """One failure at night is no alarm: below ten ends a share says nothing."""
    assert not firing(past((5, {}), (0, {"sent": 1, "failed": 8, "dead_letters": 8})))


def test_only_the_window_counts_for_a_rate() -> None:
    """What failed an hour ago is over."""
    assert "failure-rate" not in firing(
        past((60, {}), (10, {"failed": 500}), (5, {"failed": 500}), (0, {"failed": 500, "sent": 50}))
    )


def test_an_operator_who_paused_everything_is_not_told_that_nothing_is_sent() -> None:
    told = {"waiting": 9, "paused": True}
    assert "stalled" not in firing(past((3, told), (1, told), (0, told)))


def test_a_moment_without_waiting_e_mails_is_no_stall() -> None:
    assert "stalled" not in firing(past((3, {"waiting": 5}), (1, {"waiting": 0}), (0, {"waiting": 5})))


def test_companies_over_the_limit_are_named_one_by_one() -> None:
    """A key that is bound to a company sees its own row only."""
    states = alerts.evaluate(past((0, {"letters_by_company": {"acme": 51, "bistro": 60, "clinic": 1}})), ())
    named = {state.company_id: state.value for state in states if state.name == "dlq-company"}
    assert {None: "bistro: 60, acme: 51", "acme": "51", "bistro": "60"} == named
    assert {"acme"} == {alerts.shown(s)["company_id"] for s in states if s.company_id == "acme"}


def test_while_the_store_is_away_the_rest_stands_as_it_stood() -> None:
    before = alerts.evaluate(past((0, {"letters": 200})), ())
    states = alerts.evaluate(past((1, {"letters": 200}), (0, {"store_up": False})), before)
    assert {"dlq-size", "store-down"} == {state.name for state in states if state.firing}


def test_what_turned_is_told_once() -> None:
    quiet = alerts.evaluate(past((0, {})), ())
    loud = alerts.evaluate(past((0, {"letters": 101, "letters_by_company": {"acme": 60}})), quiet)
    again = alerts.evaluate(past((0, {"letters": 102, "letters_by_company": {"acme": 60}})), loud)
    over = alerts.evaluate(past((0, {})), again)

    def told(before: Sequence[State], after: Sequence[State]) -> set[tuple[str, str | None, bool]]:
        return {(state.name, state.company_id, state.firing) for state in alerts.turned(before, after)}

    began = {("dlq-size", None, True), ("dlq-company", None, True), ("dlq-company", "acme", True)}
    assert began == told(quiet, loud)
    assert set() == told(loud, again)
    assert {(name, company, False) for name, company, _ in began} == told(again, over)


def test_since_stays_while_nothing_turns() -> None:
    first = alerts.evaluate(past((10, {"letters": 101})), ())
    later = alerts.evaluate(past((10, {"letters": 101}), (0, {"letters": 300})), first)
    (state,) = [state for state in later if state.name == "dlq-size"]
    assert NOW - 10 * MINUTE == state.since
    assert "300" == state.value


@given(steps=st.lists(st.integers(0, 20 * MINUTE), max_size=400))
def test_the_past_stays_small_and_in_order(steps: list[int]) -> None:
    """A day of readings is kept in some hundreds, whenever they were taken; the newest is always there."""
    kept: tuple[Reading, ...] = ()
    at = NOW
    for step in steps:
        at += step
        kept = alerts.remember(kept, Reading(at=at))
        assert kept[-1].at == at
        assert at - kept[0].at <= alerts.DAY_MS
    times = [one.at for one in kept]
    assert sorted(times) == times
    old = [one for one in times if one < at - alerts.WINDOW_MS - alerts.STEP_MS]
    assert len(old) <= alerts.DAY_MS // alerts.STEP_MS + 1


def test_a_clock_that_was_set_back_hides_nothing() -> None:
    kept = alerts.remember((Reading(at=NOW + 3_600_000, letters=5),), Reading(at=NOW, letters=101))
    assert {"dlq-size"} == firing(kept)


def test_every_alert_says_what_to_do_and_where() -> None:
    shown: Callable[[State], dict[str, Any]] = alerts.shown
    for state in alerts.evaluate(past((0, {})), ()):
        row = shown(state)
        assert all(row[name] for name in ("title", "condition", "remedy", "runbook", "value", "state"))
