"""Paces the flow: bounded loops, one clock, a graceful stop. It decides nothing and names no backend."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from staffetta.errors import QueueError, StaffettaError, StoreError
from staffetta.flow import figures, offer, waits, weights
from staffetta.flow.deliver import Means
from staffetta.flow.expire import expire
from staffetta.flow.orphans import Orphans
from staffetta.flow.patience import Patience
from staffetta.flow.restore import restore
from staffetta.flow.riders import Riders
from staffetta.mail import rescue
from staffetta.mail.events import Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import InWork, Job, Value
from staffetta.mail.operators import Pause
from staffetta.mail.operators import Worker as WorkerRecord

LONGEST_PAUSE_SECONDS = 30.0
"""How long a loop that fails again and again rests at most before its next try."""
QUEUE_PAUSE_SECONDS = 1.0
"""The same while the queue is away: asking costs nothing then, and work goes on as soon as it is back."""
IDLE_SECONDS = 1.0
UNCHANGED_SECONDS = 5.0
"""Figures that have not changed are written again after this, so that they stay fresh."""
LAST_SECONDS = 5.0
"""How long outcomes may still be written once the grace of an orderly stop is over."""
CLOSED_SECONDS = 0.2
TRIAL_SECONDS = 0.01
"""How often it is looked whether a transport on trial has a place."""


class Pace(Value, frozen=True, kw_only=True):
    """How often, how many, how long."""

    concurrency: int = 600
    heartbeat_ms: int = 10_000
    dead_after_ms: int = 60_000
    restore_interval_ms: int = 10_000
    restore_timeout_ms: int = 30 * 60_000
    shutdown_grace_ms: int = 20_000
    lease_ms: int = 30_000
    news_ms: int = 200
    refill_ms: int = 20
    expire_ms: int = 1_000
    steer_ms: int = 1_000
    publish_ms: int = 1_000


class Stage(Value, frozen=True, kw_only=True):
    """A step that is walked again and again beside the sending: intake, report, retire."""

    name: str
    every_ms: int
    step: Callable[[], Awaitable[int | None]]
    """How many e-mails it handled; more than 0: it is walked again at once."""
    needs_store: bool = True
    end: Callable[[], Awaitable[object]] | None = None
    """Lets go of what the stage still holds, at an orderly stop."""


class Worker:
    """One process that works: riders that send, and loops that keep them in work."""

    def __init__(
        self,
        *,
        id: str,
        means: Means,
        pace: Pace,
        sends: bool = True,
        restores: bool = True,
        keeps_queue: bool | None = None,
        lives: Callable[[str], bool] = lambda _: False,
        stages: Sequence[Stage] = (),
        weights: Mapping[str, float] | None = None,
        counted: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        """`keeps_queue`: it fills the queue from the store and tells its figures (None: when it sends).
        `lives`: whether another worker is known to live, whatever the store's record of it says.
        `counted`: what this process counted, published with the figures."""
        self.id = id
        self._counted = counted
        self._means = means
        self._pace = pace
        self._sends = sends
        self._restores = restores
        self._keeps_queue = sends if keeps_queue is None else keeps_queue
        self._lives = lives
        self._stages = stages
        self._weights = dict(weights or {})
        host, now = socket.gethostname(), means.clock()
        born = WorkerRecord(id=id, host=host, pid=os.getpid(), started_at=now, seen_at=now)
        self._record = msgspec.structs.replace(born, feeds=self._keeps_queue)
        self.riders = Riders(means, count=pace.concurrency if sends else 0)
        self.orphans = Orphans(means)
        self._patience = Patience(means.monotonic, seconds=pace.restore_timeout_ms / 1_000)
        means.unsure = self.orphans.note
        self._paused_all = False
        self._paused_companies: frozenset[str] = frozenset()
        self._blocked: set[str] = set()
        self._published = b""
        self._published_at = 0.0
        self._started_at = self._here_since = means.monotonic()
        self._stopping = asyncio.Event()
        self._go_on = asyncio.Event()
        self.started = asyncio.Event()
        """Set once the first heartbeat is written and what a dead worker left has been taken back."""
        self.ended = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    # --- the whole life ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        """No new claims from here on; `run` returns when what is in flight has ended or was given back."""
        self._stopping.set()

    def hurry(self) -> None:
        """The grace of the stop is over now."""
        self.riders.hurry()

    def changed(self) -> None:
        """An operator changed something by way of this process: look at it now rather than within a second."""
        self._looking = asyncio.create_task(self._look_again(), name="steer now")

    async def _look_again(self) -> None:
        with contextlib.suppress(StoreError, QueueError):
            await self._steer()

    async def run(self) -> None:
        """Work until `stop`. Nothing is left in an in-work status by an orderly stop.

        :raises StoreUnusable: the store must be mended first. Going on could only make it worse.
        """
        try:
            await self._run()
        finally:
            self.ended.set()
        if self._means.presence.unusable is not None:
            raise self._means.presence.unusable

    async def _run(self) -> None:
        broken = self._means.presence.until_unusable
        if not await waits.unless(self._begin(), broken, self._stopping.wait):
            with contextlib.suppress(StoreError):
                await self._means.store.forget_worker(self.id)
            return
        loops = [asyncio.create_task(self._keep(stage), name=stage.name) for stage in self._loops()]
        if self._sends:
            self.riders.start()
        self.started.set()
        try:
            if not await waits.unless(self._stopping.wait(), broken):
                self.hurry()
        finally:
            await self._end(loops)

    async def _begin(self) -> None:
        means = self._means
        await means.presence.insist(lambda: means.store.heartbeat(self._record))
        await self._reminded(self._steer)
        if self._restores and means.store.owned:
            # One process owns this store: every claim found now belongs to a worker that died.
            await means.presence.insist(lambda: self._restore_from(None))
            await means.presence.insist(self._forget_the_dead)
        if self._keeps_queue:
            # Before anything is taken: what is suspect comes after all others, so all others must be known.
            await self._reminded(self._fill)

    async def _reminded(self, step: Callable[[], Awaitable[object]]) -> None:
        """A step that tells the queue, at the start. A queue that is away ends nobody: the loops go on trying."""
        try:
            await self._means.presence.insist(step)
        except QueueError as error:
            message = "the queue does not answer; it is tried again, and the store has every e-mail"
            self._means.emit(Troubled(at=self._means.clock(), part="queue", message=message, error=str(error)))

    def _loops(self) -> list[Stage]:
        pace = self._pace
        loops = [
            Stage(name="heartbeat", every_ms=pace.heartbeat_ms, step=self._heartbeat, needs_store=False),
            Stage(name="mend", every_ms=pace.news_ms, step=self._mend, needs_store=False),
            Stage(name="steer", every_ms=pace.steer_ms, step=self._steer),
            Stage(name="publish", every_ms=pace.publish_ms, step=self._publish),
            *self._stages,
        ]
        if self._restores:
            loops += [
                Stage(name="restore", every_ms=pace.restore_interval_ms, step=self._restore),
                Stage(name="expire", every_ms=pace.expire_ms, step=self._expire),
            ]
        elif self._sends:
            loops.append(Stage(name="orphans", every_ms=pace.restore_interval_ms, step=self._look_at_orphans))
        if self._keeps_queue:
            loops += [
                Stage(name="fill", every_ms=pace.restore_interval_ms, step=self._fill),
                Stage(name="news", every_ms=pace.news_ms, step=self._news),
                Stage(name="refill", every_ms=pace.refill_ms, step=self._refill),
            ]
        if self._sends:
            loops += [
                Stage(name="feed", every_ms=0, step=self._feed),
                Stage(name="leases", every_ms=pace.lease_ms // 3, step=self._leases),
                Stage(name="watch", every_ms=pace.steer_ms, step=self._watch, needs_store=False),
                Stage(name="probe", every_ms=pace.news_ms, step=self._probe, needs_store=False),
            ]
        return loops

    async def _keep(self, stage: Stage) -> None:
        """Walk one step again and again. Its failure is told, and delays only itself."""
        means = self._means
        failures = 0
        while True:
            if stage.needs_store:
                await means.presence.until_here()
            pause = stage.every_ms / 1000
            try:
                pause, failures = (0.0 if await stage.step() else pause), 0
            except StoreError as error:
                means.presence.lost(error)
                pause = max(pause, 0.03)
            except Exception as error:  # noqa: BLE001  # a loop must outlive whatever one walk of it meets
                failures += 1
                away = isinstance(error, QueueError)
                part, longest = ("queue", QUEUE_PAUSE_SECONDS) if away else (stage.name, LONGEST_PAUSE_SECONDS)
                pause = min(max(pause, 0.1) * 2 ** min(failures, 20), max(pause, longest))
                message = f"{stage.name} failed and is tried again in {pause:.1f} s"
                told = str(error) if isinstance(error, StaffettaError) else repr(error)
                if not away or failures == 1:  # once an outage: the end of it will be seen
                    means.emit(Troubled(at=means.clock(), part=part, message=message, error=told))
            await asyncio.sleep(pause)

    async def _end(self, loops: Sequence[asyncio.Task[None]]) -> None:
        pace, means = self._pace, self._means
        beating = [task for task in loops if task.get_name() in ("heartbeat", "leases", "watch")]
        others = [task for task in loops if task not in beating]
        await waits.cancel(others)
        left = self.riders.close()
        with contextlib.suppress(QueueError):
            await means.queue.postpone(left)
        ends = [stage.end() for stage in self._stages if stage.end is not None]
        finish = self.riders.finish(pace.shutdown_grace_ms / 1000, LAST_SECONDS)
        for error in await asyncio.gather(finish, *ends, return_exceptions=True):
            if isinstance(error, Exception):
                message = "a part could not be ended in order; restore takes back what it held"
                means.emit(Troubled(at=means.clock(), part="stop", message=message, error=repr(error)))
        await waits.cancel(beating)
        # Each for itself: a silent queue must not keep the record. Last figures are read before they go with it.
        for last in (self.orphans.look, self._publish, lambda: means.store.forget_worker(self.id)):
            with contextlib.suppress(StoreError, QueueError):
                await last()

    # --- sending ----------------------------------------------------------------------------------------------

    async def _feed(self) -> int:
        """Bring riders and due jobs together, for as long as there is both."""
        means, riders = self._means, self.riders
        if self._paused_all:
            self._go_on.clear()
            await self._go_on.wait()
            return 1
        room = await riders.until_room()
        await means.presence.until_here()
        limit = means.routes.room()
        if limit is not None:
            # A transport on trial carries few: the others stay unclaimed, rather than claimed and given back.
            room = min(room, limit - riders.in_flight)
            if room < 1:
                await asyncio.sleep(TRIAL_SECONDS if limit else CLOSED_SECONDS)
                return 1
        jobs = await means.queue.take(room, now=means.clock(), lease_ms=self._pace.lease_ms)
        if not jobs:
            await means.queue.wait(IDLE_SECONDS)
            return 1
        if self._blocked or self._paused_companies or not means.routes.all_open:
            jobs = await self._let_through(jobs)
        if len(jobs) == 1 and jobs[0].suspect:
            await riders.give_alone(jobs[0])
        else:
            riders.give(jobs)
        return 1

    async def _let_through(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs of companies that may not send now go back unclaimed, and their company waits in the queue."""
        sent: list[Job] = []
        back: list[Job] = []
        for job in jobs:
            (sent if self._may_send(job.company_id) else back).append(job)
        for company_id in {job.company_id for job in back}:
            # Where it was blocked already, somebody else who shares the queue has lifted that.
            self._blocked.add(company_id)
            await self._means.queue.block(company_id)
        if back:
            await self._means.queue.postpone(back)
        return sent

    def _may_send(self, company_id: str) -> bool:
        return company_id not in self._paused_companies and self._means.routes.open_for(company_id)

    async def _review(self) -> None:
        """Companies that may send again get their turns back."""
        for company_id in [name for name in self._blocked if self._may_send(name)]:
            await self._means.queue.unblock(company_id)
            self._blocked.discard(company_id)  # only then: a queue that failed is asked again

    async def _fill(self) -> None:
        await offer.fill(self._means.store, self._means.queue, now=self._means.clock())
        await offer.index_dead(self._means.store, self._means.queue, now=self._means.clock())

    async def _news(self) -> int:
        return await offer.offer_news(self._means.store, self._means.queue, now=self._means.clock())

    async def _refill(self) -> int:
        await self._means.queue.until_hungry(IDLE_SECONDS)
        return await offer.refill(self._means.store, self._means.queue, now=self._means.clock())

    async def _leases(self) -> None:
        ids = self.riders.ids()
        if ids:
            await self._means.queue.extend(ids, now=self._means.clock(), lease_ms=self._pace.lease_ms)

    async def _watch(self) -> None:
        self.riders.interrupt_overdue()

    async def _probe(self) -> None:
        await self._review()
        await self._means.routes.until_trouble()
        self._means.routes.probe_due(now=self._means.clock())

    # --- steering ---------------------------------------------------------------------------------------------

    async def _steer(self) -> None:
        """What operators changed: pauses and weights."""
        means = self._means
        pauses = await means.store.pauses()
        await self._pause(pauses)
        for company_id, weight in (await weights.read(means.store)).items():
            if self._weights.get(company_id) != weight:
                self._weights[company_id] = weight
                await means.queue.set_weight(company_id, weight)

    async def _pause(self, pauses: Sequence[Pause]) -> None:
        means = self._means
        # What holds here first: a queue that fails in between must not let anything through.
        means.routes.pause(frozenset(pause.name for pause in pauses if pause.scope == "transport"))
        self._paused_companies = frozenset(pause.name for pause in pauses if pause.scope == "company")
        self._paused_all = any(pause.scope == "all" for pause in pauses)
        if not self._paused_all:
            self._go_on.set()
        for company_id in self._paused_companies - self._blocked:
            self._blocked.add(company_id)
            await means.queue.block(company_id)
        await self._review()

    async def _publish(self) -> None:
        """Figures that live in this process, for any command to show. Unchanged ones are written less often."""
        means = self._means
        now = means.monotonic()
        depth = await means.queue.depth() if self._keeps_queue else None
        known = await means.queue.figures() if self._keeps_queue else []
        health = await means.queue.health()
        done = {"done": self.riders.done, "in_flight": self.riders.in_flight}
        told = figures.told(
            self._record, done, self._counted(), queue=depth, health=health, companies=known,
            breakers=means.routes.figures(), blocked=self._blocked,
        )  # fmt: skip
        if told == self._published and now - self._published_at < UNCHANGED_SECONDS:
            return
        await means.store.publish(self.id, told, means.clock())
        self._published, self._published_at = told, now

    # --- who is dead, what is over ----------------------------------------------------------------------------

    def _live(self, found: InWork) -> bool:
        """Whether this process works on it now. A stage may hold claims beyond one step, but not for ever."""
        worker = rescue.worker_of(found.claim.token)
        if worker != self.id:
            return self._lives(worker)
        if found.status is Status.PROCESSING:
            return self.riders.live(found.claim.token)
        return self._patience.lasts(found.claim.token)

    async def _heartbeat(self) -> None:
        means = self._means
        await means.store.heartbeat(msgspec.structs.replace(self._record, seen_at=means.clock()))
        means.presence.found()

    async def _mend(self) -> None:
        """While the store is away, ask again and again; then remind the queue of everything."""
        means = self._means
        await means.presence.until_lost()
        await means.presence.insist(self._heartbeat)
        self._here_since = means.monotonic()
        if self._keeps_queue:
            await self._fill()

    async def _restore(self) -> None:
        """Take back what dead workers hold; on a shared store once everybody had time to show a heartbeat."""
        means = self._means
        await self.orphans.look()
        self._patience.look_again()
        settled_in = (
            means.monotonic() - max(self._here_since, self._started_at) >= self._pace.dead_after_ms / 1000
        )
        if means.store.owned or settled_in:
            await self._restore_from(self._pace.dead_after_ms)

    async def _restore_from(self, dead_after_ms: int | None, workers: Sequence[str] = ()) -> int:
        means = self._means
        return await restore(
            store=means.store, queue=means.queue, rulebook=means.rulebook, now=means.clock(), draw=means.draw,
            emit=means.emit, live=self._live, dead_after_ms=dead_after_ms,
            timeout_ms=self._pace.restore_timeout_ms, workers=workers,
        )  # fmt: skip

    async def _forget_the_dead(self) -> None:
        """What they held is taken back; their records would stay for ever."""
        means = self._means
        for worker in await means.store.workers():
            if worker.id != self.id and not self._lives(worker.id):
                await means.store.forget_worker(worker.id)

    async def _look_at_orphans(self) -> None:
        await self.orphans.look()

    async def restore_workers(self, workers: Sequence[str]) -> int:
        """These workers are known to be dead: their claims are taken back now."""
        return await self._restore_from(self._pace.dead_after_ms, workers)

    async def _expire(self) -> int:
        means = self._means
        return await expire(
            store=means.store, queue=means.queue, rulebook=means.rulebook, now=means.clock(), emit=means.emit
        )
