"""Claims of intake and report, which take many e-mails at once, and the batches in which owners are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from staffetta.errors import LockNotAcquired
from staffetta.mail import journal
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import IntakeClaim, Millis, ReportClaim
from staffetta.store.sqlite import codes
from staffetta.store.sqlite.rows import Db

if TYPE_CHECKING:
    from staffetta.store.sqlite.group import Group

CLAIMED, REPORTING = 2, 16
"""Causes."""

_ACCEPTED = """
    SELECT m.ref, m.id FROM mail m WHERE m.status = 10 AND m.status >= 10
      AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref)
    ORDER BY m.created_at, m.ref LIMIT ?
"""
_PAYLOAD = """
    SELECT m.id, m.ref, o.name, m.created_at, t.payload, t.payload_file_path
    FROM json_each(?) w CROSS JOIN mail m ON m.ref = w.value
    CROSS JOIN companies o ON o.company = m.company CROSS JOIN contents t ON t.ref = m.ref
    ORDER BY w.key
"""
_TO_REPORT = """
    SELECT m.ref, m.id, m.status FROM mail m WHERE m.callback = 1 AND m.status IN (2, 12)
    ORDER BY m.updated_at, m.ref LIMIT ?
"""
_REPORT = """
    SELECT m.id, m.ref, o.name, j.reason, m.reached_at, m.sequence, m.settled, t.options, b.batch, m.updated_at
    FROM json_each(?) w CROSS JOIN mail m ON m.ref = w.value
    CROSS JOIN companies o ON o.company = m.company CROSS JOIN contents t ON t.ref = m.ref
    LEFT JOIN journal j ON j.n = m.told
    LEFT JOIN batches b ON b.ref = m.ref AND b.sequence = m.sequence
    ORDER BY w.key
"""


def _take(group: Group, rows: Sequence[tuple[Any, ...]]) -> None:
    group.batches["take"].run(group.connection, rows)


def claim_intake(group: Group, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
    found = group.connection.execute(_ACCEPTED, (len(tokens),)).fetchall()
    pairs = list(zip(found, tokens, strict=False))
    _take(group, [(0, ref, id, codes.INTAKING, CLAIMED, token, now, 0) for (ref, id), token in pairs])
    taken = []
    rows = group.connection.execute(_PAYLOAD, (codes.to_json([ref for (ref, _), _ in pairs]),)).fetchall()
    for (_, token), (id, ref, company_id, created_at, payload, path) in zip(pairs, rows, strict=True):
        taken.append(
            IntakeClaim(id=id, ref=ref, token=token, company_id=company_id, created_at=created_at, payload=payload,
                        payload_file_path=path)
        )  # fmt: skip
    return taken


def claim_reports(group: Group, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
    found = group.connection.execute(_TO_REPORT, (len(tokens),)).fetchall()
    pairs = list(zip(found, tokens, strict=False))
    calling = {codes.SENT: Status.CALLING_SENT_CALLBACK, codes.FAILED: Status.CALLING_FAILED_CALLBACK}
    taken = []
    rows = group.connection.execute(_REPORT, (codes.to_json([ref for (ref, _, _), _ in pairs]),)).fetchall()
    for ((_, _, status), token), row in zip(pairs, rows, strict=True):
        id, ref, company_id, reason, reached_at, sequence, settled, options, batch, updated_at = row
        taken.append(
            ReportClaim(
                id=id, ref=ref, token=token, company_id=company_id, status=calling[status], reason=reason or "",
                reached_at=reached_at, sequence=sequence,
                refused=journal.without_it(codes.read_states(settled)),
                options=codes.read_options(options), batch=batch, updated_at=updated_at,
            )
        )  # fmt: skip
    _take(group, [(0, c.ref, c.id, codes.STATUS[c.status], REPORTING, c.token, now, 0) for c in taken])
    return taken


def release_reports(
    group: Group, claims: Sequence[ReportClaim], now: Millis, *, exhausted: bool
) -> list[Exception | None]:
    results: list[Exception | None] = []
    for claim in claims:
        group.connection.execute(
            "UPDATE claims SET token = '', at = ? WHERE ref = (SELECT ref FROM mail WHERE id = ?)"
            " AND token = ? AND status IN (6, 7)",
            (now, claim.id, claim.token),
        )
        if group.connection.changes() == 0:
            results.append(LockNotAcquired())
            continue
        if exhausted:
            group.connection.execute("UPDATE mail SET callback = ? WHERE id = ?", (codes.GIVEN_UP, claim.id))
        results.append(None)
    return results


def bind_batch(group: Group, batch: str, claims: Sequence[ReportClaim]) -> None:
    group.connection.execute(
        "INSERT OR REPLACE INTO batches (ref, batch, position, sequence)"
        " SELECT m.ref, ?, w.key, m.sequence FROM json_each(?) w CROSS JOIN mail m ON m.id = w.value",
        (batch, codes.to_json([claim.id for claim in claims])),
    )


def batch_members(connection: Db, batch: str) -> list[str]:
    found = connection.execute(
        "SELECT json_group_array(id) FROM (SELECT m.id FROM batches b CROSS JOIN mail m ON m.ref = b.ref"
        " WHERE b.batch = ? ORDER BY b.position)",
        (batch,),
    ).get
    return msgspec.json.decode(found, type=list[str])
