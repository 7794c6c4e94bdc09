"""A server's own word for how long to wait: honoured up to an hour, and only where it is a request."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail.hints import wait_asked_for
from staffetta.mail.message import Reply
from staffetta.mail.verdict import judge, plain


def asked(text: str) -> int:
    return wait_asked_for(plain(text))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4.7.1 Greylisted, please try again in 300 seconds", 300),
        ("4.2.0 try again in 5 minutes", 300),
        ("Greylisting in action, please come back in 00:04:59", 299),
        ("try again in 1 hour", 3_600),
        ("Retry-After: 120", 120),
        ("please wait 45 seconds and retry", 45),
        ("try again in one minute", 60),
        ("greylisted for 2 minutes and 30 seconds", 150),
        ("please retry after 10 min", 600),
        ("come back in two hours", 3_600),
        ("try again in 86400 seconds", 3_600),
    ],
)
def test_a_request_is_read_and_bounded_by_an_hour(text: str, seconds: int) -> None:
    assert seconds * 1_000 == asked(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4.2.0 try again later",
        "connection timed out after 300 seconds",
        "you may send 100 messages in 60 seconds",
        "4.4.2 idle for 300 seconds, closing",
        "error 451 at line 300",
    ],
)
def test_other_numbers_are_no_request(text: str) -> None:
    assert asked(text) == 0


def test_a_hint_raises_the_verdicts_least_delay() -> None:
    verdict = judge(Reply(stage="rcpt", code=451, enhanced="4.7.1", text="4.7.1 try again in 20 minutes"))

    assert (verdict.retry, verdict.min_delay_ms) == (True, 1_200_000)


def test_a_hint_shorter_than_the_rules_own_delay_lowers_nothing() -> None:
    verdict = judge(
        Reply(stage="rcpt", code=451, enhanced="4.7.1", text="4.7.1 Greylisted, try again in 5 seconds")
    )

    assert verdict.min_delay_ms >= 300_000


def test_a_refusal_is_not_retried_whatever_it_asks_for() -> None:
    verdict = judge(Reply(stage="rcpt", code=554, enhanced="5.7.1", text="5.7.1 no; try again in 300 seconds"))

    assert not verdict.retry


@given(st.text(max_size=400))
def test_any_text_is_read(text: str) -> None:
    assert 0 <= asked(text) <= 3_600_000


@pytest.mark.parametrize("piece", ["again in ", "wait 1", "retry after 9", "in 1 m and ", "for 00:00:"])
def test_a_hostile_text_takes_time_only_by_its_length(piece: str) -> None:
    """2 KiB are read; the CPU of the worst of them stays far below what anybody would notice."""
    text = piece * (65_536 // len(piece))
    began = time.process_time()
    asked(text)

    assert time.process_time() - began < 0.05
