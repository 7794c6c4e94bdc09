"""A table of its own for each test, and a proxy before it that lets requests fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from contracts.letters import Letters
from contracts.stores import Ground, HandClock
from doubles.dynamodb_local import DynamoDBLocal
from doubles.dynamodb_proxy import Proxy, proxy_to
from staffetta.store.dynamodb import DynamoStore, Place


@dataclass
class Bench:
    """A store behind a proxy, its table, its waits, and hands that write e-mails into it."""

    store: DynamoStore
    place: Place
    proxy: Proxy
    post: Letters
    clock: HandClock
    waits: list[float] = field(default_factory=list)


@pytest.fixture
async def place(dynamodb_local: DynamoDBLocal) -> AsyncIterator[Place]:
    """An empty table, made by `migrate`."""
    place = dynamodb_local.place()
    await DynamoStore(place).migrate()
    yield place
    await dynamodb_local.drop(place)


@pytest.fixture
async def bench(dynamodb_local: DynamoDBLocal, place: Place) -> AsyncIterator[Bench]:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    clock = HandClock()
    async with proxy_to(dynamodb_local.port) as proxy:
        behind = dynamodb_local.place(place.table, endpoint=proxy.endpoint)
        store = DynamoStore(behind, pause=pause, monotonic=lambda: clock() / 1_000)
        await store.open()
        ground = Ground(store=lambda: store, beside=lambda: store, clock=clock)
        yield Bench(store, place, proxy, Letters(store, ground), clock, waits)
        proxy.fate = lambda _: None
        await store.close()
