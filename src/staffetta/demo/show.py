"""Runs the demonstration: everything in one process and a temporary folder, gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from staffetta.app.engine import Engine, engine
from staffetta.app.running import answering
from staffetta.config import Config, sections
from staffetta.demo import plan
from staffetta.demo.receiver import Receiver
from staffetta.demo.summary import Outcome, outcome, read_log
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import DeadLetter, Email, Value
from staffetta.mail.operators import Filter
from staffetta.sink import SinkServer

LONGEST_SECONDS = 28.0
EVERY_SECONDS = 0.25
PAGE = 500
BATCH = 200
ENDED = (Status.SENT_ACKNOWLEDGED, Status.FAILED_ACKNOWLEDGED)


class Progress(Value, frozen=True, kw_only=True):
    """What the terminal shows while it runs."""

    seconds: float
    handed_in: int
    counts: dict[Status, int]
    waiting: int
    delayed: int
    relay_away: bool
    breaker: str
    callbacks: int


def settings(folder: Path, *, relay_port: int, callback_url: str, secret: str) -> Config:
    """The embedded default, with waits short enough to be watched."""
    return Config(
        store=sections.Store(url=f"sqlite:///{folder / 'outbox.db'}"),
        transport=sections.Transport(url=(f"smtp://127.0.0.1:{relay_port}?tls=none#relay",), connections=20),
        retry=sections.Retry(policy="gateway", slow_seconds=1, greylist_seconds=2),
        callback=sections.Callback(url=callback_url, secret=secret, batch=20),
        spool=sections.Spool(path=str(folder / "spool")),
        api=sections.Api(listen="127.0.0.1:0"),
        log=sections.Log(level="error"),
    )


@contextlib.asynccontextmanager
async def _other_side(folder: Path) -> AsyncIterator[tuple[SinkServer, Receiver, str, str]]:
    """The relay that misbehaves and the application that is called back."""
    secret = "whsec_" + b64encode(secrets.token_bytes(32)).decode()
    receiver = Receiver(secret)
    sink = SinkServer(plan.script(), log=folder / "taken.jsonl")
    url = await receiver.start()
    await sink.start()
    try:
        yield sink, receiver, url, secret
    finally:
        await sink.stop()
        await receiver.stop()


async def demonstrate(
    tell: Callable[[Progress], None], *, keep: Callable[[str, Outcome], None] | None = None
) -> Outcome:
    """Hand everything in, watch it end, and count. `keep`: stay up afterwards; told the API's address."""
    with tempfile.TemporaryDirectory(prefix="staffetta-demo-") as name:
        folder = Path(name)
        async with _other_side(folder) as (sink, receiver, url, secret):
            config = settings(folder, relay_port=sink.port, callback_url=url, secret=secret)
            async with engine(config) as running:
                found = await _walk(running, sink, receiver, folder, tell)
                if keep is not None:
                    async with answering(running) as serving:
                        keep(serving.url, found)
                        await asyncio.Event().wait()
                return found


async def _walk(
    running: Engine, sink: SinkServer, receiver: Receiver, folder: Path, tell: Callable[[Progress], None]
) -> Outcome:
    started = time.monotonic()
    payloads = list(plan.payloads())
    handed_in = 0
    away = asyncio.create_task(_go_away(sink))

    async def show() -> bool:
        counts = await running.store.counts()
        now = running.store.queue_counts(now=time.time_ns() // 1_000_000)
        waiting, delayed, _ = await now
        tell(
            Progress(
                seconds=time.monotonic() - started,
                handed_in=handed_in,
                counts=counts,
                waiting=waiting,
                delayed=delayed,
                relay_away=not sink.serving,
                breaker=str(running.routes.figures()[0]["state"]),
                callbacks=len(receiver.heard),
            )
        )
        return sum(counts.get(status, 0) for status in ENDED) == len(payloads)

    try:
        for start in range(0, len(payloads), BATCH):
            batch = payloads[start : start + BATCH]
            answers = await running.desk.accept_batch(json.dumps(batch).encode())
            failed = [answer for answer in answers if isinstance(answer, Exception)]
            if failed:
                raise failed[0]
            handed_in += len(batch)
            await show()
        while not await show() and time.monotonic() - started < LONGEST_SECONDS:  # noqa: ASYNC110  # a picture is drawn each time
            await asyncio.sleep(EVERY_SECONDS)
    finally:
        away.cancel()
    return outcome(
        await _emails(running),
        await _letters(running),
        read_log(folder / "taken.jsonl"),
        handed_in=handed_in,
        heard=receiver.heard,
        forged=receiver.forged,
        seconds=time.monotonic() - started,
    )


async def _go_away(sink: SinkServer) -> None:
    """The relay's outage: connections break, new ones are refused, then it is back."""
    await asyncio.sleep(plan.AWAY_AFTER_SECONDS)
    await sink.stop()
    await asyncio.sleep(plan.AWAY_SECONDS)
    await sink.start()


async def _emails(running: Engine) -> list[Email]:
    found: list[Email] = []
    cursor: str | None = None
    while True:
        page = await running.store.emails(Filter(), limit=PAGE, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def _letters(running: Engine) -> list[DeadLetter]:
    page = await running.store.dead_letters(Filter(), limit=PAGE)
    return list(page.items)
