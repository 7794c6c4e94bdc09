"""What an owner is told, word for word, and what his answer means."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from staffetta.mail import report
from staffetta.mail.identity import uuid7
from staffetta.mail.lifecycle import Cause, Status, check
from staffetta.mail.message import Options, RecipientState, ReportClaim
from staffetta.mail.report import Receivers, ReportRules, Told
from staffetta.mail.retry_after import MOST_MS, retry_after_ms

REACHED = 1_800_000_000_123
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RULES = ReportRules()


def claim(**changes: Any) -> ReportClaim:
    facts: dict[str, Any] = {
        "id": "0198f0a0-0000-7000-8000-000000000001",
        "ref": 0,
        "token": "w.1",
        "company_id": "acme",
        "status": Status.CALLING_SENT_CALLBACK,
        "reason": "250 OK",
        "reached_at": REACHED,
        "sequence": 1,
        "updated_at": REACHED,
    }
    return ReportClaim(**(facts | changes))


# ------------------------------------------------------------------------------------------ bodies


def test_a_success_is_told_word_for_word() -> None:
    webhook_id, body = report.single(claim(), RULES)

    assert webhook_id == "msg_0198f0a0-0000-7000-8000-000000000001_1"
    assert json.loads(body) == {
        "code": "TRAVELING",
        "reached_at": "2027-01-15T08:00:00.123Z",
        "message_ids": ["0198f0a0-0000-7000-8000-000000000001"],
        "reason": "Delivered to the mail server",
        "sequence": 1,
    }


def test_a_failure_is_told_with_its_own_words() -> None:
    failed = claim(status=Status.CALLING_FAILED_CALLBACK, reason="550 5.1.1 no such user", sequence=2)
    webhook_id, body = report.single(failed, RULES)

    assert webhook_id == "msg_0198f0a0-0000-7000-8000-000000000001_2"
    assert json.loads(body) == {
        "code": "DISPATCH-ERROR",
        "reached_at": "2027-01-15T08:00:00.123Z",
        "message_ids": ["0198f0a0-0000-7000-8000-000000000001"],
        "reason": "550 5.1.1 no such user",
        "sequence": 2,
    }


def test_recipients_who_did_not_get_it_are_named_with_their_replies() -> None:
    refused = RecipientState(address="bob@example.com", state="refused", reply="550 5.1.1 no such user")
    _, body = report.single(claim(refused=(refused,)), RULES)

    told = json.loads(body)
    assert told["refused"] == [
        {"address": "bob@example.com", "state": "refused", "reply": "550 5.1.1 no such user"}
    ]
    assert told["code"] == "TRAVELING"


def test_the_words_of_a_success_are_settable() -> None:
    _, body = report.single(claim(), ReportRules(sent_reason="Consegnata al server di posta"))

    assert json.loads(body)["reason"] == "Consegnata al server di posta"


# ------------------------------------------------------------------------------------------ batches

OTHER = "0198f0a0-0000-7000-8000-000000000002"


def test_a_batch_tells_of_all_its_members_at_once() -> None:
    members = [claim(), claim(id=OTHER, reached_at=REACHED + 500, updated_at=REACHED + 500)]
    batch = uuid7(report.batch_reached_at(members), bytes(10))
    webhook_id, body = report.batched(batch, [one.id for one in members], members[0], RULES)

    assert webhook_id == f"msg_{batch}"
    assert json.loads(body) == {
        "code": "TRAVELING",
        "reached_at": "2027-01-15T08:00:00.623Z",
        "message_ids": [members[0].id, OTHER],
        "reason": "Delivered to the mail server",
        "sequence": 1,
    }


def test_any_member_of_a_batch_says_the_same() -> None:
    """A repeat may be made by a worker that holds only some of them."""
    first = claim()
    last = claim(id=OTHER, reached_at=REACHED + 9_000, updated_at=REACHED + 60_000, token="v.7")
    batch, ids = uuid7(REACHED + 9_000, bytes(10)), [first.id, OTHER]

    assert report.batched(batch, ids, first, RULES) == report.batched(batch, ids, last, RULES)


SAME = claim()


@pytest.mark.parametrize(
    ("other", "together"),
    [
        (claim(id=OTHER), True),
        (claim(id=OTHER, reason="250 another reply"), True),
        (claim(id=OTHER, company_id="other"), False),
        (claim(id=OTHER, status=Status.CALLING_FAILED_CALLBACK), False),
        (claim(id=OTHER, sequence=2), False),
        (claim(id=OTHER, refused=(RecipientState(address="a@b.c", state="refused"),)), False),
        (claim(id=OTHER, updated_at=REACHED + 1), False),
        (claim(id=OTHER, batch="0198f0a0-0000-7000-8000-00000000000b"), False),
    ],
    ids=[
        "same",
        "another reply, same words",
        "company",
        "code",
        "outcome",
        "refused",
        "told alone before",
        "batch",
    ],
)
def test_only_what_says_the_same_goes_into_one_call(other: ReportClaim, *, together: bool) -> None:
    assert (report.group(other) == report.group(SAME)) == together


def test_failures_go_together_by_their_reason() -> None:
    one = claim(status=Status.CALLING_FAILED_CALLBACK, reason="EXPIRED")
    same = claim(status=Status.CALLING_FAILED_CALLBACK, reason="EXPIRED", id=OTHER)
    another = claim(status=Status.CALLING_FAILED_CALLBACK, reason="550 no", id=OTHER)

    assert report.group(one) == report.group(same) != report.group(another)


def test_what_was_told_together_is_told_together_again() -> None:
    batch = "0198f0a0-0000-7000-8000-00000000000b"
    one, two = claim(batch=batch, updated_at=REACHED + 1), claim(id=OTHER, batch=batch, updated_at=REACHED + 2)

    assert report.group(one) == report.group(two)


def test_a_later_outcome_is_no_member_of_the_first_ones_batch() -> None:
    """An operator's retry makes a new outcome; its call must not carry the old one's body."""
    again = claim(batch="0198f0a0-0000-7000-8000-00000000000b", sequence=2)

    assert report.kept_batch(again) is None


# ------------------------------------------------------------------------------------------ signatures


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200))
def test_signatures_are_those_of_the_reference_library(key: bytes, text: str) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()
    body = json.dumps({"reason": text}).encode()
    at = dt.datetime(2027, 1, 15, 8, tzinfo=dt.UTC)

    expected = Webhook(secret).sign("msg_1", at, body.decode())
    assert report.signature(report.signing_key(secret), "msg_1", int(at.timestamp()), body) == expected


def test_a_signature_is_accepted_by_the_reference_library_and_a_changed_body_is_not() -> None:
    webhook_id, body = report.single(claim(), RULES)
    now = int(dt.datetime.now(dt.UTC).timestamp())
    headers = {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(now),
        "webhook-signature": report.signature(report.signing_key(SECRET), webhook_id, now, body),
    }

    assert Webhook(SECRET).verify(body, headers)["code"] == "TRAVELING"
    with pytest.raises(Exception, match="signature"):
        Webhook(SECRET).verify(body.replace(b"TRAVELING", b"DISPATCH-ERROR"), headers)
    with pytest.raises(Exception, match="signature"):
        Webhook("whsec_" + "B" * 32).verify(body, headers)


# ------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_acknowledges(status: int) -> None:
    assert report.outcome(Told(status=status), 1, RULES) == "acknowledged"


@pytest.mark.parametrize(
    "status", [100, 300, 301, 302, 304, 307, 400, 404, 408, 410, 418, 429, 500, 502, 503, 504]
)
def test_any_other_answer_is_not_asked_again(status: int) -> None:
    assert report.outcome(Told(status=status), 1, RULES) == "refused"


def test_no_answer_is_a_failure() -> None:
    assert report.outcome(Told(status=0), 1, RULES) == "failed"


def test_a_conflict_is_asked_again_so_many_times() -> None:
    outcomes = [report.outcome(Told(status=409), tries, RULES) for tries in (1, 2, 3, 4)]

    assert outcomes == ["conflict", "conflict", "conflict", "refused"]


def test_a_conflict_need_not_be_asked_again_at_all() -> None:
    assert report.outcome(Told(status=409), 1, ReportRules(max_retries=0)) == "refused"


def test_the_window_ends_after_its_hours() -> None:
    rules = ReportRules(window_ms=1_000)

    assert not report.exhausted(claim(), rules, now=REACHED + 999)
    assert report.exhausted(claim(), rules, now=REACHED + 1_000)


@pytest.mark.parametrize("status", [Status.CALLING_SENT_CALLBACK, Status.CALLING_FAILED_CALLBACK])
def test_moves_out_of_calling_are_in_the_table(status: Status) -> None:
    one = claim(status=status)
    for move in (report.acknowledged(one, now=1), report.given_back(one, "stopped", now=1)):
        check(move.source, move.target, move.cause)
        assert move.token == "w.1"
    assert report.acknowledged(one, now=1).cause is Cause.ACKNOWLEDGED


# ------------------------------------------------------------------------------------------ receivers


def test_a_payloads_own_url_comes_before_the_companys_and_that_before_the_settings() -> None:
    receivers = Receivers(
        url="https://all.example.com/",
        secret="whsec_all",
        companies={"acme": ("https://acme.example.com/", "whsec_acme")},
    )
    named = claim(options=Options(callback_url="https://own.example.com/"))
    found = [receivers.of(named), receivers.of(claim()), receivers.of(claim(company_id="other"))]

    assert [(one.url, one.secret, one.of_payload, one.guarded) for one in found if one] == [
        ("https://own.example.com/", "whsec_acme", True, True),
        ("https://acme.example.com/", "whsec_acme", False, False),
        ("https://all.example.com/", "whsec_all", False, False),
    ]


def test_a_company_may_have_only_its_own_secret_or_only_its_own_url() -> None:
    receivers = Receivers(
        url="https://all.example.com/",
        secret="whsec_all",
        companies={"a": (None, "whsec_a"), "b": ("https://b.example.com/", None)},
    )
    found = [receivers.of_company("a"), receivers.of_company("b")]

    assert [(one.url, one.secret) for one in found if one] == [
        ("https://all.example.com/", "whsec_a"),
        ("https://b.example.com/", "whsec_all"),
    ]


def test_without_a_url_nobody_is_told() -> None:
    assert Receivers().of(claim()) is None


def test_payloads_urls_may_be_private_where_the_operator_says_so() -> None:
    named = claim(options=Options(callback_url="http://10.0.0.1/"))
    found = Receivers(allow_private=True).of(named)

    assert found is not None
    assert (found.of_payload, found.guarded) == (True, False)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/a/secret?token=1", "https://hooks.example.com"),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert report.place(url) == shown


# ------------------------------------------------------------------------------------------ Retry-After

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("header", "ms"),
    [
        ("", 0), ("0", 0), ("1", 1_000), (" 120 ", 120_000), ("99999", MOST_MS), ("9" * 400, MOST_MS), ("-5", 0),
        ("1.5", 0), ("soon", 0), ("١٢", 0), ("Fri, 15 Jan 2027 08:00:30 GMT", 30_000), ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("Fri, 15 Jan 2999 07:00:00 GMT", MOST_MS), ("Fri, 99 Jan 2027 07:00:00 GMT", 0), ("x" * 5_000, 0),
    ],
)  # fmt: skip
def test_retry_after_is_read_in_both_forms_and_bounded(header: str, ms: int) -> None:
    assert retry_after_ms(header, now=NOW) == ms


@given(st.text(max_size=80))
def test_no_retry_after_breaks_anything(header: str) -> None:
    assert 0 <= retry_after_ms(header, now=NOW) <= MOST_MS
