"""Durability hangs on settings of each connection; and only a file of ours, of this release, is written to."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import apsw
import pytest

from contracts.letters import Letters
from staffetta.errors import StoreUnavailable, StoreUnusable
from staffetta.store.sqlite import SqliteStore, connection

WANTED = {"journal_mode": "wal", "synchronous": 2}
"""2 is FULL: every commit is synced before it is acknowledged."""


def pragmas(opened: Any) -> dict[str, Any]:
    return {name: opened.pragma(name) for name in WANTED}


async def test_every_connection_has_what_durability_hangs_on(store: SqliteStore) -> None:
    assert await store._writer.do(lambda group: pragmas(group.connection)) == WANTED
    assert await store._reader.read(pragmas) == WANTED
    assert await store._browser.read(pragmas) == WANTED


async def test_a_command_beside_the_owner_has_it_too(store: SqliteStore, path: Path) -> None:
    beside = SqliteStore(path, owner=False)
    await beside.open()
    try:
        assert await beside._writer.do(lambda group: pragmas(group.connection)) == WANTED
        assert await beside._reader.read(pragmas) == WANTED
    finally:
        await beside.close()


async def test_readers_cannot_write(store: SqliteStore) -> None:
    for reader in (store._reader, store._browser):
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await reader.read(lambda opened: opened.execute("DELETE FROM mail"))


async def test_a_connection_that_takes_the_place_of_a_broken_one_has_it_too(
    post: Letters, store: SqliteStore
) -> None:
    """After an error of the disk the writer connects anew."""

    def breaks(_: object) -> None:
        raise apsw.IOError("the disk failed")

    with pytest.raises(StoreUnavailable):
        await store._writer.do(breaks)

    assert await store._writer.do(lambda group: pragmas(group.connection)) == WANTED
    await post.ready()


@pytest.mark.parametrize(
    ("version", "is_fit"),
    [("3.51.2", False), ("3.46.1", False), ("3.51.3", True), ("3.60.0", True), ("4.0.0", True)],
)
def test_a_library_that_can_damage_a_file_is_refused(version: str, is_fit: bool) -> None:
    if is_fit:
        connection.check_library(version)
    else:
        with pytest.raises(StoreUnusable, match="upgrade `apsw`"):
            connection.check_library(version)


def test_the_library_in_use_is_fit() -> None:
    connection.check_library(apsw.sqlite_lib_version())


# ------------------------------------------------------------------------------------------ whose file it is


async def refused(path: Path) -> str:
    store = SqliteStore(path)
    with pytest.raises(StoreUnusable) as caught:
        await store.open()
    again = SqliteStore(path)
    with pytest.raises(StoreUnusable):
        await again.open()  # the first one let go of the file: no "owned by another"
    return str(caught.value)


async def test_a_database_of_another_program_is_not_touched(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE orders (id INTEGER)")
    other.close()
    before = path.read_bytes()

    assert "another program" in await refused(path)
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_schema").fetchall() == [("orders",)]
    assert len(path.read_bytes()) == len(before)


async def test_a_file_that_is_no_database_is_not_touched(path: Path) -> None:
    path.write_bytes(b"Dear all, " * 1_000)

    assert "not an SQLite database" in await refused(path)
    assert path.read_bytes() == b"Dear all, " * 1_000


async def test_a_damaged_file_is_told_with_what_to_do(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    whole = bytearray(path.read_bytes())
    whole[100:4000] = b"\xff" * 3900
    path.write_bytes(bytes(whole))

    told = await refused(path)

    assert "damaged" in told
    assert "backup" in told


async def test_a_file_of_a_later_release_is_refused_by_its_number(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 9999")
    later.close()

    assert "schema 9999" in await refused(path)


async def test_a_store_of_ours_that_lost_its_mark_is_nobodys_we_know(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with sqlite3.connect(path) as older:
        older.execute("PRAGMA application_id = 0")
    older.close()

    assert "another program" in await refused(path)


async def test_an_empty_file_is_made_into_a_store(path: Path) -> None:
    path.touch()
    store = SqliteStore(path)
    await store.open()
    try:
        assert sum((await store.counts()).values()) == 0
    finally:
        await store.close()


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "nowhere" / "staffetta.db")

    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await store.open()


async def test_a_store_that_is_not_open_says_so(path: Path) -> None:
    store = SqliteStore(path)

    with pytest.raises(StoreUnavailable, match="not open"):
        await store.counts()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.discard(["x"])


async def test_after_its_close_a_store_says_so_and_keeps_nothing_open(post: Letters, path: Path) -> None:
    await post.ready()
    await post.store.close()

    with pytest.raises(StoreUnavailable, match="not open"):
        await post.store.counts()
    with pytest.raises(StoreUnavailable, match="not open"):
        await post.ready()
    assert not Path(f"{path}-wal").exists()  # the last connection that closes takes the log into the file


async def test_schema_is_made_once_by_two_who_open_at_once(path: Path) -> None:
    import asyncio

    one, two = SqliteStore(path), SqliteStore(path, owner=False)
    await asyncio.gather(one.open(), two.open())
    try:
        assert await one.counts() == await two.counts()
    finally:
        await one.close()
        await two.close()
