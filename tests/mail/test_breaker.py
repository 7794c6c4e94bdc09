"""A transport's breaker: opens on trouble of the way there or the account, closes by a probe, comes back by trial."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import breaker
from staffetta.mail.breaker import CLOSED, Breaker
from staffetta.mail.message import Verdict

NOW = 1_800_000_000_000


def verdict(action: str, reach: str = "transport", *, label: str = "", in_doubt: bool = False) -> Verdict:
    return Verdict(category="TRANSIENT", action=action, reach=reach, rule="x", label=label, in_doubt=in_doubt)


WELL = verdict("DELIVERED", "message")
AWAY = verdict("RETRY")
HELD = verdict("HOLD")


def heard(state: Breaker, *verdicts: Verdict, now: int = NOW) -> Breaker:
    for one in verdicts:
        state = breaker.after_verdict(state, one, reason="no", now=now, draw=0.5)
    return state


def probed(state: Breaker, trouble: Verdict | None, *, now: int = NOW) -> Breaker:
    return breaker.after_probe(breaker.begin_probe(state), trouble, reason="no", now=now, draw=0.5)


def test_five_failures_in_a_row_open_it_and_four_do_not() -> None:
    assert heard(CLOSED, *[AWAY] * 4).state == "closed"
    assert heard(CLOSED, *[AWAY] * 4, WELL, *[AWAY] * 4).state == "closed"
    assert heard(CLOSED, *[AWAY] * 5).state == "open"


def test_a_hold_opens_it_at_once() -> None:
    assert heard(CLOSED, HELD).state == "open"


@pytest.mark.parametrize(
    "one",
    [verdict("RETRY", "destination"), verdict("FAIL", "transport"), verdict("RETRY_SLOW", "recipient"), verdict("RETRY", in_doubt=True), verdict("FAIL", "message")],
)  # fmt: skip
def test_what_is_about_one_e_mail_never_opens_it(one: Verdict) -> None:
    """A thousand unknown users are no outage."""
    assert heard(CLOSED, *[one] * 1_000).state == "closed"


def test_a_probe_closes_it_and_few_go_first() -> None:
    state = probed(heard(CLOSED, HELD), None)

    assert (state.state, state.on_trial, state.room) == ("closed", True, 1)
    rooms = [heard(state, *[WELL] * n).room for n in range(6)]
    assert rooms == [1, 2, 4, 8, 16, None]
    assert heard(state, *[WELL] * 5) == CLOSED


def test_a_failed_trial_waits_longer_than_the_time_before() -> None:
    state = heard(CLOSED, HELD)
    waits = []
    for _ in range(10):
        waits.append(state.probe_at - NOW)
        state = heard(probed(state, None), HELD)
    assert waits == sorted(waits)
    assert waits[0] == 1_000
    assert waits[-1] == 60_000


def test_an_accounts_trouble_is_asked_after_less_often_and_stays_shown() -> None:
    """A probe signs in and sees nothing of a quota: only an e-mail that goes shows that it is over."""
    quota = verdict("HOLD", label="account")
    state = probed(heard(CLOSED, quota), None)

    assert state.lets_through
    assert state.shown == "half-open"
    assert heard(state, verdict("FAIL", "recipient")).shown == "half-open", (
        "a refused address says nothing of it"
    )
    assert heard(state, WELL).shown == "closed"
    again = heard(state, quota)
    assert again.probe_at - NOW == 10_000


def test_an_outage_that_a_probe_sees_is_over_with_a_good_probe() -> None:
    assert probed(heard(CLOSED, *[AWAY] * 5), None).shown == "closed"


def test_trouble_that_a_good_probe_did_not_see_stays_shown() -> None:
    state = heard(probed(heard(CLOSED, HELD), None), HELD)

    assert probed(state, None).shown == "half-open"


def test_since_tells_when_the_trouble_began_however_often_it_opens() -> None:
    state = heard(CLOSED, HELD)
    for minute in range(1, 20):
        later = NOW + minute * 60_000
        state = heard(probed(state, None, now=later), HELD, now=later)
        assert state.since == NOW
        state = probed(state, HELD, now=later)
        assert state.since == NOW


@given(
    steps=st.lists(
        st.sampled_from([WELL, AWAY, HELD, verdict("FAIL", "recipient"), "probe-well", "probe-fails"]),
        max_size=80,
    ),
    draw=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_it_always_comes_back(steps: list[Verdict | str], draw: float) -> None:
    """Whatever happened: a good probe and five e-mails later it is as new; no wait is ever longer than its bound."""
    state = CLOSED
    for step in steps:
        if isinstance(step, str):
            if state.state == "open":
                trouble = None if step == "probe-well" else HELD
                state = breaker.after_probe(breaker.begin_probe(state), trouble, reason="x", now=NOW, draw=draw)
        else:
            state = breaker.after_verdict(state, step, reason="x", now=NOW, draw=draw)
        if state.state == "open":
            assert 0 < state.probe_at - NOW <= breaker.WAIT_MAX_MS * (1 + breaker.JITTER)
    if state.state == "open":
        state = probed(state, None)

    assert heard(state, *[WELL] * 5) == CLOSED
