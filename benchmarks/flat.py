"""Does the way of one e-mail cost the same, however many are finished? Pages and time, counted.

The same small drain on outboxes with a thousand and with very many finished e-mails (contents left out).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import uvloop

from benchmarks import parts
from staffetta.app.engine import engine
from staffetta.store.sqlite import SqliteStore, connection

WORK = 5_000
CHUNK = 200_000

_FINISHED = """
    WITH RECURSIVE c (k) AS (SELECT :first UNION ALL SELECT k + 1 FROM c WHERE k < :last)
    INSERT INTO mail (ref, id, company, status, version, priority, created_at, updated_at, due_at, expires_at,
                      attempts, opened, sequence, reached_at, last, told)
    SELECT k, printf('%08x-0000-7000-8000-%012x', k, k), 1 + k % 100, 2, 5, 5, k, k, k, k + 86400000,
           1, 1, 1, k, 5 * k, 5 * k
    FROM c
"""
_STORY = """
    WITH RECURSIVE c (k) AS (SELECT 5 * :first - 4 UNION ALL SELECT k + 1 FROM c WHERE k < 5 * :last)
    INSERT INTO journal (n, ref, prev, status, cause, at)
    SELECT k, (k + 4) / 5, iif(k % 5 = 1, NULL, k - 1), (k - 1) % 5 + 1, 2, k / 5 FROM c
"""
_CONTENT = """
    WITH RECURSIVE c (k) AS (SELECT :first UNION ALL SELECT k + 1 FROM c WHERE k < :last)
    INSERT INTO contents (ref, sender, recipients, fingerprint, erased)
    SELECT k, 'us@example.com', '["one@example.org"]', '', 1 FROM c
"""


def finish(path: Path, count: int) -> None:
    """Rows of e-mails that were sent long ago, written straight into a fresh store's tables."""
    opened = connection.connect(path, busy_ms=1_000)
    connection.migrate(opened, path)
    opened.pragma("synchronous", 0)
    for number in range(1, parts.COMPANIES + 1):
        opened.execute("INSERT INTO companies VALUES (?, ?)", (number, f"company-{number - 1:03d}"))
    for first in range(1, count + 1, CHUNK):
        bounds = {"first": first, "last": min(first + CHUNK - 1, count)}
        with opened:
            for statement in (_FINISHED, _STORY, _CONTENT):
                opened.execute(statement, bounds)
    opened.execute("UPDATE statuses SET total = ? WHERE code = 2", (count,))
    opened.execute("UPDATE marks SET n = ?", (5 * count,))
    opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    opened.close()


def _pages(store: SqliteStore) -> int:
    """Pages that the store's connections have looked at, cached or not."""
    group = store._writer._group  # measuring looks inside
    readers = [store._reader._connection, store._browser._connection]
    opened: list[Any] = [one for one in ([group.connection] if group else []) + readers if one is not None]
    kinds = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
    return sum(one.status(kind)[0] for one in opened for kind in kinds)


async def drain(folder: Path, *, port: int, count: int) -> dict[str, Any]:
    async with engine(parts.settings(folder, port=port), stages={"deliver", "restore"}) as running:
        store = running.store
        assert isinstance(store, SqliteStore)
        began, cpu = time.perf_counter(), parts.cpu_seconds()
        while running.worker.riders.done < count:  # a measurement looks now and then
            await asyncio.sleep(0.002)
        return {
            "pages": _pages(store) / count,
            "cpu_us": (parts.cpu_seconds() - cpu) / count * 1e6,
            "rate": count / (time.perf_counter() - began),
        }


def measure(many: int = 1_000_000) -> None:
    rows = []
    for finished in (1_000, many):
        with parts.folder() as folder, parts.sink() as sink:
            finish(folder / "outbox.db", finished)
            parts.filled(folder, WORK)
            arguments = ["--folder", str(folder), "--port", str(sink.port)]
            found = parts.child("benchmarks.flat", *arguments)
            rows.append(
                (f"{finished:,}", f"{found['pages']:.1f}", f"{found['cpu_us']:.0f}", f"{found['rate']:,.0f}")
            )
    columns = ("finished e-mails", "pages looked at", "µs CPU", "e-mails/s")
    parts.table(f"Sending {WORK:,} e-mails beside finished ones: cost an e-mail", columns, rows)


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.flat", description=__doc__)
    reader.add_argument("--folder", type=Path, help="(used by the measurement itself)")
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--finished", type=int, default=1_000_000)
    given = reader.parse_args(arguments)
    if given.folder is None:
        measure(given.finished)
    else:
        print(json.dumps(uvloop.run(drain(given.folder, port=given.port, count=WORK))))


if __name__ == "__main__":
    main(sys.argv[1:])
