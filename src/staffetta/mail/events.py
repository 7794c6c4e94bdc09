"""Every fact worth telling, in one list. Logs, metrics and alerts listen; the flow only emits.

An event names the e-mail and its company, never its content; addresses are masked by whoever prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Decision, Millis, Value


class Event(Value, frozen=True, kw_only=True):
    at: Millis


class AcceptedEmail(Event, frozen=True, kw_only=True):
    """An e-mail became durable."""

    id: str
    company_id: str


class Moved(Event, frozen=True, kw_only=True):
    """An e-mail entered a status."""

    id: str
    company_id: str
    source: Status
    target: Status
    cause: Cause
    reason: str = ""


class Attempted(Event, frozen=True, kw_only=True):
    """An attempt ended, with its decision."""

    id: str
    company_id: str
    attempt: int
    attempts: int
    """Attempts that counted, this one included where it did."""
    max_attempts: int
    counted: bool
    transport: str
    committed: bool
    target: Status
    cause: Cause
    decision: Decision | None
    opened_at: Millis
    accepted_at: Millis
    due_at: Millis = 0
    """When it was READY and due: what it waited before this attempt counts from here. 0: not known."""
    reason: str = ""


class LockLost(Event, frozen=True, kw_only=True):
    """Another worker has it: the step was skipped."""

    id: str
    company_id: str
    step: str


class BreakerMoved(Event, frozen=True, kw_only=True):
    """A transport's breaker opened, half-opened or closed."""

    transport: str
    state: str
    reason: str


class Reported(Event, frozen=True, kw_only=True):
    """A callback was tried."""

    ids: tuple[str, ...]
    company_id: str
    outcome: str
    """acknowledged, conflict, refused, failed, exhausted."""
    status: int
    body: str


class Restored(Event, frozen=True, kw_only=True):
    """An e-mail of a dead worker was taken back."""

    id: str
    company_id: str
    source: Status
    target: Status
    worker: str


class DeadLetterDropped(Event, frozen=True, kw_only=True):
    """A dead letter left the list by age or by the cap; the e-mail's record stays."""

    id: str
    company_id: str
    why: str


class Troubled(Event, frozen=True, kw_only=True):
    """Something of ours failed; what it means and what to do stands in `message`."""

    part: str
    message: str
    error: str = ""


class AlertMoved(Event, frozen=True, kw_only=True):
    """An alert that is evaluated in the process began or ended."""

    alert: str
    state: str
    value: str
    condition: str
    detail: str = ""


SECTIONS = (
    "accept", "alerts", "callback", "deliver", "expire", "http", "intake", "operate", "queue", "report",
    "restore", "retire", "spool", "stop", "store", "transport",
)  # fmt: skip
"""What the log can be told to be louder or quieter about."""
_BY_TYPE: dict[type[Event], str] = {
    AcceptedEmail: "accept",
    Attempted: "deliver",
    Reported: "report",
    BreakerMoved: "transport",
    Restored: "restore",
    DeadLetterDropped: "retire",
    AlertMoved: "alerts",
}
_INTAKE = (Status.INTAKING, Status.ACCEPTED)


def section_of(event: Event) -> str:
    """The part of the engine that an event speaks of."""
    if isinstance(event, Moved):
        if event.cause is Cause.EXPIRED:
            return "expire"
        return "intake" if event.source in _INTAKE and event.cause is not Cause.CANCELLED else "operate"
    if isinstance(event, LockLost):
        return event.step
    if isinstance(event, Troubled):
        return event.part
    return _BY_TYPE[type(event)]


Emit: TypeAlias = Callable[[Event], None]
