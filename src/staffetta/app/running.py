"""Runs what `serve`, `work` and `api` are: an engine, the API before it, until a signal ends both in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Collection, Iterator

from staffetta import config as settings
from staffetta.app import wiring
from staffetta.app.engine import Engine, engine
from staffetta.config import Config
from staffetta.errors import FieldProblem, QueueError, SettingsError, StoreError
from staffetta.flow import figures, waits, watch
from staffetta.logs import FLUSH_BYTES, PIPE_BYTES, Listeners, Log
from staffetta.mail.message import Value
from staffetta.mail.trend import EVERY_MS, Trend
from staffetta.web.api import Api
from staffetta.web.metrics import Metrics
from staffetta.web.parts import Figures, PartHealth, Parts, Setting
from staffetta.web.server import Serving, serving

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOPBACK = ("127.", "::1", "localhost")


class Ready(Value, frozen=True, kw_only=True):
    """What `on_ready` is told."""

    url: str | None
    """Where the API answers; None without one."""


async def run(
    config: Config,
    *,
    stages: Collection[str],
    api: bool,
    on_ready: Callable[[Ready], None] | None = None,
    reread: Callable[[], Config] | None = None,
) -> Config | None:
    """Work until SIGTERM or SIGINT. A second signal ends the grace.

    SIGHUP reads the settings anew: where they are right, this ends in the same order and returns them, to be run
    again; where they are wrong, the log says so and work goes on as before.
    """
    listeners = Listeners()
    write_bytes = PIPE_BYTES if config.worker.processes > 1 else FLUSH_BYTES
    log = Log(level=config.log.level, levels=config.log.levels, form=config.log.format, write_bytes=write_bytes)
    listeners.add(log, attempts=log.hears_attempts)
    ended, hurry = asyncio.Event(), Hurry()
    fresh: list[Config] = []

    def reload() -> None:
        assert reread is not None, "only then the signal is heard"
        try:
            fresh.append(reread())
        except SettingsError as error:
            told = {"problems": str(error)}
            log.write("error", "The settings are wrong; those in force stay", told, at=wiring.clock())
        else:
            log.write("info", "The settings were read anew; beginning again", {}, at=wiring.clock())
            ended.set()

    try:
        with _signals(ended, hurry, reload if reread is not None else None):
            async with contextlib.AsyncExitStack() as opened:
                running = await _opened(opened, working(config, stages=stages, listeners=listeners), ended)
                if running is None:
                    return None
                hurry.running = running
                async with contextlib.AsyncExitStack() as stack:
                    url = (await stack.enter_async_context(answering(running))).url if api else None
                    _say_ready(log, stages, url)
                    if on_ready is not None:
                        on_ready(Ready(url=url))
                    await waits.unless(ended.wait(), running.worker.ended.wait)
                await running.stop()
    finally:
        log.flush()
    return fresh[-1] if fresh and not hurry.asked else None


async def _opened(
    stack: contextlib.AsyncExitStack,
    parts: contextlib.AbstractAsyncContextManager[Engine],
    ended: asyncio.Event,
) -> Engine | None:
    """The engine, open; None when a signal came first: what was open already is closed in order."""
    opening = asyncio.create_task(stack.enter_async_context(parts))
    waiting = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((opening, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
        return await opening
    except asyncio.CancelledError:
        if not opening.cancelled():
            raise
        return None
    finally:
        waiting.cancel()


def working(
    config: Config, *, stages: Collection[str], listeners: Listeners
) -> contextlib.AbstractAsyncContextManager[Engine]:
    """All in this process, or the sending in several others."""
    if config.worker.processes > 1 and "deliver" in stages:
        from staffetta.app.processes import keeping

        return keeping(config, stages=stages, listeners=listeners)
    return engine(config, stages=stages, listeners=listeners)


class Hurry:
    """What a second signal does, once there is something that can be hurried."""

    def __init__(self) -> None:
        self.running: Engine | None = None
        self.asked = False
        """Somebody wants it to end, not to begin again."""

    def __call__(self) -> None:
        self.asked = True
        if self.running is not None:
            self.running.hurry()


@contextlib.contextmanager
def _signals(
    ended: asyncio.Event, hurry: Callable[[], None], reload: Callable[[], None] | None
) -> Iterator[None]:
    """From the very first: who is told to stop while he begins leaves nothing half begun either."""
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if ended.is_set():
            hurry()
        ended.set()

    handlers = dict.fromkeys(SIGNALS, signalled)
    if reload is not None:
        handlers[signal.SIGHUP] = reload
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _say_ready(log: Log, stages: Collection[str], url: str | None) -> None:
    told: dict[str, object] = {"stages": sorted(stages), "pid": os.getpid()}
    if url:
        told["api"] = url
    log.write("info", "Staffetta is ready", told, at=wiring.clock())


# ----------------------------------------------------------------------------------------------- the API


@contextlib.asynccontextmanager
async def answering(running: Engine) -> AsyncIterator[Serving]:
    """The API of this engine. Without any key it answers on loopback only."""
    config = running.config
    host, port = settings.listen_address(config.api.listen)
    if not host.startswith(LOOPBACK) and not await running.store.keys():
        remedy = "there is no API key yet: create one with `staffetta keys create`, or listen on 127.0.0.1"
        raise SettingsError([FieldProblem("api.listen", remedy)])
    trend = Trend()
    noting = asyncio.create_task(_note(running, trend), name="trend")
    try:
        async with serving(Api(parts_of(running, trend)), host=host, port=port) as served:
            yield served
    except OSError as error:
        remedy = (
            f"cannot listen on {config.api.listen} ({error.strerror or error}); does another one run there?"
        )
        raise SettingsError([FieldProblem("api.listen", remedy)]) from error
    finally:
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)


async def _note(running: Engine, trend: Trend) -> None:
    """Samples for the dashboard's pictures, while somebody could look at them."""
    while True:
        with contextlib.suppress(StoreError):
            sight = await running.gathering.look()
            trend.note(sight.sums, at=sight.at)
        await asyncio.sleep(EVERY_MS / 1_000)


def parts_of(running: Engine, trend: Trend) -> Parts:
    """What the API is handed."""

    async def tenants() -> Figures:
        return await figures.tenants(running.store, now=wiring.clock())

    async def health() -> list[PartHealth]:
        return await health_of(running)

    def in_force() -> list[Setting]:
        about = {one.name: one.kind.words for one in settings.settings()}
        return [
            Setting(name=name, value=value, source=source, about=about.get(name, ""))
            for name, value, source in (
                *settings.shown(running.config),
                *settings.shown_of_companies(running.config),
            )
        ]

    async def alerts() -> Figures:
        return await watch.current(running.store, running.gathering, now=wiring.clock())

    metrics = Metrics(
        running.store, running.gathering, companies_max=running.config.metrics.companies_max, alerts=alerts
    )
    return Parts(
        store=running.store,
        desk=running.desk,
        operator=running.operator,
        clock=wiring.clock,
        random=os.urandom,
        emit=running.listeners,
        health=health,
        tenants=tenants,
        alerts=alerts,
        metrics=metrics.text,
        changed=running.changed,
        body_bytes_max=running.config.api.batch_bytes,
        sight=running.gathering.look,
        trend=trend,
        settings=in_force,
        rules=wiring.table_for(running.config),
    )


async def _routes(running: Engine) -> list[dict[str, object]]:
    """Each transport's health; where other processes send, as they last told it."""
    if running.helpers is None:
        return list(running.routes.figures())
    try:
        return (await running.gathering.look()).breakers()
    except StoreError:
        return []


async def health_of(running: Engine) -> list[PartHealth]:
    """Each part by name, from what is known: nothing is tried out for this."""
    parts = []
    if running.presence.here:
        parts.append(PartHealth(name="store", state="ok", needed=True))
    else:
        parts.append(
            PartHealth(
                name="store", state="down", detail="it does not answer; outcomes wait for it", needed=True
            )
        )
    try:
        trouble = (await running.queue.health()).trouble
    except QueueError as error:  # it lives in another process, and that one is gone
        trouble = str(error)
    parts.append(PartHealth(name="queue", state="degraded" if trouble else "ok", detail=trouble))
    for route in await _routes(running):
        state, reason = str(route["state"]), str(route["reason"])
        parts.append(
            PartHealth(
                name=f"transport {route['transport']}",
                state="ok" if state == "closed" else "degraded",
                detail="" if state == "closed" else f"{state}: {reason}",
            )
        )
    return parts
