"""Somebody on the way between a client and its relay: hears every byte of the client, and may change the answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

Change: TypeAlias = Callable[[bytes], bytes | None]
"""What the relay said -> what the client is told; None: the line is cut instead."""


class Eavesdropper:
    def __init__(self, port: int, change: Change) -> None:
        self.port = 0
        """Where clients connect."""
        self.heard = b""
        """All that clients said, as it went over the wire."""
        self._relay_port = port
        self._change = change
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError):
            relay_reader, relay_writer = await asyncio.open_connection("127.0.0.1", self._relay_port)
            listening = asyncio.ensure_future(self._listen(reader, relay_writer))
            try:
                while data := await relay_reader.read(65_536):
                    told = self._change(data)
                    if told is None:
                        break
                    writer.write(told)
            finally:
                writer.close()
                relay_writer.close()
                await listening
        self._tasks.discard(task)

    async def _listen(self, reader: asyncio.StreamReader, relay: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                self.heard += data
                relay.write(data)
            relay.close()

    async def over(self) -> None:
        """Until every connection has ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def eavesdropping(port: int, change: Change = lambda data: data) -> AsyncIterator[Eavesdropper]:
    spy = Eavesdropper(port, change)
    server = await asyncio.start_server(spy.serve, "127.0.0.1", 0)
    spy.port = server.sockets[0].getsockname()[1]
    try:
        yield spy
    finally:
        server.close()
        async with asyncio.timeout(20):
            await spy.over()
            await server.wait_closed()
