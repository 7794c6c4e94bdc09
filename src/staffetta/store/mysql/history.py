"""The history of e-mails, other programs' rows included, and the journal of attempts that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, HistoryEntry, Millis, Transition
from staffetta.store.mysql import codes
from staffetta.store.mysql.session import Session


class Entry(NamedTuple):
    """One row to be written."""

    id: str
    status: str
    cause: str
    at: Millis
    reason: str | None = None
    token: str | None = None
    attempt: bytes | None = None


_INTO = "INSERT INTO email_statuses (email_id, status, cause, at_ms, reason, token, attempt)"
_FORM = "(%s, %s, %s, %s, %s, %s, %s)"
_HISTORY = """
    SELECT status, cause, reason, COALESCE(at_ms, UNIX_TIMESTAMP(created_at) * 1000) FROM email_statuses
    WHERE email_id = %s ORDER BY id
"""
_MADE = """
    SELECT COUNT(*) FROM email_statuses
    WHERE email_id = %s AND token = %s AND status = %s AND cause = %s AND at_ms = %s
"""
_CLOSED = "SELECT id, attempt FROM email_statuses WHERE email_id = %s AND attempt IS NOT NULL ORDER BY id"
_PARTS = "SELECT id, attempt FROM staffetta_parts WHERE email_id = %s ORDER BY id"
_OPEN = """
    SELECT opened, part, token, transport, claimed_ms, committed_ms FROM emails
    WHERE id = %s AND status = 'PROCESSING' AND our_version = version AND token <> ''
"""


async def write(session: Session, entries: Sequence[Entry]) -> None:
    await session.insert(_INTO, _FORM, entries)


async def read(session: Session, id: str) -> list[HistoryEntry]:
    """Oldest first. Another program tells no causes: the likeliest stands there."""
    found: list[HistoryEntry] = []
    before: Status | None = None
    for status, cause, reason, at in await session.rows(_HISTORY, id):
        entered = Status(status)
        why = Cause(cause) if cause else codes.cause_of(before, entered)
        found.append(HistoryEntry(status=entered, cause=why, reason=reason or "", at=int(at)))
        before = entered
    return found


async def was_made(session: Session, move: Transition) -> bool:
    """This very move was made already under this very claim: its answer was lost on the way."""
    if not move.token:
        return False
    return bool(await session.one(_MADE, move.id, move.token, move.target, move.cause, move.at))


async def closed(session: Session, id: str) -> list[tuple[str, int, Attempt]]:
    """The closed attempts of one e-mail, in their order, each with the table and row that keeps it."""
    rows = [("email_statuses", n, codes.read_attempt(packed)) for n, packed in await session.rows(_CLOSED, id)]
    rows += [("staffetta_parts", n, codes.read_attempt(packed)) for n, packed in await session.rows(_PARTS, id)]
    return sorted(rows, key=lambda row: (row[2].attempt, row[2].part))


async def attempts(session: Session, id: str) -> list[Attempt]:
    told = [attempt for _, _, attempt in await closed(session, id)]
    for opened, part, token, transport, at, committed_at in await session.rows(_OPEN, id):
        told.append(
            Attempt(
                attempt=opened,
                part=part,
                token=token,
                transport=transport,
                opened_at=at,
                committed_at=committed_at,
            )
        )
    return told
