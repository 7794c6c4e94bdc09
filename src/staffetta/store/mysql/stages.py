"""Claims of intake and report, which take many e-mails at once, and the batches in which owners are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from staffetta.errors import LockNotAcquired
from staffetta.mail import journal
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import IntakeClaim, Millis, ReportClaim
from staffetta.store.mysql import codes, history
from staffetta.store.mysql.claims import ACCEPTED_MS
from staffetta.store.mysql.session import Session

# The seed's own way of asking for work: two workers never wait for each other nor take the same row.
ACCEPTED = f"""
    SELECT e.id, e.version, e.company_id, e.accepted_ms IS NULL, {ACCEPTED_MS}, e.payload_file_path
    FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = 'ACCEPTED' ORDER BY e.updated_at, e.id LIMIT %s FOR UPDATE SKIP LOCKED
"""
OWED = """
    SELECT e.id, e.version, e.company_id, e.status, COALESCE(e.reason, ''), e.reached_ms, e.sequence, e.settled,
           COALESCE(e.moved_ms, 0)
    FROM emails e FORCE INDEX (staffetta_owed)
    WHERE e.callback = 1 AND e.status IN ('SENT', 'FAILED')
    ORDER BY e.reached_ms, e.id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_ANY_ACCEPTED = "SELECT 1 FROM emails e FORCE INDEX (idx_status) WHERE e.status = 'ACCEPTED' LIMIT 1"
_ANY_OWED = """
    SELECT 1 FROM emails e FORCE INDEX (staffetta_owed) WHERE e.callback = 1 AND e.status IN ('SENT', 'FAILED') LIMIT 1
"""
_MINE = f"""
    SELECT STRAIGHT_JOIN e.id, e.token, e.company_id, {ACCEPTED_MS}, e.payload_file_path
    FROM emails e JOIN {codes.table("w", "id VARCHAR(100)")} ON e.token = w.id
    WHERE e.status = 'INTAKING' AND e.our_version = e.version
"""
_MINE_OWED = f"""
    SELECT STRAIGHT_JOIN e.id, e.version, e.company_id, e.status, COALESCE(e.reason, ''), e.reached_ms, e.sequence,
           e.settled, COALESCE(e.moved_ms, 0), e.token
    FROM emails e JOIN {codes.table("w", "id VARCHAR(100)")} ON e.token = w.id
    WHERE e.status IN ('CALLING-SENT-CALLBACK', 'CALLING-FAILED-CALLBACK') AND e.our_version = e.version
"""
_TAKEN = (
    "id CHAR(36), version INT, status VARCHAR(30), token VARCHAR(100), at BIGINT, accepted BIGINT, callback INT"
)
_TAKE = f"""
    UPDATE {codes.table("w", _TAKEN)}
    STRAIGHT_JOIN emails e ON e.id = w.id
    SET e.status = w.status, e.version = w.version, e.our_version = w.version, e.token = w.token, e.moved_ms = w.at,
        e.claimed_ms = w.at, e.accepted_ms = COALESCE(w.accepted, e.accepted_ms),
        e.callback = COALESCE(w.callback, e.callback)
"""
_PAYLOADS = f"SELECT STRAIGHT_JOIN c.email_id, c.payload FROM {codes.IDS} JOIN contents c ON c.email_id = w.id"
_OPTIONS = f"""
    SELECT STRAIGHT_JOIN w.id, c.options, b.batch
    FROM {codes.IDS} LEFT JOIN contents c ON c.email_id = w.id LEFT JOIN staffetta_batches b ON b.email_id = w.id
"""
_RELEASE = """
    UPDATE emails SET token = '', moved_ms = %s, callback = COALESCE(%s, callback)
    WHERE id = %s AND token = %s AND our_version = version
      AND status IN ('CALLING-SENT-CALLBACK', 'CALLING-FAILED-CALLBACK')
"""
_BIND = "REPLACE INTO staffetta_batches (email_id, batch, position, sequence)"
_MEMBERS = "SELECT email_id FROM staffetta_batches WHERE batch = %s ORDER BY position"
_CALLING = {"SENT": Status.CALLING_SENT_CALLBACK, "FAILED": Status.CALLING_FAILED_CALLBACK}


async def any_accepted(session: Session) -> bool:
    return await session.one(_ANY_ACCEPTED) is not None


async def any_owed(session: Session) -> bool:
    return await session.one(_ANY_OWED) is not None


async def claim_intake(
    session: Session, tokens: Sequence[str], now: Millis, *, again: bool
) -> list[IntakeClaim]:
    """`again`: an earlier run may have been committed without a word; what it took is given back."""
    mine = await session.rows(_MINE, codes.ids(tokens)) if again else []
    if mine:
        payloads = await _payloads(session, [row[0] for row in mine])
        return [
            IntakeClaim(id=id, ref=0, token=token, company_id=company_id, created_at=int(accepted),
                        payload=payloads.get(id), payload_file_path=path)
            for id, token, company_id, accepted, path in mine
        ]  # fmt: skip
    found = await session.rows(ACCEPTED, len(tokens))
    taken = [
        IntakeClaim(
            id=id, ref=0, token=token, company_id=company_id, created_at=now if first_seen else int(accepted),
            payload=None, payload_file_path=path,
        )
        for (id, _, company_id, first_seen, accepted, path), token in zip(found, tokens, strict=False)
    ]  # fmt: skip
    if not taken:
        return []
    rows = [
        (claim.id, facts[1] + 1, Status.INTAKING, claim.token, now, now if facts[3] else None, None)
        for claim, facts in zip(taken, found, strict=True)
    ]
    await _take(session, rows, "claimed", now)
    payloads = await _payloads(session, [row[0] for row in rows])
    return [msgspec.structs.replace(claim, payload=payloads.get(claim.id)) for claim in taken]


async def _payloads(session: Session, wanted: Sequence[str]) -> dict[str, bytes | None]:
    return dict(await session.rows(_PAYLOADS, codes.ids(wanted)))


async def _take(session: Session, rows: Sequence[tuple[Any, ...]], cause: str, now: Millis) -> None:
    await session.run(_TAKE, codes.to_json(rows))
    await history.write(session, [history.Entry(row[0], row[2], cause, now, None, row[3]) for row in rows])


async def claim_reports(
    session: Session, tokens: Sequence[str], now: Millis, *, again: bool
) -> list[ReportClaim]:
    """`again`: as for intake."""
    mine = await session.rows(_MINE_OWED, codes.ids(tokens)) if again else []
    if mine:
        beside = await _beside(session, [row[0] for row in mine])
        back = {str(calling): end for end, calling in _CALLING.items()}
        return [_report((*row[:3], back[row[3]], *row[4:-1]), row[-1], *beside[row[0]]) for row in mine]
    found = await session.rows(OWED, len(tokens))
    if not found:
        return []
    pairs = list(zip(found, tokens, strict=False))
    rows = [
        (facts[0], facts[1] + 1, _CALLING[facts[3]], token, now, None, codes.BEING_TOLD)
        for facts, token in pairs
    ]
    await _take(session, rows, "reporting", now)
    beside = await _beside(session, [row[0] for row in rows])
    return [_report(facts, token, *beside[facts[0]]) for facts, token in pairs]


async def _beside(session: Session, wanted: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in await session.rows(_OPTIONS, codes.ids(wanted))}


def _report(facts: tuple[Any, ...], token: str, options: str | None, batch: str | None) -> ReportClaim:
    id, _, company_id, status, reason, reached_ms, sequence, settled, moved_ms = facts
    return ReportClaim(
        id=id, ref=0, token=token, company_id=company_id, status=_CALLING[status], reason=reason,
        reached_at=reached_ms, sequence=sequence, refused=journal.without_it(codes.read_states(settled)),
        options=codes.read_options(options), batch=batch, updated_at=moved_ms,
    )  # fmt: skip


async def release_reports(
    session: Session, claims: Sequence[ReportClaim], now: Millis, *, exhausted: bool
) -> list[Exception | None]:
    callback = codes.GIVEN_UP if exhausted else None
    results: list[Exception | None] = []
    for claim in claims:
        changed = await session.run(_RELEASE, now, callback, claim.id, claim.token)
        results.append(None if changed else LockNotAcquired())
    return results


async def bind_batch(session: Session, batch: str, claims: Sequence[ReportClaim]) -> None:
    rows = [(claim.id, batch, place, claim.sequence) for place, claim in enumerate(claims)]
    await session.insert(_BIND, "(%s, %s, %s, %s)", rows)


async def batch_members(session: Session, batch: str) -> list[str]:
    return [id for (id,) in await session.rows(_MEMBERS, batch)]
