"""What could this machine do at best? A bare SMTP client, bare SQLite groups, bare syncs: nothing of Staffetta.

The figures of the other files are to be read beside these, measured in the same run.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from functools import partial
from pathlib import Path
from typing import cast

import apsw
import uvloop

from benchmarks import parts

MESSAGE = b"From: us@example.com\r\nSubject: bare\r\n\r\n" + (b"x" * 76 + b"\r\n") * 26
GROUP = 50
CONNECTIONS = 100


class _Bare(asyncio.Protocol):
    """MAIL, RCPT and DATA in one write; the dot and the next envelope in one write too. Only counts replies."""

    def __init__(self, messages: int, ended: asyncio.Future[None]) -> None:
        self._ended = ended
        self._replies = 0
        between = MESSAGE + b".\r\n" + _ENVELOPE
        self._talk = itertools.chain(
            [(1, b"HELO bench\r\n"), (1, _ENVELOPE)],
            [(3, between)] if messages > 1 else [],
            itertools.repeat((4, between), max(0, messages - 2)),
            [(4 if messages > 1 else 3, MESSAGE + b".\r\n"), (1, b"")],
        )
        self._awaited, self._next = next(self._talk)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._replies += data.count(b"\n")
        if self._replies < self._awaited:
            return
        self._replies -= self._awaited
        if not self._next:
            self._transport.close()
            return
        self._transport.write(self._next)
        self._awaited, self._next = next(self._talk)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


_ENVELOPE = b"MAIL FROM:<us@example.com>\r\nRCPT TO:<one@example.org>\r\nDATA\r\n"


async def _bare(port: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    ends = []
    for _ in range(CONNECTIONS):
        ended: asyncio.Future[None] = loop.create_future()
        await loop.create_connection(partial(_Bare, count // CONNECTIONS, ended), "127.0.0.1", port)
        ends.append(ended)
    await asyncio.gather(*ends)


def smtp(count: int = 50_000) -> tuple[float, float]:
    """Messages a second, and microseconds of CPU each, of a client that does nothing else."""
    with parts.sink() as sink:
        started, cpu = time.perf_counter(), parts.cpu_seconds()
        uvloop.run(_bare(sink.port, count))
        return count / (time.perf_counter() - started), (parts.cpu_seconds() - cpu) / count * 1e6


def syncs(folder: Path, count: int = 400) -> float:
    """Synced writes of one page a second."""
    file = os.open(folder / "syncs", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    started = time.perf_counter()
    for _ in range(count):
        os.write(file, bytes(4096))
        os.fdatasync(file)
    spent = time.perf_counter() - started
    os.close(file)
    return count / spent


def groups(folder: Path, count: int = 300) -> float:
    """Rows a second, updated in synced transactions of fifty by primary key in one statement."""
    connection = apsw.Connection(str(folder / "bare.db"))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", 2)
    connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, status INTEGER, token TEXT, at INTEGER)")
    total = count * GROUP
    connection.execute(
        "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < ?)"
        " INSERT INTO t SELECT n, 1, '', 0 FROM c",
        (total,),
    )
    started = time.perf_counter()
    for first in range(1, total + 1, GROUP):
        numbers = str(list(range(first, first + GROUP)))
        connection.execute(
            "BEGIN IMMEDIATE;"
            " UPDATE t SET status = 2, token = 'x', at = 7 WHERE n IN (SELECT value FROM json_each(?));"
            " COMMIT",
            (numbers,),
        )
    spent = time.perf_counter() - started
    connection.close()
    return total / spent


def measure() -> None:
    rate, cpu = smtp()
    with parts.folder() as folder:
        rows = [
            (
                "bare SMTP client, 100 connections, pipelined",
                f"{rate:,.0f} messages/s",
                f"{cpu:.1f} µs CPU each",
            ),
            ("bare SQLite, synced groups of 50", f"{groups(folder):,.0f} rows/s", ""),
            ("bare synced write of a page", f"{syncs(folder):,.0f}/s", ""),
        ]
    parts.table("The machine's own ceilings", ("what", "rate", ""), rows)


if __name__ == "__main__":
    measure()
