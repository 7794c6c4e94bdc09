"""One socket between the keeper and an engine, and what may stand on it.

An entry is a head (length, kind, number) and a body. Entries that are said in one turn of the loop leave in
one write, so that under load many calls and answers share a system call, without a linger and without a timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import TypeAlias, cast

from staffetta import failpoints

HEAD = struct.Struct("<IHI")
"""Length of the body, kind, number of the call."""

ANSWER, TROUBLE = 1, 2
HELLO, STOP, HURRY, CHANGED = 3, 4, 5, 6
"""From the keeper: who it is; end in order; the grace is over; an operator changed something."""
BEGUN = 7
"""From an engine: it sends."""
READ_BYTES = 1 << 18
NOBODY = 0
"""The number of what nobody waits for."""

Hear: TypeAlias = Callable[[int, int, memoryview], None]


class Line(asyncio.Protocol):
    """Says entries, hears entries, and is lost once."""

    def __init__(self, hear: Hear, lost: Callable[[], None]) -> None:
        self._hear = hear
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = bytearray()
        self._out: list[bytes] = []
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if failpoints.armed:
            failpoints.reach("keeper.read")
        rest = self._rest
        rest += data
        place, size = 0, len(rest)
        with memoryview(rest) as view:
            while size - place >= HEAD.size:
                length, kind, number = HEAD.unpack_from(view, place)
                end = place + HEAD.size + length
                if end > size:
                    break
                with view[place + HEAD.size : end] as body:
                    self._hear(number, kind, body)
                place = end
        del rest[:place]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # an end is an end
        self.gone = True
        self._out.clear()
        self._lost()

    def say(self, kind: int, number: int = NOBODY, body: bytes = b"") -> None:
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(HEAD.pack(len(body), kind, number))
        out.append(body)

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self.gone:
            gathered = b"".join(self._out)
            self._out.clear()
            if failpoints.armed:
                failpoints.reach("keeper.before-write")
            self._transport.write(gathered)
            if failpoints.armed:
                failpoints.reach("keeper.after-write")

    def drain(self, end: socket.socket) -> None:
        """Hear what lies unread in a line that is lost."""
        end.setblocking(False)
        with contextlib.suppress(OSError):
            while data := end.recv(READ_BYTES):
                self.data_received(data)

    def close(self) -> None:
        """What was said still leaves; nothing more is heard."""
        self._flush()
        if self._transport is not None:
            self._transport.close()


async def lay(end: socket.socket, hear: Hear, lost: Callable[[], None]) -> Line:
    """A line over one end of a socket pair."""
    _, line = await asyncio.get_running_loop().create_unix_connection(lambda: Line(hear, lost), sock=end)
    return line
