"""What the guides say is run as it stands there, but for the server's address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doubles.databases import Server
from doubles.framework import django_connection
from doubles.pages import blocks
from staffetta.store.mysql import MysqlStore

pytestmark = pytest.mark.service
GUIDES = Path(__file__).parents[3] / "docs" / "guides"


def block(page: str, word: str) -> str:
    found = [one.text for one in blocks(GUIDES / page) if word in one.words]
    assert len(found) == 1, f"{page} has {len(found)} blocks for {word}"
    return found[0]


@pytest.fixture
def shop(mariadb_server: Server) -> str:
    """A database of an application's own, with Staffetta's tables in it, and the guide's users."""
    database = mariadb_server.emptied()
    mariadb_server.ask("CREATE TABLE IF NOT EXISTS orders (number INT)", database=database)
    mariadb_server.ask("DELETE FROM orders", database=database)
    for statement in block("mysql.md", "grants").split(";"):
        if statement.strip():
            mariadb_server.ask(
                statement.replace("CREATE USER", "CREATE USER IF NOT EXISTS").replace("mail.", f"{database}.")
            )
    mariadb_server.ask(f"GRANT INSERT ON {database}.orders TO 'shop'@'%'")
    return database


def here(text: str, server: Server, database: str) -> str:
    return (
        text.replace("127.0.0.1:3306/shop", f"127.0.0.1:{server.port}/{database}")
        .replace("port=3306", f"port={server.port}")
        .replace('database="shop"', f'database="{database}"')
    )


def handed_in(server: Server, database: str) -> int:
    orders = server.ask("SELECT COUNT(*) FROM orders", database=database)
    emails = server.ask("SELECT COUNT(*) FROM emails e JOIN contents c ON c.email_id = e.id", database=database)
    assert orders == emails
    return int(emails[0][0])


@pytest.mark.parametrize("library", ["plain", "sqlalchemy"])
def test_an_order_and_its_email_are_saved_together(mariadb_server: Server, shop: str, library: str) -> None:
    """With the least rights that the other guide grants."""
    exec(here(block("transactional.md", library), mariadb_server, shop), {})
    assert handed_in(mariadb_server, shop) == 1


def test_in_django_too(mariadb_server: Server, shop: str) -> None:
    from django.db import connections, transaction

    connections["default"] = django_connection(mariadb_server, shop, user="shop", password="secret")
    names: dict[str, Any] = {}
    exec(block("transactional.md", "django"), names)
    names["place"](3)
    assert handed_in(mariadb_server, shop) == 1
    with transaction.atomic():
        names["place"](4)
        transaction.set_rollback(True)
    assert handed_in(mariadb_server, shop) == 1
    connections["default"].close()


async def test_workers_need_no_more_than_the_guide_grants(mariadb_server: Server, shop: str) -> None:
    store = MysqlStore(mariadb_server.url(shop, user="staffetta", password="secret"))
    await store.open()
    try:
        await store.put_setting("a", b"b")
        assert await store.counts()
        await store.retire(now=1, content_ms=1, record_ms=1, dead_letter_max=1, limit=1)
    finally:
        await store.close()


def test_whoever_looks_inside_finds_what_the_guide_names(mariadb_server: Server, shop: str) -> None:
    for statement in block("mysql.md", "looking").split(";"):
        if statement.strip():
            mariadb_server.ask(statement, database=shop)
