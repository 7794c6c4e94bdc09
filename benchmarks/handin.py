"""How fast can e-mails be handed in by HTTP? By the batch, one by one; and how long does one wait at 500/s?

The server is a process of its own on one core; the callers are on another where there is one. Every answer
comes after the e-mail is durable and READY. Beside it: how long `serve` takes to start, and what it holds while
idle.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks import parts

CONNECTIONS = 50
OPEN_LOOP_RATE = 500
WARM_UP_SECONDS = 2.0
CORES = sorted(os.sched_getaffinity(0))


# ------------------------------------------------------------------------------------------- the server


class Server:
    """A `staffetta` process that answers HTTP."""

    def __init__(self, pid: int, port: int, ready_seconds: float) -> None:
        self.pid = pid
        self.port = port
        self.ready_seconds = ready_seconds

    @property
    def cpu_seconds(self) -> float:
        return parts.cpu_seconds_of(self.pid)

    @property
    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


@contextlib.contextmanager
def server(command: str, folder: Path, *, sink_port: int) -> Iterator[Server]:
    """`serve` or `api` on a store of its own, on the first core."""
    settings = {
        "STAFFETTA_STORE": f"sqlite:///{folder / 'outbox.db'}",
        "STAFFETTA_TRANSPORT": f"smtp://127.0.0.1:{sink_port}?tls=none#sink",
        "STAFFETTA_LISTEN": "127.0.0.1:0",
        "STAFFETTA_SPOOL__PATH": str(folder / "spool"),
    }
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "staffetta", command],
        cwd=folder,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.sched_setaffinity(process.pid, CORES[:1])
    assert process.stdout is not None
    try:
        ready: dict[str, Any] = {}
        for line in process.stdout:
            ready = json.loads(line)
            if "api" in ready:
                break
        seconds = time.perf_counter() - started
        yield Server(process.pid, int(ready["api"].rpartition(":")[2]), seconds)
    finally:
        process.terminate()
        process.stdout.read()
        process.wait()


# ------------------------------------------------------------------------------------------- the callers


def request(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Caller(asyncio.Protocol):
    """One keep-alive connection, one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._came = b""
        self._answered: asyncio.Future[None] | None = None

    async def ask(self, sent: bytes) -> None:
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(sent)
        await self._answered

    def data_received(self, data: bytes) -> None:
        self._came += data
        head, _, body = self._came.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not length or len(body) < int(length):
            return
        assert head.startswith(b"HTTP/1.1 202 "), self._came
        assert b'"error"' not in body, self._came
        self._came = b""
        assert self._answered is not None
        self._answered.set_result(None)

    def close(self) -> None:
        self._transport.close()


async def _callers(port: int, count: int) -> list[_Caller]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(_Caller, "127.0.0.1", port))[1] for _ in range(count)]


async def closed_loop(port: int, requests: Sequence[bytes], connections: int) -> float:
    """Each connection asks as soon as it was answered. Seconds for all."""
    callers = await _callers(port, connections)
    left = deque(requests)

    async def work(caller: _Caller) -> None:
        while left:
            await caller.ask(left.popleft())

    started = time.perf_counter()
    await asyncio.gather(*(work(caller) for caller in callers))
    seconds = time.perf_counter() - started
    for caller in callers:
        caller.close()
    return seconds


async def open_loop(port: int, requests: Sequence[bytes], rate: float) -> list[float]:
    """One request at each beat, however long the others take. Milliseconds from the beat to the answer."""
    callers = deque(await _callers(port, CONNECTIONS))
    free = asyncio.Semaphore(len(callers))
    waits: list[float] = []

    async def one(sent: bytes, beat: float) -> None:
        async with free:
            caller = callers.popleft()
            await caller.ask(sent)
            waits.append((time.perf_counter() - beat) * 1e3)
            callers.append(caller)

    began = time.perf_counter()
    asking = []
    for number, sent in enumerate(requests):
        beat = began + number / rate
        await asyncio.sleep(beat - time.perf_counter())
        asking.append(asyncio.create_task(one(sent, beat)))
    await asyncio.gather(*asking)
    for caller in callers:
        caller.close()
    return waits[int(rate * WARM_UP_SECONDS) :]


# ------------------------------------------------------------------------------------------- what is measured


def _requests(count: int) -> list[bytes]:
    return [request("/v1/emails", json.dumps(one).encode()) for one in parts.payloads(count)]


def _rate(requests: Sequence[bytes], emails: int, connections: int) -> tuple[float, float]:
    """E-mails a second, and the server's CPU for each in microseconds."""
    with parts.folder() as folder, server("api", folder, sink_port=1) as api:
        warm = _requests(200)
        uvloop.run(closed_loop(api.port, warm, connections))
        before = api.cpu_seconds
        seconds = uvloop.run(closed_loop(api.port, requests, connections))
        return emails / seconds, (api.cpu_seconds - before) / emails * 1e6


def by_batch(count: int) -> tuple[float, float]:
    return _rate([request("/v1/emails/batch", batch) for batch in parts.batches(count)], count, 4)


def one_by_one(count: int) -> tuple[float, float]:
    return _rate(_requests(count), count, CONNECTIONS)


def waiting(seconds: float) -> list[float]:
    """At 500 a second, while `serve` sends what comes."""
    count = int(OPEN_LOOP_RATE * (seconds + WARM_UP_SECONDS))
    with parts.sink() as sink, parts.folder() as folder, server("serve", folder, sink_port=sink.port) as serve:
        return uvloop.run(open_loop(serve.port, _requests(count), OPEN_LOOP_RATE))


def starting() -> tuple[float, float]:
    """Seconds until `serve` is ready, and its megabytes while it has nothing to do."""
    with parts.folder() as folder, server("serve", folder, sink_port=1) as serve:
        time.sleep(2.0)
        return serve.ready_seconds, serve.resident_mb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    chosen = parser.parse_args()
    os.sched_setaffinity(0, CORES[1:] or CORES)

    batch = [by_batch(chosen.count) for _ in range(chosen.runs)]
    single = [one_by_one(chosen.count) for _ in range(chosen.runs)]
    waits = sorted(waiting(chosen.seconds))
    starts = [starting() for _ in range(chosen.runs)]

    def shown(runs: Sequence[tuple[float, float]]) -> tuple[str, str]:
        return f"{parts.middle([r for r, _ in runs]):,.0f}/s", f"{parts.middle([c for _, c in runs]):.0f} µs"

    cut = statistics.quantiles(waits, n=1_000)
    parts.table(
        "Hand-in by HTTP, e-mails of 2 KiB, server on one core",
        ("what", "measured", "server's CPU an e-mail", "goal"),
        [
            ("by the batch of 500, over 4 connections, to READY", *shown(batch), "≥ 6,000/s"),
            (f"one a call, over {CONNECTIONS} connections, to READY", *shown(single), "≥ 2,500/s"),
            (
                f"one a call at {OPEN_LOOP_RATE}/s, while they are sent",
                f"p50 {cut[499]:.1f}, p95 {cut[949]:.1f}, p99 {cut[989]:.1f} ms", "", "p99 < 25 ms",
            ),
            ("`serve` from start to ready", f"{parts.middle([s for s, _ in starts]):.2f} s", "", "< 1 s"),
            ("`serve` idle, resident", f"{parts.middle([m for _, m in starts]):.0f} MB", "", "≤ 120 MB"),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
