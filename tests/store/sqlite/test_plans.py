"""What is asked for all the time reads an index, never a table: finished e-mails cost nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from contracts.letters import HOUR, Letters
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Filter
from staffetta.store.sqlite import SqliteStore, browsing, claims, connection, reminders, stages, upkeep

GROWING = ("mail", "journal", "contents", "recipients")
"""Tables with a row or more for every e-mail that ever was."""

STATEMENTS = {
    "companies that wait": reminders._COMPANIES,
    "a company's line": reminders._WAITING,
    "the nearest priority": reminders._NEXT_PRIORITY,
    "is there news": reminders._ANY_NEWS,
    "news told": reminders._TOLD,
    "news by time": reminders._DUE,
    "claims read back": claims._READ_OPEN,
    "claims without messages": claims._READ_BARE,
    "stuck": upkeep._STUCK,
    "accepted that expired": upkeep._ACCEPTED_OVER,
    "ready that expired": upkeep._LINE_OVER,
}


def plan(opened: apsw.Connection, statement: str) -> list[str]:
    names = sorted(set(re.findall(r":(\w+)", statement)))
    facts = dict.fromkeys(names, 1) if names else (1,) * statement.count("?")
    return [row[3] for row in opened.execute(f"EXPLAIN QUERY PLAN {statement}", facts)]


def scans(statement: str, steps: list[str]) -> list[str]:
    """Steps that go through a whole growing table, or through an index of one without a place to begin."""
    aliases = {*GROWING, *(alias for table in GROWING for alias in re.findall(rf"\b{table} (\w)\b", statement))}
    return [
        step
        for step in steps
        if (found := re.match(r"SCAN (\w+)", step)) and found[1] in aliases and "VIRTUAL TABLE" not in step
    ]


@pytest.fixture
async def opened(store: SqliteStore, path: Path) -> apsw.Connection:
    return connection.connect(path, busy_ms=100, query_only=True)


@pytest.mark.parametrize("name", STATEMENTS)
async def test_asking_for_work_never_goes_through_what_is_finished(opened: apsw.Connection, name: str) -> None:
    steps = plan(opened, STATEMENTS[name])

    assert scans(STATEMENTS[name], steps) == [], steps
    opened.close()


@pytest.mark.parametrize("name", ["a company's line", "is there news"])
async def test_a_line_is_read_in_its_order_and_not_sorted(opened: apsw.Connection, name: str) -> None:
    steps = plan(opened, STATEMENTS[name])

    assert [step for step in steps if "TEMP B-TREE" in step] == [], steps
    opened.close()


async def test_reports_are_taken_by_the_index_of_what_is_to_be_told(opened: apsw.Connection) -> None:
    statement = next(
        text for name, text in vars(stages).items() if isinstance(text, str) and "m.callback = 1" in text
    )

    assert any("mail_to_report" in step for step in plan(opened, statement))
    opened.close()


@pytest.mark.parametrize(
    "filter",
    [
        Filter(),
        Filter(company_id="acme"),
        Filter(recipient="a@example.com"),
        Filter(code="550"),
        Filter(status=(Status.FAILED,)),
        Filter(status=(Status.FAILED,), company_id="acme"),
        Filter(status=(Status.ACCEPTED, Status.INVALID)),
        Filter(status=(Status.PROCESSING,)),
        Filter(since=1, until=2),
    ],
    ids=str,
)
async def test_every_listing_is_read_by_an_index_that_has_its_order(
    opened: apsw.Connection, filter: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = browsing._Query.run

    def listen(query: browsing._Query, at: apsw.Connection, statement: str) -> list[tuple[int, int]]:
        asked.append(statement)
        return run(query, at, statement)

    monkeypatch.setattr(browsing._Query, "run", listen)
    browsing.emails(opened, filter, limit=10, before=(10**15, 10**9))
    browsing.dead_letters(opened, msgspec.structs.replace(filter, status=()), limit=10, before=None)

    for statement in asked:
        for step in plan(opened, statement):
            assert not re.match(r"SCAN (m|mail|j|journal|t|contents|r|recipients)\b(?! USING)", step), (
                statement,
                step,
            )
    opened.close()


async def test_asking_for_work_costs_the_same_after_many_that_are_finished(
    post: Letters, store: SqliteStore
) -> None:
    """Counted in steps of SQLite's machine: 1 % of tolerance for a deeper tree."""
    for _ in range(5):
        await post.ready()
    await post.ready(due_in=HOUR)

    async def steps() -> int:
        def count(opened: Any) -> int:
            opened.execute("SELECT 1").get  # noqa: B018  # a statement of its own, so that the next is counted alone
            taken = 0

            def tick() -> bool:
                nonlocal taken
                taken += 1
                return False

            opened.set_progress_handler(tick, 1)
            try:
                opened.execute(reminders._COMPANIES, (post.now,)).fetchall()
                reminders._waiting(opened, "acme", post.now, 100, None)
            finally:
                opened.set_progress_handler(None, 1)
            return taken

        return await store._reader.read(count)

    before = await steps()
    await post.add(*(post.new(company_id=f"c{n % 10}") for n in range(600)))
    for job in [job for n in range(10) for job in await store.waiting(f"c{n}", now=post.now, limit=1_000)]:
        await post.store.apply(post.delivered(await post.claim(job.id)))
    await store._writer.do(lambda group: group.purge())

    assert await steps() <= before * 1.01
