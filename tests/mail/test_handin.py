"""When an e-mail is due and when its time is over, whatever its payload asks for; and what makes two payloads one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import backoff, handin, payload, shapes
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Intaken
from staffetta.mail.payload import Payload

NOW = 1_800_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
MOST = 2**31 - 1


def read(**wishes: Any) -> Payload:
    fields = {"from": "a@example.com", "to": "b@example.com", "subject": "x", "body_text": "x", **wishes}
    return payload.read(json.dumps(fields).encode(), company_id=None, limits=payload.LIMITS)


def over_at(**wishes: Any) -> int:
    one = read(**wishes)
    policy = backoff.with_limits(backoff.GATEWAY, one.options.limits)
    return handin.expires_at(one, policy, accepted_at=NOW)


def told(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000, UTC).isoformat()


def test_it_is_due_at_once_or_when_it_says() -> None:
    assert handin.due_at(read(), accepted_at=NOW) == NOW
    assert handin.due_at(read(send_at=told(NOW + HOUR)), accepted_at=NOW) == NOW + HOUR
    assert handin.due_at(read(send_at=told(NOW - HOUR)), accepted_at=NOW) == NOW


def test_its_time_is_over_a_day_after_the_later_of_acceptance_and_send_at() -> None:
    assert over_at() == NOW + DAY
    assert over_at(send_at=told(NOW + HOUR)) == NOW + HOUR + DAY
    assert over_at(send_at=told(NOW - HOUR)) == NOW + DAY


def test_its_own_wish_holds() -> None:
    assert over_at(expires_in=60) == NOW + 60_000
    assert over_at(expires_in=60, send_at=told(NOW + HOUR)) == NOW + HOUR + 60_000
    assert over_at(expires_in=60, max_attempts=9, retry_delay=DAY) == NOW + 60_000


def test_with_retry_limits_alone_there_is_time_for_all_of_them_and_an_hour() -> None:
    """003's curve: one day, two days, then the cap of one day each."""
    assert over_at(max_attempts=4, retry_delay=DAY, max_retry_delay=DAY) == NOW + 3 * DAY + HOUR
    assert over_at(max_attempts=5) == NOW + DAY, "five attempts of the default policy are over long before"


@pytest.mark.parametrize("attempts", [MOST, 10**6])
def test_two_thousand_million_attempts_are_counted_in_no_time_and_end_within_the_calendar(
    attempts: int,
) -> None:
    """Counted one by one they held up whoever asked; shown, their end was beyond the year 9999."""
    at = over_at(max_attempts=attempts, retry_delay=MOST, max_retry_delay=MOST)

    assert NOW + DAY < at <= handin.LATEST_MS
    assert shapes.moment(at)


@given(
    attempts=st.integers(1, MOST), delay=st.integers(1, MOST), longest=st.integers(1, MOST),
    send_at=st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(9999, 12, 30)),  # made UTC below
)  # fmt: skip
def test_whatever_is_asked_for_the_end_can_be_told(
    attempts: int, delay: int, longest: int, send_at: datetime
) -> None:
    at = over_at(
        max_attempts=attempts, retry_delay=delay, max_retry_delay=longest,
        send_at=send_at.replace(tzinfo=UTC).isoformat(),
    )  # fmt: skip

    assert shapes.moment(at)
    assert at >= NOW + DAY


def test_the_same_fields_are_the_same_payload_however_they_were_written() -> None:
    one, other = b'{"to": "b", "subject": "x"}', b'{"subject":"x","to":"b"}'

    assert handin.fingerprint("acme", one) == handin.fingerprint("acme", other)
    assert handin.fingerprint("acme", one) != handin.fingerprint("other", one)
    assert handin.fingerprint("acme", one) != handin.fingerprint("acme", b'{"to": "b", "subject": "y"}')


def test_one_composed_at_once_has_earned_three_rows_of_history() -> None:
    one = read(company_id="acme", priority=2)
    intaken = Intaken(
        sender="a@example.com", recipients=("b@example.com",), message=b"m", eml_file_path=None, due_at=NOW,
        expires_at=NOW + DAY, priority=2, options=one.options,
    )  # fmt: skip

    new = handin.new_email(one, intaken, id="e1", now=NOW, raw=b"{}", fingerprint="f")

    assert [(entry.status, entry.cause, entry.at) for entry in new.history] == [
        (Status.ACCEPTED, Cause.ACCEPTED, NOW), (Status.INTAKING, Cause.CLAIMED, NOW),
        (Status.READY, Cause.COMPOSED, NOW),
    ]  # fmt: skip
    assert (new.company_id, new.sender, new.recipients, new.payload) == (
        "acme",
        "a@example.com",
        ("b@example.com",),
        b"{}",
    )
