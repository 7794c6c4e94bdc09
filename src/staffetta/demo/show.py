"""Runs the demonstration: everything in one process and a temporary folder, gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import secrets
import signal
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from staffetta.app.engine import Engine, engine
from staffetta.app.running import answering
from staffetta.config import Config, sections
from staffetta.demo import plan
from staffetta.demo.heard import Heard, Standing
from staffetta.demo.receiver import Receiver
from staffetta.demo.summary import Outcome, outcome, read_log
from staffetta.logs import Listeners
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import DeadLetter, Email, Value
from staffetta.mail.operators import Filter
from staffetta.sink import SinkServer

LONGEST_SECONDS = 28.0
EVERY_SECONDS = 0.25
PAGE = 500
BATCH = 200
CONNECTIONS = 20
"""As many as e-mails in flight: who waits for a turn waits in the queue, where turns are fair."""
ENDED = (Status.SENT_ACKNOWLEDGED, Status.FAILED_ACKNOWLEDGED)
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Progress(Value, frozen=True, kw_only=True):
    """What the terminal shows while it runs."""

    seconds: float
    companies: dict[str, Standing]
    ended: int
    """E-mails whose owner has been told the outcome."""
    waiting: int
    delayed: int
    relay_away: bool
    breaker: str
    callbacks: int
    happened: tuple[str, ...]
    """What was heard since the picture before, in words."""


@dataclasses.dataclass(slots=True, frozen=True, kw_only=True)
class Scene:
    """All that the demonstration is made of."""

    running: Engine
    sink: SinkServer
    receiver: Receiver
    heard: Heard
    taken: Path
    """The server's own log."""


def settings(folder: Path, *, relay_port: int, callback_url: str, secret: str) -> Config:
    """The embedded default, with waits short enough to be watched."""
    return Config(
        store=sections.Store(url=f"sqlite:///{folder / 'outbox.db'}"),
        transport=sections.Transport(
            url=(f"smtp://127.0.0.1:{relay_port}?tls=none#relay",),
            connections=CONNECTIONS,
            messages_per_second=plan.PER_SECOND,
        ),
        delivery=sections.Delivery(concurrency=CONNECTIONS),
        retry=sections.Retry(policy="gateway", slow_seconds=1, greylist_seconds=2),
        callback=sections.Callback(url=callback_url, secret=secret, batch=20),
        spool=sections.Spool(path=str(folder / "spool")),
        api=sections.Api(listen="127.0.0.1:0"),
        log=sections.Log(level="error"),
    )


@contextlib.asynccontextmanager
async def _scene(folder: Path) -> AsyncIterator[Scene]:
    """The relay that misbehaves, the application that is called back, and the engine between them."""
    secret = "whsec_" + b64encode(secrets.token_bytes(32)).decode()
    receiver, heard, listeners = Receiver(secret), Heard(), Listeners()
    listeners.add(heard)
    taken = folder / "taken.jsonl"
    sink = SinkServer(plan.script(), log=taken)
    url = await receiver.start()
    await sink.start()
    try:
        config = settings(folder, relay_port=sink.port, callback_url=url, secret=secret)
        async with engine(config, listeners=listeners) as running:
            yield Scene(running=running, sink=sink, receiver=receiver, heard=heard, taken=taken)
    finally:
        await sink.stop()
        await receiver.stop()


async def demonstrate(
    tell: Callable[[Progress], None],
    *,
    begun: Callable[[str], None] | None = None,
    keep: Callable[[str, Outcome], None] | None = None,
) -> Outcome:
    """Hand everything in, watch it end, and count.

    `keep`: API and dashboard are up from the beginning (`begun` is told where) and stay up afterwards.

    A signal ends it at any time and in order; before the summary by `CancelledError`.
    """
    with tempfile.TemporaryDirectory(prefix="staffetta-demo-") as name:
        async with _scene(Path(name)) as scene:
            if keep is None:
                return await _until_signalled(scene, tell)
            async with answering(scene.running) as serving:
                if begun is not None:
                    begun(serving.url)
                found = await _until_signalled(scene, tell)
                asked_to_end = asyncio.Event()
                with _signals(asked_to_end.set):
                    keep(serving.url, found)
                    await asked_to_end.wait()
            return found


async def _until_signalled(scene: Scene, tell: Callable[[Progress], None]) -> Outcome:
    walking = asyncio.current_task()
    assert walking is not None
    with _signals(walking.cancel):
        return await _walk(scene, tell)


@contextlib.contextmanager
def _signals(end: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _walk(scene: Scene, tell: Callable[[Progress], None]) -> Outcome:
    started = time.monotonic()
    payloads = list(plan.payloads())
    away = asyncio.create_task(_go_away(scene))

    async def show() -> bool:
        now = await _progress(scene, time.monotonic() - started)
        tell(now)
        return now.ended == len(payloads)

    try:
        for start in range(0, len(payloads), BATCH):
            batch = json.dumps(payloads[start : start + BATCH]).encode()
            for answer in await scene.running.desk.accept_batch(batch):
                if isinstance(answer, Exception):
                    raise answer
            await show()
        while not await show() and time.monotonic() - started < LONGEST_SECONDS:  # noqa: ASYNC110  # a picture is drawn each time
            await asyncio.sleep(EVERY_SECONDS)
    finally:
        away.cancel()
    return outcome(
        await _emails(scene.running),
        await _letters(scene.running),
        read_log(scene.taken),
        handed_in=len(payloads),
        heard=scene.receiver.heard,
        forged=scene.receiver.forged,
        seconds=time.monotonic() - started,
    )


async def _progress(scene: Scene, seconds: float) -> Progress:
    store = scene.running.store
    counts = await store.counts()
    waiting, delayed, _ = await store.queue_counts(now=time.time_ns() // 1_000_000)
    return Progress(
        seconds=seconds,
        companies=scene.heard.companies,
        ended=sum(counts.get(status, 0) for status in ENDED),
        waiting=waiting,
        delayed=delayed,
        relay_away=not scene.sink.serving,
        breaker=str(scene.running.routes.figures()[0]["state"]),
        callbacks=len(scene.receiver.heard),
        happened=scene.heard.news(),
    )


async def _go_away(scene: Scene) -> None:
    """The relay's outage: it ends what it has in hand, refuses every connection, then is back."""
    await asyncio.sleep(plan.AWAY_AFTER_SECONDS)
    scene.heard.note("the relay goes away")
    await scene.sink.leave()
    await asyncio.sleep(plan.AWAY_SECONDS)
    await scene.sink.start()
    scene.heard.note("the relay is back")


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
