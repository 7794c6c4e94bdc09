"""One process with everything that a real one runs: desk, worker, intake, report, retire, operator."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from doubles.clock import EPOCH_MS, turned
from simulation.outside import Owners, Server, World
from simulation.process import Process
from simulation.weather import Exposed, Weather
from staffetta.flow.accept import Desk
from staffetta.flow.composing import Composer
from staffetta.flow.deliver import Means
from staffetta.flow.intake import Intake, IntakeMeans
from staffetta.flow.operate import Operator
from staffetta.flow.presence import Presence
from staffetta.flow.report import Reporter, ReportMeans
from staffetta.flow.routes import Routes
from staffetta.mail import verdict
from staffetta.mail.events import Event
from staffetta.mail.identity import uuid7
from staffetta.mail.message import Millis
from staffetta.mail.operators import Worker as WorkerRecord
from staffetta.mail.report import Receivers, ReportRules
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.queue.local import LocalQueue
from staffetta.spool import Spool
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore, State
from staffetta.worker import Pace, Stage, Worker

TIMEOUT_MS = 300_000
"""`restore.timeout_minutes`, made short so that a seed takes less time."""
PACE = Pace(
    concurrency=8, restore_timeout_ms=TIMEOUT_MS, news_ms=2_000, refill_ms=500, expire_ms=5_000, steer_ms=2_000,
    publish_ms=30_000,
)  # fmt: skip
CONTENT_MS = 60_000
"""Content of what is over goes soon, and only five dead letters are kept: what operators want again may be gone."""
TRANSPORTS = ("first", "second")
CHAINS = {"second-only": ("second",)}


class SharedStore(MemoryStore):
    """The memory store as several processes share one: none owns it, and it goes by a clock of its own."""

    owned = False
    has_clock = True

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await super().heartbeat(msgspec.structs.replace(worker, seen_at=present()))


def present() -> Millis:
    """The store's own clock: nobody's jumps reach it."""
    return EPOCH_MS + int(turned().time() * 1000)


def _by_its_own_clock(name: str) -> Callable[..., Any]:
    async def call(self: SharedStore, *args: Any, now: Millis, **kwargs: Any) -> Any:
        return await getattr(MemoryStore, name)(self, *args, now=present(), **kwargs)

    return call


for _name in ("claim", "commit", "claim_intake", "claim_reports", "waiting_companies", "waiting", "news", "next_due",
              "stuck", "expired", "queue_counts"):  # fmt: skip
    setattr(SharedStore, _name, _by_its_own_clock(_name))


class Engine:
    """A process and its parts. `run` is its main task; `kill`, `freeze`, `wake` and `stop` are done to it."""

    def __init__(
        self,
        name: str,
        *,
        state: State,
        shared: bool,
        world: World,
        chance: random.Random,
        store_weather: Weather,
        queue_weather: Weather,
        rulebook: RuleBook,
        batch: int,
        queue: LocalQueue | None,
        emit: Callable[[Event], None],
    ) -> None:
        self.process = Process(name)
        self.shared = shared
        loop = turned()
        clock = loop.clock
        store = SharedStore(state) if shared else MemoryStore(state)
        self.store = cast("Store", Exposed(store, self.process, store_weather))
        self._queue = Exposed(queue or LocalQueue(clock=clock), self.process, queue_weather)
        reminders = cast("Queue", self._queue)
        tokens = itertools.count(1)

        def new_id(now: Millis) -> str:
            return uuid7(now, chance.getrandbits(80).to_bytes(10, "big"))

        async def read_message(path: str) -> bytes:
            raise FileNotFoundError(path)

        self.presence = Presence(clock=clock, draw=chance.random, emit=emit)
        routes = Routes(
            [Server(one, world, self.process) for one in TRANSPORTS], chain=TRANSPORTS, chains=CHAINS, clock=clock,
            draw=chance.random, emit=emit, judge=verdict.judge,
        )  # fmt: skip
        self._means = Means(
            store=self.store, queue=reminders, routes=routes, rulebook=rulebook, presence=self.presence,
            judge=verdict.judge, read_message=read_message, new_token=lambda: f"{name}.{next(tokens)}", clock=clock,
            monotonic=loop.time, draw=chance.random, emit=emit, heard=lambda: True, deadline_seconds=120.0,
        )  # fmt: skip
        spool = cast("Spool", NoSpool())
        intake = Intake(
            IntakeMeans(
                store=self.store, spool=spool, composer=Composer(rulebook=rulebook), new_token=self._means.new_token,
                clock=clock, emit=emit, queue=reminders,
            )
        )  # fmt: skip
        reporter = Reporter(
            ReportMeans(
                store=self.store, presence=self.presence, calls=Owners(world, self.process),
                receivers=Receivers(url="https://owner.example/told"), rules=ReportRules(batch=batch),
                new_token=self._means.new_token, new_batch=new_id,
                clock=clock, ticks=lambda: int(loop.time() * 1_000), emit=emit, hold_ms=TIMEOUT_MS // 2,
            )
        )  # fmt: skip

        async def retire() -> int:
            count = await self.store.retire(
                now=clock(), content_ms=CONTENT_MS, record_ms=None, dead_letter_max=5, limit=20
            )
            return count.contents + count.dead_letters

        self.worker = Worker(
            id=name,
            means=self._means,
            pace=PACE,
            stages=[
                Stage(name="intake", every_ms=2_000, step=intake.step, end=lambda: intake.stop(20)),
                Stage(name="report", every_ms=1_000, step=reporter.step, end=lambda: reporter.stop(20)),
                Stage(name="retire", every_ms=20_000, step=retire),
            ],
        )
        self.desk = Desk(
            store=self.store, spool=spool, clock=clock, new_id=new_id, queue=reminders, rulebook=rulebook
        )
        self.operator = Operator(
            store=self.store, rulebook=rulebook, clock=clock, draw=chance.random, emit=emit, queue=reminders,
            timeout_ms=TIMEOUT_MS,
        )  # fmt: skip
        self.running: asyncio.Task[Any] | None = None

    def start(self) -> None:
        self.running = self.process.spawn(self.worker.run(), "worker")

    @property
    def alive(self) -> bool:
        return not self.process.dead and self.running is not None and not self.running.done()

    @property
    def broke(self) -> BaseException | None:
        """What ended its worker, where neither a stop nor a kill did."""
        task = self.running
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    def give_queue(self, queue: LocalQueue) -> None:
        """Another queue behind the same name: what it knew is gone, as when Redis was emptied."""
        self._queue.inner = queue

    async def stop(self) -> None:
        """SIGTERM, and until it has ended."""
        self.worker.stop()
        assert self.running is not None
        await asyncio.wait([self.running])  # it may be killed on the way
        await self.process.kill()


class NoSpool:
    """Nothing here is large enough for a file."""

    def holds(self, path: str) -> bool:
        return False

    def remove(self, paths: Sequence[str]) -> None:
        assert not paths
