"""Finds the rows of one page of a listing, newest first. A cursor is a time and an id: `1800000000.0198f0a0-…`."""

from __future__ import annotations

from typing import TypeAlias

from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail.operators import Filter
from staffetta.store.mysql.records import CREATED_MS
from staffetta.store.mysql.session import Session

Place: TypeAlias = tuple[int, str]
"""When (seconds for e-mails, milliseconds for dead letters), and which."""


def read_cursor(cursor: str) -> Place:
    """:raises PayloadError: not a cursor of ours."""
    at, _, id = cursor.partition(".")
    if not (at.isascii() and at.isdigit() and len(at) <= 18 and len(id) == 36):
        raise PayloadError([FieldProblem("cursor", "take the cursor of the page before as it stands")])
    return int(at), id


def write_cursor(place: Place) -> str:
    return f"{place[0]}.{place[1]}"


async def emails(session: Session, filter: Filter, *, limit: int, before: Place | None) -> list[Place]:
    """Places of the first `limit` e-mails behind `before`."""
    source, where, facts = _narrowed(filter)
    if before is not None:
        where.append("(e.created_at < FROM_UNIXTIME(%s) OR (e.created_at = FROM_UNIXTIME(%s) AND e.id < %s))")
        facts += [before[0], *before]
    if filter.since is not None:
        where += ["e.created_at >= FROM_UNIXTIME(%s)", f"{CREATED_MS} >= %s"]
        facts += [filter.since // 1_000, filter.since]
    if filter.until is not None:
        where += ["e.created_at <= FROM_UNIXTIME(%s)", f"{CREATED_MS} < %s"]
        facts += [filter.until // 1_000, filter.until]
    rows = await session.rows(
        f"SELECT CAST(UNIX_TIMESTAMP(e.created_at) AS SIGNED), e.id FROM {source} WHERE {' AND '.join(where) or '1'}"
        " ORDER BY e.created_at DESC, e.id DESC LIMIT %s",
        *facts, limit,
    )  # fmt: skip
    return [(int(at), id) for at, id in rows]


async def dead_letters(session: Session, filter: Filter, *, limit: int, before: Place | None) -> list[Place]:
    """Places of the first `limit` dead letters behind `before`, by the time of their burial."""
    source, where, facts = _narrowed(filter)
    if filter.code is None:
        source += " JOIN staffetta_dead_letters d ON d.email_id = e.id"
    for condition, fact in (("d.moved_at >= %s", filter.since), ("d.moved_at < %s", filter.until)):
        if fact is not None:
            where.append(condition)
            facts.append(fact)
    if before is not None:
        where.append("(d.moved_at < %s OR (d.moved_at = %s AND d.email_id < %s))")
        facts += [before[0], *before]
    rows = await session.rows(
        f"SELECT d.moved_at, d.email_id FROM {source} WHERE {' AND '.join(where) or '1'}"
        " ORDER BY d.moved_at DESC, d.email_id DESC LIMIT %s",
        *facts, limit,
    )  # fmt: skip
    return [(int(at), id) for at, id in rows]


def _narrowed(filter: Filter) -> tuple[str, list[str], list[object]]:
    """Tables, conditions and their values for everything that is asked for but the time."""
    source, where, facts = "emails e", [], []  # type: str, list[str], list[object]
    if filter.recipient is not None:
        source += " JOIN staffetta_recipients r ON r.email_id = e.id"
        where.append("r.address = %s")
        facts.append(filter.recipient)
    if filter.code is not None:
        source += " JOIN staffetta_dead_letters d ON d.email_id = e.id"
        where.append("d.code = %s")
        facts.append(filter.code)
    if filter.company_id is not None:
        where.append("e.company_id = %s")
        facts.append(filter.company_id)
    if filter.status:
        where.append(f"e.status IN ({', '.join(['%s'] * len(filter.status))})")
        facts += filter.status
    return source, where, facts
