"""How long from the call of the API to the server's 250, on an idle engine? Open loop, from another process.

A `staffetta serve` of its own; this process hands in at the stated rate, whatever comes back, and is the server
that takes the e-mails too, so that both ends are told by one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from benchmarks import parts

SECONDS = 15
WARM_UP = 400
_SUBJECT = re.compile(rb"^Subject: Order (\d{8}) shipped", re.MULTILINE)


class _Taker(asyncio.Protocol):
    """A server that takes everything, pipelined or not, and notes when it answered the dot of which e-mail."""

    def __init__(self, taken: dict[int, float]) -> None:
        self._taken = taken
        self._held = b""
        self._in_message = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        transport.write(b"220 bench ESMTP\r\n")  # type: ignore[attr-defined]  # a server's transport writes

    def data_received(self, data: bytes) -> None:
        self._held += data
        while True:
            if self._in_message:
                message, found, rest = self._held.partition(b"\r\n.\r\n")
                if not found:
                    return
                self._held, self._in_message = rest, False
                self._transport.write(b"250 2.0.0 taken\r\n")
                number = _SUBJECT.search(message)
                if number:
                    self._taken[int(number[1])] = time.perf_counter()
                continue
            line, found, rest = self._held.partition(b"\r\n")
            if not found:
                return
            self._held = rest
            self._answer(line[:4].upper())

    def _answer(self, verb: bytes) -> None:
        if verb == b"EHLO":
            self._transport.write(b"250-bench\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 ENHANCEDSTATUSCODES\r\n")
        elif verb == b"DATA":
            self._in_message = True
            self._transport.write(b"354 go on\r\n")
        elif verb == b"QUIT":
            self._transport.write(b"221 2.0.0 bye\r\n")
            self._transport.close()
        else:
            self._transport.write(b"250 2.0.0 ok\r\n")


async def _trickle(url: str, first: int, count: int, rate: float) -> tuple[dict[int, float], list[float]]:
    """When each call was begun, and how long each waited for its durable 202."""
    begun: dict[int, float] = {}
    waits: list[float] = []
    async with aiohttp.ClientSession() as session:

        async def one(number: int) -> None:
            body = json.dumps(parts.payload(number % parts.COMPANIES, number)).encode()
            begun[number] = asked = time.perf_counter()
            headers = {"Content-Type": "application/json"}
            async with session.post(url + "/v1/emails", data=body, headers=headers) as answer:
                if answer.status != 202:
                    raise SystemExit(await answer.text())
                await answer.read()
            waits.append(time.perf_counter() - asked)

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for place in range(count):
                ahead = started + place / rate - time.perf_counter()
                if ahead > 0:
                    await asyncio.sleep(ahead)
                group.create_task(one(first + place))
    return begun, waits


async def _until_ready(url: str, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url + "/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if time.monotonic() > until:
                raise SystemExit("serve did not get ready")
            await asyncio.sleep(0.05)


async def _measured(folder: Path, rate: float) -> dict[str, float]:
    taken: dict[int, float] = {}
    server = await asyncio.get_running_loop().create_server(lambda: _Taker(taken), "127.0.0.1", 0)
    listen = f"127.0.0.1:{parts.free_port()}"
    environment = {
        **os.environ,
        "STAFFETTA_STORE": f"sqlite:///{folder / 'outbox.db'}",
        "STAFFETTA_TRANSPORT": f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}?tls=none",
        "STAFFETTA_LISTEN": listen,
        "STAFFETTA_SPOOL__PATH": str(folder / "spool"),
    }
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "staffetta", "serve"]
        process = subprocess.Popen(command, env=environment, cwd=folder, stderr=log, stdout=log)  # noqa: ASYNC220  # before anything is timed
        try:
            url = f"http://{listen}"
            await _until_ready(url)
            await _trickle(url, 0, WARM_UP, rate)
            count = round(rate * SECONDS)
            begun, waits = await _trickle(url, WARM_UP, count, rate)
            while len(taken) < WARM_UP + count:
                await asyncio.sleep(0.01)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    journeys = sorted((taken[number] - at) * 1e3 for number, at in begun.items())
    answers = sorted(wait * 1e3 for wait in waits)
    server.close()
    return {
        **{f"p{share}": journeys[len(journeys) * share // 100] for share in (50, 95, 99)},
        **{f"answer_p{share}": answers[len(answers) * share // 100] for share in (50, 95, 99)},
    }


def measure(rate: float = 200.0, repeats: int = 3) -> None:
    runs = []
    for _ in range(repeats):
        with parts.folder() as folder:
            runs.append(uvloop.run(_measured(folder, rate)))

    def row(name: str, prefix: str) -> tuple[str, ...]:
        return (
            name,
            *(f"{parts.middle([run[f'{prefix}p{share}'] for run in runs]):.2f}" for share in (50, 95, 99)),
        )

    parts.table(
        f"Hand-in by HTTP at {rate:.0f}/s, idle engine, {SECONDS} s, milliseconds",
        ("from the call to", "p50", "p95", "p99"),
        [row("the durable 202", "answer_"), row("the server's 250", "")],
    )


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    reader.add_argument("--rate", type=float, default=200.0)
    reader.add_argument("--repeats", type=int, default=3)
    given = reader.parse_args(arguments)
    measure(given.rate, given.repeats)


if __name__ == "__main__":
    main(sys.argv[1:])
