"""Who lives, who is dead, what is stuck in somebody's hands, and what nobody may send any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staffetta.mail.message import Email, InWork, Millis
from staffetta.mail.operators import Worker
from staffetta.store.sqlite import claims, codes, records
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.rows import Db
from staffetta.store.sqlite.writer import Writer

LOOKED_AT = 50_000
"""Unfinished e-mails that one look for expired ones goes through; the next look goes on from there."""

# A token names its worker before the first dot.
_STUCK = """
    SELECT c.ref FROM claims c
    LEFT JOIN workers w ON c.token <> '' AND w.id = substr(c.token, 1, instr(c.token || '.', '.') - 1)
    WHERE (
        c.at <= :now - :timeout
        OR (c.token <> '' AND (
            :all
            OR substr(c.token, 1, instr(c.token || '.', '.') - 1) IN (SELECT value FROM json_each(:workers))
            OR w.seen_at <= :now - :dead_after
        ))
    )
    AND NOT EXISTS (SELECT 1 FROM mail m WHERE m.ref = c.ref AND m.callback = 2)
    ORDER BY c.at, c.ref LIMIT :limit
"""
_HELD = """
    SELECT c.ref, c.status, c.committed_at, c.transport, c.at, c.alone
    FROM json_each(?) w CROSS JOIN claims c ON c.ref = w.value
"""
_WORKERS = "SELECT id, host, pid, started_at, seen_at FROM workers ORDER BY id"
_HEARTBEAT = "INSERT OR REPLACE INTO workers (id, host, pid, started_at, seen_at) VALUES (?, ?, ?, ?, ?)"

_LINE_END = """
    SELECT company, priority, due_at, ref FROM line WHERE (company, priority, due_at, ref) > (?, ?, ?, ?)
    ORDER BY company, priority, due_at, ref LIMIT 1 OFFSET ?
"""
_LINE_OVER = f"""
    SELECT l.company, l.priority, l.due_at, l.ref FROM line l CROSS JOIN mail m ON m.ref = l.ref
    WHERE (l.company, l.priority, l.due_at, l.ref) > (?, ?, ?, ?)
      AND (l.company, l.priority, l.due_at, l.ref) <= (?, ?, ?, ?)
      AND l.expires_at <= ? AND m.expires_at <= ? AND {records.LIVE}
    ORDER BY l.company, l.priority, l.due_at, l.ref LIMIT ?
"""  # a constant of ours
_ACCEPTED_END = """
    SELECT created_at, ref FROM mail INDEXED BY mail_by_status
    WHERE status = 10 AND status >= 10 AND (created_at, ref) > (?, ?) ORDER BY created_at, ref LIMIT 1 OFFSET ?
"""
_ACCEPTED_OVER = """
    SELECT m.created_at, m.ref FROM mail m INDEXED BY mail_by_status
    WHERE m.status = 10 AND m.status >= 10 AND (m.created_at, m.ref) > (?, ?) AND (m.created_at, m.ref) <= (?, ?)
      AND m.expires_at <= ? AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref)
    ORDER BY m.created_at, m.ref LIMIT ?
"""


class Upkeep:
    _writer: Writer
    _reader: Reader

    def __init__(self) -> None:
        self._line = _Round(_LINE_END, _LINE_OVER, width=4, asked=2)
        self._accepted = _Round(_ACCEPTED_END, _ACCEPTED_OVER, width=2, asked=1)

    # --- who lives --------------------------------------------------------------------------------

    async def heartbeat(self, worker: Worker) -> None:
        facts = (worker.id, worker.host, worker.pid, worker.started_at, worker.seen_at)
        await self._writer.do(lambda group: group.connection.execute(_HEARTBEAT, facts))

    async def workers(self) -> list[Worker]:
        rows = await self._reader.read(lambda connection: connection.execute(_WORKERS).fetchall())
        return [
            Worker(id=id, host=host, pid=pid, started_at=started_at, seen_at=seen_at)
            for id, host, pid, started_at, seen_at in rows
        ]

    async def forget_worker(self, worker_id: str) -> None:
        def forget(group: Group) -> None:
            group.connection.execute("DELETE FROM workers WHERE id = ?", (worker_id,))
            group.connection.execute("DELETE FROM figures WHERE worker_id = ?", (worker_id,))

        await self._writer.do(forget)

    # --- who holds what ---------------------------------------------------------------------------

    async def stuck(
        self,
        *,
        now: Millis,
        dead_after_ms: int | None,
        timeout_ms: int,
        workers: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[InWork]:
        facts = {
            "now": now,
            "timeout": timeout_ms,
            "all": dead_after_ms is None,
            "workers": codes.to_json(list(workers)),
            "dead_after": dead_after_ms,
            "limit": limit,
        }

        def look(connection: Db) -> list[InWork]:
            refs = [ref for (ref,) in connection.execute(_STUCK, facts).fetchall()]
            return _in_work(connection, refs)

        return await self._reader.read(look)

    async def held(self, id: str) -> InWork | None:
        def look(connection: Db) -> list[InWork]:
            ref = records.ref_of(connection, id)
            return _in_work(connection, [ref]) if ref is not None else []

        found = await self._reader.read(look)
        return found[0] if found else None

    # --- what is over -----------------------------------------------------------------------------

    async def expired(self, *, now: Millis, limit: int) -> list[Email]:
        def look(connection: Db) -> list[Email]:
            refs = self._accepted.look(connection, now, limit)
            refs += self._line.look(connection, now, limit - len(refs))
            return records.emails(connection, sorted(refs))

        return await self._reader.read(look)


def _in_work(connection: Db, refs: Sequence[int]) -> list[InWork]:
    held = {row[0]: row for row in connection.execute(_HELD, (codes.to_json(refs),)).fetchall()}
    found = []
    for claim in claims.read_bare(connection, refs):
        _, status, committed_at, transport, at, alone = held[claim.ref]
        found.append(
            InWork(status=codes.STATUS_OF[status], claim=claim, committed_at=committed_at, transport=transport,
                   updated_at=at, alone=bool(alone))
        )  # fmt: skip
    return found


class _Round:
    """Goes through an index, a bounded share at each look, and begins anew at its end."""

    def __init__(self, end: str, over: str, *, width: int, asked: int) -> None:
        self._end, self._over, self._asked = end, over, asked
        self._first: tuple[int, ...] = (-(1 << 62),) * width
        self._last: tuple[int, ...] = ((1 << 62),) * width
        self._place = self._first

    def look(self, connection: Db, now: Millis, limit: int) -> list[int]:
        """At most `limit` that are over. Begun in the middle, it goes on from the beginning after the end."""
        began = self._place
        refs = self._stretch(connection, began, None, now, limit)
        if began != self._first and self._place == self._first and len(refs) < limit:
            refs += self._stretch(connection, self._first, began, now, limit - len(refs))
        return refs

    def _stretch(
        self,
        connection: Db,
        start: tuple[int, ...],
        stop: tuple[int, ...] | None,
        now: Millis,
        limit: int,
    ) -> list[int]:
        if limit < 1:
            return []
        far: Any = connection.execute(self._end, (*start, LOOKED_AT - 1)).fetchone()
        end = far if stop is None or (far is not None and far < stop) else stop
        rows = connection.execute(
            self._over, (*start, *(end or self._last), *(now,) * self._asked, limit)
        ).fetchall()
        if len(rows) == limit:
            self._place = rows[-1]
        else:
            self._place = end or self._first
        return [row[-1] for row in rows]
