"""The embedded store: one SQLite file, one thread that writes it, readers beside it.

The file is owned by the first of serve, work and api; commands open it with `owner=False` and write short
transactions beside the owner, who notices them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import apsw

from staffetta.store.sqlite import connection, faults
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.leaving import Leaving
from staffetta.store.sqlite.listings import Listings
from staffetta.store.sqlite.lives import Lives
from staffetta.store.sqlite.ownership import Ownership
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.reminders import Reminders
from staffetta.store.sqlite.retirement import Retirement
from staffetta.store.sqlite.steering import Steering
from staffetta.store.sqlite.upkeep import Upkeep
from staffetta.store.sqlite.writer import Writer


class SqliteStore(Lives, Reminders, Upkeep, Retirement, Steering, Listings, Leaving):
    """One file. A new or empty one is made into a store when it is opened; an older one needs `migrate`."""

    resolution_ms = 1
    has_clock = False
    owned = True
    keeps_version = True

    def __init__(self, path: Path, *, owner: bool = True, busy_ms: int = 10_000) -> None:
        super().__init__()
        self._path = path
        self._owner = owner
        self._busy_ms = busy_ms
        self._ownership = Ownership(path)
        self._reader = Reader(path, busy_ms=busy_ms)
        self._browser = Reader(path, busy_ms=busy_ms)
        self._writer = Writer(path, owner=owner, ownership=self._ownership, busy_ms=busy_ms)

    async def open(self) -> None:
        if self._owner:
            self._ownership.take()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._check)
            self._writer.start()
        except BaseException:
            self._ownership.release()
            raise
        self._reader.start()
        self._browser.start()
        if self._owner:
            await self._greet()

    async def _greet(self) -> None:
        """What an owner who is gone left undone in the lines."""
        try:
            await self._writer.do(Group.purge)
        except BaseException:
            await self.close()
            raise

    def _check(self) -> None:
        with self._connected() as opened:
            if connection.schema_of(opened, self._path) == 0:
                connection.migrate(opened, self._path)
            connection.check_schema(opened, self._path)

    def _connected(self) -> _Connected:
        return _Connected(self._path, self._busy_ms)

    async def migrate(self) -> Sequence[str]:
        return await asyncio.get_running_loop().run_in_executor(None, self._migrate)

    def _migrate(self) -> Sequence[str]:
        with self._connected() as opened:
            return connection.migrate(opened, self._path)

    async def close(self) -> None:
        await self._writer.stop()
        await self._reader.stop()
        await self._browser.stop()
        self._ownership.release()


class _Connected:
    """A connection for one errand."""

    def __init__(self, path: Path, busy_ms: int) -> None:
        self._path = path
        self._busy_ms = busy_ms

    def __enter__(self) -> apsw.Connection:
        self._connection = connection.connect(self._path, busy_ms=self._busy_ms)
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if isinstance(error, apsw.Error):
            raise faults.translate(error, self._path) from error


__all__ = ["SqliteStore"]
