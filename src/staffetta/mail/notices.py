"""What the administrator is told: digests of new dead letters, invalid payloads and alerts, as JSON and as a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from staffetta.mail import alerts
from staffetta.mail.deadletter import iso
from staffetta.mail.message import DeadLetter, Email, Millis

EVERY_MS = 60_000
"""At most one digest in so long."""
NAMED_MAX = 20
"""E-mails named one by one; the rest is counted."""
COMPANY = "staffetta-notices"
"""Owns the notices that leave as e-mails: a notice that cannot be sent is no reason for a further one."""
THRESHOLD = alerts.DEAD_LETTERS_OF_ONE
THRESHOLD_OVER = THRESHOLD // 2
"""A company is told again only after it came down to this."""

_ADDRESS = re.compile(
    r"([^\s<>@,;:\"'()\[\]])[^\s<>@,;:\"'()\[\]]*@([^\s<>@,;:\"'()\[\]])[^\s<>@,;:\"'()\[\].]*"
)


def masked(text: str) -> str:
    """Addresses leave the house only masked."""
    return _ADDRESS.sub(r"\1***@\2***", text) if "@" in text else text


def digest(
    letters: Sequence[DeadLetter],
    invalid: Sequence[Email],
    moved: Sequence[alerts.State],
    *,
    more: bool,
    now: Millis,
) -> dict[str, Any]:
    """What happened since the last one. `more`: there were more dead letters than were read."""
    codes = Counter(letter.last_failure_code or "none" for letter in letters)
    companies = Counter(letter.company_id for letter in letters)
    return {
        "type": "digest",
        "at": iso(now),
        "dead_letters": {
            "count": len(letters),
            "more": more,
            "by_code": dict(codes.most_common()),
            "by_company": dict(companies.most_common(NAMED_MAX)),
            "newest": [
                {
                    "id": letter.outbox_id,
                    "company_id": letter.company_id,
                    "code": letter.last_failure_code,
                    "reason": masked(letter.last_failure_reason),
                    "at": iso(letter.moved_at),
                }
                for letter in letters[:NAMED_MAX]
            ],
        },
        "invalid": [
            {"id": email.id, "company_id": email.company_id, "reason": masked(email.reason)}
            for email in invalid[:NAMED_MAX]
        ],
        "alerts": [alerts.shown(state) for state in moved],
    }


def subject_of(told: dict[str, Any]) -> str:
    parts = []
    firing = [alert["title"] for alert in told["alerts"] if alert["state"] == "firing"]
    if firing:
        parts.append(firing[0] if len(firing) == 1 else f"{len(firing)} alerts")
    count = told["dead_letters"]["count"]
    if count:
        more = "more than " if told["dead_letters"]["more"] else ""
        parts.append(f"{more}{count} new dead letter{'s' if count != 1 else ''}")
    if told["invalid"]:
        parts.append(f"{len(told['invalid'])} invalid payload{'s' if len(told['invalid']) != 1 else ''}")
    return f"Staffetta: {', '.join(parts) or 'all is well again'}"


def text_of(told: dict[str, Any]) -> str:
    """The same for people."""
    lines: list[str] = []
    for alert in told["alerts"]:
        state = "FIRING" if alert["state"] == "firing" else "over"
        company = f" ({alert['company_id']})" if "company_id" in alert else ""
        lines += [f"{state}: {alert['title']}{company}", f"  {alert['condition']}; now: {alert['value']}"]
        if alert["state"] == "firing":
            lines += [f"  do: {alert['remedy']}", f"  runbook: {alert['runbook']}"]
    letters = told["dead_letters"]
    if letters["count"]:
        lines += ["", "New dead letters by code:"]
        lines += [f"  {count:>6}  {code}" for code, count in letters["by_code"].items()]
        lines += ["", "The newest:"]
        lines += [f"  {one['id']}  {one['company_id']}: {one['reason']}" for one in letters["newest"]]
        lines += ["", "See them: staffetta dlq list   One's story: staffetta show ID"]
    if told["invalid"]:
        lines += ["", "Payloads that could not be taken in:"]
        lines += [f"  {one['id']}  {one['company_id']}: {one['reason']}" for one in told["invalid"]]
    return "\n".join(lines).strip() + "\n"


def threshold(company_id: str, size: int, *, now: Millis) -> dict[str, Any]:
    """What a company's own receiver is told, once, when it passes the threshold."""
    return {
        "type": "dlq.threshold",
        "code": "dlq.threshold",
        "timestamp": iso(now),
        "company_id": company_id,
        "size": size,
        "limit": THRESHOLD,
        "reason": f"{size} e-mails of {company_id} were given up and wait as dead letters (more than {THRESHOLD})",
    }
