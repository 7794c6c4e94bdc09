"""The whole way: from payload to SENT, and on until the owner has answered, in one process.

`accepted`: payloads lie in the store as ACCEPTED (as another program leaves them); intake reads, checks and
composes each. `handed in`: payloads are handed in while earlier ones are sent. Acknowledged: as `accepted`,
and the owner's receiver is called for every outcome, one by one or by fifties.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import parts
from staffetta.app import wiring
from staffetta.app.engine import Engine, engine
from staffetta.config import Config, sections
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import HistoryEntry, NewEmail

LOOK_SECONDS = 0.002


def _settings(folder: Path, port: int, callback_url: str = "", batch: int = 1) -> Config:
    if not callback_url:
        return parts.settings(folder, port=port)
    callback = sections.Callback(url=callback_url, batch=batch, secret="whsec_" + "QUFB" * 11)
    return parts.settings(folder, port=port, callback=callback)


async def fill_accepted(folder: Path, count: int) -> None:
    """Payloads as they are, nothing read of them yet."""
    store = wiring.store_for(parts.settings(folder, port=1), owner=True)
    await store.open()
    now = wiring.clock()
    first = HistoryEntry(status=Status.ACCEPTED, cause=Cause.ACCEPTED, reason="", at=now)
    emails = [
        NewEmail(
            id=wiring.new_id(now),
            company_id=one["company_id"],
            history=(first,),
            created_at=now,
            due_at=now,
            expires_at=now + 86_400_000,
            payload=json.dumps(one).encode(),
        )
        for one in parts.payloads(count)
    ]
    for start in range(0, count, parts.BATCH):
        await store.add(emails[start : start + parts.BATCH])
    await store.close()


async def walk(
    folder: Path, *, port: int, count: int, how: str, callback_url: str, batch: int
) -> dict[str, Any]:
    config = _settings(folder, port, callback_url, batch)
    stages = {"intake", "deliver", "restore"} | ({"report"} if callback_url else set())
    end = Status.SENT_ACKNOWLEDGED if callback_url else Status.SENT
    async with engine(config, stages=stages) as running:
        began, cpu = time.perf_counter(), parts.cpu_seconds()
        if how == "handed-in":
            await _hand_in(running, count)
        while (await running.store.counts()).get(end, 0) < count:  # a measurement looks now and then
            await asyncio.sleep(LOOK_SECONDS)
        spent = time.perf_counter() - began
        return {"rate": count / spent, "cpu_us": (parts.cpu_seconds() - cpu) / count * 1e6}


async def _hand_in(running: Engine, count: int) -> None:
    """As fast as it is taken, two batches at a time: what comes after is handed in while this is written."""
    gate = asyncio.Semaphore(2)

    async def one(batch: bytes) -> None:
        async with gate:
            for answer in await running.desk.accept_batch(batch):
                if isinstance(answer, Exception):
                    raise answer

    async with asyncio.TaskGroup() as group:
        for batch in parts.batches(count):
            async with gate:
                group.create_task(one(batch))


# --------------------------------------------------------------------------------- the owner's receiver


class _Receiver(asyncio.Protocol):
    """Answers 200 to every call, in a process of its own."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._held = b""

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._held) < end + 4 + length:
                return
            self._held = self._held[end + 4 + length :]
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _receive(pipe: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Receiver, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


def once(how: str, count: int, *, batch: int = 0) -> dict[str, Any]:
    with parts.folder() as folder, parts.sink() as sink:
        if how == "accepted":
            parts.child("benchmarks.journey", "--fill", "--folder", str(folder), "--count", str(count))
        arguments = ["--folder", str(folder), "--port", str(sink.port), "--count", str(count), "--how", how]
        receiver = None
        if batch:
            here, there = multiprocessing.Pipe()
            receiver = multiprocessing.get_context("spawn").Process(target=_receive, args=(there,), daemon=True)
            receiver.start()
            arguments += ["--callback-url", f"http://127.0.0.1:{here.recv()}/", "--batch", str(batch)]
        try:
            return parts.child("benchmarks.journey", *arguments)
        finally:
            if receiver is not None:
                receiver.terminate()
                receiver.join()


CASES = (
    ("ACCEPTED to SENT", "accepted", 0),
    ("handed in (no HTTP) to SENT", "handed-in", 0),
    ("ACCEPTED to SENT-ACKNOWLEDGED, callbacks by fifties", "accepted", 50),
    ("ACCEPTED to SENT-ACKNOWLEDGED, a callback each", "accepted", 1),
)


def measure(count: int = 20_000, repeats: int = 3) -> None:
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in CASES}
    for _ in range(repeats):
        for name, how, batch in CASES:
            runs[name].append(once(how, count, batch=batch))
    rows = [
        (name, *(f"{parts.middle([run[key] for run in found]):,.0f}" for key in ("rate", "cpu_us")))
        for name, found in runs.items()
    ]
    parts.table(
        f"The whole way of {count:,} e-mails of 2 KiB, 100 companies, one process",
        ("from and to", "e-mails/s", "engine and store µs CPU"),
        rows,
    )


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.journey", description=__doc__)
    reader.add_argument("--folder", type=Path, help="(used by the measurement itself)")
    reader.add_argument("--fill", action="store_true")
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--count", type=int, default=20_000)
    reader.add_argument("--repeats", type=int, default=3)
    reader.add_argument("--how", default="accepted")
    reader.add_argument("--callback-url", default="")
    reader.add_argument("--batch", type=int, default=1)
    given = reader.parse_args(arguments)
    if given.folder is None:
        measure(given.count, given.repeats)
    elif given.fill:
        asyncio.run(fill_accepted(given.folder, given.count))
        print("{}")
    else:
        work = walk(
            given.folder, port=given.port, count=given.count, how=given.how,
            callback_url=given.callback_url, batch=given.batch,
        )  # fmt: skip
        print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main(sys.argv[1:])
