"""The sink as a server: binds, admits sessions, keeps the record. One event loop, no threads."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

from staffetta.sink.record import Accepted, Record
from staffetta.sink.script import Play, Script
from staffetta.sink.session import Session

VIOLATIONS_MAX = 100


class SinkServer:
    """`await start()`, read `port`, `await stop()`. What it took is counted in `record`; `keep`: and kept.

    `ssl_context`: a server's; STARTTLS is offered, or every connection begins with TLS (`implicit_tls`).
    `log`: a file that gets one JSON line for each message before its reply (`sync`: on the disk before it).
    `watch`: keep every byte that clients sent.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        log: Path | None = None,
        sync: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        implicit_tls: bool = False,
        keep: bool = False,
        watch: bool = False,
        on_accept: Callable[[Accepted], None] | None = None,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.script = (script or Script()).checked()
        self.play = Play(self.script)
        self.host = host
        self.port = port
        self.ssl_context = ssl_context
        self.implicit_tls = implicit_tls
        self.record = Record(log, clock_us=clock_us, sync=sync)
        self.messages: list[tuple[Accepted, bytes]] = []
        """With `keep`: what was taken, oldest first, with the message's bytes."""
        self.violations: list[str] = []
        """What clients did that no client may do."""
        self.commands: list[bytes] = []
        """With `watch`: every command line, in the order in which they were read."""
        self.seen: dict[int, list[tuple[bool, bytes]]] = {}
        """With `watch`: by connection, what came and whether it came in clear."""
        self.connections = 0
        """Ever made."""
        self._keep = keep
        self.watching = watch
        self._on_accept = on_accept
        self._sessions: set[Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._server: asyncio.Server | None = None
        self._nobody: asyncio.Event | None = None
        """Set when the last client has gone, while the server stops."""
        self._leaving = False

    @property
    def tls_offered(self) -> bool:
        return self.ssl_context is not None and not self.implicit_tls

    @property
    def leaving(self) -> bool:
        return self._leaving

    @property
    def serving(self) -> bool:
        return self._server is not None and not self._leaving

    @property
    def open_connections(self) -> int:
        return len(self._sessions)

    async def start(self) -> None:
        """Bind. `port` holds the real one afterwards. After a `stop` it may start again, there."""
        loop = asyncio.get_running_loop()
        self.record.open()
        self._leaving = False
        self._server = await loop.create_server(
            self._admit,
            self.host,
            self.port,
            ssl=self.ssl_context if self.implicit_tls else None,
            backlog=1_024,
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def leave(self, *, grace_seconds: float = 5.0) -> None:
        """Stop as a relay does that is restarted: messages in hand are finished, everybody else is told 421."""
        self._leaving = True
        if self._server is not None:
            self._server.close()
        for session in [*self._sessions]:
            session.dismiss()
        if self._sessions:
            self._nobody = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._nobody.wait()
        await self.stop()

    async def stop(self) -> None:
        """Close every connection at once and the log last."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for timer in self._timers:
            timer.cancel()
        for session in [*self._sessions]:
            if session.transport is not None:
                session.transport.abort()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sessions:
            self._nobody = asyncio.Event()
            await self._nobody.wait()
        if server is not None:
            await server.wait_closed()
        self.record.close()

    async def __aenter__(self) -> SinkServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ------------------------------------------------------------------------------- what a session asks

    def _admit(self) -> Session:
        self.connections += 1
        return Session(self, self.connections)

    def joined(self, session: Session) -> None:
        self._sessions.add(session)

    def left(self, session: Session) -> None:
        self._sessions.discard(session)
        if not self._sessions and self._nobody is not None:
            self._nobody.set()

    def heard(self, session: Session, data: bytes) -> None:
        self.seen.setdefault(session.number, []).append((not session.tls, data))

    def commanded(self, line: bytes) -> None:
        self.commands.append(line)

    def broke(self, session: Session, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"connection {session.number}: {what}")

    def taken_reply(self) -> bytes:
        return b"250 2.0.0 Ok: taken as %d\r\n" % (self.record.messages + 1)

    def keep(self, session: Session, sender: str, recipients: tuple[str, ...], message: bytes) -> None:
        accepted = self.record.take(
            sender, recipients, message, connection=session.number, tls=session.tls, user=session.user
        )
        if self._keep:
            self.messages.append((accepted, message))
        if self._on_accept is not None:
            self._on_accept(accepted)

    def later(self, seconds: float, done: Callable[[], None]) -> None:
        """Timers die with the server."""

        def run() -> None:
            self._timers.discard(timer)
            done()

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._timers.add(timer)

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Handshakes: ended with the server."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
