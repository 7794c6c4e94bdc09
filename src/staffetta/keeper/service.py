"""The keeper's side of one line: answers the calls of one engine, and knows which workers speak through it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from staffetta.errors import StoreUnusable
from staffetta.keeper import line as wire
from staffetta.keeper.calls import CALLS, Call, Trouble, encode
from staffetta.keeper.client import Hello
from staffetta.keeper.line import Line
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store


class Service:
    """One engine's calls, made on the real store and queue.

    `hear`: what it says that is no call. `leaving`: done before a worker is forgotten, who told his figures.
    `unusable`: told when a call found that the store must be mended.
    """

    def __init__(
        self,
        store: Store,
        queue: Queue,
        *,
        hear: Callable[[int], None] = lambda _: None,
        leaving: Callable[[], Awaitable[object]] | None = None,
        unusable: Callable[[StoreUnusable], None] = lambda _: None,
    ) -> None:
        self._owners: dict[str, Any] = {"store": store, "queue": queue}
        self._hear_word = hear
        self._leaving = leaving
        self._unusable = unusable
        self._loop = asyncio.get_running_loop()
        self._line: Line | None = None
        self._store_tasks: set[asyncio.Task[None]] = set()
        self._queue_tasks: set[asyncio.Task[None]] = set()
        self.workers: set[str] = set()
        """Those that have shown a heartbeat here and were not forgotten in order."""
        self.beats = 0
        """Heartbeats heard so far. Who does not see it grow for too long knows that the engine hangs."""
        self.lost = asyncio.Event()

    async def connect(self, end: socket.socket, hello: Hello) -> None:
        self._line = await wire.lay(end, self._hear, self._lose)
        self._line.say(wire.HELLO, body=encode(hello))

    def say(self, kind: int) -> None:
        if self._line is not None and not self._line.gone:
            self._line.say(kind)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    async def finished(self, end: socket.socket) -> None:
        """The engine is gone: whatever it had said over this end has taken effect when this returns.

        An answer that could not be written any more may have closed the line before all of it was heard."""
        await self.lost.wait()
        if self._line is not None:
            self._line.drain(end)
        for task in self._queue_tasks:
            task.cancel()
        await asyncio.gather(*self._store_tasks, *self._queue_tasks, return_exceptions=True)

    def _hear(self, number: int, kind: int, body: memoryview) -> None:
        call = CALLS.get(kind)
        if call is None:
            self._hear_word(kind)
            return
        arguments = call.read_arguments(body)
        if call.name == "heartbeat":
            self.beats += 1
            self.workers.add(arguments.worker.id)
        task = self._loop.create_task(self._answer(call, number, arguments))
        tasks = self._store_tasks if call.owner == "store" else self._queue_tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer(self, call: Call, number: int, arguments: Any) -> None:
        line = self._line
        assert line is not None, "what is heard came over it"
        try:
            if call.name == "forget_worker" and self._leaving is not None:
                await self._leaving()
            told = await call.make(self._owners[call.owner], arguments)
            if call.name == "forget_worker":
                self.workers.discard(arguments.worker_id)
            kind, body = wire.ANSWER, encode(told if call.pack is None else call.pack(told))
        except Exception as error:  # noqa: BLE001  # whoever asked hears of it, whatever it is
            kind, body = wire.TROUBLE, encode(Trouble.of(error))
            if isinstance(error, StoreUnusable):
                self._unusable(error)
        if number != wire.NOBODY and not line.gone:
            line.say(kind, number, body)

    def _lose(self) -> None:
        self.lost.set()


def hello_of(store: Store, *, settings: bytes = b"") -> Hello:
    """What the keeper says first about its store."""
    return Hello(
        resolution_ms=store.resolution_ms,
        has_clock=store.has_clock,
        owned=store.owned,
        keeps_version=store.keeps_version,
        settings=settings,
    )
