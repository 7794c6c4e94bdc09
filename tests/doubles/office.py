"""A whole engine in the test's own loop, on a shared database, with real SMTP to a sink that counts what it took."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from staffetta.app.engine import Engine, engine
from staffetta.config import Config, sections
from staffetta.logs import Listeners
from staffetta.mail.lifecycle import Status
from staffetta.sink import Script, SinkServer

PATIENCE_SECONDS = 30.0


class Office:
    """One engine and the sink it sends to."""

    def __init__(self, running: Engine, taken: Path) -> None:
        self.running = running
        self._taken = taken

    def taken(self) -> list[dict[str, Any]]:
        """Every message that the sink accepted, in the order in which it did."""
        return (
            [json.loads(line) for line in self._taken.read_text("utf-8").splitlines()]
            if self._taken.exists()
            else []
        )

    def recipients(self) -> list[str]:
        return sorted(address for one in self.taken() for address in one["recipients"])

    async def send(self, **payload: Any) -> str:
        whole = {
            "from": "us@example.com",
            "to": "you@example.org",
            "subject": "hello",
            "body_text": "hello",
            **payload,
        }
        return (await self.running.desk.accept(msgspec.json.encode(whole))).id

    async def until(self, email_id: str, *wanted: Status) -> None:
        """Return when it is there: an e-mail's road is walked by the engine, in its own time."""

        async def there() -> bool:
            found = await self.running.store.get(email_id)
            return found is not None and found.status in wanted

        await until(there, f"{email_id} never became {' or '.join(wanted)}")


async def until(holds: Callable[[], Awaitable[bool]], why: str) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not await holds():
        assert time.monotonic() < ends, why
        await asyncio.sleep(0.02)


def settings(url: str, folder: Path, port: int, **more: Any) -> Config:
    return Config(
        store=more.pop("store", None) or sections.Store(url=url, shared=bool(more.pop("shared", False))),
        transport=sections.Transport(url=(f"smtp://127.0.0.1:{port}?tls=none#relay",)),
        spool=sections.Spool(path=str(folder / "spool")),
        intake=sections.Intake(payload_base_path=str(folder / "payloads")),
        api=sections.Api(listen="127.0.0.1:0"),
        log=sections.Log(level="error"),
        **more,
    )


@contextlib.asynccontextmanager
async def office(url: str, folder: Path, **more: Any) -> AsyncIterator[Office]:
    """Open from here to the end. The folder `payloads` is where other programs leave their files."""
    (folder / "payloads").mkdir(parents=True, exist_ok=True)
    log = folder / "taken.jsonl"
    sink = SinkServer(Script().checked(), log=log)
    await sink.start()
    try:
        async with engine(settings(url, folder, sink.port, **more), listeners=Listeners()) as running:
            yield Office(running, log)
    finally:
        await sink.stop()
