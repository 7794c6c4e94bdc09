"""Every queue under one suite. Ids are the backends' names; no test asks which one it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from contracts.queues import NOW, Open
from doubles.kept import kept_queue
from doubles.redis import Cluster, RedisServer, running
from doubles.stocked import Clock
from staffetta.queue.contract import Queue
from staffetta.queue.local import LocalQueue
from staffetta.queue.redis import RedisQueue

BACKENDS = [
    "local",
    "keeper",
    *(pytest.param(name, marks=pytest.mark.service) for name in ("redis", "valkey", "cluster")),
]


@pytest.fixture
def clock() -> Clock:
    """The clock of every queue that the test opens: it stands until it is turned."""
    return Clock(NOW)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("valkey"), product="valkey") as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


class Opened:
    """Opens empty queues of one backend, and closes them: one at a time on a server that they would share."""

    def __init__(self, backend: str, server: RedisServer | Cluster | None, clock: Clock) -> None:
        self._backend = backend
        self._server = server
        self._clock = clock
        self._open: list[Queue] = []

    async def __call__(self, **settings: Any) -> Queue:
        settings = {"clock": self._clock, **settings}
        queue: Queue
        if self._server is None:
            queue = LocalQueue(**settings)
            if self._backend == "keeper":
                queue = kept_queue(queue)
        else:
            await self.close()
            self._empty()
            queue = RedisQueue(self._server.url, **settings)
        await queue.open()
        self._open.append(queue)
        return queue

    def _empty(self) -> None:
        if isinstance(self._server, Cluster):
            self._server.flush()
        elif self._server is not None:
            client = self._server.client()
            client.flushall()
            client.close()

    async def close(self) -> None:
        for queue in self._open:
            await queue.close()
        self._open.clear()


@pytest.fixture(params=BACKENDS)
async def open_queue(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Open]:
    """A function that opens an empty queue with the given settings; all are closed in the end."""
    servers = {"redis": "redis_server", "valkey": "valkey_server", "cluster": "redis_cluster"}
    name = servers.get(request.param)
    opened = Opened(request.param, request.getfixturevalue(name) if name else None, clock)
    yield opened
    await opened.close()


@pytest.fixture
async def queue(open_queue: Open) -> Queue:
    return await open_queue()
