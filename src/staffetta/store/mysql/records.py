"""Reads e-mails and dead letters as the contract's values, rows of other programs included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staffetta.mail import journal
from staffetta.mail.lifecycle import IN_WORK, Status
from staffetta.mail.message import Attempt, DeadLetter, Email
from staffetta.store.contract import Content
from staffetta.store.mysql import codes
from staffetta.store.mysql.session import Session

# A row that came from another program tells its time in seconds only.
CREATED_MS = """
    IF(FLOOR(COALESCE(e.accepted_ms, 0) / 1000) = UNIX_TIMESTAMP(e.created_at),
       e.accepted_ms, UNIX_TIMESTAMP(e.created_at) * 1000)
"""
_RECORD = f"""
    SELECT STRAIGHT_JOIN e.id, e.status, e.company_id, e.version, COALESCE(e.reason, ''), {CREATED_MS},
           IF(e.our_version <=> e.version, e.moved_ms, UNIX_TIMESTAMP(e.updated_at) * 1000), e.next_attempt_at,
           COALESCE(e.expires_at, 0), e.priority, e.attempts, e.opened, e.doubts, e.crashes, e.alone_crashes,
           e.sequence, e.reached_ms, COALESCE(c.sender, ''), c.recipients, e.settled,
           IF(e.our_version <=> e.version, e.token, ''),
           COALESCE(e.callback, 0), e.eml_file_path, e.payload_file_path, c.options,
           IF(e.status IN ('SENT', 'CALLING-SENT-CALLBACK', 'SENT-ACKNOWLEDGED'),
              (SELECT h.attempt FROM email_statuses h WHERE h.email_id = e.id AND h.attempt IS NOT NULL
               ORDER BY h.id DESC LIMIT 1), NULL)
    FROM {codes.IDS} JOIN emails e ON e.id = w.id LEFT JOIN contents c ON c.email_id = e.id
"""
_CONTENT = """
    SELECT c.payload, c.message, e.payload_file_path, e.eml_file_path, COALESCE(c.erased, 0)
    FROM emails e LEFT JOIN contents c ON c.email_id = e.id WHERE e.id = %s
"""
_LETTERS = f"""
    SELECT STRAIGHT_JOIN d.email_id, d.company_id, d.failed_attempts, d.reason, d.code, d.failed_at, d.enqueued_at,
           d.moved_at, d.ttl_ms, d.retrying_since
    FROM {codes.IDS} JOIN staffetta_dead_letters d ON d.email_id = w.id
"""


async def emails(session: Session, wanted: Sequence[str]) -> list[Email]:
    """Those of these e-mails that there are, in this order."""
    if not wanted:
        return []
    found = {row[0]: row for row in await session.rows(_RECORD, codes.ids(wanted))}
    return [_email(found[id]) for id in wanted if id in found]


def _email(row: tuple[Any, ...]) -> Email:
    (id, name, company_id, version, reason, created, updated, due_at, expires_at, priority, attempts, opened, doubts,
     crashes, alone_crashes, sequence, reached_at, sender, envelope, settled_text, token, callback, eml_file_path,
     payload_file_path, options, ending) = row  # fmt: skip
    status = Status(name)
    settled = codes.read_states(settled_text)
    last: Attempt | None = codes.read_attempt(ending) if ending else None
    return Email(
        id=id, status=status, company_id=company_id, version=version, reason=reason, created_at=int(created),
        updated_at=int(updated), due_at=due_at, expires_at=expires_at, priority=priority, attempts=attempts,
        opened=opened, doubts=doubts, crashes=crashes, alone_crashes=alone_crashes, sequence=sequence,
        reached_at=reached_at, sender=sender,
        recipients=journal.states(codes.read_addresses(envelope), settled, status, last.replies if last else ()),
        token=(token or None) if status in IN_WORK else None,
        callback_due=callback != codes.NOBODY, callback_exhausted=callback == codes.GIVEN_UP,
        eml_file_path=eml_file_path, payload_file_path=payload_file_path, options=codes.read_options(options),
    )  # fmt: skip


async def content(session: Session, id: str) -> Content | None:
    row = await session.row(_CONTENT, id)
    if row is None or row[4]:
        return None
    payload, message, payload_file_path, eml_file_path, _ = row
    return Content(
        payload=payload, message=message, payload_file_path=payload_file_path, eml_file_path=eml_file_path
    )


async def dead_letters(session: Session, wanted: Sequence[str]) -> list[DeadLetter]:
    """Those of these dead letters that there are, in this order."""
    if not wanted:
        return []
    found = {row[0]: row for row in await session.rows(_LETTERS, codes.ids(wanted))}
    return [_letter(found[id]) for id in wanted if id in found]


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    id, company_id, failed_attempts, reason, code, failed_at, enqueued_at, moved_at, ttl_ms, retrying_since = (
        row
    )
    return DeadLetter(
        outbox_id=id, company_id=company_id, failed_attempts=failed_attempts, last_failure_reason=reason,
        last_failure_code=code, last_failure_at=failed_at, enqueued_at=enqueued_at, moved_at=moved_at,
        ttl_ms=ttl_ms, retrying_since=retrying_since,
    )  # fmt: skip
