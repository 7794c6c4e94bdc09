"""Claims as sets: rows locked by id, without waiting for anybody; taken; read back whole, messages and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from staffetta.mail import journal
from staffetta.mail.message import Attempt, Claim, Millis
from staffetta.store.mysql import codes, history, latecomers
from staffetta.store.mysql.orders import Take
from staffetta.store.mysql.session import Session

ACCEPTED_MS = "COALESCE(e.accepted_ms, UNIX_TIMESTAMP(e.created_at) * 1000)"

FACTS = f"""
    e.id, e.version, e.company_id, e.opened, e.attempts, e.doubts, e.crashes, e.alone_crashes, {ACCEPTED_MS},
    e.expires_at, e.priority, e.sequence, e.settled, e.remaining, e.late, e.eml_file_path
"""
LOCK = f"""
    SELECT {FACTS}, e.token, e.part, e.claimed_ms, e.committed_ms, e.transport FROM emails e FORCE INDEX (PRIMARY)
    WHERE e.id IN ({{ids}}) AND e.status = 'READY' AND e.next_attempt_at <= {codes.NOW_MS} AND e.expires_at IS NOT NULL
    FOR UPDATE SKIP LOCKED
"""
_LOCK_AGAIN = LOCK.replace(" SKIP LOCKED", "")
"""What our own lost connection left locked must be waited for: to skip it would leave the e-mail lying."""
# The same claim asked for again: its answer was lost on the way.
_MINE = f"""
    SELECT STRAIGHT_JOIN {FACTS}, e.part, e.claimed_ms
    FROM {codes.table("w", "id CHAR(36), token VARCHAR(100)")} JOIN emails e ON e.id = w.id
    WHERE e.status = 'PROCESSING' AND e.token = w.token AND e.our_version = e.version AND e.committed_ms = 0
"""
_TAKEN = "id CHAR(36), version INT, opened INT, token VARCHAR(100), at BIGINT, alone INT"
_TAKE = f"""
    UPDATE {codes.table("w", _TAKEN)} STRAIGHT_JOIN emails e ON e.id = w.id
    SET e.status = 'PROCESSING', e.version = w.version, e.our_version = w.version, e.opened = w.opened,
        e.token = w.token, e.claimed_ms = w.at, e.moved_ms = w.at, e.part = 1, e.committed_ms = 0, e.transport = '',
        e.alone = w.alone, e.wakes_at = NULL
"""
CONTENT = f"""
    SELECT STRAIGHT_JOIN c.email_id, c.sender, c.recipients, c.options, c.message
    FROM {codes.IDS} JOIN contents c ON c.email_id = w.id
"""
_NO_CONTENT: tuple[Any, ...] = (None, "", None, None, None)


async def take(session: Session, taking: Mapping[int, Take], *, again: bool = False) -> dict[int, Claim]:
    """The claims that were won, by the orders' places. `again`: an earlier run of this was broken off."""
    places = {order.id: place for place, order in taking.items()}
    locked = await session.rows_of(_LOCK_AGAIN if again else LOCK, sorted(places))
    rows = []
    held: list[tuple[Any, ...]] = []
    for facts in locked:
        if facts[16]:
            await _close_abandoned(session, facts)
        order = taking[places[facts[0]]]
        version, opened = facts[1] + 1, facts[3] + 1
        rows.append((order.id, version, opened, order.token, order.now, int(order.alone)))
        held.append((*facts[:3], opened, *facts[4:16], 1, order.now))
    if rows:
        await session.run(_TAKE, codes.to_json(rows))
        entries = [history.Entry(row[0], "PROCESSING", "claimed", row[4], None, row[3]) for row in rows]
        await history.write(session, entries)
    if len(rows) < len(taking):
        won = {row[0] for row in rows}
        missing = [(order.id, order.token) for order in taking.values() if order.id not in won]
        held += await session.rows(_MINE, codes.to_json(missing))
    tokens = {order.id: order.token for order in taking.values()}
    found = await whole(session, [(facts, tokens[facts[0]]) for facts in held])
    return {places[claim.id]: claim for claim in found}


async def _close_abandoned(session: Session, facts: tuple[Any, ...]) -> None:
    """Another program made it READY while we held it: the attempt of then stays in the journal, without a reply."""
    token, part, at, committed_at, transport = facts[16:]
    was = Attempt(
        attempt=facts[3], part=part, token=token, transport=transport, opened_at=at, committed_at=committed_at
    )
    if not any(journal.is_this_part(kept, was) for _, _, kept in await history.closed(session, facts[0])):
        into = "INSERT INTO staffetta_parts (email_id, attempt) VALUES (%s, %s)"
        await session.run(into, facts[0], codes.attempt_bytes(was))


async def whole(session: Session, held: Sequence[tuple[tuple[Any, ...], str]]) -> list[Claim]:
    """Claims from the facts of their rows, and tokens, with content and late replies."""
    if not held:
        return []
    wanted = [facts[0] for facts, _ in held]
    contents = {row[0]: row for row in await session.rows(CONTENT, codes.ids(wanted))}
    claims = [claim_of(facts, token, contents.get(facts[0], _NO_CONTENT)) for facts, token in held]
    late = {facts[0]: await late_of(session, facts) for facts, _ in held if facts[14]}
    return [with_late(claim, late.get(claim.id)) for claim in claims]


async def late_of(session: Session, facts: tuple[Any, ...]) -> list[Attempt]:
    return await latecomers.waiting(session, facts[0])


def with_late(claim: Claim, late: Sequence[Attempt] | None) -> Claim:
    if not late:
        return claim
    return msgspec.structs.replace(claim, late=journal.choose_late(late, claim.recipients))


def without_journal(claim: Claim, at: Millis) -> Claim:
    """No attempt is open: it is not being sent, or another program holds it and nothing of ours tells how far it is."""
    return msgspec.structs.replace(claim, attempt=0, part=1, at=at)


def claim_of(facts: tuple[Any, ...], token: str, content: tuple[Any, ...]) -> Claim:
    (id, _, company_id, opened, attempts, doubts, crashes, alone_crashes, accepted, expires_at, priority, sequence,
     settled_text, left_text, _, eml_file_path, part, at) = facts  # fmt: skip
    _, sender, envelope, options, message = content
    settled = codes.read_states(settled_text)
    recipients = journal.to_try(codes.read_addresses(envelope), settled, codes.read_left(left_text))
    return Claim(
        id=id, ref=0, token=token, company_id=company_id, at=at, attempt=opened, part=part, attempts=attempts,
        doubts=doubts, crashes=crashes, alone_crashes=alone_crashes, created_at=int(accepted),
        expires_at=expires_at or 0, priority=priority, sequence=sequence, sender=sender, recipients=recipients,
        settled=settled, message=message or b"", eml_file_path=eml_file_path, options=codes.read_options(options),
    )  # fmt: skip
