"""E-mails given up, as entries that someone can read and act on, under the names that section 8 fixes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail.message import DeadLetter, Millis

REASON_MAX = 500
CODE_MAX = 64
COMPANY_MAX = 64
TTL_MS = 604_800_000
"""Seven days."""
NAME = "email:send:dlq"
NO_REASON = "no reason was given"

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def dead_letter(
    id: str,
    company_id: str,
    attempts: int,
    reason: str,
    code: str | None,
    *,
    enqueued_at: Millis,
    now: Millis,
    ttl_ms: int = TTL_MS,
) -> DeadLetter:
    """The entry that is written in the transaction that makes the e-mail FAILED. Never without a reason."""
    code = (code or "").strip()[:CODE_MAX].rstrip()
    return DeadLetter(
        outbox_id=id,
        company_id=company_id,
        failed_attempts=attempts,
        last_failure_reason=reason.strip()[:REASON_MAX].rstrip() or code or NO_REASON,
        last_failure_code=code or None,
        last_failure_at=now,
        enqueued_at=enqueued_at,
        moved_at=now,
        ttl_ms=ttl_ms,
    )


def as_entry(letter: DeadLetter, original_data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry under the seed's names. Lists leave `originalData` out: give None."""
    entry: dict[str, Any] = {
        "jobId": letter.outbox_id,
        "outboxId": letter.outbox_id,
        "companyId": letter.company_id,
    }
    if original_data is not None:
        entry["originalData"] = dict(original_data)
    entry["failedAttempts"] = letter.failed_attempts
    entry["lastFailureReason"] = letter.last_failure_reason
    if letter.last_failure_code:
        entry["lastFailureCode"] = letter.last_failure_code
    entry["lastFailureTimestamp"] = iso(letter.last_failure_at)
    entry["enqueuedAt"] = iso(letter.enqueued_at)
    entry["movedToDLQAt"] = iso(letter.moved_at)
    entry["ttl"] = letter.ttl_ms
    return entry


def iso(at: Millis) -> str:
    """ISO 8601 in UTC, to the millisecond, as the seed writes it."""
    moment = datetime.fromtimestamp(at // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def validate_dead_letter(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as it is kept, its reason cut to 500 characters.

    :raises PayloadError: every wrong, missing or unknown field is named.
    """
    problems = [
        FieldProblem(name, problem)
        for name, check in _CHECKS.items()
        if (problem := _missing(name) if name not in entry else check(entry[name]))
    ]
    problems.extend(
        FieldProblem(str(name), "is not a field of a dead letter") for name in entry if name not in _CHECKS
    )
    job_id, outbox_id = entry.get("jobId"), entry.get("outboxId")
    if not problems and job_id != outbox_id:
        problems.append(FieldProblem("jobId", "must be the e-mail's id, the same as outboxId"))
    if problems:
        raise PayloadError(problems)
    return {**entry, "lastFailureReason": entry["lastFailureReason"].strip()[:REASON_MAX].rstrip()}


def _missing(name: str) -> str:
    return "" if name == "lastFailureCode" else "is required"


def _uuid(value: object) -> str:
    return "" if isinstance(value, str) and _UUID.fullmatch(value) else "must be a UUID"


def _company(value: object) -> str:
    good = isinstance(value, str) and 1 <= len(value) <= COMPANY_MAX
    return "" if good else f"must be text of 1 to {COMPANY_MAX} characters"


def _mapping(value: object) -> str:
    return "" if isinstance(value, Mapping) else "must be an object: the payload"


def _count(value: object) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return "" if good else "must be a whole number, 0 or more"


def _duration(value: object) -> str:
    good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return "" if good else "must be a whole number of milliseconds, more than 0"


def _reason(value: object) -> str:
    good = isinstance(value, str) and value.strip()
    return "" if good else f"is required: text of 1 to {REASON_MAX} characters, not blank"


def _code(value: object) -> str:
    good = value is None or (isinstance(value, str) and 1 <= len(value) <= CODE_MAX)
    return "" if good else f"must be text of 1 to {CODE_MAX} characters, or left out"


def _time(value: object) -> str:
    problem = "must be a time in ISO 8601 with its offset, such as 2025-10-19T10:30:00.000Z"
    if not isinstance(value, str) or "T" not in value.upper():
        return problem
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return problem
    return "" if moment.tzinfo is not None else problem


_CHECKS: dict[str, Callable[[object], str]] = {
    "jobId": _uuid,
    "outboxId": _uuid,
    "companyId": _company,
    "originalData": _mapping,
    "failedAttempts": _count,
    "lastFailureReason": _reason,
    "lastFailureCode": _code,
    "lastFailureTimestamp": _time,
    "enqueuedAt": _time,
    "movedToDLQAt": _time,
    "ttl": _duration,
}
