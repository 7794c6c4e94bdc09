"""What does the queue cost where it is Redis? Moves, memory, fairness, many companies, and a drain on SQLite.

A private server with the append-only file synced every second, as `deploy/redis.conf` has it. CPU of client and
server is told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import parts
from staffetta.app.running import working
from staffetta.config import sections
from staffetta.logs import Listeners
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Job
from staffetta.queue.redis import RedisQueue

NOW = 1_800_000_000_000
LEASE_MS = 60_000
BATCH = 50
STAGES = frozenset({"deliver", "restore"})
SETTINGS = (
    "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory", "2gb", "--maxmemory-policy", "noeviction",
    "--save", "",
)  # fmt: skip


class Server:
    """A private Redis."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.url = f"redis://127.0.0.1:{port}/0"

    @property
    def cpu_seconds(self) -> float:
        return parts.cpu_seconds_of(self._process.pid)


@contextlib.contextmanager
def server() -> Iterator[Server]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is missing: `make engines` installs it")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with parts.folder() as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), *SETTINGS]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                time.sleep(0.01)
            yield Server(process, port)
        finally:
            process.kill()
            process.wait()


def _jobs(count: int, companies: int) -> list[Job]:
    """In mixed order; ids as the engine makes them: in order of time, the rest by chance."""
    chance = random.Random(7)
    return [
        Job(
            id=str(uuid.UUID(int=(NOW + number << 80) | (7 << 76) | (2 << 62) | chance.getrandbits(62))),
            company_id=f"company-{number % companies:05d}",
            priority=5,
            due_at=NOW - count + number,
            ref=number + 1,
        )
        for number in range(count)
    ]


async def moves(url: str, *, companies: int, count: int, batch: int, fair: bool) -> dict[str, float]:
    """In a process of its own: offer all, then take and settle all; µs of client CPU and seconds for each."""
    queue = RedisQueue(url, clock=lambda: NOW, enabled=fair, offer_seconds=60.0)
    await queue.open()
    try:
        return await _moved(queue, companies=companies, count=count, batch=batch)
    finally:
        await queue.close()


async def _moved(queue: RedisQueue, *, companies: int, count: int, batch: int) -> dict[str, float]:
    jobs = _jobs(count, companies)
    empty = int((await queue.link.ask("INFO", "memory")).split(b"used_memory:")[1].split()[0])
    began, cpu = time.perf_counter(), parts.cpu_seconds()
    for start in range(0, count, 500):
        await queue.offer(jobs[start : start + 500])
    offered, offered_cpu = time.perf_counter(), parts.cpu_seconds()
    full = int((await queue.link.ask("INFO", "memory")).split(b"used_memory:")[1].split()[0])
    server_before = await _server_cpu(queue)
    trips = queue.link.round_trips
    again, again_cpu = time.perf_counter(), parts.cpu_seconds()
    given = 0
    while taken := await queue.take(batch, now=NOW, lease_ms=LEASE_MS):
        given += len(taken)
        await queue.settle([job.id for job in taken])
    ended, ended_cpu = time.perf_counter(), parts.cpu_seconds()
    assert given == count, f"{given} of {count} came out"
    server_after = await _server_cpu(queue)
    trips = queue.link.round_trips - trips
    return {
        "offered_per_second": count / (offered - began),
        "offer_us": (offered_cpu - cpu) / count * 1e6,
        "bytes": (full - empty) / count,
        "per_second": count / (ended - again),
        "client_us": (ended_cpu - again_cpu) / count * 1e6,
        "server_us": (server_after - server_before) / count * 1e6,
        "trips": trips / count,
    }


async def _server_cpu(queue: RedisQueue) -> float:
    told = dict(
        line.split(":", 1)
        for line in (await queue.link.ask("INFO", "cpu")).decode().splitlines()
        if ":" in line
    )
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


async def drain(folder: Path, url: str, *, port: int, count: int) -> dict[str, Any]:
    """In a process of its own: send all there is, with SQLite as store and Redis as queue."""
    config = parts.settings(folder, port=port, queue=sections.Queue(url=url))
    async with working(config, stages=STAGES, listeners=Listeners()) as running:
        assert isinstance(running.queue, RedisQueue)
        began, cpu = time.perf_counter(), parts.cpu_seconds()
        before = await _server_cpu(running.queue)
        while running.worker.riders.done < count:  # a measurement looks now and then
            await asyncio.sleep(0.002)
        ended, cpu_after = time.perf_counter(), parts.cpu_seconds()
        after = await _server_cpu(running.queue)
        trips = running.queue.link.round_trips
        sent = (await running.store.counts())[Status.SENT]
    return {
        "rate": count / (ended - began), "cpu_us": (cpu_after - cpu) / count * 1e6,
        "server_us": (after - before) / count * 1e6, "trips": trips / count, "sent": sent,
    }  # fmt: skip


def once(what: str, **given: Any) -> dict[str, Any]:
    with server() as redis:
        arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        return parts.child("benchmarks.redis", f"--what={what}", f"--url={redis.url}", *arguments)


def drained(count: int) -> dict[str, Any]:
    with server() as redis, parts.folder() as folder, parts.sink() as sink:
        parts.filled(folder, count)
        before = sink.cpu_seconds
        found = parts.child(
            "benchmarks.redis", "--what=drain", f"--url={redis.url}", f"--folder={folder}", f"--port={sink.port}",
            f"--count={count}",
        )  # fmt: skip
        if found["sent"] != count:
            raise SystemExit(f"{found['sent']} of {count} were sent")
        return {**found, "sink_us": (sink.cpu_seconds - before) / count * 1e6}


CASES: dict[str, dict[str, Any]] = {
    "100 companies, fair": {"companies": 100, "count": 100_000},
    "100 companies, plain order by age": {"companies": 100, "count": 100_000, "fair": 0},
    "100 companies, take(600)": {"companies": 100, "count": 100_000, "batch": 600},
    "10 companies": {"companies": 10, "count": 100_000},
    "10,000 companies": {"companies": 10_000, "count": 100_000},
    "100,000 companies": {"companies": 100_000, "count": 200_000},
}


def measure(count: int = 20_000, repeats: int = 3) -> None:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    drains: list[dict[str, Any]] = []
    for _ in range(repeats):
        for name, case in CASES.items():
            runs[name].append(once("moves", **case))
        drains.append(drained(count))
    keys = ("per_second", "client_us", "server_us", "trips", "offered_per_second", "bytes")
    parts.table(
        "The queue alone: take(50) and settle on one connection",
        (
            "case",
            "jobs/s",
            "client µs CPU",
            "Redis µs CPU",
            "round trips a job",
            "offered/s",
            "bytes a waiting job",
        ),
        [
            (
                name,
                *(
                    f"{parts.middle([run[key] for run in found]):,.{3 if key == 'trips' else 1}f}"
                    for key in keys
                ),
            )
            for name, found in runs.items()
        ],
    )
    names = ("rate", "cpu_us", "server_us", "sink_us", "trips")
    parts.table(
        f"Drain of {count:,} e-mails of 2 KiB, 100 companies, SQLite and Redis, one process",
        ("e-mails/s", "engine and store µs CPU", "Redis µs CPU", "sink µs CPU", "round trips an e-mail"),
        [
            tuple(
                f"{parts.middle([run[key] for run in drains]):,.{3 if key == 'trips' else 0}f}" for key in names
            )
        ],
    )


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.redis", description=__doc__)
    reader.add_argument("--what", choices=("moves", "drain"), help="(used by the measurement itself)")
    reader.add_argument("--url", default="")
    reader.add_argument("--folder", type=Path)
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--count", type=int, default=20_000)
    reader.add_argument("--companies", type=int, default=100)
    reader.add_argument("--batch", type=int, default=BATCH)
    reader.add_argument("--fair", type=int, default=1)
    reader.add_argument("--repeats", type=int, default=3)
    given = reader.parse_args(arguments)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if given.what == "moves":
        work = moves(
            given.url, companies=given.companies, count=given.count, batch=given.batch, fair=bool(given.fair)
        )
        print(json.dumps(uvloop.run(work)))
    elif given.what == "drain":
        print(json.dumps(uvloop.run(drain(given.folder, given.url, port=given.port, count=given.count))))
    else:
        measure(given.count, given.repeats)


if __name__ == "__main__":
    main(sys.argv[1:])
