"""A way between two programs that can be made slow, or cut without a word: bytes pass, late or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class Wire:
    """Listens on a port of its own and hands on to another. What tests turn, they turn from their own thread."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.delay_seconds = 0.0
        self.cut = False
        """Nothing passes and nobody is told: as a cable that was pulled."""
        self._target = port
        self._ways: set[asyncio.StreamWriter] = set()

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ways.add(writer)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        self._ways.add(back)
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                while self.cut:  # noqa: ASYNC110  # turned by another thread
                    await asyncio.sleep(0.02)
                writer.write(data)
                await writer.drain()
        writer.close()

    def hang_up(self) -> None:
        for way in self._ways:
            way.close()


@contextlib.contextmanager
def wire(port: int) -> Iterator[Wire]:
    """Open from here to the end, in a thread of its own."""
    made = Wire(port)
    ready = threading.Event()
    leaving: list[asyncio.Event] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def live() -> None:
        leave = asyncio.Event()
        server = await made.serve()
        leaving.append(leave)
        loops.append(asyncio.get_running_loop())
        ready.set()
        await leave.wait()
        made.cut = False
        server.close()
        made.hang_up()
        await asyncio.sleep(0)
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="wire")
    thread.start()
    ready.wait(10)
    try:
        yield made
    finally:
        loops[0].call_soon_threadsafe(leaving[0].set)
        thread.join(10)
