"""A database that has the seed's tables already becomes ours: no row lost, no time changed, and it may be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from doubles.databases import Server
from doubles.seedling import SEEDS_TABLES, Seedling
from staffetta.errors import StoreUnusable
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Filter
from staffetta.store.mysql import MysqlStore, schema

pytestmark = pytest.mark.service
SEEDS = ("id", "status", "eml_file_path", "payload_file_path", "reason", "version", "created_at", "updated_at")


@pytest.fixture(params=["mariadb", pytest.param("mysql")])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    with server.database() as name:
        yield name


def filled(server: Server, database: str) -> list[tuple[Any, ...]]:
    """The seed's tables with rows in every status, moved a while ago; what is in them."""
    other = Seedling(server, database)
    other.make_tables()
    for number, status in enumerate(Status):
        name = f"0198f0a0-0000-4000-8000-{number:012d}"
        other.hand_in(name, f"/mnt/{number}.json")
        if status is not Status.ACCEPTED:
            other.move(name, "ACCEPTED", status, f"now it is {status}")
    with other._transaction() as cursor:
        cursor.execute(
            "UPDATE emails SET created_at = NOW() - INTERVAL 9 DAY, updated_at = NOW() - INTERVAL 8 DAY"
        )
    other.close()
    return rows(server, database)


def rows(server: Server, database: str) -> list[tuple[Any, ...]]:
    return server.ask(f"SELECT {', '.join(SEEDS)} FROM emails ORDER BY id", database=database)


def shape(server: Server, database: str) -> list[tuple[Any, ...]]:
    """Tables, columns and indexes, whatever order they were made in."""
    columns = server.ask(
        "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, COLLATION_NAME"
        " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s ORDER BY 1, 2",
        database,
    )
    indexes = server.ask(
        "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SEQ_IN_INDEX FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = %s ORDER BY 1, 2, 4",
        database,
    )
    keys = server.ask(
        "SELECT TABLE_NAME, COLUMN_NAME, REFERENCED_TABLE_NAME FROM information_schema.KEY_COLUMN_USAGE"
        " WHERE TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME IS NOT NULL ORDER BY 1, 2",
        database,
    )
    return [*columns, *indexes, *keys]


async def test_tables_with_rows_in_every_status_are_adopted(server: Server, database: str) -> None:
    before = filled(server, database)
    histories = server.ask(
        "SELECT email_id, status, reason, created_at FROM email_statuses ORDER BY id", database=database
    )
    store = MysqlStore(server.url(database))
    assert await store.migrate() == [name for _, name, _ in schema.migrations()]
    assert rows(server, database) == before
    assert histories == server.ask(
        "SELECT email_id, status, reason, created_at FROM email_statuses ORDER BY id", database=database
    )
    await store.open()
    try:
        assert set((await store.counts()).values()) == {1}
        page = await store.emails(Filter(), limit=50)
        assert len(page.items) == len(Status)
        for email in page.items:
            assert email.status is (await store.history(email.id))[-1].status
    finally:
        await store.close()
    assert rows(server, database) == before


async def test_an_adopted_database_is_like_a_new_one(server: Server, database: str) -> None:
    """Whoever looks into it later must not have to ask how it came to be."""
    filled(server, database)
    await MysqlStore(server.url(database)).migrate()
    with server.database() as fresh:
        await MysqlStore(server.url(fresh)).migrate()
        assert shape(server, database) == shape(server, fresh)


async def test_it_may_be_run_again_and_by_two_at_once(server: Server, database: str) -> None:
    filled(server, database)
    done = await asyncio.gather(*(MysqlStore(server.url(database)).migrate() for _ in range(2)))
    assert sorted(len(names) for names in done) == [0, len(schema.migrations())]
    assert await MysqlStore(server.url(database)).migrate() == []


async def test_broken_off_anywhere_it_goes_on(server: Server, database: str) -> None:
    """The database commits every change of a table by itself: each may have been the last before a crash."""
    before = filled(server, database)
    with server.database() as fresh:
        await MysqlStore(server.url(fresh)).migrate()
        whole = shape(server, fresh)
    texts = [text for _, _, texts in schema.migrations() for text in texts]
    bin_id = "CHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
    ((key,),) = server.ask(
        "SELECT CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s"
        " AND REFERENCED_TABLE_NAME = 'emails'",
        database,
    )
    server.ask(f"ALTER TABLE email_statuses DROP FOREIGN KEY `{key}`", database=database)
    server.ask(f"ALTER TABLE emails MODIFY id {bin_id}", database=database)
    await MysqlStore(server.url(database)).migrate()
    server.ask("DELETE FROM staffetta_schema", database=database)
    for table in ("staffetta_late", "staffetta_settings"):
        server.ask(f"DROP TABLE {table}", database=database)
    server.ask("DROP VIEW dlq", database=database)
    await MysqlStore(server.url(database)).migrate()
    assert len(texts) > 10
    assert shape(server, database) == whole
    assert rows(server, database) == before


async def test_the_other_program_works_on_the_new_tables(server: Server, database: str) -> None:
    """Everything of ours has a default: its INSERT names three columns."""
    await MysqlStore(server.url(database)).migrate()
    other = Seedling(server, database)
    other.hand_in("0198f0a0-0000-4000-8000-000000000001", "/mnt/1.json")
    (row,) = other.take("ACCEPTED", "INTAKING")
    other.move(row.id, "INTAKING", "INVALID", "no")
    assert (other.row(row.id).status, other.row(row.id).version) == ("INVALID", 3)
    other.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE emails DROP PRIMARY KEY, ADD PRIMARY KEY (id, status)", r"key of its table emails is \(id, status\)"),
        ("ALTER TABLE emails DROP COLUMN reason", "it has no reason"),
        ("ALTER TABLE emails ENGINE=MyISAM", "knows no transactions"),
    ],
    ids=["other keys", "other columns", "other engine"],
)  # fmt: skip
async def test_tables_of_another_make_are_left_alone(
    server: Server, database: str, change: str, words: str
) -> None:
    server.ask(SEEDS_TABLES[0], database=database)
    server.ask(change, database=database)
    before = shape(server, database)
    with pytest.raises(StoreUnusable, match=words):
        await MysqlStore(server.url(database)).migrate()
    assert shape(server, database) == before


async def test_a_store_that_was_not_migrated_is_refused_with_the_remedy(server: Server, database: str) -> None:
    with pytest.raises(StoreUnusable, match="run `staffetta migrate`"):
        await MysqlStore(server.url(database)).open()
    filled(server, database)
    with pytest.raises(StoreUnusable, match="run `staffetta migrate`"):
        await MysqlStore(server.url(database)).open()


async def test_the_dead_letters_are_seen_under_the_runbooks_names(server: Server, database: str) -> None:
    await MysqlStore(server.url(database)).migrate()
    found = server.ask(
        "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 'dlq'"
        " ORDER BY ORDINAL_POSITION",
        database,
    )
    assert [name for (name,) in found] == [
        "jobId", "outboxId", "companyId", "originalData", "failedAttempts", "lastFailureReason", "lastFailureCode",
        "lastFailureTimestamp", "enqueuedAt", "movedToDLQAt", "ttl",
    ]  # fmt: skip
