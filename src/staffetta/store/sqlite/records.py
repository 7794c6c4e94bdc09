"""Reads e-mails as the contract's values: the record, the story, the content. Many of them come as one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from staffetta.mail import journal
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry, Job, Options, RecipientState
from staffetta.mail.rescue import SUSPECT_CRASHES
from staffetta.store.contract import Content
from staffetta.store.sqlite import codes, latecomers
from staffetta.store.sqlite.rows import Db

LIVE = """
    m.status = 1 AND m.due_at = l.due_at AND m.priority = l.priority AND m.company = l.company
    AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref)
"""
"""A row `l` of `line` tells the truth about the e-mail `m`: it is READY, and nobody holds it."""

JOB = f"""
    json_object('id', m.id, 'company_id', o.name, 'priority', m.priority, 'due_at', m.due_at,
                'suspect', json(iif(m.crashes >= {SUSPECT_CRASHES}, 'true', 'false')), 'ref', m.ref)
"""
_jobs = msgspec.json.Decoder(list[Job | None])


def read_jobs(told: str) -> list[Job]:
    """Those that there are."""
    return [job for job in _jobs.decode(told) if job is not None]


# ------------------------------------------------------------------------------------------------ the record


class _Shown(msgspec.Struct, array_like=True, gc=False):
    ref: int
    id: str
    status: int
    company_id: str
    version: int
    reason: str
    created_at: int
    updated_at: int
    due_at: int
    expires_at: int
    priority: int
    attempts: int
    opened: int
    doubts: int
    crashes: int
    alone_crashes: int
    sequence: int
    reached_at: int
    sender: str
    envelope: tuple[str, ...]
    settled: tuple[RecipientState, ...]
    token: str | None
    callback: int
    eml_file_path: str | None
    payload_file_path: str | None
    options: Options
    ending: str
    """The attempt that made it SENT, in hexadecimal digits."""
    ending_marked: int | None


_shown = msgspec.json.Decoder(list[_Shown])
_SHOWN = """
    SELECT json_group_array(json_array(
        m.ref, m.id, coalesce(c.status, m.status), o.name, m.version + (c.ref IS NOT NULL), coalesce(j.reason, ''),
        m.created_at, coalesce(c.at, m.updated_at), m.due_at, m.expires_at, m.priority, m.attempts,
        max(m.opened, coalesce(c.attempt, 0)), m.doubts, m.crashes, m.alone_crashes, m.sequence, m.reached_at,
        t.sender, json(t.recipients), json(coalesce(m.settled, '[]')), nullif(c.token, ''), m.callback,
        t.eml_file_path, t.payload_file_path, json(coalesce(t.options, '{}')),
        iif(coalesce(c.status, m.status) IN (2, 3, 6), hex(j.attempt), ''), j.marked
    ))
    FROM json_each(?) w
    CROSS JOIN mail m ON m.ref = w.value
    CROSS JOIN companies o ON o.company = m.company
    CROSS JOIN contents t ON t.ref = m.ref
    LEFT JOIN claims c ON c.ref = m.ref
    LEFT JOIN journal j ON j.n = m.told
"""


def emails(connection: Db, refs: Sequence[int]) -> list[Email]:
    """These e-mails, in this order."""
    if not refs:
        return []
    found = connection.execute(_SHOWN, (codes.to_json(refs),)).get
    return [_email(connection, row) for row in _shown.decode(found)]


def _email(connection: Db, row: _Shown) -> Email:
    status = codes.STATUS_OF[row.status]
    unsettled = status in journal.SENT_FAMILY and len(row.settled) < len(row.envelope)
    ending = _ending(connection, row) if unsettled else None
    return Email(
        id=row.id, status=status, company_id=row.company_id, version=row.version, reason=row.reason,
        created_at=row.created_at, updated_at=row.updated_at, due_at=row.due_at, expires_at=row.expires_at,
        priority=row.priority, attempts=row.attempts, opened=row.opened, doubts=row.doubts,
        crashes=row.crashes, alone_crashes=row.alone_crashes, sequence=row.sequence, reached_at=row.reached_at,
        sender=row.sender,
        recipients=journal.states(row.envelope, row.settled, status, ending.replies if ending else ()),
        token=row.token, callback_due=row.callback != codes.NOBODY,
        callback_exhausted=row.callback == codes.GIVEN_UP, eml_file_path=row.eml_file_path,
        payload_file_path=row.payload_file_path, options=row.options,
    )  # fmt: skip


def _ending(connection: Db, row: _Shown) -> Attempt | None:
    """The attempt whose replies say who got it: mostly the one that the move to SENT closed."""
    if row.ending:
        return codes.read_attempt(bytes.fromhex(row.ending), row.ending_marked)
    closed = [attempt for _, attempt in latecomers.attempts(connection, row.ref)]
    return closed[-1] if closed else None


# ------------------------------------------------------------------------------------------------ the story

_REF = "SELECT ref FROM mail WHERE id = ?"
_HISTORY = latecomers.CHAIN + "SELECT status, cause, reason, at FROM chain WHERE status IS NOT NULL ORDER BY n"
_OPEN = "SELECT attempt, part, token, transport, at, committed_at FROM claims WHERE ref = ? AND status = 4"
_CONTENT = (
    "SELECT payload, message, payload_file_path, eml_file_path FROM contents WHERE ref = ? AND NOT erased"
)


def ref_of(connection: Db, id: str) -> int | None:
    found: int | None = connection.execute(_REF, (id,)).get
    return found


def history(connection: Db, ref: int) -> list[HistoryEntry]:
    return [
        HistoryEntry(status=codes.STATUS_OF[status], cause=codes.CAUSE_OF[cause], reason=reason or "", at=at)
        for status, cause, reason, at in connection.execute(_HISTORY, (ref,)).fetchall()
    ]


def attempts(connection: Db, ref: int) -> list[Attempt]:
    told = [attempt for _, attempt in latecomers.attempts(connection, ref)]
    for attempt, part, token, transport, at, committed_at in connection.execute(_OPEN, (ref,)).fetchall():
        told.append(
            Attempt(attempt=attempt, part=part, token=token, transport=transport, opened_at=at,
                    committed_at=committed_at)
        )  # fmt: skip
    return told


def content(connection: Db, ref: int) -> Content | None:
    row = connection.execute(_CONTENT, (ref,)).fetchone()
    if row is None:
        return None
    payload, message, payload_file_path, eml_file_path = row
    return Content(
        payload=payload, message=message, payload_file_path=payload_file_path, eml_file_path=eml_file_path
    )


# ------------------------------------------------------------------------------------------------ dead letters

_LETTERS = """
    SELECT m.id, o.name, d.failed_attempts, d.reason, d.code, d.failed_at, d.enqueued_at, d.moved_at, d.ttl_ms,
           d.retrying_since
    FROM json_each(?) w
    CROSS JOIN dead_letters d ON d.ref = w.value
    CROSS JOIN mail m ON m.ref = d.ref
    CROSS JOIN companies o ON o.company = m.company
"""


def dead_letters(connection: Db, refs: Sequence[int]) -> list[DeadLetter]:
    """The dead letters of these e-mails, in this order."""
    return [_letter(row) for row in connection.execute(_LETTERS, (codes.to_json(refs),)).fetchall()]


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    id, company_id, failed_attempts, reason, code, failed_at, enqueued_at, moved_at, ttl_ms, retrying_since = (
        row
    )
    return DeadLetter(
        outbox_id=id, company_id=company_id, failed_attempts=failed_attempts, last_failure_reason=reason,
        last_failure_code=code, last_failure_at=failed_at, enqueued_at=enqueued_at, moved_at=moved_at,
        ttl_ms=ttl_ms, retrying_since=retrying_since,
    )  # fmt: skip
