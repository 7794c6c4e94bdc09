"""A real HTTP server that receives callbacks: it writes down each call, checks its signature, answers as told.

async with Receiver(secret="whsec_…") as receiver:
    receiver.answer("/slow", Say(503), HANG, Say(204))   # in order; the last one goes on
    … post to receiver.url("/slow") …
    await receiver.heard(3)
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import json
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from standardwebhooks.webhooks import Webhook


@dataclasses.dataclass(frozen=True)
class Call:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    verified: bool
    """Its signature fits the receiver's secret (checked by the reference library)."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def webhook_id(self) -> str:
        return self.headers["webhook-id"]


@dataclasses.dataclass(frozen=True)
class Say:
    """An answer. `before`: waits for this event first."""

    status: int = 204
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    before: asyncio.Event | None = None
    raw: bytes | None = None
    """These bytes instead of an HTTP answer."""
    then: str = "stay"
    """stay, close (after the answer), drop (instead of it), hang (never answer)."""


OK = Say()
HANG = Say(then="hang")
DROP = Say(then="drop")


class Receiver:
    def __init__(self, *, secret: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.calls: list[Call] = []
        self.connections = 0
        self.at_once: dict[str, int] = {}
        """By path: the most calls that were open at one time."""
        self.check: Callable[[Call], Say | None] = lambda call: None
        """Asked before the script; an answer of its own wins."""
        self._open: dict[str, int] = {}
        self._secret = secret
        self._tls = tls
        self._answers: dict[str, list[Say]] = {}
        self._heard = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    def url(self, path: str = "/") -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"

    def answer(self, path: str, *answers: Say) -> None:
        """What calls of this path get, in order; the last one for all that follow."""
        self._answers[path] = list(answers)

    def to(self, path: str) -> list[Call]:
        return [call for call in self.calls if call.path == path]

    async def heard(self, count: int, path: str | None = None) -> list[Call]:
        """Wait until so many calls (of a path) have come in."""
        async with self._heard, asyncio.timeout(30):
            await self._heard.wait_for(lambda: len(self.to(path) if path else self.calls) >= count)
        return self.to(path) if path else self.calls

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._talk(reader, writer, self.connections)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {}
            for line in filter(None, head[1:]):
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            call = Call(method, path, headers, body, number, self._verified(headers, body))
            self._open[path] = self._open.get(path, 0) + 1
            self.at_once[path] = max(self.at_once.get(path, 0), self._open[path])
            try:
                say = self.check(call) or self._next(path)
                async with self._heard:
                    self.calls.append(call)
                    self._heard.notify_all()
                if not await self._say(say, writer):
                    return
            finally:
                self._open[path] -= 1

    def _next(self, path: str) -> Say:
        answers = self._answers.get(path, [OK])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _verified(self, headers: dict[str, str], body: bytes) -> bool:
        """By the reference library, but for its clock: the tests turn their own."""
        if self._secret is None or "webhook-signature" not in headers:
            return False
        at = dt.datetime.fromtimestamp(int(headers["webhook-timestamp"]), dt.UTC)
        expected = Webhook(self._secret).sign(headers["webhook-id"], at, body.decode())
        return expected in headers["webhook-signature"].split(" ")

    async def _say(self, say: Say, writer: asyncio.StreamWriter) -> bool:
        """Give one answer; whether the connection stays."""
        if say.before is not None:
            await say.before.wait()
        if say.then == "hang":
            await asyncio.Event().wait()
        if say.then == "drop":
            return False
        answer = say.raw
        if answer is None:
            lines = [f"HTTP/1.1 {say.status} Said", f"content-length: {len(say.body)}"]
            if say.status == 204:
                lines.pop()
            lines += [f"{name}: {value}" for name, value in say.headers]
            answer = "\r\n".join([*lines, "", ""]).encode() + say.body
        writer.write(answer)
        await writer.drain()
        return say.then == "stay"
