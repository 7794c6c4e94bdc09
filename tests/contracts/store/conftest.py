"""Every store under one suite. Ids are the backends' names; no test asks which one it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.letters import Letters
from contracts.stores import BACKENDS, Ground, params
from staffetta.store.contract import Store


@pytest.fixture(params=params())
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """Where an empty store lives."""
    async with BACKENDS[request.param](request, tmp_path) as ground:
        yield ground


@pytest.fixture
async def store(ground: Ground) -> AsyncIterator[Store]:
    store = ground.store()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def beside(ground: Ground, store: Store) -> AsyncIterator[Store]:
    """The same store as another process has it."""
    beside = ground.beside()
    await beside.open()
    yield beside
    await beside.close()


@pytest.fixture
def post(store: Store, ground: Ground) -> Letters:
    return Letters(store, ground)


@pytest.fixture
def there(post: Letters, beside: Store) -> Letters:
    """The other process's hands."""
    return post.beside(beside)
