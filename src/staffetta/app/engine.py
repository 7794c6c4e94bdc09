"""The running parts of one process, opened in order and closed in the reverse one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import Protocol

from staffetta.app import wiring
from staffetta.app.stages import STAGES, made_of
from staffetta.config import Config
from staffetta.errors import FieldProblem, SettingsError
from staffetta.flow.accept import Desk
from staffetta.flow.deliver import Means
from staffetta.flow.gathering import Gathering
from staffetta.flow.operate import Operator
from staffetta.flow.presence import Presence
from staffetta.flow.routes import Routes
from staffetta.logs import Listeners
from staffetta.mail.counting import Counting
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.spool import Spool
from staffetta.store.contract import Store
from staffetta.transport.contract import Transport
from staffetta.worker import Pace, Worker


class Helpers(Protocol):
    """Other processes that send for this one."""

    def changed(self) -> None: ...

    def hurry(self) -> None: ...

    async def stop(self) -> None: ...


@dataclasses.dataclass(slots=True, kw_only=True)
class Engine:
    """What one process works with."""

    config: Config
    store: Store
    queue: Queue
    transports: list[Transport]
    routes: Routes
    rulebook: RuleBook
    presence: Presence
    spool: Spool
    desk: Desk
    operator: Operator
    listeners: Listeners
    worker: Worker
    gathering: Gathering
    """What all processes on this store have counted."""
    helpers: Helpers | None = None
    """Processes that send for this one."""

    def changed(self) -> None:
        """An operator changed something by way of this process: all who work for it look now."""
        self.worker.changed()
        if self.helpers is not None:
            self.helpers.changed()

    def hurry(self) -> None:
        """The grace of the stop is over now."""
        self.worker.hurry()
        if self.helpers is not None:
            self.helpers.hurry()

    async def stop(self) -> None:
        """No new claims from here on; until what is in flight has ended or was given back, everywhere."""
        self.worker.stop()
        if self.helpers is not None:
            await self.helpers.stop()
        await self.worker.ended.wait()


def pace_for(config: Config) -> Pace:
    return Pace(
        concurrency=config.delivery.concurrency,
        heartbeat_ms=config.worker.heartbeat_ms,
        dead_after_ms=config.worker.dead_after_ms,
        restore_interval_ms=config.restore.interval_ms,
        restore_timeout_ms=config.restore.timeout_minutes * 60_000,
        shutdown_grace_ms=config.delivery.shutdown_grace_ms,
    )


@contextlib.asynccontextmanager
async def engine(
    config: Config,
    *,
    stages: Collection[str] = STAGES,
    listeners: Listeners | None = None,
    store: Store | None = None,
    queue: Queue | None = None,
    keeps_queue: bool | None = None,
    lives: Callable[[str], bool] = lambda _: False,
) -> AsyncIterator[Engine]:
    """Everything that one process runs, from its store to its worker; an orderly stop at the end.

    `store` and `queue` are given where they are shared with other processes; `keeps_queue` and `lives` say who
    of them feeds the queue, and which other workers are known to live.
    """
    if "deliver" in stages and not config.transport.url:
        remedy = (
            "nobody takes the e-mails on: set STAFFETTA_TRANSPORT=smtp://host:25 (or sink:// to try things out)"
        )
        raise SettingsError([FieldProblem("transport.url", remedy)])
    listeners = listeners if listeners is not None else Listeners()
    async with contextlib.AsyncExitStack() as stack:
        if store is None:
            store = await stack.enter_async_context(wiring.opened_store(config, owner=True))
        if queue is None:
            queue = wiring.queue_for(config, emit=listeners, store=store)
            await queue.open()
            stack.push_async_callback(queue.close)
        transports = wiring.transports_for(config) if "deliver" in stages else []
        for transport in transports:
            await transport.open()
            stack.push_async_callback(transport.close)
        made = _assembled(
            config, store=store, queue=queue, transports=transports, emit=listeners, stages=stages, stack=stack,
            keeps_queue=keeps_queue, lives=lives,
        )  # fmt: skip
        stack.push_async_callback(made.routes.close)
        running = asyncio.create_task(made.worker.run(), name="worker")
        stack.push_async_callback(_stopped, made.worker, running)
        await _begun(made.worker, running)
        yield made


async def _begun(worker: Worker, running: asyncio.Task[None]) -> None:
    """Until the worker has begun; its trouble, where it ended instead."""
    started = asyncio.create_task(worker.started.wait())
    try:
        await asyncio.wait((started, running), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
    finally:
        started.cancel()


async def _stopped(worker: Worker, running: asyncio.Task[None]) -> None:
    worker.stop()
    await running


def _assembled(
    config: Config,
    *,
    store: Store,
    queue: Queue,
    transports: list[Transport],
    emit: Listeners,
    stages: Collection[str],
    stack: contextlib.AsyncExitStack,
    keeps_queue: bool | None,
    lives: Callable[[str], bool],
) -> Engine:
    rulebook = wiring.rulebook_for(config)
    table = wiring.table_for(config)
    presence = Presence(clock=wiring.clock, draw=wiring.draw, emit=emit)
    chain, chains = wiring.chains_of(config)
    routes = Routes(
        transports,
        chain=chain if transports else (),
        chains=chains if transports else {},
        clock=wiring.clock,
        draw=wiring.draw,
        emit=emit,
        judge=table.judge,
    )
    spool = wiring.spool_for(config)
    worker_id = wiring.worker_id()
    counting = Counting()
    emit.add(counting)
    numbers = itertools.count(1)

    async def read_message(path: str) -> bytes:
        return await asyncio.to_thread(spool.read, path)

    means = Means(
        store=store,
        queue=queue,
        routes=routes,
        rulebook=rulebook,
        presence=presence,
        judge=table.judge,
        read_message=read_message,
        new_token=lambda: f"{worker_id}.{next(numbers)}",
        clock=wiring.clock,
        monotonic=time.monotonic,
        draw=wiring.draw,
        emit=emit,
        heard=lambda: emit.attempts_heard,
        deadline_seconds=config.delivery.deadline_ms / 1_000,
        mark_seconds=config.worker.dead_after_ms / 2_000,
    )
    desk = wiring.desk_for(config, store=store, rulebook=rulebook, queue=queue, emit=emit, spool=spool)
    gathering = Gathering(store, wiring.clock, own=(worker_id, counting.tally))
    worker = Worker(
        id=worker_id,
        means=means,
        pace=pace_for(config),
        sends="deliver" in stages,
        restores="restore" in stages,
        keeps_queue=keeps_queue,
        lives=lives,
        stages=made_of(
            config,
            means,
            stages=stages,
            spool=spool,
            desk=desk,
            gathering=gathering,
            worker_id=worker_id,
            stack=stack,
        ),
        counted=lambda: {
            "tally": counting.tally,
            "replies": counting.replies(),
            "process": wiring.process_figures(),
            "watches": "watch" in stages,
        },
    )
    return Engine(
        config=config,
        store=store,
        queue=queue,
        transports=transports,
        routes=routes,
        rulebook=rulebook,
        presence=presence,
        spool=spool,
        desk=desk,
        operator=wiring.operator_for(
            config, store=store, rulebook=rulebook, emit=emit, queue=queue, spool=spool
        ),
        listeners=emit,
        worker=worker,
        gathering=gathering,
    )
