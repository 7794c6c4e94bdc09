"""The life of an e-mail: eleven statuses, the table of moves, and nothing that is not in it.

    ACCEPTED -> INTAKING -> READY -> PROCESSING -> SENT   -> CALLING-SENT-CALLBACK   -> SENT-ACKNOWLEDGED
                      \\-> INVALID            \\---> FAILED -> CALLING-FAILED-CALLBACK -> FAILED-ACKNOWLEDGED

This module names what may happen. `attempt.py` and `rescue.py` decide what does; a store applies it.
"""

from __future__ import annotations

from enum import StrEnum

from staffetta.errors import MoveNotAllowed


class Status(StrEnum):
    ACCEPTED = "ACCEPTED"
    INTAKING = "INTAKING"
    READY = "READY"
    PROCESSING = "PROCESSING"
    SENT = "SENT"
    FAILED = "FAILED"
    INVALID = "INVALID"
    CALLING_SENT_CALLBACK = "CALLING-SENT-CALLBACK"
    CALLING_FAILED_CALLBACK = "CALLING-FAILED-CALLBACK"
    SENT_ACKNOWLEDGED = "SENT-ACKNOWLEDGED"
    FAILED_ACKNOWLEDGED = "FAILED-ACKNOWLEDGED"


class Cause(StrEnum):
    ACCEPTED = "accepted"
    CLAIMED = "claimed"
    COMPOSED = "composed"
    INVALID = "invalid"
    DELIVERED = "delivered"
    DEFERRED = "deferred"
    HELD = "held"
    STOPPED = "stopped"
    IN_DOUBT = "in-doubt"
    ENDED_IN_PART = "ended in part"
    REFUSED = "refused"
    EXHAUSTED = "exhausted"
    CRASHED = "crashed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPORTING = "reporting"
    ACKNOWLEDGED = "acknowledged"
    RESTORED = "restored"
    RETRIED = "retried"
    RESOLVED = "resolved"


_S = Status
_C = Cause

FIRST = (None, _S.ACCEPTED, _C.ACCEPTED)

_FAILED_FAMILY = (_S.FAILED, _S.FAILED_ACKNOWLEDGED, _S.CALLING_FAILED_CALLBACK)

MOVES: frozenset[tuple[Status | None, Status, Cause]] = frozenset(
    {
        FIRST,
        (_S.ACCEPTED, _S.INTAKING, _C.CLAIMED),
        (_S.INTAKING, _S.READY, _C.COMPOSED),
        (_S.INTAKING, _S.INVALID, _C.INVALID),
        (_S.READY, _S.PROCESSING, _C.CLAIMED),
        (_S.PROCESSING, _S.SENT, _C.DELIVERED),
        (_S.PROCESSING, _S.READY, _C.DEFERRED),
        (_S.PROCESSING, _S.READY, _C.HELD),
        (_S.PROCESSING, _S.READY, _C.STOPPED),
        (_S.PROCESSING, _S.READY, _C.IN_DOUBT),
        (_S.PROCESSING, _S.SENT, _C.ENDED_IN_PART),
        (_S.READY, _S.SENT, _C.ENDED_IN_PART),
        (_S.PROCESSING, _S.FAILED, _C.REFUSED),
        (_S.PROCESSING, _S.FAILED, _C.EXHAUSTED),
        (_S.PROCESSING, _S.FAILED, _C.IN_DOUBT),
        (_S.PROCESSING, _S.FAILED, _C.CRASHED),
        (_S.ACCEPTED, _S.FAILED, _C.EXPIRED),
        (_S.READY, _S.FAILED, _C.EXPIRED),
        (_S.ACCEPTED, _S.FAILED, _C.CANCELLED),
        (_S.READY, _S.FAILED, _C.CANCELLED),
        (_S.SENT, _S.CALLING_SENT_CALLBACK, _C.REPORTING),
        (_S.FAILED, _S.CALLING_FAILED_CALLBACK, _C.REPORTING),
        (_S.CALLING_SENT_CALLBACK, _S.SENT_ACKNOWLEDGED, _C.ACKNOWLEDGED),
        (_S.CALLING_FAILED_CALLBACK, _S.FAILED_ACKNOWLEDGED, _C.ACKNOWLEDGED),
        (_S.INTAKING, _S.ACCEPTED, _C.RESTORED),
        (_S.PROCESSING, _S.READY, _C.RESTORED),
        (_S.CALLING_SENT_CALLBACK, _S.SENT, _C.RESTORED),
        (_S.CALLING_FAILED_CALLBACK, _S.FAILED, _C.RESTORED),
        *((source, _S.READY, _C.RETRIED) for source in _FAILED_FAMILY),
        *((source, _S.SENT, _C.RESOLVED) for source in _FAILED_FAMILY),
    }
)

IN_WORK: frozenset[Status] = frozenset(
    {_S.INTAKING, _S.PROCESSING, _S.CALLING_SENT_CALLBACK, _S.CALLING_FAILED_CALLBACK}
)
"""Statuses that a claim holds: leaving them needs the claim's token."""

FINISHED: frozenset[Status] = frozenset(
    {_S.SENT, _S.FAILED, _S.INVALID, _S.SENT_ACKNOWLEDGED, _S.FAILED_ACKNOWLEDGED}
)
"""Statuses in which nothing more is sent. SENT and FAILED may still have an owner to be told."""


def check(source: Status | None, target: Status, cause: Cause) -> None:
    """Refuse a move that is not in the table, before any store is asked."""
    if (source, target, cause) not in MOVES:
        raise MoveNotAllowed(f"an e-mail cannot go from {source} to {target} as '{cause}'")


def restored_to(status: Status) -> Status:
    """The status that an in-work e-mail falls back to when its worker is gone."""
    return {
        _S.INTAKING: _S.ACCEPTED,
        _S.PROCESSING: _S.READY,
        _S.CALLING_SENT_CALLBACK: _S.SENT,
        _S.CALLING_FAILED_CALLBACK: _S.FAILED,
    }[status]
