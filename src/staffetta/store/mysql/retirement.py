"""Lets go of what is over: content, records, dead letters, kept answers. Never of anything unfinished.

Ended e-mails are walked once, status by status in the order in which they ended; `staffetta_settings` says how far.
What cannot go yet is noted in `staffetta_passed_by` and looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from staffetta.errors import MoveNotAllowed, NotFound
from staffetta.mail import journal
from staffetta.mail.lifecycle import FINISHED, Status
from staffetta.mail.message import Millis
from staffetta.store.contract import Dropped, RetireCount
from staffetta.store.mysql import codes
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

ROWS_A_PLACE = 20
"""Rows looked at in one call, for each e-mail that it may let go of."""
ENDED = sorted(FINISHED | journal.CALLING)

_FACTS = """
    e.id, e.status, COALESCE(e.callback, 0), IF(e.our_version <=> e.version, e.moved_ms,
    UNIX_TIMESTAMP(e.updated_at) * 1000), CAST(UNIX_TIMESTAMP(e.updated_at) AS SIGNED),
    (SELECT COUNT(*) FROM staffetta_dead_letters d WHERE d.email_id = e.id),
    COALESCE((SELECT c.erased FROM contents c WHERE c.email_id = e.id), e.eml_file_path IS NULL
             AND e.payload_file_path IS NULL),
    e.payload_file_path, e.eml_file_path
"""
WALK = f"""
    SELECT {_FACTS} FROM emails e FORCE INDEX (idx_status_updated)
    WHERE e.status = %s AND e.updated_at >= FROM_UNIXTIME(%s)
      AND (e.updated_at > FROM_UNIXTIME(%s) OR e.id > %s)
    ORDER BY e.updated_at, e.id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_PASSED_BY = f"""
    SELECT {_FACTS} FROM staffetta_passed_by p STRAIGHT_JOIN emails e ON e.id = p.email_id
    ORDER BY p.email_id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_ONE = f"SELECT {_FACTS} FROM emails e WHERE e.id = %s FOR UPDATE"
_ERASE_PATHS = f"""
    UPDATE {codes.IDS} STRAIGHT_JOIN emails e ON e.id = w.id
    SET e.eml_file_path = NULL, e.payload_file_path = NULL, e.updated_at = e.updated_at
"""
_ERASE = f"""
    UPDATE {codes.IDS} STRAIGHT_JOIN contents c ON c.email_id = w.id
    SET c.erased = 1, c.message = NULL, c.payload = NULL
"""
_NO_CONTENT = f"""
    SELECT w.id FROM {codes.IDS} LEFT JOIN contents c ON c.email_id = w.id WHERE c.email_id IS NULL
"""
_FORGET = f"DELETE e FROM emails e JOIN {codes.IDS} ON e.id = w.id"
_FORGET_PASSED = f"DELETE p FROM staffetta_passed_by p JOIN {codes.IDS} ON p.email_id = w.id"
_NAMED = "SELECT (SELECT COUNT(*) FROM emails WHERE eml_file_path = %s) + (SELECT COUNT(*) FROM emails WHERE payload_file_path = %s)"  # noqa: E501  # one question of two indexes
_AGED = """
    SELECT d.email_id, d.company_id FROM staffetta_dead_letters d WHERE d.moved_at + d.ttl_ms <= %s
    ORDER BY d.moved_at, d.email_id LIMIT %s
"""
_BEYOND = """
    SELECT d.email_id, d.company_id FROM staffetta_dead_letters d WHERE d.moved_at + d.ttl_ms > %s
    ORDER BY d.moved_at, d.email_id LIMIT %s
"""
_LEFT = "SELECT COUNT(*) FROM staffetta_dead_letters WHERE moved_at + ttl_ms > %s"
_DISCARD = f"DELETE d FROM staffetta_dead_letters d JOIN {codes.IDS} ON d.email_id = w.id"
_ANSWERS = "DELETE FROM staffetta_answers WHERE at <= %s ORDER BY at LIMIT %s"


class Ended(NamedTuple):
    id: str
    status: str
    callback: int
    updated_ms: Any
    second: int
    is_dead: int
    erased: int
    payload_file_path: str | None
    eml_file_path: str | None

    @property
    def over(self) -> bool:
        return journal.is_over(
            Status(self.status),
            callback_due=self.callback != codes.NOBODY,
            callback_exhausted=self.callback == codes.GIVEN_UP,
        )

    @property
    def paths(self) -> list[str]:
        return [path for path in (self.payload_file_path, self.eml_file_path) if path]


class Retirement:
    _pool: Pool

    async def retire(
        self, *, now: Millis, content_ms: int, record_ms: int | None, dead_letter_max: int, limit: int
    ) -> RetireCount:
        async def work(session: Session) -> RetireCount:
            dropped = await _drop_dead_letters(session, now, dead_letter_max, limit)
            old = await _old(session, "contents", now - content_ms, limit, keep_passed=record_ms is not None)
            files = await _erase(session, old)
            gone: list[Ended] = []
            if record_ms is not None:
                gone = await _old(session, "records", now - record_ms, limit, keep_passed=False)
                files += await _erase(session, gone)
                if gone:
                    await session.run(_FORGET, codes.ids([one.id for one in gone]))
            await session.run(_ANSWERS, now - journal.KEPT_ANSWER_MS, limit)
            return RetireCount(
                contents=len(old), dead_letters=len(dropped), records=len(gone), dropped=tuple(dropped),
                files=await _unnamed(session, files),
            )  # fmt: skip

        return await self._pool.write(work)

    async def discard(self, ids: Sequence[str]) -> int:
        if not ids:
            return 0
        return await self._pool.write(
            lambda session: session.run(_DISCARD, codes.ids(list(dict.fromkeys(ids))))
        )

    async def erase_content(self, id: str) -> tuple[str, ...]:
        async def work(session: Session) -> tuple[str, ...]:
            row = await session.row(_ONE, id)
            if row is None:
                raise NotFound(f"there is no e-mail {id}")
            ended = Ended(*row)
            if not ended.over:
                raise MoveNotAllowed(
                    f"e-mail {id} is {ended.status}: only the content of a finished one can be erased"
                )
            if ended.is_dead:
                raise MoveNotAllowed(f"e-mail {id} has a dead letter: discard that first")
            return await _unnamed(session, await _erase(session, [ended]))

        return await self._pool.write(work)


# ------------------------------------------------------------------------------------------------ dead letters


async def _drop_dead_letters(session: Session, now: Millis, most: int, limit: int) -> list[Dropped]:
    aged = await session.rows(_AGED, now, limit)
    beyond = max(0, int(await session.one(_LEFT, now)) - most)
    capped = await session.rows(_BEYOND, now, max(0, min(beyond, limit - len(aged))))
    if aged or capped:
        await session.run(_DISCARD, codes.ids([id for id, _ in (*aged, *capped)]))
    return [
        *(Dropped(id=id, company_id=company_id, why="age") for id, company_id in aged),
        *(Dropped(id=id, company_id=company_id, why="cap") for id, company_id in capped),
    ]


# ------------------------------------------------------------------------------------------------ content, records


async def _old(session: Session, what: str, before: Millis, limit: int, *, keep_passed: bool) -> list[Ended]:
    """At most `limit` e-mails that are over since `before` or longer; the walk goes on from the last one looked at."""
    found: dict[str, Ended] = {}
    forget: list[str] = []
    for row in await session.rows(_PASSED_BY, limit * ROWS_A_PLACE):
        one = Ended(*row)
        if Status(one.status) not in ENDED:
            forget.append(one.id)  # on its way again: it will be walked to when it ends
        elif _may_go(one, before) and _wanted(one, what) and len(found) < limit:
            found[one.id] = one
            if not keep_passed:
                forget.append(one.id)
    for status in ENDED:
        await _walk(session, (what, status), before, limit, found)
    if forget:
        await session.run(_FORGET_PASSED, codes.ids(forget))
    return list(found.values())


async def _walk(
    session: Session, which: tuple[str, Status], before: Millis, limit: int, found: dict[str, Ended]
) -> None:
    what, status = which
    name = f"retired.{what}.{status}"
    kept = await session.one("SELECT value FROM staffetta_settings WHERE name = %s FOR UPDATE", name)
    second, last = msgspec.json.decode(kept, type=tuple[int, str]) if kept else (0, "")
    reached, passed, all_old = (second, last), [], True
    for row in await session.rows(WALK, status, second, second, last, limit * ROWS_A_PLACE):
        one = Ended(*row)
        if len(found) >= limit:
            break
        if one.updated_ms > before:
            all_old = False  # the mark stays before it; the older ones behind it go all the same
            continue
        if _may_go(one, before):
            if _wanted(one, what):
                found[one.id] = one
        elif all_old:
            passed.append((one.id,))
        if all_old:
            reached = (one.second, one.id)
    if passed:
        await session.insert("REPLACE INTO staffetta_passed_by (email_id)", "(%s)", passed)
    if reached != (second, last):
        value = msgspec.json.encode(reached)
        await session.run("REPLACE INTO staffetta_settings (name, value) VALUES (%s, %s)", name, value)


def _may_go(one: Ended, before: Millis) -> bool:
    return one.over and not one.is_dead and one.updated_ms <= before


def _wanted(one: Ended, what: str) -> bool:
    return what == "records" or not one.erased


async def _erase(session: Session, old: Sequence[Ended]) -> list[str]:
    """Payload and message; the paths of the files in which they lie."""
    if not old:
        return []
    wanted = codes.ids([one.id for one in old])
    bare = [(id, 1) for (id,) in await session.rows(_NO_CONTENT, wanted)]
    await session.insert("INSERT INTO contents (email_id, erased)", "(%s, %s)", bare)
    await session.run(_ERASE, wanted)
    if any(one.paths for one in old):
        await session.run(_ERASE_PATHS, wanted)
    return [path for one in old for path in one.paths]


async def _unnamed(session: Session, paths: Sequence[str]) -> tuple[str, ...]:
    return tuple([path for path in paths if not await session.one(_NAMED, path, path)])
