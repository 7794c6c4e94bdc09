"""Who lives, who is dead, what is stuck in somebody's hands, and what nobody may send any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email, InWork, Millis
from staffetta.mail.operators import Worker
from staffetta.store.mysql import claims, codes, moves, records
from staffetta.store.mysql.parts import Parts
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

IN_WORK = ("PROCESSING", "INTAKING", "CALLING-SENT-CALLBACK", "CALLING-FAILED-CALLBACK")
LOOKED_AT = 2_000
"""Unfinished e-mails that one look for expired ones goes through; the next look goes on from there."""

_OURS = "e.our_version <=> e.version"
UPDATED_MS = f"IF({_OURS}, e.moved_ms, UNIX_TIMESTAMP(e.updated_at) * 1000)"
_FACTS = f"""
    {claims.FACTS}, e.part, e.claimed_ms, e.status, IF({_OURS}, e.token, NULL), e.committed_ms, e.transport,
    {UPDATED_MS}, e.alone
"""
# By age. What another program holds goes by its `updated_at`; whose owner is being told again by ours stands in an
# index of its own, for the others there may be many.
OLD = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = %s AND {UPDATED_MS} <= {codes.NOW_MS} - %s ORDER BY e.updated_at, e.id LIMIT %s
"""
OLD_CALLING = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (staffetta_owed)
    WHERE e.callback = {codes.BEING_TOLD} AND e.status = %s AND {UPDATED_MS} <= {codes.NOW_MS} - %s LIMIT %s
"""
OLD_FOREIGN_CALLING = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = %s AND e.updated_at <= FROM_UNIXTIME(({codes.NOW_MS} - %s) / 1000)
      AND COALESCE(e.callback, 0) NOT IN ({codes.GIVEN_UP}, {codes.BEING_TOLD}) ORDER BY e.updated_at, e.id LIMIT %s
"""
_DEAD = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = %s AND e.token <> '' AND {_OURS} AND COALESCE(e.callback, 0) <> {codes.GIVEN_UP}
      AND SUBSTRING_INDEX(e.token, '.', 1) IN (%s{{more}})
    ORDER BY e.updated_at, e.id LIMIT %s
"""
_ALL = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = %s AND e.token <> '' AND {_OURS} ORDER BY e.updated_at, e.id LIMIT %s
"""
_HELD = f"""
    SELECT {_FACTS} FROM emails e
    WHERE e.id = %s AND e.status IN ('PROCESSING', 'INTAKING', 'CALLING-SENT-CALLBACK', 'CALLING-FAILED-CALLBACK')
"""
_GONE = f"SELECT id FROM staffetta_workers WHERE seen_at <= {codes.NOW_MS} - %s"
_WORKERS = "SELECT id, host, pid, started_at, seen_at, feeds FROM staffetta_workers ORDER BY id"
_HEARTBEAT = f"""
    REPLACE INTO staffetta_workers (id, host, pid, started_at, seen_at, feeds)
    VALUES (%s, %s, %s, %s, {codes.NOW_MS}, %s)
"""
_UNFINISHED = """
    SELECT e.id, e.expires_at FROM emails e FORCE INDEX (idx_status)
    WHERE e.status = %s AND e.id > %s ORDER BY e.id LIMIT %s
"""


class Upkeep:
    _pool: Pool
    _parts: Parts

    def __init__(self) -> None:
        self._rounds: dict[Status, str] = {Status.ACCEPTED: "", Status.READY: ""}
        """Where the next look for expired e-mails begins."""

    # --- who lives --------------------------------------------------------------------------------

    async def heartbeat(self, worker: Worker) -> None:
        facts = (worker.id, worker.host, worker.pid, worker.started_at, int(worker.feeds))
        await self._pool.write(lambda session: session.run(_HEARTBEAT, *facts))
        if worker.feeds:
            await self._parts.join(worker.id)

    async def workers(self) -> list[Worker]:
        rows = await self._pool.read(lambda session: session.rows(_WORKERS))
        return [
            Worker(id=id, host=host, pid=pid, started_at=started_at, seen_at=seen_at, feeds=bool(feeds))
            for id, host, pid, started_at, seen_at, feeds in rows
        ]

    async def forget_worker(self, worker_id: str) -> None:
        async def forget(session: Session) -> None:
            await session.run("DELETE FROM staffetta_workers WHERE id = %s", worker_id)
            await session.run("DELETE FROM staffetta_figures WHERE worker_id = %s", worker_id)

        await self._pool.write(forget)
        self._parts.leave(worker_id)

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
        del now  # the server's clock decides

        async def look(session: Session) -> list[tuple[Any, ...]]:
            gone = list(workers)
            if dead_after_ms is not None:
                gone += [id for (id,) in await session.rows(_GONE, dead_after_ms)]
            found: dict[str, tuple[Any, ...]] = {}
            for status in IN_WORK:
                rows = []
                for old in (OLD_CALLING, OLD_FOREIGN_CALLING) if status.startswith("CALLING") else (OLD,):
                    rows += await session.rows(old, status, timeout_ms, limit)
                if dead_after_ms is None:
                    rows += await session.rows(_ALL, status, limit)
                elif gone:
                    dead = _DEAD.format(more=", %s" * (len(gone) - 1))
                    rows += await session.rows(dead, status, *gone, limit)
                found.update((row[0], row) for row in rows)
            return await _with_content(
                session, sorted(found.values(), key=lambda row: (row[22], row[0]))[:limit]
            )

        return [_in_work(row) for row in await self._pool.read(look)]

    async def held(self, id: str) -> InWork | None:
        async def look(session: Session) -> list[Any]:
            return await _with_content(session, await session.rows(_HELD, id))

        found = await self._pool.read(look)
        return _in_work(found[0]) if found else None

    # --- what is over -----------------------------------------------------------------------------

    async def expired(self, *, now: Millis, limit: int) -> list[Email]:
        del now

        async def look(session: Session) -> list[Email]:
            server = int(await session.one(codes.SERVER_MS))
            ids: list[str] = []
            for status in self._rounds:
                if len(ids) < limit:
                    ids += await self._over(session, status, server, limit - len(ids))
            return await records.emails(session, ids)

        return await self._pool.read(look)

    async def _over(self, session: Session, status: Status, server: Millis, limit: int) -> list[str]:
        """A bounded stretch, and the beginning anew after the end."""
        began = self._rounds[status]
        found = await self._stretch(session, status, server, limit)
        if began and not self._rounds[status] and len(found) < limit:
            more = await self._stretch(session, status, server, limit - len(found))
            found += [id for id in more if id not in found]
        return found

    async def _stretch(self, session: Session, status: Status, server: Millis, limit: int) -> list[str]:
        rows = await session.rows(_UNFINISHED, status, self._rounds[status], LOOKED_AT)
        over = [id for id, expires_at in rows if expires_at is not None and expires_at <= server]
        if len(over) > limit:
            self._rounds[status] = over[limit - 1]
        else:
            self._rounds[status] = rows[-1][0] if len(rows) == LOOKED_AT else ""
        return over[:limit]


async def _with_content(session: Session, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Without the messages: for those who decide and do not send."""
    if not rows:
        return []
    wanted = codes.ids([row[0] for row in rows])
    contents = {row[0]: row for row in await session.rows(_BARE, wanted)}
    late = {row[0]: await claims.late_of(session, row) for row in rows if row[14]}
    return [(row, contents.get(row[0], (None, "", None, None, None)), late.get(row[0])) for row in rows]


_BARE = claims.CONTENT.replace("c.message", "NULL")


def _in_work(told: Any) -> InWork:
    facts, content, late = told
    status, token, committed_at, transport, updated_at, alone = facts[18:24]
    is_ours = token is not None
    held = token if is_ours else moves.foreign_token(facts[1])
    claim = claims.claim_of(facts[:18], held, content)
    has_journal = is_ours and status == "PROCESSING"
    return InWork(
        status=Status(status),
        claim=claims.with_late(claim if has_journal else claims.without_journal(claim, int(updated_at)), late),
        committed_at=committed_at if has_journal else 0,
        transport=transport if has_journal else "",
        updated_at=int(updated_at),
        alone=bool(alone) and is_ours,
    )
