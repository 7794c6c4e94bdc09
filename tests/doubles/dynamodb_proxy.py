"""Stands between a store and DynamoDB, and lets each request fare as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Fault:
    """What becomes of one request instead of its answer."""

    code: str = ""
    """DynamoDB's refusal by this name; empty: the line is lost."""
    reasons: tuple[str, ...] = ()
    done: bool = False
    """DynamoDB took it all the same, and only the answer never comes."""
    status: int = 400


LOST_BEFORE = Fault()
LOST_AFTER = Fault(done=True)


@dataclass
class Request:
    operation: str
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)

    @property
    def token(self) -> str:
        return str(self.told.get("ClientRequestToken", ""))

    @property
    def is_write(self) -> bool:
        return self.operation == "ExecuteTransaction" or not self.told.get("Statement", "").startswith("SELECT")


Fate: TypeAlias = Callable[[Request], Fault | None]


@dataclass
class Proxy:
    """Every request that came, and how the next ones fare."""

    port: int
    fate: Fate = lambda _: None
    seen: list[Request] = field(default_factory=list)
    faults: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def script(self, *faults: Fault | None, of: Callable[[Request], bool] = lambda _: True) -> None:
        """The next requests of that kind fare so, one after the other; all that follow pass."""
        left = list(faults)
        self.fate = lambda request: left.pop(0) if left and of(request) else None
        self.seen.clear()

    @property
    def writes(self) -> list[Request]:
        return [request for request in self.seen if request.is_write]


@contextlib.asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _serve(proxy, port, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**24)
    proxy = Proxy(server.sockets[0].getsockname()[1])
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(proxy: Proxy, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    onward: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    try:
        while True:
            head, body = await _message(reader)
            request = Request(_header(head, b"x-amz-target").rpartition(".")[2], body)
            proxy.seen.append(request)
            fault = proxy.fate(request)
            answer = b""
            if fault is None or fault.done:
                onward = onward or await asyncio.open_connection("127.0.0.1", port, limit=2**24)
                onward[1].write(head + body)
                answer = b"".join(await _message(onward[0]))
            if fault is not None:
                proxy.faults += 1
                if not fault.code:
                    return
                answer = _refusal(fault)
            writer.write(answer)
            await writer.drain()
    finally:
        if onward is not None:
            onward[1].close()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await reader.readexactly(int(_header(head, b"content-length") or 0))


def _header(head: bytes, name: bytes) -> str:
    for line in head.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip().decode()
    return ""


def _refusal(fault: Fault) -> bytes:
    told: dict[str, Any] = {"__type": f"com.amazonaws.dynamodb.v20120810#{fault.code}", "message": "as asked"}
    if fault.reasons:
        told["CancellationReasons"] = [{"Code": code, "Message": "as asked"} for code in fault.reasons]
    body = json.dumps(told).encode()
    head = f"HTTP/1.1 {fault.status} Refused\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body
