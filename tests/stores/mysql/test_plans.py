"""Asking for work costs the same with a thousand finished e-mails and with a hundred times as many, by the named index."""

from __future__ import annotations

import re
from typing import Any

import pytest

from doubles.databases import Server
from staffetta.mail.message import Job
from staffetta.store.mysql import MysqlStore, claims, codes, moves, reminders, stages, upkeep, visitors
from staffetta.store.mysql.session import Session

pytestmark = pytest.mark.service
FEW, MANY = 1_000, 30_000
READY = 300
PART = (1, 0)
LONG_AGO = -(1 << 62)

QUESTIONS: dict[str, tuple[str, tuple[Any, ...], str]] = {
    # what is asked: the statement, its values, the index that answers
    "for intake": (stages.ACCEPTED, (50,), "idx_status_updated"),
    "for owners to tell": (stages.OWED, (50,), "staffetta_owed"),
    "a company's line": (reminders.WAITING, ("acme", 5, LONG_AGO, LONG_AGO, "", *PART, 50), "staffetta_line"),
    "the next priority": (reminders.NEXT_PRIORITY, ("acme", 0), "staffetta_line"),
    "what became ready": (reminders.NEW, (0, 0, "", *PART, 50), "idx_status_updated"),
    "what woke up": (reminders.WOKEN, (0, *PART, 50), "staffetta_wakes"),
    "what others made ready": (visitors.NEW, (*PART, 50), "staffetta_line"),
    "what is old in work": (upkeep.OLD, ("PROCESSING", 1_800_000, 50), "idx_status_updated"),
    "whom nobody told": (upkeep.OLD_CALLING, ("CALLING-SENT-CALLBACK", 1_800_000, 50), "staffetta_owed"),
    "to claim": (claims.LOCK.format(ids="%s, %s"), ("a" * 36, "b" * 36), "PRIMARY"),
    "to move": (moves.LOCK.format(ids="%s, %s"), ("a" * 36, "b" * 36), "PRIMARY"),
}


def finished(server: Server, database: str, count: int) -> None:
    """So many SENT ones, as old as one likes."""
    server.ask(
        "INSERT INTO emails (id, status, version, our_version, company_id, next_attempt_at, expires_at, reached_ms,"
        "                    accepted_ms, moved_ms, created_at, updated_at)"
        " SELECT CONCAT('00000000-0000-4000-8000-', LPAD(n, 12, '0')), 'SENT', 5, 5, CONCAT('c', n MOD 100), 1, 2, 1, 1, 1,"
        "        NOW() - INTERVAL 1 DAY, NOW() - INTERVAL 1 DAY"
        " FROM (WITH RECURSIVE one (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < 1000)"
        "       SELECT a.n + 1000 * (b.n - 1) AS n FROM one a JOIN one b ON b.n <= %s) AS numbers",
        count // 1_000, database=database,
    )  # fmt: skip
    server.ask(
        "INSERT INTO emails (id, status, version, our_version, company_id, next_attempt_at, expires_at, moved_ms)"
        " SELECT CONCAT('11111111-0000-4000-8000-', LPAD(n, 12, '0')), 'READY', 3, 3, 'acme', n, 99999999999999, 1"
        " FROM (WITH RECURSIVE one (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < %s) SELECT n FROM one) AS m",
        READY, database=database,
    )  # fmt: skip
    server.ask("ANALYZE TABLE emails", database=database)


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.mark.parametrize("question", QUESTIONS)
async def test_the_named_index_answers(server: Server, question: str) -> None:
    """A plan that turns to another one shows only when the table is large: then nobody sends any more."""
    database = server.emptied()
    finished(server, database, FEW)
    text, facts, index = QUESTIONS[question]
    plan = server.ask(f"EXPLAIN {text}", *facts, database=database)
    named = [row for row in plan if index in str(row)]
    assert named, plan
    assert not [row for row in plan if "filesort" in str(row) and "idx_status_updated" in str(row)], plan


async def test_asking_for_work_examines_the_same_rows_with_few_finished_and_many(server: Server) -> None:
    """Counted by the server itself, over all that an idle and a busy worker ask for."""
    examined = {}
    for count in (FEW, MANY):
        database = server.emptied()
        finished(server, database, count)
        store = MysqlStore(server.url(database))
        await store.open()
        try:
            examined[count] = await _examined(store)
        finally:
            await store.close()
    assert examined[MANY] <= 1.2 * examined[FEW], examined


async def _examined(store: MysqlStore) -> int:
    """Rows read by the server for one round of questions. One connection answers all, so its own counters tell."""
    while store._pool._idle:
        await store._pool._idle.pop().close()
    before = await store._pool.read(_reads)
    assert await store.waiting_companies(now=0) == ["acme"]
    page = await store.waiting("acme", now=0, limit=50)
    assert len(page) == 50
    assert await store.waiting("acme", now=0, limit=50, after=page[-1])
    await store.news(now=0, limit=100)
    assert await store.claim(Job(id=page[0].id, company_id="acme", priority=5, due_at=0), token="w.1", now=1)
    await store.claim_intake(tokens=["w.2"], now=1)
    await store.claim_reports(tokens=["w.3"], now=1)
    await store.stuck(now=0, dead_after_ms=60_000, timeout_ms=1_800_000)
    await store.visitors(limit=10)
    await store.next_due(now=0)
    assert len(store._pool._idle) == 1, "all was asked of one connection"
    return await store._pool.read(_reads) - before


async def _reads(session: Session) -> int:
    rows = await session.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(
        int(value) for name, value in rows if re.search(r"key|next|prev|rnd|first|last", name, re.IGNORECASE)
    )


def test_sets_compare_byte_for_byte() -> None:
    """Whatever the connection's or the server's own way of comparing texts."""
    assert "id CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" in codes.IDS
