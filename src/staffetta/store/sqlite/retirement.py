"""Lets go of what is over: content, records, dead letters, kept answers. Never of anything unfinished.

`journal` grows in the order of time, so it is walked once from its beginning, behind retention: `marks` says how far.
A row that is its e-mail's newest tells that nothing happened since. What cannot go yet is noted in `passed_by`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staffetta.errors import MoveNotAllowed, NotFound
from staffetta.mail import journal
from staffetta.mail.lifecycle import FINISHED
from staffetta.mail.message import Millis
from staffetta.store.contract import Dropped, RetireCount
from staffetta.store.sqlite import codes, handin, latecomers
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.rows import Db
from staffetta.store.sqlite.writer import Writer

ROWS_A_PLACE = 20
"""Rows of `journal` looked at in one call, for each e-mail that it may let go of."""

# The rows behind the mark, and the e-mails whose newest row each of them is.
_WALK = """
    SELECT j.n, j.at, m.ref, coalesce(c.status, m.status), m.callback, coalesce(c.at, m.updated_at), t.erased,
           EXISTS (SELECT 1 FROM dead_letters d WHERE d.ref = m.ref)
    FROM (SELECT n, at, ref FROM journal WHERE n > (SELECT n FROM marks WHERE name = ?) ORDER BY n LIMIT ?) j
    LEFT JOIN claims c ON c.ref = j.ref
    LEFT JOIN mail m ON m.ref = j.ref AND coalesce(c.entry, m.last) = j.n
    LEFT JOIN contents t ON t.ref = m.ref
    ORDER BY j.n
"""
_PASSED_BY = """
    SELECT 0, 0, m.ref, coalesce(c.status, m.status), m.callback, coalesce(c.at, m.updated_at), t.erased,
           EXISTS (SELECT 1 FROM dead_letters d WHERE d.ref = m.ref)
    FROM passed_by p
    CROSS JOIN mail m ON m.ref = p.ref
    CROSS JOIN contents t ON t.ref = m.ref
    LEFT JOIN claims c ON c.ref = m.ref
"""
_PATHS = "SELECT payload_file_path, eml_file_path FROM contents WHERE ref = ?"
_NAMED = """
    SELECT EXISTS (SELECT 1 FROM contents WHERE eml_file_path = ?1)
        OR EXISTS (SELECT 1 FROM contents WHERE payload_file_path = ?1)
"""
_ERASE = """
    UPDATE contents SET erased = 1, message = NULL, payload = NULL, eml_file_path = NULL, payload_file_path = NULL
    WHERE ref = ?
"""
_CHAIN = latecomers.CHAIN + "SELECT json_group_array(n) FROM chain"
_FORGET = (
    """DELETE FROM line WHERE (company, priority, due_at, ref)
           = (SELECT company, priority, due_at, ref FROM mail WHERE ref = ?)""",
    *(f"DELETE FROM {table} WHERE ref = ?" for table in ("claims", "late", "batches", "passed_by", "tidings")),
    "DELETE FROM contents WHERE ref = ?",
    "DELETE FROM mail WHERE ref = ?",
)
_CLAMP = "UPDATE marks SET n = min(n, (SELECT coalesce(max(n), 0) FROM journal))"
_AGED = """
    SELECT d.ref, m.id, o.name FROM dead_letters d
    CROSS JOIN mail m ON m.ref = d.ref CROSS JOIN companies o ON o.company = m.company
    WHERE d.moved_at + d.ttl_ms <= ? ORDER BY d.moved_at, d.ref LIMIT ?
"""
_BEYOND = """
    SELECT d.ref, m.id, o.name FROM dead_letters d
    CROSS JOIN mail m ON m.ref = d.ref CROSS JOIN companies o ON o.company = m.company
    WHERE d.moved_at + d.ttl_ms > ? ORDER BY d.moved_at, d.ref LIMIT ?
"""
_LEFT = "SELECT count(*) FROM dead_letters WHERE moved_at + ttl_ms > ?"
_ANSWERS = "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers WHERE at <= ? ORDER BY at LIMIT ?)"
_DISCARD = """
    DELETE FROM dead_letters WHERE ref IN (SELECT m.ref FROM json_each(?) w CROSS JOIN mail m ON m.id = w.value)
"""
_STATE = """
    SELECT m.ref, coalesce(c.status, m.status), m.callback, EXISTS (SELECT 1 FROM dead_letters d WHERE d.ref = m.ref)
    FROM mail m LEFT JOIN claims c ON c.ref = m.ref WHERE m.id = ?
"""


class Retirement:
    _writer: Writer

    async def retire(
        self, *, now: Millis, content_ms: int, record_ms: int | None, dead_letter_max: int, limit: int
    ) -> RetireCount:
        def work(group: Group) -> RetireCount:
            dropped = _drop_dead_letters(group.connection, now, dead_letter_max, limit)
            erased, files = _erase_old(group, now - content_ms, limit)
            gone = 0
            if record_ms is not None:
                gone, more = _forget_old(group, now - record_ms, limit)
                files += more
            group.connection.execute(_ANSWERS, (now - journal.KEPT_ANSWER_MS, limit))
            return RetireCount(
                contents=erased, dead_letters=len(dropped), records=gone, dropped=tuple(dropped),
                files=_unnamed(group.connection, files),
            )  # fmt: skip

        return await self._writer.do(work)

    async def discard(self, ids: Sequence[str]) -> int:
        def work(group: Group) -> int:
            group.connection.execute(_DISCARD, (codes.to_json(list(ids)),))
            return group.connection.changes()

        return await self._writer.do(work)

    async def erase_content(self, id: str) -> tuple[str, ...]:
        def work(group: Group) -> tuple[str, ...]:
            row = group.connection.execute(_STATE, (id,)).fetchone()
            if row is None:
                raise NotFound(f"there is no e-mail {id}")
            ref, status, callback, is_dead = row
            if not _is_over(status, callback):
                raise MoveNotAllowed(
                    f"e-mail {id} is {codes.STATUS_OF[status]}: only the content of a finished one can be erased"
                )
            if is_dead:
                raise MoveNotAllowed(f"e-mail {id} has a dead letter: discard that first")
            return _unnamed(group.connection, _erase(group.connection, ref))

        return await self._writer.do(work)


def _is_over(status: int, callback: int) -> bool:
    return journal.is_over(
        codes.STATUS_OF[status],
        callback_due=callback != codes.NOBODY,
        callback_exhausted=callback == codes.GIVEN_UP,
    )


# ------------------------------------------------------------------------------------------------ dead letters


def _drop_dead_letters(connection: Db, now: Millis, most: int, limit: int) -> list[Dropped]:
    aged = connection.execute(_AGED, (now, limit)).fetchall()
    beyond = max(0, connection.execute(_LEFT, (now,)).get - most)
    capped = connection.execute(_BEYOND, (now, max(0, min(beyond, limit - len(aged))))).fetchall()
    refs = [ref for ref, _, _ in (*aged, *capped)]
    connection.execute(
        "DELETE FROM dead_letters WHERE ref IN (SELECT value FROM json_each(?))", (codes.to_json(refs),)
    )
    return [
        *(Dropped(id=id, company_id=company_id, why="age") for _, id, company_id in aged),
        *(Dropped(id=id, company_id=company_id, why="cap") for _, id, company_id in capped),
    ]


# ------------------------------------------------------------------------------------------------ content, records


def _erase_old(group: Group, before: Millis, limit: int) -> tuple[int, list[str]]:
    connection = group.connection
    refs = _old(connection, "retired", before, limit, erased=0)
    files = [path for ref in refs for path in _erase(connection, ref)]
    if connection.execute("SELECT n = 0 FROM marks WHERE name = 'forgotten'").get:
        # Where records are deleted too they stay noted: the walk that deletes may have passed them by as well.
        connection.execute(
            "DELETE FROM passed_by WHERE ref IN (SELECT value FROM json_each(?))", (codes.to_json(refs),)
        )
    return len(refs), files


def _forget_old(group: Group, before: Millis, limit: int) -> tuple[int, list[str]]:
    refs = _old(group.connection, "forgotten", before, limit, erased=None)
    files = [path for ref in refs for path in _forget(group, ref)]
    if refs:
        # Numbers of rows at the end are used again: no mark may stand beyond the end.
        group.connection.execute(_CLAMP)
    return len(refs), files


def _old(connection: Db, mark: str, before: Millis, limit: int, *, erased: int | None) -> list[int]:
    """At most `limit` e-mails that are over since `before` or longer; the walk goes on from the last one looked at."""
    found: dict[int, None] = {}
    passed: list[int] = []
    returned: list[int] = []
    for _, _, *facts in connection.execute(_PASSED_BY).fetchall():
        ref, status, callback, updated_at, is_erased, is_dead = facts
        if not _ended(status):
            returned.append(ref)  # on its way again: later rows will tell of its end
        elif not _may_go(status, callback, is_dead) or updated_at > before or len(found) >= limit:
            continue
        elif erased is None or is_erased == erased:
            found[ref] = None
    reached = 0
    for n, at, *facts in connection.execute(_WALK, (mark, limit * ROWS_A_PLACE)).fetchall():
        ref, status, callback, updated_at, is_erased, is_dead = facts
        if len(found) >= limit or (ref is not None and at > before):
            break
        reached = n
        if ref is None or not _ended(status):
            continue  # its e-mail moved on: a later row tells of it, whatever the clock said at this one
        if not _may_go(status, callback, is_dead) or updated_at > before:
            passed.append(ref)
        elif erased is None or is_erased == erased:
            found[ref] = None
    if reached:
        connection.execute("UPDATE marks SET n = ? WHERE name = ?", (reached, mark))
    if passed:
        connection.execute(
            "INSERT OR IGNORE INTO passed_by SELECT value FROM json_each(?)", (codes.to_json(passed),)
        )
    if returned:
        connection.execute(
            "DELETE FROM passed_by WHERE ref IN (SELECT value FROM json_each(?))", (codes.to_json(returned),)
        )
    return list(found)


def _ended(status: int) -> bool:
    """It is over, or only its owner is still to be told."""
    return codes.STATUS_OF[status] in FINISHED | journal.CALLING


def _may_go(status: int, callback: int, is_dead: int) -> bool:
    return not is_dead and _is_over(status, callback)


def _erase(connection: Db, ref: int) -> list[str]:
    """Payload and message; the paths of the files in which they lie."""
    paths = [path for path in connection.execute(_PATHS, (ref,)).fetchone() if path]
    connection.execute(_ERASE, (ref,))
    return paths


def _forget(group: Group, ref: int) -> list[str]:
    """Everything that tells of the e-mail."""
    connection = group.connection
    paths = _erase(connection, ref)
    handin.forget_recipients(connection, ref)
    rows: Any = connection.execute(_CHAIN, (ref,)).get
    connection.execute("DELETE FROM journal WHERE n IN (SELECT value FROM json_each(?))", (rows,))
    group.count(connection.execute("SELECT status FROM mail WHERE ref = ?", (ref,)).get, -1)
    for statement in _FORGET:
        connection.execute(statement, (ref,))
    return paths


def _unnamed(connection: Db, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if not connection.execute(_NAMED, (path,)).get)
