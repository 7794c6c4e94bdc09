"""What the demonstration sends and what the other side does to it: a plan, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from staffetta.mail.message import Value
from staffetta.sink import Rule, Script

AWAY_AFTER_SECONDS = 3.0
AWAY_SECONDS = 5.0
"""The relay goes away in the middle, for so long."""

PER_SECOND = 120.0
"""What the relay's owner allows: the bottleneck that all companies share."""

FLOOD = "flood-inc"
COMPANIES = ("acme", "bistro", "clinic", "daily-news", FLOOD)
FLOOD_COUNT = 1_000
QUIET_COUNT = 30


class Trouble(Value, frozen=True, kw_only=True):
    """One kind of recipient that meets trouble, and in words what becomes of it."""

    domain: str
    each: int
    """How many of a company's e-mails go there."""
    words: str


TROUBLES = (
    Trouble(domain="greylisting.example", each=2, words="told 451 once: waits, is sent at the second try"),
    Trouble(domain="slow.example", each=2, words="takes a second and a half to answer the dot"),
    Trouble(domain="refusing.example", each=1, words="refused for good: a dead letter"),
    Trouble(domain="dropping.example", each=1, words="the line drops before the dot: sent again, not doubled"),
    Trouble(domain="throttling.example", each=2, words="told to slow down: waits, then sent"),
)


def script() -> Script:
    """How the server misbehaves. Each rule acts once a recipient, but for the refusals."""
    return Script(
        host_name="relay.example",
        rule=(
            Rule(name="greylisting", at="rcpt", recipient="*@greylisting.example", count=1, per="recipient",
                 reply="451 4.7.1 Greylisted, please try again later"),
            Rule(name="slow host", at="dot", recipient="*@slow.example", count=1, per="recipient",
                 delay_ms=1_500),
            Rule(name="refused address", at="rcpt", recipient="*@refusing.example",
                 reply="550 5.1.1 No such user here"),
            Rule(name="dropped line", at="data", recipient="*@dropping.example", count=1, per="recipient",
                 disconnect=True),
            Rule(name="throttle", at="rcpt", recipient="*@throttling.example", count=1, per="recipient",
                 reply="452 4.2.2 Too many messages, slow down"),
        ),
    ).checked()  # fmt: skip


def payloads() -> Iterator[dict[str, Any]]:
    """Every e-mail of the demonstration: the flood first, so that all others come behind it."""
    for number in range(FLOOD_COUNT):
        yield _payload(FLOOD, number, "example.net")
    for company_id in COMPANIES:
        for trouble in TROUBLES:
            for number in range(trouble.each):
                yield _payload(company_id, number, trouble.domain)
    for number in range(QUIET_COUNT):
        for company_id in COMPANIES:
            if company_id != FLOOD:
                yield _payload(company_id, number, "example.com")


def _payload(company_id: str, number: int, domain: str) -> dict[str, Any]:
    return {
        "company_id": company_id,
        "from": f"Billing of {company_id} <billing@{company_id}.example>",
        "to": f"{company_id}-{number}@{domain}",
        "subject": f"Your invoice {number + 1:04d} ✓",
        "body_text": f"Good day,\n\nyour invoice {number + 1:04d} of {company_id} is ready.\n",
        "body_html": f"<p>Good day,</p><p>your invoice <b>{number + 1:04d}</b> of {company_id} is ready.</p>",
        "tags": ["demo"],
    }
