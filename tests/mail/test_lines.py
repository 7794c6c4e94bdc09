"""A line decides whose turn it is, how many call at a time, and when a receiver is left in peace."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from staffetta.mail.lifecycle import Status
from staffetta.mail.lines import FAILURES_TO_OPEN, FIRST_PAUSE_MS, LONGEST_PAUSE_MS, UNPROVEN_CALLS, Line
from staffetta.mail.message import ReportClaim
from staffetta.mail.report import Receiver, Told

RECEIVER = Receiver(url="https://hooks.example.com/")
DOWN, UP, NO = Told(status=503), Told(status=204), Told(status=404)


def line(calls_max: int = 32) -> Line[str]:
    return Line(company_id="acme", of_payload=False, calls_max=calls_max)


def claim(number: int, company_id: str = "acme", **facts: Any) -> ReportClaim:
    return ReportClaim(
        id=f"0198f0a0-0000-7000-8000-{number:012d}", ref=0, company_id=company_id, reason="", reached_at=1,
        token=f"w.{number}.{facts.get('sequence', 1)}", status=Status.CALLING_SENT_CALLBACK,
        sequence=facts.pop("sequence", 1), updated_at=1, **facts,
    )  # fmt: skip


def taken(one: Line[str], batch_max: int) -> list[list[int]]:
    out = []
    while one.size:
        claims, _ = one.take(batch_max)
        out.append([int(claim.id[-12:]) for claim in claims])
    return out


# ------------------------------------------------------------------------------------------ whose turn


def test_companies_that_share_a_receiver_take_turns() -> None:
    """A company with a thousand outcomes does not keep another one's single one waiting."""
    one = line()
    for number in range(6):
        one.add(claim(number), RECEIVER, now=0)
    one.add(claim(9, "other"), RECEIVER, now=0)

    assert taken(one, 2) == [[0, 1], [9], [2, 3], [4, 5]]


def test_without_batches_each_call_tells_of_one() -> None:
    one = line()
    for number in range(3):
        one.add(claim(number), RECEIVER, now=0)

    assert taken(one, 1) == [[0], [1], [2]]


def test_two_outcomes_of_one_email_are_never_told_in_one_call() -> None:
    """A claim was lost while it waited here: its e-mail was retried, sent, and claimed again by this very stage.

    Told together, the owner heard the old outcome under both claims, and the new one was acknowledged unheard.
    """
    one = line()
    stale = claim(1, sequence=2)
    one.add(stale, RECEIVER, now=0)
    one.add(claim(1, sequence=3), RECEIVER, now=0)
    one.add(msgspec.structs.replace(stale, token="w.7"), RECEIVER, now=0)

    assert taken(one, 50) == [[1], [1], [1]]


def test_what_was_told_together_stays_together_whatever_the_batch_is_now() -> None:
    one = line()
    for number in range(4):
        one.add(claim(number, batch="b"), RECEIVER, now=0)

    assert taken(one, 1) == [[0, 1, 2, 3]]


def test_every_claim_that_is_added_is_taken_once() -> None:
    chance = random.Random(4)
    one = line()
    for number in range(500):
        one.add(
            claim(
                number,
                chance.choice("abc"),
                sequence=chance.choice([1, 2]),
                batch=chance.choice([None, "x", "y"]),
            ),
            RECEIVER,
            now=number,
        )
    old = [int(claim.id[-12:]) for claim in one.take_older(100)]
    rest = [number for call in taken(one, 7) for number in call]

    assert sorted(old) == list(range(100))
    assert sorted(rest) == list(range(100, 500))
    assert (one.size, one.waiting) == (0, 0)


def test_calls_to_be_repeated_wait_as_well() -> None:
    one = line()
    one.repeats.append("again")

    assert (one.size, one.waiting) == (0, 1)


# ------------------------------------------------------------------------------------------ how many, when


def test_an_unknown_receiver_gets_few_calls_until_it_has_answered_well() -> None:
    one = line(calls_max=32)
    before = one.places(now=0)
    one.learn(UP, now=0)

    assert (before, one.places(now=0)) == (UNPROVEN_CALLS, 32)


def test_one_call_at_a_time_stays_one() -> None:
    assert line(calls_max=1).places(now=0) == 1


def test_the_breaker_opens_after_some_failures_in_a_row() -> None:
    one = line()
    said = [one.learn(DOWN, now=0) for _ in range(FAILURES_TO_OPEN)]

    assert said == [None] * (FAILURES_TO_OPEN - 1) + [True]
    assert (one.places(now=0), one.pause_ms(now=0)) == (1, FIRST_PAUSE_MS)


def test_a_success_between_failures_keeps_it_closed() -> None:
    one = line()
    for _ in range(20):
        assert one.learn(DOWN, now=0) is None
        assert one.learn(UP, now=0) is None


def test_a_no_is_an_answer_and_opens_nothing() -> None:
    """404 is wrong, but it comes at once: nobody is delayed by it."""
    one = line()
    for _ in range(20):
        assert one.learn(NO, now=0) is None


def test_a_url_that_may_not_be_called_says_nothing_of_a_receiver() -> None:
    one = line()
    for _ in range(20):
        assert one.learn(Told(status=0, of_receiver=False), now=0) is None


def test_calls_that_were_under_way_when_it_opened_do_not_make_the_pause_longer() -> None:
    one = line()
    one.learn(UP, now=0)
    for _ in range(32):
        one.learn(DOWN, now=0)

    assert one.pause_ms(now=0) == FIRST_PAUSE_MS


def test_each_failed_question_doubles_the_pause_up_to_a_bound() -> None:
    one, now, pauses = line(), 0, []
    for _ in range(FAILURES_TO_OPEN):
        one.learn(DOWN, now=now)
    for _ in range(6):
        pauses.append(one.pause_ms(now=now))
        now += one.pause_ms(now=now)
        assert one.pause_ms(now=now) == 0
        assert one.places(now=now) == 1
        one.learn(DOWN, now=now)

    assert pauses == [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]
    assert max(pauses) == LONGEST_PAUSE_MS


def test_one_good_answer_closes_it_again() -> None:
    one = line()
    for _ in range(FAILURES_TO_OPEN):
        one.learn(DOWN, now=0)

    assert one.learn(UP, now=FIRST_PAUSE_MS) is False
    assert one.places(now=FIRST_PAUSE_MS) == 32


def test_a_receiver_that_asks_for_time_gets_it() -> None:
    one = line()
    one.learn(Told(status=429, retry_after_ms=7_000), now=1_000)

    assert (one.pause_ms(now=1_000), one.places(now=1_000)) == (7_000, 1)
    assert (one.pause_ms(now=8_000), one.places(now=8_000)) == (0, UNPROVEN_CALLS)
