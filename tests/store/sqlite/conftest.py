from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.letters import Letters
from contracts.stores import Ground, HandClock
from staffetta.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "staffetta.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def post(store: SqliteStore, path: Path) -> Letters:
    ground = Ground(
        store=lambda: SqliteStore(path), beside=lambda: SqliteStore(path, owner=False), clock=HandClock()
    )
    return Letters(store, ground)
