"""Whose turn it is, by turns alone: the law, the ties, the weights, and the seed's figures."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail.fairness import (
    NEWCOMER_TURNS,
    Member,
    Priorities,
    Turns,
    Weights,
    company_priority,
)


def members(turns: Turns[Member], *names: str, weight: float = 1.0) -> list[Member]:
    made = [Member(name, weight, number) for number, name in enumerate(names)]
    for member in made:
        turns.join(member)
    return made


def served(turns: Turns[Member], jobs: int) -> str:
    """Give so many jobs, everybody always having more; the names in the order in which they were served."""
    names = []
    for _ in range(jobs):
        member = turns.whose()
        assert member is not None
        turns.serve(1, at=0)
        names.append(member.company_id)
        if not turns.left:
            turns.finish(waiting=True)
    return "".join(names)


@pytest.mark.parametrize(
    ("rounds", "priority"), [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1), (5, 1), (1_000, 1), (-2, 5)]
)
def test_the_seeds_priority_grows_more_urgent_with_each_round_waited(rounds: int, priority: int) -> None:
    """Seed 004: calculateRoundRobinPriority(3) = 2, (0) = 5."""
    assert company_priority(rounds) == priority


def test_the_seeds_priority_follows_its_three_settings() -> None:
    assert company_priority(2, Priorities(base=9, increment=3, highest=2)) == 3
    assert company_priority(9, Priorities(base=9, increment=3, highest=2)) == 2


def test_companies_with_equal_weights_take_turns_of_three() -> None:
    turns: Turns[Member] = Turns()
    members(turns, "a", "b", "c")
    assert served(turns, 18) == "aaabbbcccaaabbbccc"


def test_a_company_that_returns_comes_first_and_banks_nothing() -> None:
    """However long it was away, it is next, once: it cannot catch up on what it did not ask for."""
    turns: Turns[Member] = Turns()
    members(turns, "a", "b")
    (late,) = (Member("x", 1.0, 9),)
    assert served(turns, 30) == "aaabbb" * 5
    turns.join(late)
    assert served(turns, 18) == "xxxaaabbb" * 2


def test_one_that_was_served_and_went_idle_for_a_turn_comes_first_too() -> None:
    turns: Turns[Member] = Turns()
    a, _, _ = members(turns, "a", "b", "c")
    member = turns.whose()
    assert member is a
    turns.serve(1, at=0)
    turns.finish(waiting=False)
    assert served(turns, 9) == "bbbcccbbb"
    turns.join(a)
    assert served(turns, 9) == "aaacccbbb"


def test_weights_are_shares() -> None:
    turns: Turns[Member] = Turns()
    heavy, light = Member("h", 5.0, 0), Member("l", 1.0, 1)
    turns.join(heavy)
    turns.join(light)
    assert Counter(served(turns, 1_800)) == {"h": 1_500, "l": 300}


def test_a_new_weight_acts_at_once() -> None:
    """A company that has used its share under a small weight does not wait that long any more under a large one."""
    turns: Turns[Member] = Turns()
    a, b = Member("a", 0.01, 0), Member("b", 1.0, 1)
    turns.join(a)
    turns.join(b)
    assert served(turns, 3) == "aaa"
    assert set(served(turns, 150)) == {"b"}
    turns.set_weight(a, 1.0)
    assert "aaa" in served(turns, 9)


def test_what_a_turn_may_not_give_is_refunded() -> None:
    """A paused or rate-limited company loses no place by a turn that was cut short."""
    turns: Turns[Member] = Turns()
    a, _ = members(turns, "a", "b")
    turns.whose()
    turns.serve(1, at=0)
    turns.leave(a)
    assert a.tag == pytest.approx(1.0)
    turns.join(a)
    assert served(turns, 9) == "bbbaaabbb"


def test_a_flood_of_invented_companies_passes_nobody_for_ever() -> None:
    """Else whoever may name companies could keep all others waiting with one e-mail each."""
    turns: Turns[Member] = Turns()
    first, second = members(turns, "first", "second")
    assert turns.whose() is first
    turns.serve(3, at=0)
    turns.finish(waiting=True)
    for number in range(2 * NEWCOMER_TURNS):
        turns.join(Member(f"invented-{number}", 1.0, 10 + number))
        member = turns.whose()
        if member is second:
            break
        turns.serve(1, at=0)
        turns.finish(waiting=False)
    assert member is second


def test_plain_order_asks_only_how_old_a_job_is() -> None:
    turns: Turns[Member] = Turns(fair=False)
    ages = {"a": [1.0, 2.0, 3.0, 4.0, 9.0], "b": [2.5, 6.0, 10.0]}
    for number, name in enumerate(ages):
        member = Member(name, 1.0, number)
        member.tag = ages[name][0]
        turns.join(member)
    names = ""
    while (holder := turns.whose()) is not None:
        names += holder.company_id
        turns.serve(1, at=0)
        rest = ages[holder.company_id]
        rest.pop(0)
        holder.tag = rest[0] if rest else 0.0
        turns.finish(waiting=bool(rest))
    assert names == "aabaabab"


def test_rounds_count_the_turns_of_others_while_waiting() -> None:
    turns: Turns[Member] = Turns()
    a, b, c = members(turns, "a", "b", "c")
    assert served(turns, 6) == "aaabbb"
    assert [turns.rounds_without_processing(one) for one in (a, b, c)] == [1, 0, 2]
    turns.whose()
    turns.serve(2, at=7)
    assert [turns.consecutive(one) for one in (a, b, c)] == [0, 0, 2]
    assert (c.given, c.last_given_at) == (2, 7)
    assert turns.rounds_without_processing(c) == 0


def test_an_exact_name_wins_over_a_pattern_and_the_first_pattern_over_the_next() -> None:
    weights = Weights(named={"gold-*": 5, "*-test": 0.5, "gold-x-test": 9})
    assert [weights.of(name) for name in ("gold-a", "b-test", "gold-test", "gold-x-test", "other")] == [
        5,
        0.5,
        5,
        9,
        1,
    ]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 1e-9, 1e9])
def test_a_weight_that_means_nothing_is_refused_with_its_company(weight: float) -> None:
    with pytest.raises(ValueError, match="company gold"):
        Weights(named={"gold": weight})


steps = st.lists(
    st.one_of(
        st.tuples(st.just("serve"), st.integers(0, 5)),
        st.tuples(st.just("join"), st.integers(0, 5)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("weigh"), st.integers(0, 5)),
    ),
    max_size=200,
)
weight_values = st.one_of(st.integers(1, 9).map(float), st.floats(0.01, 100))


@given(steps=steps, weights=st.lists(weight_values, min_size=6, max_size=6), batch_max=st.integers(1, 7))
def test_every_tag_stays_within_one_turn_of_the_virtual_time(
    steps: list[tuple[str, int]], weights: list[float], batch_max: int
) -> None:
    """The invariant from which the law follows, for any order of joining, leaving, serving and weighing."""
    turns: Turns[Member] = Turns(batch_max=batch_max)
    all_of_them = [Member(str(number), weight, number) for number, weight in enumerate(weights)]
    for step, number in steps:
        member = all_of_them[number]
        if step == "join":
            turns.join(member)
        elif step == "leave":
            turns.leave(member)
        elif step == "weigh":
            turns.set_weight(member, weights[number - 1])
        elif turns.whose() is not None:
            turns.serve(1, at=0)
            if not turns.left:
                turns.finish(waiting=bool(number % 3))
        for one in all_of_them:
            if turns.competes(one):
                lag = one.tag - turns.virtual_time
                assert -1e-9 <= lag <= batch_max / one.weight + 1e-9
