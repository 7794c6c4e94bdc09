from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from contracts.queues import NOW, Open
from doubles.redis import SAFE, RedisServer, running
from doubles.stocked import Clock
from staffetta.mail.events import Event
from staffetta.queue.redis import RedisQueue


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis"), *SAFE) as made:
        yield made


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """Looks into the server as an operator does; it is empty at first."""
    with contextlib.closing(server.client(decode_responses=True)) as looking:
        looking.flushall()
        yield looking


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def heard() -> list[Event]:
    """What the queues told."""
    return []


@pytest.fixture
async def another(
    server: RedisServer, client: redis.Redis, clock: Clock, heard: list[Event]
) -> AsyncIterator[Open]:
    """A function that opens one more worker's queue on the same Redis; all are closed in the end."""
    opened: list[RedisQueue] = []

    async def open_one(**settings: Any) -> RedisQueue:
        queue = RedisQueue(server.url, **{"clock": clock, "emit": heard.append, **settings})
        await queue.open()
        opened.append(queue)
        return queue

    yield open_one
    for queue in opened:
        await queue.close()
