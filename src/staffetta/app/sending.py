"""What a sending process runs: riders and transports. Store and queue are the keeper's, reached over one socket.

    python -m staffetta.app.sending FD      started by `processes.py`, never by hand

Its settings come over the socket too. When the keeper is gone, nothing that this process learns can be kept any
more: it ends at once, and whoever serves the store next takes back what it held.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec
import uvloop

from staffetta.app.engine import Engine, engine
from staffetta.config import Config
from staffetta.errors import StaffettaError, StoreUnavailable
from staffetta.keeper import client as kept
from staffetta.keeper import line as wire
from staffetta.logs import PIPE_BYTES, Listeners, Log

KEEPER_GONE = 3
"""This process's exit code then."""

_read_settings = msgspec.msgpack.Decoder(Config).decode


class Sender:
    """One sending process: hears the keeper's words and passes them on to its worker."""

    def __init__(self) -> None:
        self._client = kept.Client(self._hear)
        self._running: Engine | None = None
        self._ended = asyncio.Event()

    async def run(self, end: socket.socket) -> None:
        """Send until the keeper says stop. SIGTERM stops this process alone; Ctrl-C is the keeper's to hear."""
        hello = await self._client.connect(end)
        config = _read_settings(hello.settings)
        log = Log(
            level=config.log.level, levels=config.log.levels, form=config.log.format, write_bytes=PIPE_BYTES
        )
        listeners = Listeners()
        listeners.add(log, attempts=log.hears_attempts)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ended.set)
        watch = asyncio.create_task(self._end_with_the_keeper(log))
        async with engine(
            config,
            stages=frozenset({"deliver"}),
            listeners=listeners,
            store=kept.store(self._client, hello),
            queue=kept.queue(self._client),
            keeps_queue=False,
        ) as self._running:
            self._client.say(wire.BEGUN)
            await self._ended.wait()
        watch.cancel()
        await self._client.close()
        log.flush()

    def _hear(self, kind: int) -> None:
        if kind in (wire.STOP, wire.HURRY):
            self._ended.set()
        if self._running is not None:
            if kind == wire.HURRY:
                self._running.worker.hurry()
            elif kind == wire.CHANGED:
                self._running.worker.changed()

    async def _end_with_the_keeper(self, log: Log) -> None:
        """Without any farewell: the next owner of the store must not meet a process that still sends."""
        await self._client.lost.wait()
        log.flush()
        os._exit(KEEPER_GONE)


async def _send(end: socket.socket) -> None:
    await Sender().run(end)


def main(number: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=int(number))
    try:
        uvloop.run(_send(end))
    except StoreUnavailable:
        sys.exit(KEEPER_GONE)
    except StaffettaError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
