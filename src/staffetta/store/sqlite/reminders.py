"""What the queue is reminded of: whose e-mails wait, in which order, and what became due.

A row of `line` may be of an e-mail that somebody holds, or that ended lately: whoever reads compares with `mail`.
"""

from __future__ import annotations

from staffetta.mail.message import Job, Millis
from staffetta.store.sqlite import records
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.rows import Db
from staffetta.store.sqlite.writer import Writer

# From company to company and, within one, from priority to priority, each by one step into the index: what is not
# due yet is never walked through.
_COMPANIES = f"""
    WITH RECURSIVE
    whose (company) AS (
        SELECT min(company) FROM line
        UNION ALL
        SELECT (SELECT min(l.company) FROM line l WHERE l.company > whose.company) FROM whose
        WHERE whose.company IS NOT NULL
    ),
    lines (company, priority) AS (
        SELECT company, (SELECT min(l.priority) FROM line l WHERE l.company = whose.company) FROM whose
        WHERE company IS NOT NULL
        UNION ALL
        SELECT company, (
            SELECT min(l.priority) FROM line l WHERE l.company = lines.company AND l.priority > lines.priority
        )
        FROM lines WHERE priority IS NOT NULL
    )
    SELECT o.name FROM companies o WHERE o.company IN (
        SELECT company FROM lines WHERE EXISTS (
            SELECT 1 FROM line l CROSS JOIN mail m ON m.ref = l.ref
            WHERE l.company = lines.company AND l.priority = lines.priority AND l.due_at <= ? AND {records.LIVE}
        )
    )
    ORDER BY o.name
"""  # a constant of ours
_COMPANY = "SELECT company FROM companies WHERE name = ?"
_NEXT_PRIORITY = "SELECT min(priority) FROM line WHERE company = ? AND priority >= ?"
_WAITING = f"""
    SELECT json_group_array(json(job)) FROM (
        SELECT {records.JOB} AS job
        FROM line l CROSS JOIN mail m ON m.ref = l.ref CROSS JOIN companies o ON o.company = l.company
        WHERE l.company = ? AND l.priority = ? AND l.due_at <= ? AND (l.due_at, l.ref) > (?, ?) AND {records.LIVE}
        ORDER BY l.due_at, l.ref LIMIT ?
    )
"""
_BEFORE_ALL = (-(1 << 62), -(1 << 62))

_ANY_NEWS = "SELECT EXISTS (SELECT 1 FROM tidings) OR EXISTS (SELECT 1 FROM agenda WHERE due_at <= ?)"
_TOLD = f"""
    SELECT json_group_array(json(job)), max(n), count(*) FROM (
        SELECT t.n, (
            SELECT {records.JOB} FROM mail m CROSS JOIN companies o ON o.company = m.company
            WHERE m.ref = t.ref AND m.status = 1 AND m.due_at <= ?
              AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref)
        ) AS job
        FROM tidings t ORDER BY t.n LIMIT ?
    )
"""
_DUE = f"""
    SELECT json_group_array(json(job)), count(*) FROM (
        SELECT (
            SELECT {records.JOB} FROM mail m CROSS JOIN companies o ON o.company = m.company
            WHERE m.ref = a.ref AND m.status = 1 AND m.due_at = a.due_at
              AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref)
        ) AS job
        FROM agenda a WHERE a.due_at <= ? ORDER BY a.due_at, a.ref LIMIT ?
    )
"""
_STRIKE_DUE = """
    DELETE FROM agenda WHERE (due_at, ref) IN (
        SELECT due_at, ref FROM agenda WHERE due_at <= ? ORDER BY due_at, ref LIMIT ?
    )
"""


class Reminders:
    _writer: Writer
    _reader: Reader
    _owner: bool

    async def waiting_companies(self, *, now: Millis) -> list[str]:
        return await self._reader.read(
            lambda connection: [name for (name,) in connection.execute(_COMPANIES, (now,)).fetchall()]
        )

    async def waiting(self, company_id: str, *, now: Millis, limit: int, after: Job | None = None) -> list[Job]:
        return await self._reader.read(lambda connection: _waiting(connection, company_id, now, limit, after))

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        # A look beside the writer first: nearly always there is nothing, and then nobody is disturbed.
        if not self._owner or not await self._reader.read(
            lambda connection: connection.execute(_ANY_NEWS, (now,)).get
        ):
            return []
        return await self._writer.do(lambda group: _news(group, now, limit))

    async def next_due(self, *, now: Millis) -> Millis | None:
        return await self._reader.read(
            lambda connection: connection.execute("SELECT min(due_at) FROM agenda WHERE due_at > ?", (now,)).get
        )


def _waiting(connection: Db, company_id: str, now: Millis, limit: int, after: Job | None) -> list[Job]:
    company = connection.execute(_COMPANY, (company_id,)).get
    found: list[Job] = []
    priority, place = -(1 << 62), _BEFORE_ALL
    if after is not None:
        priority, place = after.priority, (after.due_at, after.ref or records.ref_of(connection, after.id) or 0)
    while len(found) < limit:
        nearest = connection.execute(_NEXT_PRIORITY, (company, priority)).get
        if nearest is None:
            break
        begin = place if after is not None and nearest == after.priority else _BEFORE_ALL
        told = connection.execute(_WAITING, (company, nearest, now, *begin, limit - len(found))).get
        found += records.read_jobs(told)
        priority = nearest + 1
    return found


def _news(group: Group, now: Millis, limit: int) -> list[Job]:
    """Each row is struck out as it is told; those that are not READY any more, or held, are passed over."""
    found: list[Job] = []
    looked = limit
    while len(found) < limit and looked:
        told, last, looked = group.connection.execute(_TOLD, (now, limit - len(found))).fetchone()
        found += records.read_jobs(told)
        group.connection.execute("DELETE FROM tidings WHERE n <= ?", (last,))
    looked = limit
    while len(found) < limit and looked:
        asked = limit - len(found)
        told, looked = group.connection.execute(_DUE, (now, asked)).fetchone()
        found += records.read_jobs(told)
        group.connection.execute(_STRIKE_DUE, (now, asked))
    return found
