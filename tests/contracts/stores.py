"""Every store that the suite runs on, by its id, and how one empty store of each is made. A new backend adds its
function and its line in `BACKENDS`; nothing else of the suite changes.

A test never asks which store it has. What differs is declared by the store (`resolution_ms`, `has_clock`, `owned`,
`keeps_version`) and met by the helpers in `letters.py`: every time is told relative to the store's present.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from doubles.databases import Server
from doubles.dynamodb_local import DynamoDBLocal
from doubles.kept import kept_store
from staffetta.mail.message import Millis
from staffetta.store.contract import Store
from staffetta.store.dynamodb import DynamoStore
from staffetta.store.memory import MemoryStore, State
from staffetta.store.mysql import MysqlStore
from staffetta.store.sqlite import SqliteStore


class HandClock:
    """For stores that take the time as an argument: it stands until it is turned."""

    turns = True

    def __init__(self, now: Millis = 1_800_000_000_000) -> None:
        self._now = now

    def __call__(self) -> Millis:
        return self._now

    def turn(self, ms: int) -> None:
        self._now += ms


class WallClock:
    """For stores with a clock of their own: the real time, a little behind it, so that what is due now is due there
    too, whatever the store rounds. It cannot be turned; what needs that is skipped there.
    """

    turns = False

    def __init__(self, behind_ms: int = 2_000) -> None:
        self._behind_ms = behind_ms

    def __call__(self) -> Millis:
        return time.time_ns() // 1_000_000 - self._behind_ms

    def turn(self, ms: int) -> None:
        pytest.skip(f"this store goes by its own clock, which nobody turns ({ms} ms)")


@dataclass(kw_only=True)
class Ground:
    """Where one store lives, empty at first. Nothing here is opened: whoever makes a store opens and closes it."""

    store: Callable[[], Store]
    """The store as the process that serves has it. Made again after a close, it goes on where that one stood."""
    beside: Callable[[], Store]
    """The store as another process has it at the same time."""
    clock: HandClock | WallClock = field(default_factory=HandClock)


Backend: TypeAlias = Callable[[pytest.FixtureRequest, Path], AbstractAsyncContextManager[Ground]]


@asynccontextmanager
async def memory(_: pytest.FixtureRequest, __: Path) -> AsyncIterator[Ground]:
    state = State()
    yield Ground(store=lambda: MemoryStore(state), beside=lambda: MemoryStore(state, owner=False))


@asynccontextmanager
async def sqlite(_: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Ground]:
    path = folder / "staffetta.db"
    yield Ground(store=lambda: SqliteStore(path), beside=lambda: SqliteStore(path, owner=False))


@asynccontextmanager
async def keeper(_: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Ground]:
    """SQLite, as a sending process reaches it through the one that keeps it."""
    path = folder / "staffetta.db"
    yield Ground(store=lambda: kept_store(SqliteStore(path)), beside=lambda: SqliteStore(path, owner=False))


@asynccontextmanager
async def dynamodb(request: pytest.FixtureRequest, _: Path) -> AsyncIterator[Ground]:
    local: DynamoDBLocal = request.getfixturevalue("dynamodb_local")
    clock = HandClock()
    place = local.place()

    def store() -> Store:
        # Who is dead is decided by the observer's own clock: here the one that tests turn.
        return DynamoStore(place, monotonic=lambda: clock() / 1_000)

    making = DynamoStore(place)
    await making.migrate()
    await making.close()
    yield Ground(store=store, beside=store, clock=clock)
    await local.drop(place)


def _shared(server: Server) -> Ground:
    url = server.url(server.emptied())
    return Ground(store=lambda: MysqlStore(url), beside=lambda: MysqlStore(url), clock=WallClock())


@asynccontextmanager
async def mariadb(request: pytest.FixtureRequest, _: Path) -> AsyncIterator[Ground]:
    yield _shared(request.getfixturevalue("mariadb_server"))


@asynccontextmanager
async def mysql(request: pytest.FixtureRequest, _: Path) -> AsyncIterator[Ground]:
    yield _shared(request.getfixturevalue("mysql_server"))


# A backend that needs a server starts it in a session-scoped fixture of `tests/conftest.py`, asks for it by
# `request.getfixturevalue(…)`, makes an empty database in it and drops that in the end.
BACKENDS: dict[str, Backend] = {
    "memory": memory, "sqlite": sqlite, "keeper": keeper, "mariadb": mariadb, "mysql": mysql, "dynamodb": dynamodb,
}  # fmt: skip
SERVICES: frozenset[str] = frozenset({"mariadb", "mysql", "dynamodb"})
"""Ids of the backends that need a real server: marked `service`."""


def params() -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.service) if name in SERVICES else name for name in BACKENDS]
