"""Every queue under one suite. Ids are the backends' names; no test asks which one it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.queues import NOW, Open
from doubles.stocked import Clock
from staffetta.queue.contract import Queue
from staffetta.queue.local import LocalQueue


@pytest.fixture
def clock() -> Clock:
    """The clock of every queue that the test opens: it stands until it is turned."""
    return Clock(NOW)


@pytest.fixture(params=["local"])
async def open_queue(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Open]:
    """A function that opens an empty queue with the given settings; all are closed in the end."""
    opened: list[Queue] = []

    async def open_one(**settings: Any) -> Queue:
        queue = LocalQueue(**{"clock": clock, **settings})
        await queue.open()
        opened.append(queue)
        return queue

    yield open_one
    for queue in opened:
        await queue.close()


@pytest.fixture
async def queue(open_queue: Open) -> Queue:
    return await open_queue()
