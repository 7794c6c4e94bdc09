"""Hand-in as sets: new e-mails with their history and content, and the answers kept for a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from staffetta.errors import Conflict
from staffetta.mail import journal
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Added, Intaken, KeptAnswer, Millis, NewEmail
from staffetta.store.mysql import codes, faults, history
from staffetta.store.mysql.address import Address
from staffetta.store.mysql.orders import Add
from staffetta.store.mysql.session import Session

_KNOWN = f"""
    SELECT STRAIGHT_JOIN e.id, e.status, e.company_id, COALESCE(c.fingerprint, ''), COALESCE(e.accepted_ms, 0)
    FROM {codes.IDS} JOIN emails e ON e.id = w.id LEFT JOIN contents c ON c.email_id = e.id
"""
_EMAILS = """
    INSERT INTO emails (id, status, version, reason, eml_file_path, payload_file_path, created_at, updated_at,
                        company_id, priority, next_attempt_at, expires_at, wakes_at, accepted_ms, moved_ms, our_version)
"""
# What becomes READY is news by the server's own clock; what waits for intake waits since it came.
_EMAILS_FORM = (
    "(%s, %s, %s, %s, %s, %s, FROM_UNIXTIME(%s), COALESCE(FROM_UNIXTIME(%s), CURRENT_TIMESTAMP),"
    " %s, %s, %s, %s, %s, %s, %s, %s)"
)
_CONTENTS = "INSERT INTO contents (email_id, sender, recipients, options, fingerprint, message, payload)"
_CONTENTS_FORM = "(%s, %s, %s, %s, %s, %s, %s)"
_RECIPIENTS = "INSERT INTO staffetta_recipients (email_id, address)"
_COMPOSED = """
    UPDATE contents SET sender = %s, recipients = %s, options = %s, message = %s WHERE email_id = %s
"""
_OLD_ANSWER = "DELETE FROM staffetta_answers WHERE company_id = %s AND name = %s AND at <= %s"
_KEPT = "SELECT fingerprint, answer, at FROM staffetta_answers WHERE company_id = %s AND name = %s FOR UPDATE"
_KEEP = "INSERT INTO staffetta_answers (company_id, name, fingerprint, answer, at) VALUES (%s, %s, %s, %s, %s)"


class Known(NamedTuple):
    id: str
    status: str
    company_id: str
    fingerprint: str
    accepted_ms: Millis


async def add(session: Session, adds: Sequence[Add], address: Address) -> list[list[Added | Exception]]:
    """Everything that several calls hand in; for each call one result an e-mail."""
    refused = [
        order.keep is not None and not await _keep(session, order.keep, unsure=order.unsure) for order in adds
    ]
    wanted = [new for order, no in zip(adds, refused, strict=True) if not no for new in order.emails]
    known = {row[0]: Known(*row) for row in await session.rows(_KNOWN, codes.ids([new.id for new in wanted]))}
    fresh: list[NewEmail] = []
    results: list[list[Added | Exception]] = []
    for order, no in zip(adds, refused, strict=True):
        if no:
            results.append([Conflict("this idempotency key was answered before") for _ in order.emails])
        else:
            results.append([_one(new, known, fresh, unsure=order.unsure) for new in order.emails])
    if any(order.one_by_one for order in adds):
        bad = await _insert_one_by_one(session, fresh, address)
        return [[bad.get(one.id, one) if isinstance(one, Added) else one for one in told] for told in results]
    if fresh:
        await _insert(session, fresh)
    return results


async def _insert_one_by_one(
    session: Session, fresh: Sequence[NewEmail], address: Address
) -> dict[str, Exception]:
    """Each for itself: a bad row takes nobody with it."""
    bad: dict[str, Exception] = {}
    for new in fresh:
        await session.run("SAVEPOINT alone")
        try:
            await _insert(session, [new])
        except Exception as error:
            if not faults.is_bad_row(error):
                raise
            await session.run("ROLLBACK TO SAVEPOINT alone")
            bad[new.id] = faults.translate(error, address)
            bad[new.id].__cause__ = error
    return bad


def _one(new: NewEmail, known: dict[str, Known], fresh: list[NewEmail], *, unsure: bool) -> Added | Exception:
    before = known.get(new.id)
    if before is not None:
        if (before.company_id, before.fingerprint) != (new.company_id, new.fingerprint):
            return Conflict(f"e-mail {new.id} is known with another content")
        ours = unsure and before.accepted_ms == new.created_at
        return Added(id=new.id, status=Status(before.status), fresh=ours)
    try:
        journal.check_new(new)
    except ValueError as error:
        return error
    fresh.append(new)
    known[new.id] = Known(new.id, new.status, new.company_id, new.fingerprint, new.created_at)
    return Added(id=new.id, status=new.status, fresh=True)


async def _insert(session: Session, fresh: Sequence[NewEmail]) -> None:
    await session.insert(_EMAILS, _EMAILS_FORM, [_email(new) for new in fresh])
    entries = [
        history.Entry(new.id, entry.status, entry.cause, entry.at, entry.reason or None)
        for new in fresh
        for entry in new.history
    ]
    await history.write(session, entries)
    await session.insert(_CONTENTS, _CONTENTS_FORM, [_content(new) for new in fresh])
    named = [(new.id, address) for new in fresh for address in dict.fromkeys(new.recipients)]
    await session.insert(_RECIPIENTS, "(%s, %s)", named)


def _email(new: NewEmail) -> tuple[Any, ...]:
    last = new.history[-1]
    version = len(new.history)
    waits = new.status is Status.READY and new.due_at > new.created_at
    return (
        new.id, new.status, version, last.reason or None, new.eml_file_path, new.payload_file_path,
        new.created_at // 1000, None if new.status is Status.READY else last.at // 1000, new.company_id, new.priority,
        new.due_at, new.expires_at, new.due_at if waits else None, new.created_at, last.at, version,
    )  # fmt: skip


def _content(new: NewEmail) -> tuple[Any, ...]:
    return (
        new.id, new.sender, codes.to_json(new.recipients), codes.options_text(new.options), new.fingerprint,
        new.message, new.payload,
    )  # fmt: skip


async def _keep(session: Session, keep: KeptAnswer, *, unsure: bool) -> bool:
    """Keep the answer, unless the key is known; an answer that is too old makes room."""
    await session.run(_OLD_ANSWER, keep.company_id, keep.key, keep.at - journal.KEPT_ANSWER_MS)
    known = await session.row(_KEPT, keep.company_id, keep.key)
    if known is not None:
        return unsure and known == (keep.fingerprint, keep.answer, keep.at)
    await session.run(_KEEP, keep.company_id, keep.key, keep.fingerprint, keep.answer, keep.at)
    return True


async def keep_composed(session: Session, id: str, made: Intaken) -> None:
    """What intake made of the payload goes to the content."""
    facts = (made.sender, codes.to_json(made.recipients), codes.options_text(made.options))
    if await session.one("SELECT 1 FROM contents WHERE email_id = %s", id):
        await session.run(_COMPOSED, *facts, made.message, id)
    else:
        await session.insert(_CONTENTS, _CONTENTS_FORM, [(id, *facts, "", made.message, None)])
    await session.run("DELETE FROM staffetta_recipients WHERE email_id = %s", id)
    named = [(id, address) for address in dict.fromkeys(made.recipients)]
    await session.insert(_RECIPIENTS, "(%s, %s)", named)
