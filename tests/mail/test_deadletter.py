"""Dead letters under the seed's names: written never without a reason, and checked field by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.errors import PayloadError
from staffetta.mail import deadletter
from staffetta.mail.deadletter import as_entry, dead_letter, validate_dead_letter

ID = "123e4567-e89b-12d3-a456-426614174000"
AT = 1_760_869_800_000  # 2025-10-19T10:30:00Z
GOOD: dict[str, Any] = {
    "jobId": ID,
    "outboxId": ID,
    "companyId": "789e4567-e89b-12d3-a456-426614174999",
    "originalData": {"to": "a@example.com"},
    "failedAttempts": 5,
    "lastFailureReason": "SMTP 550: Mailbox not found",
    "lastFailureCode": "550",
    "lastFailureTimestamp": "2025-10-19T10:30:00.000Z",
    "enqueuedAt": "2025-10-19T10:00:00.000Z",
    "movedToDLQAt": "2025-10-19T10:30:00.000Z",
    "ttl": 604_800_000,
}


def wrong(**changes: Any) -> list[str]:
    """The fields that are named."""
    entry = {name: value for name, value in {**GOOD, **changes}.items() if value is not ...}
    with pytest.raises(PayloadError) as caught:
        validate_dead_letter(entry)
    return [problem.field for problem in caught.value.problems]


def test_the_seeds_example_is_right() -> None:
    assert validate_dead_letter(GOOD) == GOOD


def test_the_name_and_the_times_are_the_seeds() -> None:
    assert deadletter.NAME == "email:send:dlq"
    assert deadletter.TTL_MS == 604_800_000


@pytest.mark.parametrize("reason", [..., "", "   ", "\n\t", None, 550])
def test_without_a_reason_it_is_refused(reason: object) -> None:
    """TASK 3.2: lastFailureReason is required."""
    assert wrong(lastFailureReason=reason) == ["lastFailureReason"]


def test_a_long_reason_is_cut_to_500_characters() -> None:
    assert len(validate_dead_letter({**GOOD, "lastFailureReason": "é" * 900})["lastFailureReason"]) == 500


@pytest.mark.parametrize("name", [name for name in GOOD if name != "lastFailureCode"])
def test_every_field_but_the_code_is_required(name: str) -> None:
    assert wrong(**{name: ...}) == [name]


def test_the_code_is_optional() -> None:
    assert "lastFailureCode" not in validate_dead_letter(
        {k: v for k, v in GOOD.items() if k != "lastFailureCode"}
    )
    assert validate_dead_letter({**GOOD, "lastFailureCode": None})["lastFailureCode"] is None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("outboxId", ["", "123", 5, None, ID + "0", f"{{{ID}}}"]),
        ("companyId", ["", "x" * 65, 5, None]),
        ("originalData", ["{}", None, [1]]),
        ("failedAttempts", [-1, "5", 1.5, True, None]),
        ("lastFailureCode", ["", "x" * 65, 550]),
        ("lastFailureTimestamp", ["yesterday", "2025-10-19", "2025-10-19T10:30:00", 5, None]),
        ("enqueuedAt", ["", "2025-13-01T00:00:00Z"]),
        ("movedToDLQAt", ["10:30"]),
        ("ttl", [0, -1, "7d", 1.5, False, None]),
    ],
)
def test_a_wrong_field_is_named(name: str, values: list[object]) -> None:
    for value in values:
        assert name in wrong(**{name: value}), value


def test_a_refusal_at_the_first_attempt_and_an_expiry_without_one_are_dead_letters_too() -> None:
    for count in (0, 1):
        assert validate_dead_letter({**GOOD, "failedAttempts": count})["failedAttempts"] == count


def test_a_company_may_be_any_text_of_1_to_64_characters() -> None:
    for name in ("a", "acme", "x" * 64, "ünïcorn & söhne"):
        assert validate_dead_letter({**GOOD, "companyId": name})["companyId"] == name


def test_an_unknown_field_is_refused_and_named() -> None:
    assert wrong(attempts=5) == ["attempts"]


def test_all_wrong_fields_are_named_at_once() -> None:
    assert {"companyId", "ttl", "lastFailureReason", "more"} == set(
        wrong(companyId="", ttl=0, lastFailureReason=" ", more=1)
    )


def test_the_jobs_id_is_the_emails() -> None:
    assert wrong(jobId="00000000-0000-0000-0000-000000000000") == ["jobId"]


# ------------------------------------------------------------------------------------------ written with the move


def written(
    reason: str = "550 no such user", code: str | None = "550", company: str = "acme"
) -> dict[str, Any]:
    letter = dead_letter(ID, company, 5, reason, code, enqueued_at=AT - 1_800_000, now=AT)
    return as_entry(letter, {"to": "a@example.com"})


def test_what_is_written_is_what_the_seed_names() -> None:
    assert written("SMTP 550: Mailbox not found") == {**GOOD, "companyId": "acme"}


def test_lists_leave_the_payload_out() -> None:
    letter = dead_letter(ID, "acme", 1, "no", None, enqueued_at=AT, now=AT)

    assert "originalData" not in as_entry(letter)
    assert "lastFailureCode" not in as_entry(letter)


@given(
    reason=st.text(max_size=700),
    code=st.none() | st.text(max_size=80),
    company=st.text(min_size=1, max_size=64),
)
def test_whatever_was_said_the_entry_is_right(reason: str, code: str | None, company: str) -> None:
    entry = written(reason, code, company)

    assert validate_dead_letter(entry) == entry
    assert entry["lastFailureReason"].strip()


def test_without_words_the_code_is_the_reason_and_without_both_there_is_one_all_the_same() -> None:
    assert written("  ", "421")["lastFailureReason"] == "421"
    assert written("", None)["lastFailureReason"] == deadletter.NO_REASON


@pytest.mark.parametrize(
    ("at", "told"), [(0, "1970-01-01T00:00:00.000Z"), (AT + 7, "2025-10-19T10:30:00.007Z")]
)
def test_times_are_iso_8601_to_the_millisecond(at: int, told: str) -> None:
    assert deadletter.iso(at) == told
