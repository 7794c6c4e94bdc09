"""Opens connections as every one of ours must be, and knows a store of ours from any other file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import apsw

from staffetta.errors import StoreUnusable
from staffetta.store.sqlite.faults import translated

APPLICATION_ID = 0x53746166
"""Stands in the file's header: this is a store of ours."""
OLDEST_LIBRARY = (3, 51, 3)
"""Before it, two processes writing to one WAL could corrupt the file when it was reset."""
PAGE_BYTES = 4096
CACHE_KIB = 32_768
WAL_PAGES = 4_000


def check_library(version: str = apsw.sqlite_lib_version()) -> None:
    """:raises StoreUnusable: this SQLite may damage a store that two processes write."""
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_LIBRARY:
        oldest = ".".join(str(part) for part in OLDEST_LIBRARY)
        raise StoreUnusable(
            f"SQLite {version} can damage a file that two processes write; upgrade `apsw` (SQLite {oldest} or later)"
        )


def connect(path: Path, *, busy_ms: int, query_only: bool = False) -> apsw.Connection:
    """A connection with every setting that durability hangs on; what was asked for is read back."""
    check_library()
    with translated(path):
        connection = apsw.Connection(str(path), statementcachesize=200)
        try:
            connection.set_busy_timeout(busy_ms)
            _settle(connection, path)
            connection.pragma("query_only", 1 if query_only else 0)
        except BaseException:
            connection.close()
            raise
    return connection


def _settle(connection: apsw.Connection, path: Path) -> None:
    schema_of(connection, path)  # the settings below are kept in the file, so it must be ours
    if connection.pragma("page_count") == 0:
        connection.pragma("page_size", PAGE_BYTES)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreUnusable(f"{path}: this file system cannot keep a write-ahead log; use a local disk")
    connection.pragma("synchronous", 2)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("temp_store", 2)
    connection.pragma("secure_delete", 0)
    connection.wal_autocheckpoint(WAL_PAGES)
    assert connection.pragma("synchronous") == 2, "every commit is synced, on every connection"


# ------------------------------------------------------------------------------------------------ the schema


def migrations() -> list[tuple[int, str, str]]:
    """Number, name and text of each migration, in order."""
    folder = resources.files("staffetta.store") / "schema" / "sqlite"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted((int(one.name[:4]), one.name.removesuffix(".sql"), one.read_text("utf-8")) for one in found)


def schema_of(connection: apsw.Connection, path: Path) -> int:
    """The number of the last migration that this file has had; 0: it is empty.

    :raises StoreUnusable: a database of someone else's.
    """
    with translated(path):
        ours = connection.pragma("application_id")
        if ours == APPLICATION_ID:
            return int(connection.pragma("user_version"))
        if ours == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").get == 0:
            return 0
    raise StoreUnusable(f"{path} is a database of another program; name another file in the store's URL")


def check_schema(connection: apsw.Connection, path: Path) -> None:
    """:raises StoreUnusable: `migrate` is needed, or a later release has been here."""
    newest = migrations()[-1][0]
    found = schema_of(connection, path)
    _refuse_later(found, path)
    if found < newest:
        raise StoreUnusable(f"{path} has schema {found}, this release needs {newest}; run `staffetta migrate`")


def _refuse_later(found: int, path: Path) -> None:
    newest = migrations()[-1][0]
    if found > newest:
        raise StoreUnusable(
            f"{path} was written by a later release (schema {found}, this one knows {newest}); use that release"
        )


def migrate(connection: apsw.Connection, path: Path) -> list[str]:
    """Run what is missing, all of it in one transaction; the names of what was run."""
    done: list[str] = []
    with translated(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = schema_of(connection, path)
            _refuse_later(found, path)
            for number, name, text in migrations():
                if number > found:
                    connection.execute(text)
                    connection.pragma("user_version", number)
                    done.append(name)
            if done:
                connection.pragma("application_id", APPLICATION_ID)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return done
