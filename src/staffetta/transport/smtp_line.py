"""One TCP connection to a relay, as an asyncio protocol: bytes in, replies out, one question at a time.

This is the half that talks while a connection is opened; `smtp_connection.py` is the half that carries letters.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from typing import cast

from staffetta import failpoints
from staffetta.transport import wire
from staffetta.transport.smtp_settings import Timeouts
from staffetta.transport.wire import Features, Heard

NEVER = float("inf")

SAYS = {
    "eof": "the server closed the connection without an answer",
    "reset": "the connection was reset",
    "timeout": "the server did not answer in time",
    "protocol": "the server's answers do not fit the commands",
    "stopped": "the connection was closed on our side",
}


class Line(asyncio.Protocol):
    """Nobody waits on it after `connection_lost`: every wait ends there."""

    def __init__(self, timeouts: Timeouts, loop: AbstractEventLoop) -> None:
        self.timeouts = timeouts
        self.loop = loop
        self.transport: asyncio.Transport | None = None
        self.features = Features()
        self.deadline = NEVER
        """When the wait for the other side is over; whoever owns the line looks at it now and then."""
        self.gone = False
        """No byte goes out any more: lost, or being closed."""
        self.why = ""
        """How it ended: eof, reset, timeout, or our own reason."""
        self._reader = wire.ReplyReader()
        self._heard: deque[Heard] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._leaving = False
        self._may_write: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = loop.create_future()

    # ------------------------------------------------------------------------------- what asyncio tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave as one without being one.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.gone:
            if self._leaving:
                self.close()
            return
        self._heard.extend(self._reader.feed(data))
        if self._heard and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause_writing(self) -> None:
        self._may_write = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._may_write is not None and not self._may_write.done():
            self._may_write.set_result(None)
        self._may_write = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self.why = self.why or _ending(exc)
        self.deadline = NEVER
        self.resume_writing()
        for waiter in (self._waiter, self._closed):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------------------- questions and answers

    async def ask(self, line: bytes, seconds: float) -> Heard | None:
        """Write one command and wait for its answer; None: the connection was lost (`why` tells)."""
        if self.spoke_too_much:
            # An answer to a question nobody asked yet: put there by someone else, or out of step.
            return (0, (b"it spoke before it was asked",))
        self.write(line)
        return await self.expect(seconds)

    async def expect(self, seconds: float) -> Heard | None:
        """The next answer."""
        if not self._heard and not self.gone:
            self._waiter = self.loop.create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._waiter
            except TimeoutError:
                self.abort("timeout")
            finally:
                self._waiter = None
        return self._heard.popleft() if self._heard else None

    @property
    def spoke_too_much(self) -> bool:
        """Bytes are here that belong to no answer asked for."""
        return bool(self._heard) or self._reader.begun

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.gone:
            if failpoints.armed:
                failpoints.reach("transport.before-write")
            self.transport.write(data)
            if failpoints.armed:
                failpoints.reach("transport.after-write")

    # ------------------------------------------------------------------------------- the end

    def leave(self) -> None:
        """QUIT, politely: nobody waits for it, and nothing that was accepted hangs on it."""
        if self.gone:
            return
        self.write(b"QUIT\r\n")
        self.gone = self._leaving = True
        self.deadline = self.loop.time() + self.timeouts.goodbye

    def close(self) -> None:
        self.gone = True
        if self.transport is not None:
            self.transport.close()

    def abort(self, why: str) -> None:
        """Close at once, for a reason of ours."""
        self.gone = True
        self.why = self.why or why
        if self.transport is not None:
            self.transport.abort()

    async def closed(self) -> None:
        await asyncio.shield(self._closed)


def _ending(exc: BaseException | None) -> str:
    if exc is None:
        return "eof"
    return "timeout" if isinstance(exc, TimeoutError) else "reset"
