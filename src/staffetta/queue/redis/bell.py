"""Rings when somebody woke this worker: one connection that blocks on a list of the worker's own, and never polls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from staffetta.queue.redis.link import Link
from staffetta.queue.redis.server import AWAY, PREFIX, RedisError, Server, find
from staffetta.queue.redis.tasks import ended

BLOCK_SECONDS = 20.0
AGAIN_SECONDS = 0.1


class Bell:
    """`ring` is called with `t` when something may be taken, with `f` when somebody should be fed."""

    def __init__(self, link: Link, ring: Callable[[str], None]) -> None:
        self._link = link
        self._ring = ring
        self._task: asyncio.Task[None] | None = None

    async def hang(self) -> None:
        """Listen from now on; where Redis is here, nothing is missed once this returns."""
        server: Server | None = None
        if self._link.here.is_set():
            with contextlib.suppress(*AWAY, RedisError):
                server = await self._connect()
        self._task = asyncio.create_task(self._listen(server), name="redis: wake-ups")

    async def close(self) -> None:
        if self._task is not None:
            await ended([self._task])

    async def _connect(self) -> Server:
        return await find(self._link.address, client_name=f"{self._link.name}-bell")

    async def _listen(self, server: Server | None) -> None:
        link = self._link
        key = f"{PREFIX}:wake:{link.name}"
        try:
            while True:
                await link.here.wait()
                try:
                    if server is None:
                        server = await self._connect()
                        self._ring("t")
                        self._ring("f")
                    rung = await server.wait_for(key, BLOCK_SECONDS)
                except (*AWAY, RedisError) as error:
                    if server is not None:
                        await server.close()
                        server = None
                        link.lost(error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                if rung:
                    self._ring(rung[1].decode())
        finally:
            if server is not None:
                with contextlib.suppress(Exception):
                    await server.close()
