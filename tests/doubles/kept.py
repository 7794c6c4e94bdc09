"""A store and a queue as a sending process has them: asked over a socket, answered by the keeper's side of the line."""

from __future__ import annotations

import socket
from typing import Any, cast

from staffetta.keeper import client as kept
from staffetta.keeper.service import Service, hello_of
from staffetta.keeper.sharing import Sharing
from staffetta.queue.contract import Queue
from staffetta.queue.local import LocalQueue
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore


class Line:
    """Both ends of one line in one loop."""

    def __init__(self, store: Store, queue: Queue) -> None:
        self._service = Service(store, Sharing(queue).view())
        self._client = kept.Client()
        self._store = store

    async def lay(self) -> tuple[Store, Queue]:
        ours, theirs = socket.socketpair()
        await self._service.connect(ours, hello_of(self._store))
        hello = await self._client.connect(theirs)
        return kept.store(self._client, hello), kept.queue(self._client)

    async def cut(self) -> None:
        """What was handed over takes effect first."""
        await self._client.close()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.close()
            await self._service.finished(ours)


class _Kept:
    """Opened, it is what the line offers; before and after, what is kept at its other end."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._line: Line | None = None
        self._offered: Any = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._offered, name)

    async def open(self) -> None:
        await self._real.open()
        self._line, self._offered = await self._laid()

    async def _laid(self) -> tuple[Line, Any]:
        raise NotImplementedError

    async def close(self) -> None:
        if self._line is not None:
            await self._line.cut()
        self._line, self._offered = None, self._real
        await self._real.close()


class _KeptStore(_Kept):
    async def _laid(self) -> tuple[Line, Any]:
        line = Line(self._real, LocalQueue())
        return line, (await line.lay())[0]


class _KeptQueue(_Kept):
    async def _laid(self) -> tuple[Line, Any]:
        line = Line(MemoryStore(), self._real)
        return line, (await line.lay())[1]


def kept_store(real: Store) -> Store:
    return cast("Store", _KeptStore(real))


def kept_queue(real: Queue) -> Queue:
    return cast("Queue", _KeptQueue(real))
