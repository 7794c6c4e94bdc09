"""What do a million READY e-mails cost in memory, and how soon after the start is the first one sent?"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import parts
from staffetta.app import wiring
from staffetta.app.engine import engine
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import HistoryEntry, NewEmail

PASSED = ((Status.ACCEPTED, Cause.ACCEPTED), (Status.INTAKING, Cause.CLAIMED), (Status.READY, Cause.COMPOSED))
CHUNK = 5_000
SECONDS = 5.0


async def fill(folder: Path, count: int) -> None:
    store = wiring.store_for(parts.settings(folder, port=1), owner=True)
    await store.open()
    now = wiring.clock()
    history = tuple(HistoryEntry(status=status, cause=cause, reason="", at=now) for status, cause in PASSED)
    for start in range(0, count, CHUNK):
        emails = [
            NewEmail(
                id=wiring.new_id(now),
                company_id=f"company-{number % parts.COMPANIES:03d}",
                history=history,
                created_at=now,
                due_at=now,
                expires_at=now + 86_400_000,
                sender="us@example.com",
                recipients=(f"user{number}@example.org",),
                payload=b"{}",
                message=b"Subject: one of many\r\n\r\nhello\r\n",
            )
            for number in range(start, min(start + CHUNK, count))
        ]
        await store.add(emails)
    await store.close()


async def begin(folder: Path, *, port: int, started: float) -> dict[str, Any]:
    """Start, note the first send, go on for some seconds, and look at the memory."""
    most = 0.0
    async with engine(parts.settings(folder, port=port)) as running:
        while not running.worker.riders.done:  # a measurement looks now and then
            await asyncio.sleep(0.001)
        first = time.time() - started
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(0.1)
            most = max(most, parts.resident_mb())
        done = running.worker.riders.done
    return {"first_seconds": first, "resident_mb": most, "sent": done}


def _idle_mb() -> float:
    code = "import staffetta.app, uvloop; from benchmarks import parts; print(parts.resident_mb())"
    return float(
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    )


def measure(count: int = 1_000_000) -> None:
    with parts.folder() as folder, parts.sink() as sink:
        parts.child("benchmarks.million", "--fill", "--folder", str(folder), "--count", str(count))
        arguments = ["--folder", str(folder), "--port", str(sink.port), "--started", str(time.time())]
        found = parts.child("benchmarks.million", *arguments)
    idle = _idle_mb()
    rows = [
        ("from the process's start to the first send, s", f"{found['first_seconds']:.2f}"),
        ("resident memory while sending, MB", f"{found['resident_mb']:.0f}"),
        ("of an empty process with the same imports, MB", f"{idle:.0f}"),
    ]
    parts.table(f"{count:,} READY e-mails of {parts.COMPANIES} companies", ("what", "measured"), rows)


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    reader.add_argument("--folder", type=Path, help="(used by the measurement itself)")
    reader.add_argument("--fill", action="store_true")
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--started", type=float, default=0.0)
    reader.add_argument("--count", type=int, default=1_000_000)
    given = reader.parse_args(arguments)
    if given.folder is None:
        measure(given.count)
    elif given.fill:
        uvloop.run(fill(given.folder, given.count))
        print("{}")
    else:
        print(json.dumps(uvloop.run(begin(given.folder, port=given.port, started=given.started))))


if __name__ == "__main__":
    main(sys.argv[1:])
