"""The HTTP server around the API: uvicorn inside our own process, with our signals, limits and patience.

uvicorn bounds neither a request's headers nor the time that a caller takes over them; `_Connection` does. Times
are kept by one look a second over all connections, so that a request in good time pays nothing for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from staffetta.mail.message import Value
from staffetta.web.parts import AsgiApp
from staffetta.web.problems import MEDIA_TYPE, Problem

BACKLOG = 1024
LEAVING_LOOK_SECONDS = 0.005
"""How often a server that leaves looks whether all have gone."""


class Patience(Value, frozen=True, kw_only=True):
    """What callers may take of the server."""

    headers_bytes_max: int = 64 * 1024
    headers_max: int = 100
    address_bytes_max: int = 8 * 1024
    connections_max: int = 4_000
    headers_seconds: float = 10.0
    """From the first byte (or from connecting) to the end of the headers."""
    body_seconds: float = 20.0
    body_bytes_per_second: int = 4 * 1024
    """A body may take `body_seconds`, and longer as long as it comes at this pace."""
    answer_seconds: float = 30.0
    """A caller that does not read its answer is hung up on after this."""
    idle_seconds: int = 75
    look_seconds: float = 1.0
    """How often the connections are looked over."""


class _Refused(Exception):
    """Raised inside the parser to make it stop; the connection knows why."""


class _Connection(HttpToolsProtocol):
    """One connection, with bounds on what is sent before a handler sees it."""

    patience = Patience()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.waits_since = self.loop.time()
        """When what we wait for began; 0: we wait for nothing from this caller."""
        self.in_headers = True
        self.came_bytes = 0
        self.stuck_since = 0.0
        self.refusal: Problem | None = None
        if len(self.connections) > self.patience.connections_max:
            self.refuse(Problem("busy", "too many connections"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.waits_since = self.loop.time()
        self.in_headers = True
        self.came_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.patience.address_bytes_max:
            self.stop(Problem("long-address", f"at most {self.patience.address_bytes_max} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self.came_bytes += len(name) + len(value)
        if self.came_bytes > self.patience.headers_bytes_max or len(self.headers) >= self.patience.headers_max:
            limits = (
                f"at most {self.patience.headers_max} headers of {self.patience.headers_bytes_max} bytes in all"
            )
            self.stop(Problem("large-headers", limits))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.in_headers = False
        self.came_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.came_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.waits_since = 0.0
        super().on_message_complete()

    def stop(self, why: Problem) -> None:
        self.refusal = why
        raise _Refused

    def send_400_response(self, msg: str) -> None:
        self.refuse(self.refusal or Problem("malformed", msg))

    def refuse(self, why: Problem) -> None:
        """Answer by ourselves and hang up. A handler that waits for more of the body hears that it is over."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is None or not cycle.response_started or cycle.response_complete:
            body = why.body()
            head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (why.status, why.title.encode(), MEDIA_TYPE, len(body)) + body)
        self.transport.close()

    def look(self, now: float) -> None:
        """Hang up on who is too slow."""
        if self.flow.write_paused:
            self.stuck_since = self.stuck_since or now
            if now - self.stuck_since > self.patience.answer_seconds:
                self.transport.abort()
            return
        self.stuck_since = 0.0
        if not self.waits_since or self.transport.is_closing():
            return
        if self.in_headers:
            allowed = self.patience.headers_seconds
        else:
            allowed = self.patience.body_seconds + self.came_bytes / self.patience.body_bytes_per_second
            if self.flow.read_paused:  # we are the slow one
                self.waits_since = max(self.waits_since, now - allowed)
        if now - self.waits_since > allowed:
            self.refuse(Problem("too-slow", "the request did not come within its time"))


class _Server(uvicorn.Server):
    """uvicorn's server without its hands on our signals, with a word when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The worker owns the signals."""
        yield

    async def main_loop(self) -> None:
        """Once a second for the Date header; uvicorn's own looks ten times a second whether to end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), 1.0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # uvicorn's form
        """Let in nobody else, let those under way end, within the grace; then end them.

        uvicorn's own waits a tenth of a second whether there is anybody or not, and leaves open what is late.
        """
        for server in self.servers:
            server.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110  # uvicorn's sets tell nobody
                    await asyncio.sleep(LEAVING_LOOK_SECONDS)
        late = list(state.tasks)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for connection in list(state.connections):
            cast("_Connection", connection).transport.abort()


class Serving(Value, frozen=True, kw_only=True):
    """A server that answers."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@contextlib.asynccontextmanager
async def serving(
    app: AsgiApp, *, host: str, port: int, grace_seconds: float = 5.0, patience: Patience | None = None
) -> AsyncIterator[Serving]:
    """Listen and answer while inside; leaving ends what is being answered within `grace_seconds`.

    Port 0 takes a free one. :raises OSError: the address cannot be listened on.
    """
    patience = patience or Patience()
    listener = listen(host, port)
    protocol = type("Connection", (_Connection,), {"patience": patience})
    config = uvicorn.Config(
        cast("Any", app), http=protocol, ws="none", lifespan="off", log_config=None, log_level="error",
        access_log=False, proxy_headers=False, server_header=False, backlog=BACKLOG,
        timeout_keep_alive=patience.idle_seconds, timeout_graceful_shutdown=cast("int", grace_seconds),
    )  # fmt: skip
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    looking = asyncio.create_task(_look_around(server, patience))
    ready = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        name = listener.getsockname()
        yield Serving(host=name[0], port=name[1])
    finally:
        looking.cancel()
        ready.cancel()
        server.should_exit = True
        server.leaving.set()
        await running


async def _look_around(server: _Server, patience: Patience) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(patience.look_seconds)
        now = loop.time()
        for connection in list(server.server_state.connections):
            cast("_Connection", connection).look(now)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. :raises OSError: the address is taken, or is not ours."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
