"""Hand-in as sets: new e-mails with their history, content, place in the line, and the answers kept for a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from staffetta.errors import Conflict
from staffetta.mail import journal
from staffetta.mail.message import Added, Intaken, KeptAnswer, NewEmail
from staffetta.store.sqlite import codes
from staffetta.store.sqlite.orders import Add
from staffetta.store.sqlite.rows import Db

if TYPE_CHECKING:
    from staffetta.store.sqlite.group import Group

ROWS_AT_ONCE = 64
"""Rows with contents that one statement takes."""


class Known(msgspec.Struct, array_like=True):
    id: str
    ref: int
    status: int
    company_id: str
    fingerprint: str


_known = msgspec.json.Decoder(list[Known])
_KNOWN = """
    SELECT json_group_array(json_array(m.id, m.ref, coalesce(c.status, m.status), o.name, t.fingerprint))
    FROM json_each(?) w CROSS JOIN mail m ON m.id = w.value
    CROSS JOIN companies o ON o.company = m.company
    CROSS JOIN contents t ON t.ref = m.ref
    LEFT JOIN claims c ON c.ref = m.ref
"""
_FORGET_RECIPIENTS = """
    DELETE FROM recipients WHERE (address, created_at, ref) IN (
        SELECT w.value, m.created_at, m.ref
        FROM mail m CROSS JOIN contents t ON t.ref = m.ref CROSS JOIN json_each(t.recipients) w WHERE m.ref = ?
    )
"""
_NEXT = "SELECT (SELECT coalesce(max(ref), 0) FROM mail), (SELECT coalesce(max(n), 0) FROM journal)"


def add(group: Group, adds: Sequence[Add]) -> list[list[Added | Exception]]:
    """Everything that several calls hand in; for each call one result an e-mail."""
    refused = [order.keep is not None and not _keep(group, order.keep) for order in adds]
    wanted = [new for order, no in zip(adds, refused, strict=True) if not no for new in order.emails]
    known = _known_ids(group, wanted)
    ref, n = group.connection.execute(_NEXT).fetchone()
    rows: list[tuple[Any, ...]] = []
    due: list[int] = []
    results: list[list[Added | Exception]] = []
    for order, no in zip(adds, refused, strict=True):
        if no:
            results.append([Conflict("this idempotency key was answered before") for _ in order.emails])
            continue
        answers: list[Added | Exception] = []
        for new in order.emails:
            before = known.get(new.id)
            if before is not None:
                answers.append(_again(new, before))
                continue
            try:
                journal.check_new(new)
            except ValueError as error:
                answers.append(error)
                continue
            ref += 1
            rows.append(_row(group, new, ref, n + 1))
            n += len(new.history)
            code = codes.STATUS[new.status]
            group.count(code)
            if code == codes.READY and new.due_at <= new.created_at:
                due.append(ref)
            known[new.id] = Known(
                id=new.id, ref=ref, status=code, company_id=new.company_id, fingerprint=new.fingerprint
            )
            answers.append(Added(id=new.id, status=new.status, fresh=True, ref=ref))
        results.append(answers)
    if rows:
        group.batches["arrive"].run(group.connection, rows, most=ROWS_AT_ONCE)
    if due and not group.owner:
        group.tell_owner(due)
    return results


def _known_ids(group: Group, wanted: Sequence[NewEmail]) -> dict[str, Known]:
    found = group.connection.execute(_KNOWN, (codes.to_json([new.id for new in wanted]),)).get
    return {one.id: one for one in _known.decode(found)}


def _again(new: NewEmail, before: Known) -> Added | Exception:
    if (before.company_id, before.fingerprint) != (new.company_id, new.fingerprint):
        return Conflict(f"e-mail {new.id} is known with another content")
    return Added(id=before.id, status=codes.STATUS_OF[before.status], fresh=False, ref=before.ref)


def _row(group: Group, new: NewEmail, ref: int, n: int) -> tuple[Any, ...]:
    moves = [(codes.STATUS[e.status], codes.CAUSE[e.cause], e.at, e.reason or None) for e in new.history]
    return (
        ref,
        new.id,
        group.company(new.company_id),
        moves[-1][0],
        len(moves),
        new.priority,
        new.created_at,
        new.history[-1].at,
        new.due_at,
        new.expires_at,
        n,
        codes.to_json(moves),
        new.sender,
        codes.to_json(new.recipients),
        codes.options_text(new.options),
        new.fingerprint,
        new.eml_file_path,
        new.payload_file_path,
        new.message,
        new.payload,
    )


def _keep(group: Group, keep: KeptAnswer) -> bool:
    """Keep the answer, unless the key is known; an answer that is too old makes room."""
    group.connection.execute(
        "DELETE FROM answers WHERE company_id = ? AND key = ? AND at <= ?",
        (keep.company_id, keep.key, keep.at - journal.KEPT_ANSWER_MS),
    )
    group.connection.execute(
        "INSERT INTO answers (company_id, key, fingerprint, answer, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (keep.company_id, keep.key, keep.fingerprint, keep.answer, keep.at),
    )
    return group.connection.changes() == 1


def forget_recipients(connection: Db, ref: int) -> None:
    """The e-mail is not found by its recipients any more."""
    connection.execute(_FORGET_RECIPIENTS, (ref,))


def composed_row(ref: int, made: Intaken) -> tuple[Any, ...]:
    """What intake made of the payload, as `compose` takes it."""
    return (
        ref,
        made.sender,
        codes.to_json(made.recipients),
        codes.options_text(made.options),
        made.message,
        made.eml_file_path,
    )
