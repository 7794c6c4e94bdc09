"""How fast is the mouth alone, and what does a message cost it? In clear, under TLS, and over a long line.

No store and no queue: messages of 2 KiB, each with a mark before its dot that costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import smtplib
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiosmtplib
import trustme
import uvloop

from benchmarks import ceilings, parts
from staffetta.sink import SinkServer
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Tls

CONNECTIONS = 100
IN_FLIGHT = 600
"""As many as a worker has by default."""
SENDER = "noreply@company-007.example"
RECIPIENT = "user1@example.org"
HEADER = (
    f"From: {SENDER}\r\nTo: {RECIPIENT}\r\nSubject: Order 00000001 shipped\r\n"
    "Date: Thu, 19 Nov 2026 08:00:00 +0000\r\nMessage-ID: <1@company-007.example>\r\nMIME-Version: 1.0\r\n"
    "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n"
)
MESSAGE = (HEADER + ("eHh4" * 19 + "\r\n") * 23).encode()
ROUND_TRIP_SECONDS = 0.05


class Run(tuple[float, float]):
    """Messages a second, microseconds of CPU each."""

    __slots__ = ()

    @property
    def shown(self) -> tuple[str, str]:
        return f"{self[0]:,.0f}", f"{self[1]:.1f}"


async def _mark() -> None:
    """The journal's mark, without a journal."""


@contextlib.contextmanager
def _measured(count: int) -> Iterator[list[Run]]:
    found: list[Run] = []
    started, cpu = time.perf_counter(), parts.cpu_seconds()
    yield found
    spent = time.perf_counter() - started
    found.append(Run((count / spent, (parts.cpu_seconds() - cpu) / count * 1e6)))


async def _workers(number: int, count: int, send: Callable[[int], Awaitable[None]]) -> None:
    """So many coroutines that each take the next message when theirs is settled."""
    left = iter(range(count))

    async def work(worker: int) -> None:
        for _ in left:
            await send(worker)

    async with asyncio.TaskGroup() as group:
        for worker in range(number):
            group.create_task(work(worker))


async def _ours(
    port: int, count: int, *, connections: int, in_flight: int, tls: Tls, context: ssl.SSLContext | None
) -> Run:
    transport = SmtpTransport(
        "127.0.0.1", port, tls=tls, connections_max=connections, ehlo_name="bench.example", ssl_context=context
    )
    recipients = (RECIPIENT,)

    async def send(_: int) -> None:
        delivery = await transport.send(SENDER, recipients, MESSAGE, before_dot=_mark)
        if not delivery.replies[0].reply.delivered:
            raise RuntimeError(f"not taken: {delivery.replies[0].reply}")

    await transport.open()
    await _workers(in_flight, in_flight, send)  # connections are made, code is warm
    with _measured(count) as found:
        await _workers(in_flight, count, send)
    await transport.close()
    return found[0]


def ours(
    port: int,
    count: int,
    *,
    connections: int = CONNECTIONS,
    in_flight: int = IN_FLIGHT,
    tls: Tls = "none",
    context: ssl.SSLContext | None = None,
) -> Run:
    return uvloop.run(
        _ours(port, count, connections=connections, in_flight=in_flight, tls=tls, context=context)
    )


async def _aiosmtplib(port: int, count: int, connections: int, context: ssl.SSLContext | None) -> Run:
    clients = [
        aiosmtplib.SMTP(
            hostname="127.0.0.1", port=port, start_tls=context is not None, tls_context=context, timeout=60
        )
        for _ in range(connections)
    ]
    for client in clients:
        await client.connect()

    async def send(worker: int) -> None:
        await clients[worker].sendmail(SENDER, [RECIPIENT], MESSAGE)

    await _workers(connections, connections, send)
    with _measured(count) as found:
        await _workers(connections, count, send)
    for client in clients:
        await client.quit()
    return found[0]


def by_aiosmtplib(
    port: int, count: int, *, connections: int = CONNECTIONS, context: ssl.SSLContext | None = None
) -> Run:
    return uvloop.run(_aiosmtplib(port, count, connections, context))


def by_smtplib(port: int, count: int, *, context: ssl.SSLContext | None = None) -> Run:
    """One connection, as it blocks; its CPU is what can be compared."""
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        if context is not None:
            client.starttls(context=context)
        client.sendmail(SENDER, [RECIPIENT], MESSAGE)
        with _measured(count) as found:
            for _ in range(count):
                client.sendmail(SENDER, [RECIPIENT], MESSAGE)
    return found[0]


# ------------------------------------------------------------------------------------------- the other side


@contextlib.contextmanager
def _child(*arguments: str) -> Iterator[int]:
    """This module as another process that serves until its input ends; it prints its port first."""
    command = [sys.executable, "-m", "benchmarks.transport", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(10)


async def _until_input_ends() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _serve_tls(certificate: str) -> None:
    """Our own sink, for smtp-sink knows no TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    async with SinkServer(ssl_context=context) as sink:
        print(sink.port, flush=True)
        await _until_input_ends()


class _Far(asyncio.Protocol):
    """One side of the long line: what it hears the other side says later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.other: _Far | None = None
        self.transport: Any = None
        self.early: list[bytes] = []
        """What came before the other side was there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.other is not None:
            for data in self.other.early:
                self.other.pass_on(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.pass_on(data)

    def pass_on(self, data: bytes) -> None:
        assert self.other is not None
        asyncio.get_running_loop().call_later(self.seconds, self.other.transport.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            asyncio.get_running_loop().call_later(self.seconds, self.other.transport.close)


async def _serve_far(port: int) -> None:
    """Passes everything on to that port, half a round trip later in each direction."""
    loop = asyncio.get_running_loop()
    begun: set[asyncio.Task[Any]] = set()

    def admit() -> _Far:
        near, far = _Far(ROUND_TRIP_SECONDS / 2), _Far(ROUND_TRIP_SECONDS / 2)
        near.other, far.other = far, near
        task = loop.create_task(loop.create_connection(lambda: far, "127.0.0.1", port))
        begun.add(task)
        return near

    server = await loop.create_server(admit, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await _until_input_ends()
    server.close()


# ------------------------------------------------------------------------------------------- the tables


def clear(count: int = 60_000, runs: int = 3) -> dict[str, Any]:
    """Beside a client that does nothing else, and the common library; medians of interleaved runs."""
    mine, library = [], []
    for _ in range(runs):
        with parts.sink() as sink:
            mine.append(ours(sink.port, count))
        with parts.sink() as sink:
            library.append(by_aiosmtplib(sink.port, count // 6))
    rate, cpu = ceilings.smtp(count)
    return {"ours": _middle(mine), "aiosmtplib": _middle(library), "bare": (rate, cpu)}


def under_tls(count: int = 12_000, runs: int = 3) -> dict[str, Any]:
    authority = trustme.CA()
    mine, library, standard = [], [], []
    with tempfile.TemporaryDirectory(prefix="staffetta-bench-") as folder:
        certificate = Path(folder) / "server.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        for _ in range(runs):
            with _child("tls", str(certificate)) as port:
                mine.append(ours(port, count, tls="required", context=context))
                library.append(by_aiosmtplib(port, count // 4, context=context))
                standard.append(by_smtplib(port, count // 4, context=context))
    return {"ours": _middle(mine), "aiosmtplib": _middle(library), "smtplib": _middle(standard)}


def far(count: int = 60) -> dict[str, Any]:
    """One connection over a line with 50 ms round trips."""
    with parts.sink() as sink, _child("far", str(sink.port)) as port:
        mine = ours(port, count, connections=1, in_flight=8)
        library = by_aiosmtplib(port, count // 3, connections=1)
        standard = by_smtplib(port, count // 3)
    return {"ours": mine, "aiosmtplib": library, "smtplib": standard}


def _middle(runs: list[Run]) -> Run:
    return Run((parts.middle([run[0] for run in runs]), parts.middle([run[1] for run in runs])))


def measure() -> None:
    shown = clear()
    _table(f"The transport alone: smtp-sink, {len(MESSAGE)} bytes, {CONNECTIONS} connections", shown)
    _table(f"The same under TLS (our sink), {CONNECTIONS} connections; smtplib has one", under_tls())
    found = far()
    _table("One connection over a line with 50 ms round trips", found)
    print(f"\nOurs carries {found['ours'][0] / found['smtplib'][0]:.1f} times what smtplib carries there.")


def _table(title: str, found: dict[str, Any]) -> None:
    rows = [(name, *Run(run).shown) for name, run in found.items()]
    parts.table(title, ("client", "messages/s", "µs CPU each"), rows)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["tls", certificate]:
            uvloop.run(_serve_tls(certificate))
        case ["far", port]:
            uvloop.run(_serve_far(int(port)))
        case ["--json", name]:
            print(json.dumps({"clear": clear, "tls": under_tls, "far": far}[name]()))
        case _:
            measure()


if __name__ == "__main__":
    main(sys.argv[1:])
