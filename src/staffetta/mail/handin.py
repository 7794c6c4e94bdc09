"""What a right payload becomes: when it is due, when it expires, and the e-mail as it goes into the store."""

from __future__ import annotations

import hashlib

import msgspec

from staffetta.mail import backoff
from staffetta.mail.backoff import Policy
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import HistoryEntry, Intaken, Millis, NewEmail
from staffetta.mail.payload import Payload

EXPIRES_IN_MS = 86_400_000
GRACE_MS = 3_600_000
"""Beyond the sum of its own delays, an e-mail that sets them lives at least this long."""
_STEADY = 64
"""From this attempt on every curve has reached its cap."""
LIFE_MAX_MS = (2**31 - 1) * 1_000
"""As long as `expires_in` can say: some 68 years."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: no calendar tells a later time, so nothing that has one could be shown."""


def due_at(payload: Payload, *, accepted_at: Millis) -> Millis:
    return max(accepted_at, payload.send_at)


def expires_at(
    payload: Payload, policy: Policy, *, accepted_at: Millis, expires_in_ms: int = EXPIRES_IN_MS
) -> Millis:
    """The end of an e-mail's time: `expires_in` from the later of acceptance and `send_at`.

    Where only retry limits are given, the time is long enough for all the attempts they ask for. `policy` is
    the e-mail's own, its limits laid over the settings.
    """
    lives_ms = expires_in_ms
    options = payload.options
    if options.expires_in_seconds is not None:
        lives_ms = options.expires_in_seconds * 1_000
    elif options.limits is not None:
        lives_ms = max(lives_ms, least_life_ms(policy))
    return min(LATEST_MS, due_at(payload, accepted_at=accepted_at) + lives_ms)


def least_life_ms(policy: Policy) -> int:
    """What an e-mail with limits of its own lives at least: all its delays at their longest, and an hour.

    No server's hint is in it.
    """
    waits = max(0, policy.max_attempts - 1)
    counted = sum(backoff.wait_after(attempt, policy, 1.0) for attempt in range(1, min(waits, _STEADY) + 1))
    # A stranger may ask for two thousand million attempts: those at the cap are not counted one by one.
    steady = max(0, waits - _STEADY) * backoff.wait_after(_STEADY, policy, 1.0)
    return min(LIFE_MAX_MS, counted + steady + GRACE_MS)


def fingerprint(company_id: str, raw: bytes) -> str:
    """Of company and payload, whichever way the same fields were written down."""
    fields = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    return hashlib.sha256(company_id.encode("utf-8") + b"\0" + fields).hexdigest()


def new_email(
    payload: Payload,
    intaken: Intaken,
    *,
    id: str,
    now: Millis,
    raw: bytes | None,
    payload_file_path: str | None = None,
    fingerprint: str = "",
) -> NewEmail:
    """A payload that was checked and composed at once: READY, with the three rows of history it has earned."""
    return NewEmail(
        id=id,
        company_id=payload.company_id,
        history=(
            HistoryEntry(status=Status.ACCEPTED, cause=Cause.ACCEPTED, reason="", at=now),
            HistoryEntry(status=Status.INTAKING, cause=Cause.CLAIMED, reason="", at=now),
            HistoryEntry(status=Status.READY, cause=Cause.COMPOSED, reason="", at=now),
        ),
        created_at=now,
        due_at=intaken.due_at,
        expires_at=intaken.expires_at,
        priority=intaken.priority,
        sender=intaken.sender,
        recipients=intaken.recipients,
        payload=raw,
        message=intaken.message,
        payload_file_path=payload_file_path,
        eml_file_path=intaken.eml_file_path,
        options=intaken.options,
        fingerprint=fingerprint,
    )
