"""What other programs left on the tables: e-mails they made READY, and outcomes whose owners were not told."""

from __future__ import annotations

import time
from collections.abc import Callable

from staffetta.errors import LockNotAcquired
from staffetta.mail.message import Intaken, Millis, Options, Value
from staffetta.store.contract import Visitor
from staffetta.store.mysql import codes, handin
from staffetta.store.mysql.parts import Parts
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

LOOK_SECONDS = 2.0
AGAIN_SECONDS = 3_600.0
"""Everything within the window is looked through again after this: a transaction may have been open for long."""
OVERLAP_SECONDS = 3
FIXED_MAX = 500

_FACTS = "e.id, e.version, e.next_attempt_at, e.payload_file_path, e.eml_file_path, c.payload"
# Only rows that know no due time of ours stand there: nobody else's line is walked.
NEW = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (staffetta_line) LEFT JOIN contents c ON c.email_id = e.id
    WHERE e.status = 'READY' AND e.company_id = 'default' AND e.priority = 5 AND e.next_attempt_at = 0
      AND e.expires_at IS NULL AND CRC32(e.id) %% %s = %s
    LIMIT %s
"""
# Those that were in doubt and whose time has come.
WOKEN = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (staffetta_wakes) LEFT JOIN contents c ON c.email_id = e.id
    WHERE e.wakes_at <= {codes.NOW_MS} AND e.status = 'READY' AND e.expires_at IS NULL AND CRC32(e.id) %% %s = %s
    LIMIT %s
"""
_WELCOME = f"""
    UPDATE emails SET company_id = COALESCE(%s, company_id), priority = %s, next_attempt_at = %s, expires_at = %s,
                      eml_file_path = COALESCE(%s, eml_file_path),
                      wakes_at = IF(%s > {codes.NOW_MS}, %s, NULL), accepted_ms = COALESCE(accepted_ms, {codes.NOW_MS})
    WHERE id = %s AND status = 'READY' AND version = %s AND expires_at IS NULL
"""
ENDED = """
    SELECT e.id, e.company_id, c.options, CAST(UNIX_TIMESTAMP(e.updated_at) AS SIGNED)
    FROM emails e FORCE INDEX (idx_status_updated) LEFT JOIN contents c ON c.email_id = e.id
    WHERE e.status = %s AND e.updated_at >= FROM_UNIXTIME(%s) AND e.callback IS NULL
      AND NOT (e.our_version <=> e.version)
    ORDER BY e.updated_at, e.id LIMIT %s
"""
_FIX = """
    UPDATE emails SET callback = %s, reached_ms = %s, sequence = sequence + 1, updated_at = updated_at
    WHERE id = %s AND status = %s AND callback IS NULL
"""


class Owners(Value, frozen=True, kw_only=True):
    """Whose outcomes are told, of e-mails that other programs ended."""

    window_ms: Millis
    """Older ones are not told any more."""
    waits: Callable[[str, Options], bool]
    """Whether an owner of this company waits to hear."""


class Visitors:
    _pool: Pool
    _parts: Parts
    _owners: Owners | None

    def __init__(self) -> None:
        self._ended_since: dict[str, int] = {}
        self._all_again_at = self._look_at = 0.0

    async def visitors(self, *, limit: int) -> list[Visitor]:
        part = self._parts.part
        if not part.count:
            return []
        mine = (part.count, part.index)

        async def look(session: Session) -> list[Visitor]:
            rows = await session.rows(NEW, *mine, limit) + await session.rows(WOKEN, *mine, limit)
            return [
                Visitor(id=id, version=version, due_at=due_at, payload_file_path=payload_file_path,
                        eml_file_path=eml_file_path, payload=payload)
                for id, version, due_at, payload_file_path, eml_file_path, payload in rows[:limit]
            ]  # fmt: skip

        return await self._pool.read(look)

    async def welcome(self, visitor: Visitor, made: Intaken) -> None:
        async def write(session: Session) -> bool:
            due_at = made.due_at
            facts = (
                made.company_id,
                made.priority,
                due_at,
                made.expires_at,
                made.eml_file_path,
                due_at,
                due_at,
            )
            if not await session.run(_WELCOME, *facts, visitor.id, visitor.version):
                return False
            await handin.keep_composed(session, visitor.id, made)
            return True

        if not await self._pool.write(write):
            raise LockNotAcquired

    def _ends_are_due(self) -> bool:
        """Whether it is time to look for ends again that nobody here has made."""
        return self._owners is not None and time.monotonic() >= self._look_at

    async def _fix_ends(self, session: Session) -> None:
        """Whether a callback is due is fixed on entering SENT or FAILED: for those whom another program brought there,
        when they are first seen, and only while they are young enough."""
        owners = self._owners
        if owners is None:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        server = int(await session.one(codes.SERVER_MS)) // 1_000
        if time.monotonic() > self._all_again_at:
            self._all_again_at = time.monotonic() + AGAIN_SECONDS
            self._ended_since.clear()
        for status in ("SENT", "FAILED"):
            since = max(self._ended_since.get(status, 0), server - owners.window_ms // 1_000)
            rows = await session.rows(ENDED, status, since, FIXED_MAX)
            for id, company_id, options, second in rows:
                due = owners.waits(company_id, codes.read_options(options))
                await session.run(_FIX, codes.DUE if due else codes.NOBODY, second * 1_000, id, status)
            if len(rows) < FIXED_MAX:
                self._ended_since[status] = server - OVERLAP_SECONDS
