"""`outbox.add` within the caller's own transaction, through every kind of connection: there if and only if it commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from doubles.databases import Server
from doubles.framework import django_connection
from doubles.office import office
from staffetta import outbox
from staffetta.errors import Conflict, PayloadError
from staffetta.mail.lifecycle import Status

pytestmark = pytest.mark.service
LETTER = {"from": "us@example.com", "to": "you@example.org", "subject": "hello", "body_text": "hello"}
ID = "0198f0a0-0000-7000-8000-000000000001"


class RolledBack(Exception):
    """The caller's own trouble."""


@pytest.fixture
def database(mariadb_server: Server) -> str:
    return mariadb_server.emptied()


def count(server: Server, database: str) -> tuple[int, ...]:
    tables = ("emails", "email_statuses", "contents")
    return tuple(server.ask(f"SELECT COUNT(*) FROM {table}", database=database)[0][0] for table in tables)


@contextmanager
def by_cursor(server: Server, database: str) -> Iterator[Any]:
    connection = server.connect(database)
    connection.autocommit(False)
    try:
        with connection.cursor() as cursor:
            yield cursor
        connection.commit()
    finally:
        connection.close()


@contextmanager
def by_dict_cursor(server: Server, database: str) -> Iterator[Any]:
    connection = server.connect(database, cursorclass=pymysql.cursors.DictCursor)
    try:
        connection.begin()
        with connection.cursor() as cursor:
            yield cursor
        connection.commit()
    finally:
        connection.close()


@contextmanager
def by_connection(server: Server, database: str) -> Iterator[Any]:
    connection = server.connect(database)
    try:
        connection.begin()
        yield connection
        connection.commit()
    finally:
        connection.close()


@contextmanager
def by_sqlalchemy(server: Server, database: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{server.port}/{database}")
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def by_sqlalchemy_session(server: Server, database: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{server.port}/{database}")
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def by_django(server: Server, database: str) -> Iterator[Any]:
    from django.db import connections, transaction

    connection = django_connection(server, database)
    connections["default"] = connection
    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


WAYS = [by_cursor, by_dict_cursor, by_connection, by_sqlalchemy, by_sqlalchemy_session, by_django]


@pytest.mark.parametrize("way", WAYS)
def test_it_exists_when_the_caller_commits(
    mariadb_server: Server, database: str, way: Callable[..., Any]
) -> None:
    with way(mariadb_server, database) as cursor:
        first = outbox.add(cursor, LETTER)
        second = outbox.add(cursor, json.dumps({**LETTER, "id": ID}))
        assert count(mariadb_server, database) == (0, 0, 0), "nobody else sees it before the commit"
    assert second == ID
    assert first != second
    assert count(mariadb_server, database) == (2, 2, 2)


@pytest.mark.parametrize("way", WAYS)
def test_it_does_not_when_the_caller_rolls_back(
    mariadb_server: Server, database: str, way: Callable[..., Any]
) -> None:
    def order() -> None:
        with way(mariadb_server, database) as cursor:
            outbox.add(cursor, LETTER)
            raise RolledBack

    with pytest.raises(RolledBack):
        order()
    assert count(mariadb_server, database) == (0, 0, 0)


def test_a_connection_that_commits_by_itself_is_refused(mariadb_server: Server, database: str) -> None:
    """Else half an e-mail could stay behind, and the caller's own failure would not take it back."""
    connection = mariadb_server.connect(database)
    with connection.cursor() as cursor, pytest.raises(outbox.NoTransaction):
        outbox.add(cursor, LETTER)
    connection.close()
    beside = django_connection(mariadb_server, database)
    with pytest.raises(outbox.NoTransaction, match="atomic"):
        outbox.add(beside, LETTER)
    beside.close()
    assert count(mariadb_server, database) == (0, 0, 0)


def test_a_wrong_payload_names_its_fields_and_writes_nothing(mariadb_server: Server, database: str) -> None:
    with by_cursor(mariadb_server, database) as cursor:
        with pytest.raises(PayloadError) as told:
            outbox.add(cursor, {**LETTER, "to": "nobody", "colour": "red"})
        assert {"to", "colour"} == {problem.field for problem in told.value.problems}
    assert count(mariadb_server, database) == (0, 0, 0)


def test_a_known_id_is_one_email(mariadb_server: Server, database: str) -> None:
    """A caller that repeats its own transaction doubles nothing."""
    for _ in range(2):
        with by_cursor(mariadb_server, database) as cursor:
            assert outbox.add(cursor, {**LETTER, "id": ID}) == ID
    with by_cursor(mariadb_server, database) as cursor, pytest.raises(Conflict):
        outbox.add(cursor, {**LETTER, "id": ID, "subject": "another"})
    assert count(mariadb_server, database) == (1, 1, 1)


def test_a_large_payload_needs_the_spool(mariadb_server: Server, database: str, tmp_path: Path) -> None:
    large = {**LETTER, "body_text": "x" * 300_000}
    with by_cursor(mariadb_server, database) as cursor:
        with pytest.raises(PayloadError, match="spool="):
            outbox.add(cursor, large)
        name = outbox.add(cursor, large, spool=tmp_path)
    ((path,),) = mariadb_server.ask("SELECT payload_file_path FROM emails", database=database)
    assert json.loads(Path(path).read_bytes()) == large
    assert Path(path).name.startswith(name)


def test_something_else_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="DB-API cursor"):
        outbox.add(object(), LETTER)


async def test_it_is_sent_within_a_moment_of_the_commit(
    mariadb_server: Server, database: str, tmp_path: Path
) -> None:
    """Small ones from the row, large ones from the spool that workers share."""
    async with office(mariadb_server.url(database), tmp_path) as ours:
        with by_sqlalchemy(mariadb_server, database) as connection:
            small = outbox.add(connection, {**LETTER, "company_id": "acme"})
            large = outbox.add(connection, {**LETTER, "body_text": "x" * 300_000}, spool=tmp_path / "spool")
        for name in (small, large):
            await ours.until(name, Status.SENT)
        email = await ours.running.store.get(small)
        assert email is not None
        assert email.company_id == "acme"
        assert email.updated_at - email.created_at < 1_500
