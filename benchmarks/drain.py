"""How fast is a full outbox sent? READY to SENT, one process: journal, history, fairness, kept decisions on.

From the first claim to the last durable SENT, against `smtp-sink`, over 100 connections. Read it beside the
machine's own ceilings (`ceilings.py`), measured in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import parts
from staffetta.app.engine import Engine
from staffetta.app.running import working
from staffetta.app.wiring import opened_store
from staffetta.config import Config, sections
from staffetta.logs import Listeners, Log
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Pause

STAGES = frozenset({"deliver", "restore"})
DEFERS = '[[rule]]\nat = "dot"\nreply = "450 4.3.2 Not now"\n'
LOOK_SECONDS = 0.002
ALL = Pause(scope="all", name="", since=0)
RETRY = sections.Retry(policy="patient")
"""So long a wait that no e-mail is tried twice while it is measured."""


async def drain(
    folder: Path, *, port: int, count: int, logs: bool, concurrency: int, processes: int = 1
) -> dict[str, Any]:
    """In a process of its own: send all there is, and say what it took."""
    config = parts.settings(
        folder,
        port=port,
        delivery=sections.Delivery(concurrency=concurrency),
        retry=RETRY,
        worker=sections.Worker(processes=processes),
    )
    listeners = Listeners()
    if logs:
        log = Log(level="info", form="json")
        listeners.add(log, attempts=log.hears_attempts)
    started, cpu = time.perf_counter(), parts.cpu_seconds()
    written = parts.bytes_written()
    if processes > 1:
        await _hold(config)
    async with working(config, stages=STAGES, listeners=listeners) as running:
        before = _helpers()
        began, cpu_before, wrote_before = time.perf_counter(), parts.cpu_seconds(), parts.bytes_written()
        if processes > 1:
            await running.store.resume(ALL)
            running.changed()
        while await _done(running, processes) < count:  # a measurement looks now and then
            await asyncio.sleep(LOOK_SECONDS if processes == 1 else 10 * LOOK_SECONDS)
        ended, cpu_after, wrote_after = time.perf_counter(), parts.cpu_seconds(), parts.bytes_written()
        helping = sum(_helpers().values()) - sum(before.values())
        writers = [pid for pid in (os.getpid(), *before) if parts.writes(pid, folder)]
    sent = {str(status): n for status, n in (await _counts(config)).items() if n}
    return {
        "rate": count / (ended - began),
        "cpu_us": (cpu_after - cpu_before + helping) / count * 1e6,
        "helping_us": helping / count * 1e6,
        "processes": 1 + len(before),
        "writers": len(writers),
        "written": (wrote_after - wrote_before) / count,
        "opening_ms": (began - started) * 1e3,
        "opening_cpu_ms": (cpu_before - cpu) * 1e3,
        "opening_written": wrote_before - written,
        "resident_mb": parts.resident_mb(),
        "statuses": sent,
    }


async def _hold(config: Config) -> None:
    """Several processes begin one after the other: nothing is sent before all are there."""
    async with opened_store(config, owner=False) as store:
        await store.pause(ALL)


def _helpers() -> dict[int, float]:
    return {pid: parts.cpu_seconds_of(pid) for pid in parts.children()}


async def _done(running: Engine, processes: int) -> int:
    if processes == 1:
        return running.worker.riders.done
    counts = await running.store.counts()
    return counts[Status.SENT] + counts[Status.FAILED]


async def _counts(config: Config) -> dict[Status, int]:
    async with opened_store(config, owner=False) as store:
        return await store.counts()


def once(
    count: int,
    *,
    by_company: bool = False,
    logs: bool = False,
    concurrency: int = 600,
    script: str | None = None,
    processes: int = 1,
    ending_in: str = "SENT",
) -> dict[str, Any]:
    other_side = parts.sink() if script is None else parts.own_sink(script)
    with parts.folder() as folder, other_side as sink:
        parts.filled(folder, count, by_company=by_company)
        before = sink.cpu_seconds
        arguments = ["--folder", str(folder), "--port", str(sink.port), "--count", str(count)]
        arguments += ["--concurrency", str(concurrency), "--processes", str(processes)]
        arguments += ["--logs"] if logs else []
        found = parts.child("benchmarks.drain", *arguments)
        found["sink_us"] = (sink.cpu_seconds - before) / count * 1e6
        if found["statuses"] != {ending_in: count}:
            raise SystemExit(f"not all ended in {ending_in}: {found['statuses']}")
        return found


def measure(count: int = 20_000, repeats: int = 3) -> None:
    """Interleaved runs, medians."""
    # The same server on both sides of this comparison: `smtp-sink` stops pipelining where it is to refuse.
    deferred = {"script": DEFERS, "ending_in": "READY"}
    cases: dict[str, dict[str, Any]] = {
        "mixed order": {},
        "company by company": {"by_company": True},
        "mixed, logs of every attempt on": {"logs": True},
        "mixed, to our own sink": {"script": ""},
        "mixed, our sink answers every dot 450 (one attempt each)": deferred,
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            runs[name].append(once(count, **case))
    rows = [
        (
            name,
            *(
                f"{parts.middle([run[key] for run in found]):,.0f}"
                for key in ("rate", "cpu_us", "sink_us", "written")
            ),
            f"{parts.middle([run['resident_mb'] for run in found]):.0f}",
        )
        for name, found in runs.items()
    ]
    parts.table(
        f"Drain of {count:,} e-mails of 2 KiB, 100 companies, one process",
        ("loaded", "e-mails/s", "engine and store µs CPU", "sink µs CPU", "bytes written", "resident MB"),
        rows,
    )


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.drain", description=__doc__)
    reader.add_argument("--folder", type=Path, help="(used by the measurement itself)")
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--count", type=int, default=20_000)
    reader.add_argument("--repeats", type=int, default=3)
    reader.add_argument("--concurrency", type=int, default=600)
    reader.add_argument("--processes", type=int, default=1)
    reader.add_argument("--logs", action="store_true")
    given = reader.parse_args(arguments)
    if given.folder is None:
        measure(given.count, given.repeats)
        return
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    work = drain(
        given.folder, port=given.port, count=given.count, logs=given.logs, concurrency=given.concurrency,
        processes=given.processes,
    )  # fmt: skip
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main(sys.argv[1:])
