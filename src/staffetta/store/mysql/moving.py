"""E-mails on their way from another store into this one."""

from __future__ import annotations

from staffetta.mail import journal
from staffetta.mail.lifecycle import Status
from staffetta.store.contract import Whole
from staffetta.store.mysql import codes, history
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

_EMAIL = """
    INSERT INTO emails (id, status, version, reason, eml_file_path, payload_file_path, created_at, updated_at,
                        company_id, priority, next_attempt_at, expires_at, wakes_at, accepted_ms, moved_ms,
                        our_version, token, claimed_ms, part, committed_ms, transport, attempts, opened, doubts,
                        crashes, alone_crashes, late, sequence, reached_ms, callback, settled, remaining)
"""
_EMAIL_FORM = f"(%s, %s, %s, %s, %s, %s, FROM_UNIXTIME(%s), FROM_UNIXTIME(%s){', %s' * 24})"
_CONTENT = "INSERT INTO contents (email_id, sender, recipients, options, fingerprint, erased, message, payload)"
_RECIPIENTS = "INSERT INTO staffetta_recipients (email_id, address)"
_LETTER = """
    INSERT INTO staffetta_dead_letters (email_id, company_id, failed_attempts, reason, code, failed_at, enqueued_at,
                                        moved_at, ttl_ms, retrying_since)
"""


class Moving:
    _pool: Pool

    async def take_over(self, whole: Whole) -> bool:
        async def write(session: Session) -> bool:
            if await session.one("SELECT 1 FROM emails WHERE id = %s FOR UPDATE", whole.email.id):
                return False
            await _write(session, whole)
            return True

        return await self._pool.write(write)


async def _write(session: Session, whole: Whole) -> None:
    email, held, late = whole.email, whole.open, whole.unlisted.late
    version = max(email.version, len(whole.history))
    waits = email.status is Status.READY and email.due_at > email.updated_at
    waiting = tuple(one.address for one in email.recipients if one.state == "waiting")
    settled = tuple(one for one in email.recipients if one.state != "waiting")
    callback = codes.NOBODY
    if email.callback_exhausted:
        callback = codes.GIVEN_UP
    elif email.callback_due:
        callback = codes.BEING_TOLD if email.status in journal.CALLING else codes.DUE
    await session.insert(
        _EMAIL,
        _EMAIL_FORM,
        [
            (
                email.id, email.status, version, email.reason or None, email.eml_file_path, email.payload_file_path,
                email.created_at // 1_000, email.updated_at // 1_000, email.company_id, email.priority, email.due_at,
                email.expires_at, email.due_at if waits else None, email.created_at, email.updated_at, version,
                email.token or "", held.opened_at if held else email.updated_at, held.part if held else 1,
                held.committed_at if held else 0, held.transport if held else "", email.attempts, email.opened,
                email.doubts, email.crashes, email.alone_crashes, int(bool(late)), email.sequence, email.reached_at,
                callback, codes.states_text(settled) if settled else None,
                codes.addresses_text(waiting) if settled and waiting else None,
            )
        ],
    )  # fmt: skip
    entries = [
        history.Entry(email.id, entry.status, entry.cause, entry.at, entry.reason or None)
        for entry in whole.history
    ]
    await history.write(session, entries)
    await _write_attempts(session, whole)
    await _write_content(session, whole)


async def _write_attempts(session: Session, whole: Whole) -> None:
    for table, attempts in (("staffetta_parts", whole.closed), ("staffetta_late", whole.unlisted.late)):
        rows = [(whole.email.id, codes.attempt_bytes(one)) for one in attempts]
        await session.insert(f"INSERT INTO {table} (email_id, attempt)", "(%s, %s)", rows)


async def _write_content(session: Session, whole: Whole) -> None:
    email, content, letter = whole.email, whole.content, whole.dead_letter
    addresses = tuple(one.address for one in email.recipients)
    facts = (
        email.id, email.sender, codes.to_json(addresses), codes.options_text(email.options),
        whole.unlisted.fingerprint, int(content is None), content.message if content else None,
        content.payload if content else None,
    )  # fmt: skip
    await session.insert(_CONTENT, "(%s, %s, %s, %s, %s, %s, %s, %s)", [facts])
    await session.insert(_RECIPIENTS, "(%s, %s)", [(email.id, one) for one in dict.fromkeys(addresses)])
    if letter is not None:
        row = (
            email.id, letter.company_id, letter.failed_attempts, letter.last_failure_reason, letter.last_failure_code,
            letter.last_failure_at, letter.enqueued_at, letter.moved_at, letter.ttl_ms, letter.retrying_since,
        )  # fmt: skip
        await session.insert(_LETTER, f"(%s{', %s' * 9})", [row])
