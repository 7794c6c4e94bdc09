"""Marks as sets: compare-and-set on the open attempt, and nothing else of the e-mail touched."""

from __future__ import annotations

from collections.abc import Mapping

from staffetta.errors import LockNotAcquired
from staffetta.store.mysql import codes
from staffetta.store.mysql.orders import Mark
from staffetta.store.mysql.session import Session

# `updated_at` stays: a mark is no move, and the index over it need not be touched.
_MARKS = "id CHAR(36), token VARCHAR(100), part INT, transport VARCHAR(255), at BIGINT"
_MARK = f"""
    UPDATE {codes.table("w", _MARKS)}
    STRAIGHT_JOIN emails e ON e.id = w.id
    SET e.committed_ms = w.at, e.transport = w.transport, e.updated_at = e.updated_at
    WHERE e.status = 'PROCESSING' AND e.token = w.token AND e.our_version = e.version AND e.part = w.part
"""
_MARKED = f"""
    SELECT STRAIGHT_JOIN e.id, e.token, e.part, e.committed_ms
    FROM {codes.IDS} JOIN emails e ON e.id = w.id
    WHERE e.status = 'PROCESSING' AND e.our_version = e.version
"""


async def make(session: Session, marking: Mapping[int, Mark]) -> dict[int, Exception]:
    """The marks that were refused, by their orders' places."""
    told = codes.to_json([(m.id, m.token, m.part, m.transport, m.now) for m in marking.values()])
    changed = await session.run(_MARK, told)
    if changed == len(marking):
        return {}
    found = await session.rows(_MARKED, codes.ids([mark.id for mark in marking.values()]))
    stands = {(id, token, part, at) for id, token, part, at in found}
    return {
        place: LockNotAcquired()
        for place, mark in marking.items()
        if (mark.id, mark.token, mark.part, mark.now) not in stands
    }
