"""Claims as sets: taken by compare-and-set, and read back whole, messages and all, in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from staffetta.mail import journal
from staffetta.mail.message import Claim
from staffetta.store.sqlite import codes, latecomers
from staffetta.store.sqlite.orders import Take
from staffetta.store.sqlite.rows import Db

if TYPE_CHECKING:
    from staffetta.store.sqlite.group import Group

LARGE = 32_768
"""Messages above this are fetched one by one, so that a group's answer stays small."""


def _reading(message: str, size: str, *, only: str = "") -> str:
    """One row for the whole group: handing a row over costs more than the row. Columns of the claim, the messages one
    behind the other, their lengths, and whether any late reply waits.
    """
    return f"""
        SELECT json_group_array(json(claim)), CAST(group_concat(message, '') AS BLOB), json_group_array(size),
               max(is_late)
        FROM (
            SELECT json_object(
                       'id', m.id, 'ref', m.ref, 'token', c.token, 'company_id', o.name, 'at', c.at,
                       'attempt', c.attempt, 'part', c.part, 'attempts', m.attempts, 'doubts', m.doubts,
                       'crashes', m.crashes, 'alone_crashes', m.alone_crashes, 'created_at', m.created_at,
                       'expires_at', m.expires_at, 'priority', m.priority, 'sequence', m.sequence, 'sender', t.sender,
                       'recipients', json(coalesce(m.remaining, t.recipients)),
                       'settled', json(coalesce(m.settled, '[]')),
                       'eml_file_path', t.eml_file_path, 'options', json(coalesce(t.options, '{{}}'))
                   ) AS claim,
                   {message} AS message,
                   {size} AS size,
                   EXISTS (SELECT 1 FROM late l WHERE l.ref = m.ref) AS is_late
            FROM json_each(?) w
            CROSS JOIN claims c ON c.ref = w.value
            CROSS JOIN mail m ON m.ref = c.ref
            CROSS JOIN companies o ON o.company = m.company
            CROSS JOIN contents t ON t.ref = m.ref
            {only}
        )
    """  # constants of ours


_WHOLE = (f"iif(length(t.message) <= {LARGE}, t.message, '')", "coalesce(length(t.message), 0)")
_READ_OPEN = _reading(*_WHOLE, only="WHERE c.status = 4 AND c.committed_at = 0")
_READ_ANY = _reading(*_WHOLE)
_READ_BARE = _reading("''", "0")

_claims = msgspec.json.Decoder(list[Claim])
_sizes = msgspec.json.Decoder(list[int])


def take(group: Group, taking: Mapping[int, Take]) -> dict[int, Claim]:
    """The claims that were won, by the orders' places."""
    unknown = [order.id for order in taking.values() if not order.ref]
    refs = group.refs(unknown) if unknown else {}
    rows = [
        (
            place,
            order.ref or refs.get(order.id, 0),
            order.id,
            codes.PROCESSING,
            2,
            order.token,
            order.now,
            order.alone,
        )
        for place, order in taking.items()
    ]
    group.batches["take"].run(group.connection, rows)
    found = {claim.token: claim for claim in read(group.connection, [row[1] for row in rows], only_open=True)}
    won = {}
    for place, order in taking.items():
        claim = found.get(order.token)
        if claim is not None and claim.id == order.id:
            won[place] = claim
    return won


def read(connection: Db, refs: Sequence[int], *, only_open: bool = False) -> list[Claim]:
    """The claims that there are on these e-mails, with all that sending needs."""
    return _read(connection, refs, _READ_OPEN if only_open else _READ_ANY)


def read_bare(connection: Db, refs: Sequence[int]) -> list[Claim]:
    """The same without the messages: for those who decide and do not send."""
    return _read(connection, refs, _READ_BARE)


def _read(connection: Db, refs: Sequence[int], statement: str) -> list[Claim]:
    row = connection.execute(statement, (msgspec.json.encode(refs).decode(),)).fetchone()
    told, messages, lengths, any_late = row
    found = _claims.decode(told)
    if not found:
        return []
    place = 0
    for claim, size in zip(found, _sizes.decode(lengths), strict=True):
        if size > LARGE:
            message = connection.execute("SELECT message FROM contents WHERE ref = ?", (claim.ref,)).get
        else:
            message = messages[place : place + size] if size else b""
            place += size
        msgspec.structs.force_setattr(claim, "message", message)
        if claim.settled:
            left = journal.to_try(claim.recipients, claim.settled, None)
            msgspec.structs.force_setattr(claim, "recipients", left)
    if any_late:
        for claim in found:
            waiting = latecomers.waiting(connection, claim.ref)
            msgspec.structs.force_setattr(claim, "late", journal.choose_late(waiting, claim.recipients))
    return found
