"""A breaker led by the verdicts of real replies: what opens it, when it is probed, and that it does not flap."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import breaker
from staffetta.mail.breaker import CLOSED, Breaker
from staffetta.mail.message import Reply, Verdict
from staffetta.mail.verdict import judge

NOW = 1_800_000_000_000

DELIVERED = judge(Reply(stage="dot", code=250, committed=True))
DOWN = judge(Reply(stage="connect", name="refused", text="connection refused"))
PASSWORD = judge(Reply(stage="auth", code=535, enhanced="5.7.8", text="5.7.8 authentication failed"))
QUOTA = judge(Reply(stage="request", name="Throttling", text="Daily message quota exceeded."))
NO_USER = judge(Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no such user"))
BUSY = judge(Reply(stage="rcpt", code=450, enhanced="4.2.0", text="4.2.0 mailbox busy"))
DOUBT = judge(Reply(stage="dot", name="eof", text="lost", committed=True))


def heard(state: Breaker, *verdicts: Verdict, now: int = NOW) -> Breaker:
    for verdict in verdicts:
        state = breaker.after_verdict(state, verdict, reason="its words", now=now, draw=0.5)
    return state


def opened(times: int = 1, verdict: Verdict = PASSWORD) -> Breaker:
    state = heard(CLOSED, verdict)
    for _ in range(times - 1):
        state = breaker.after_probe(breaker.begin_probe(state), verdict, reason="again", now=NOW, draw=0.5)
    return state


def test_a_hold_opens_it_at_once() -> None:
    state = opened()

    assert (state.state, state.reason, state.since) == ("open", "its words", NOW)
    assert not state.lets_through
    assert state.room == 0


def test_five_failures_in_a_row_that_reach_the_transport_open_it() -> None:
    assert heard(CLOSED, *[DOWN] * 4).state == "closed"
    assert heard(CLOSED, *[DOWN] * 5).state == "open"


@pytest.mark.parametrize("between", [DELIVERED, NO_USER, BUSY])
def test_an_email_that_got_through_ends_the_row(between: Verdict) -> None:
    """A "no" to one recipient shows that the way there is open."""
    assert heard(CLOSED, *[DOWN] * 4, between, *[DOWN] * 4).state == "closed"


@given(st.lists(st.sampled_from((DELIVERED, NO_USER, BUSY, DOUBT)), max_size=50))
def test_what_is_not_the_transports_trouble_never_opens_it(verdicts: list[Verdict]) -> None:
    assert heard(CLOSED, *verdicts) is CLOSED


def test_a_doubt_tells_nothing() -> None:
    state = heard(CLOSED, *[DOWN] * 4)

    assert heard(state, DOUBT) is state


def test_while_it_is_open_only_its_probe_tells() -> None:
    """What was in flight when it opened comes in one by one: that makes it neither longer nor shorter."""
    state = opened()

    assert heard(state, DOWN, DELIVERED, PASSWORD) is state


# ------------------------------------------------------------------------------------------ probing


def test_it_is_probed_when_its_wait_is_over_and_not_before() -> None:
    state = opened()

    assert not breaker.probe_due(state, now=state.probe_at - 1)
    assert breaker.probe_due(state, now=state.probe_at)
    assert not breaker.probe_due(breaker.begin_probe(state), now=state.probe_at)
    assert not breaker.probe_due(CLOSED, now=NOW)


@pytest.mark.parametrize(("openings", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (50, 60)])
def test_the_wait_doubles_to_a_minute(openings: int, seconds: int) -> None:
    assert breaker.wait_ms(openings, draw=0.5) == seconds * 1_000


@pytest.mark.parametrize(("openings", "seconds"), [(1, 5), (2, 10), (7, 320), (8, 600), (50, 600)])
def test_trouble_of_the_account_is_asked_less_often(openings: int, seconds: int) -> None:
    assert breaker.wait_ms(openings, draw=0.5, account=True) == seconds * 1_000


@given(st.integers(1, 100), st.floats(0, 1), st.booleans())
def test_the_draw_spreads_the_wait_by_a_quarter(openings: int, draw: float, account: bool) -> None:
    middle = breaker.wait_ms(openings, draw=0.5, account=account)

    assert 0.75 * middle - 1 <= breaker.wait_ms(openings, draw=draw, account=account) <= 1.25 * middle + 1


def test_a_failed_probe_opens_it_for_longer() -> None:
    first, second = opened(1), opened(2)

    assert second.state == "open"
    assert second.probe_at - NOW == 2 * (first.probe_at - NOW)
    assert second.since == first.since


def test_a_probe_that_went_well_closes_it_on_trial() -> None:
    state = breaker.after_probe(breaker.begin_probe(opened()), None, reason="", now=NOW, draw=0.5)

    assert (state.state, state.on_trial, state.room) == ("closed", True, 1)
    assert state.since == NOW


# ------------------------------------------------------------------------------------------ on trial


def on_trial(verdict: Verdict = PASSWORD) -> Breaker:
    return breaker.after_probe(breaker.begin_probe(opened(verdict=verdict)), None, reason="", now=NOW, draw=0.5)


def test_on_trial_its_room_doubles_with_each_that_goes_well_until_it_is_as_before() -> None:
    state, rooms = on_trial(), []
    while state.on_trial:
        rooms.append(state.room)
        state = heard(state, DELIVERED)

    assert rooms == [1, 2, 4, 8, 16]
    assert state is CLOSED
    assert state.room is None


def test_on_trial_it_opens_sooner_and_for_longer() -> None:
    state = on_trial()

    assert heard(state, DOWN).state == "closed"
    again = heard(state, DOWN, DOWN)
    assert (again.state, again.openings) == ("open", 2)
    assert again.probe_at > opened().probe_at


def test_a_relay_that_greets_well_and_then_fails_is_asked_less_and_less() -> None:
    """It would flap: every probe goes well, every e-mail fails."""
    state, waits = opened(), []
    for _ in range(8):
        waits.append(state.probe_at - NOW)
        state = breaker.after_probe(breaker.begin_probe(state), None, reason="", now=NOW, draw=0.5)
        state = heard(state, PASSWORD)

    assert waits == sorted(waits)
    assert waits[-1] >= 60_000


def test_trouble_of_the_account_is_over_only_when_an_email_was_taken() -> None:
    """A "no" to one recipient says nothing about a quota."""
    assert QUOTA.action == "HOLD"
    state = on_trial(QUOTA)
    assert state.account

    assert heard(state, NO_USER) is state
    assert heard(state, DELIVERED).successes == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from((DELIVERED, NO_USER, BUSY, DOUBT, DOWN, PASSWORD, QUOTA, None)), st.floats(0, 1)
        ),
        max_size=60,
    )
)
def test_whatever_happens_it_is_in_one_of_its_states_and_can_come_back(
    events: list[tuple[Verdict | None, float]],
) -> None:
    state, now = CLOSED, NOW
    for verdict, draw in events:
        now += 1_000
        if verdict is not None:
            state = breaker.after_verdict(state, verdict, reason="x", now=now, draw=draw)
        elif breaker.probe_due(state, now=now):
            state = breaker.after_probe(breaker.begin_probe(state), None, reason="", now=now, draw=draw)
        assert state.state in ("closed", "open")
        assert (state.probe_at > 0) is (state.state == "open")
        if state.state == "open":
            assert state.probe_at - now <= 750_000
    for _ in range(10):
        if state.state == "open":
            now = state.probe_at
            state = breaker.after_probe(breaker.begin_probe(state), None, reason="", now=now, draw=0.5)
        state = breaker.after_verdict(state, DELIVERED, reason="", now=now, draw=0.5)
    assert state is CLOSED or state == CLOSED
    assert msgspec.structs.asdict(state) == msgspec.structs.asdict(CLOSED)
