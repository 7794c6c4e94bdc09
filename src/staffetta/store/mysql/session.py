"""One connection as every one of ours must be: nothing that durability or order hangs on is left to the server."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import asyncmy
from asyncmy import errors as driver

from staffetta.errors import StoreUnusable
from staffetta.store.mysql.address import Address

CONNECT_SECONDS = 10
LOCK_WAIT_SECONDS = 10
"""A row that somebody holds for longer than this is tried again."""
SILENT_SECONDS = 30
"""The server lets go of a connection that says nothing for so long, and of the rows it has locked: a process that is
stopped in the middle of a transaction must not keep others from taking its e-mails back."""
CACHED_STATEMENTS = 120
ROWS_AT_ONCE = 64
BYTES_AT_ONCE = 2 << 20
"""Rows with contents that one statement carries."""

# The server must refuse what it cannot keep, tell times in UTC, and let no reader see gaps as locked.
SETTLING = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}",
    f"SET SESSION wait_timeout = {SILENT_SECONDS}",
    "SET SESSION foreign_key_checks = 1",
    "SET SESSION unique_checks = 1",
    "SET SESSION sql_notes = 0",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
)
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0, 19)}


class Session:
    """One connection. Whoever has it uses it alone; after a failure that it may not have survived it is broken."""

    def __init__(self, connection: asyncmy.connection.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.broken = False
        self.used_at = time.monotonic()

    async def rows(self, sql: str, *facts: object) -> list[tuple[Any, ...]]:
        await self._cursor.execute(sql, facts or None)
        return list(await self._cursor.fetchall())

    async def row(self, sql: str, *facts: object) -> tuple[Any, ...] | None:
        found = await self.rows(sql, *facts)
        return found[0] if found else None

    async def one(self, sql: str, *facts: object) -> Any:
        """The only value of the only row, or None."""
        found = await self.row(sql, *facts)
        return None if found is None else found[0]

    async def rows_of(self, sql: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Rows by their ids, which stand where `sql` says `{ids}`: the only form in which both kinds of server lock
        what was asked for and nothing else. Padded to powers of two, so that few statements are prepared.
        """
        if not ids:
            return []
        size = 1 << (len(ids) - 1).bit_length()
        padded = [*ids, *[ids[-1]] * (size - len(ids))]
        return await self.rows(sql.format(ids=", ".join(["%s"] * size)), *padded)

    async def run(self, sql: str, *facts: object) -> int:
        """How many rows were changed. One that had these very values already does not count."""
        changed: int = await self._cursor.execute(sql, facts or None)
        return changed

    async def insert(self, into: str, form: str, rows: Sequence[tuple[Any, ...]], after: str = "") -> None:
        """Insert rows, as many a statement as is good for it: `into` names the columns, `form` is one row's values.

        Sizes are powers of two, so that few statements are prepared.
        """
        place = 0
        while place < len(rows):
            size = ROWS_AT_ONCE
            while size > len(rows) - place:
                size //= 2
            while size > 1 and _bytes_of(rows[place : place + size]) > BYTES_AT_ONCE:
                size //= 2
            chunk = rows[place : place + size]
            text = f"{into} VALUES {', '.join([form] * size)} {after}"
            await self.run(text, *[value for row in chunk for value in row])
            place += size

    async def close(self) -> None:
        """Let go of it; a broken one without a word to the server."""
        if self.broken:
            self._connection.close()
            return
        try:
            await self._connection.ensure_closed()
        except (driver.MySQLError, OSError):
            self._connection.close()


def _bytes_of(rows: Sequence[tuple[Any, ...]]) -> int:
    return sum(len(value) for row in rows for value in row if isinstance(value, bytes | str))


async def connect(
    address: Address, *, database: str | None = None, read_seconds: float | None = None
) -> Session:
    """:raises Exception: the driver's own; `faults.translate` says what it means."""
    reached = (
        {"unix_socket": address.socket} if address.socket else {"host": address.host, "port": address.port}
    )
    connection = await asyncmy.connect(
        **reached,
        user=address.user,
        password=address.password,
        database=address.database if database is None else database or None,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_SECONDS,
        read_timeout=read_seconds,
        ssl=address.context(),
        stmt_cache_size=CACHED_STATEMENTS,
        program_name="staffetta",
        binary_prefix=True,
    )
    session = Session(connection)
    try:
        for statement in SETTLING:
            await session.run(statement)
    except BaseException:
        session.broken = True
        await session.close()
        raise
    return session


async def check_server(session: Session, address: Address) -> str:
    """Its name and version. :raises StoreUnusable: it is too old for what we ask of it."""
    told = str(await session.one("SELECT VERSION()"))
    name = "MariaDB" if "mariadb" in told.lower() else "MySQL"
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", told.removeprefix("5.5.5-"))
    version = tuple(int(part or 0) for part in found.groups()) if found else (0,)
    oldest = _OLDEST[name]
    if version < oldest:
        least = ".".join(str(part) for part in oldest)
        raise StoreUnusable(
            f"{address}: this is {name} {told}; Staffetta needs {name} {least} or later: upgrade it"
        )
    return f"{name} {told}"
