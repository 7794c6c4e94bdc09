"""A whole engine in one loop: memory store, local queue, scripted transports, a clock that is turned."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from doubles.clock import turned
from doubles.transport import ScriptedTransport
from staffetta.flow.deliver import Means, Rider, deliver
from staffetta.flow.presence import Presence
from staffetta.flow.routes import Routes
from staffetta.mail import backoff, verdict
from staffetta.mail.events import Event
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Email, HistoryEntry, Job, NewEmail, Options
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.queue.local import LocalQueue
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore
from staffetta.transport.contract import Transport
from staffetta.worker import Pace, Stage, Worker

PASSED = ((Status.ACCEPTED, Cause.ACCEPTED), (Status.INTAKING, Cause.CLAIMED), (Status.READY, Cause.COMPOSED))
HOUR_MS = 3_600_000


def new_email(
    number: int = 1,
    *,
    now: int,
    company_id: str = "acme",
    recipients: Sequence[str] = ("one@example.org",),
    due_in_ms: int = 0,
    expires_in_ms: int = 24 * HOUR_MS,
    options: Options | None = None,
) -> NewEmail:
    """An e-mail that has passed intake already. Its message names it, so that a sink can count copies."""
    name = f"00000000-0000-7000-8000-{number:012d}"
    return NewEmail(
        id=name,
        company_id=company_id,
        history=tuple(HistoryEntry(status=s, cause=c, reason="", at=now) for s, c in PASSED),
        created_at=now,
        due_at=now + due_in_ms,
        expires_at=now + expires_in_ms,
        sender="us@example.com",
        recipients=tuple(recipients),
        payload=b"{}",
        message=f"Message-ID: <{name}@example.com>\r\n\r\nhello\r\n".encode(),
        options=options if options is not None else Options(),
    )


@dataclass
class Rig:
    """Everything that `deliver` and a `Worker` need, by name."""

    transports: Sequence[Transport] = ()
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rulebook: RuleBook = field(default_factory=lambda: RuleBook(policy=backoff.POLICIES["gateway"]))
    store: Store = field(default_factory=MemoryStore)
    queue: Queue | None = None
    seed: int = 1
    worker_id: str = "w1"

    def __post_init__(self) -> None:
        loop = turned()
        self.clock: Callable[[], int] = loop.clock
        self.events: list[Event] = []
        self.transports = self.transports or [ScriptedTransport()]
        self.bus: Queue = self.queue if self.queue is not None else LocalQueue(clock=self.clock)
        chance = random.Random(self.seed)
        numbers = itertools.count(1)
        self.unsure: list[tuple[Job, str, str]] = []
        self.routes = Routes(
            self.transports,
            chain=[transport.name for transport in self.transports],
            chains=self.chains,
            clock=self.clock,
            draw=chance.random,
            emit=self.events.append,
            judge=verdict.judge,
        )
        self.presence = Presence(clock=self.clock, draw=chance.random, emit=self.events.append)
        self.means = Means(
            store=self.store,
            queue=self.bus,
            routes=self.routes,
            rulebook=self.rulebook,
            presence=self.presence,
            judge=verdict.judge,
            read_message=self._read,
            new_token=lambda: f"{self.worker_id}.{next(numbers)}",
            clock=self.clock,
            monotonic=loop.time,
            draw=chance.random,
            emit=self.events.append,
            heard=lambda: True,
            unsure=lambda job, token, why: self.unsure.append((job, token, why)),
        )
        self.files: dict[str, bytes] = {}

    async def _read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    @property
    def transport(self) -> ScriptedTransport:
        first = self.transports[0]
        assert isinstance(first, ScriptedTransport)
        return first

    async def add(self, *emails: NewEmail) -> list[Job]:
        """Make e-mails durable and tell the queue, as a desk in this process does; their jobs."""
        for added in await self.store.add(emails):
            assert not isinstance(added, Exception), added
        jobs = [Job(id=e.id, company_id=e.company_id, priority=e.priority, due_at=e.due_at) for e in emails]
        for company_id in {job.company_id for job in await self.bus.offer(jobs)}:
            await self.bus.full(company_id, more=True)
        return jobs

    async def deliver(self, job: Job) -> Email:
        """One e-mail through `deliver`, as a rider would; its record afterwards."""
        await self.bus.take(100, now=self.clock(), lease_ms=60_000)
        await deliver(job, Rider(self.means), self.means)
        return await self.email(job.id)

    async def email(self, id: str) -> Email:
        found = await self.store.get(id)
        assert found is not None, id
        return found

    async def causes(self, id: str) -> list[str]:
        """The story after READY: `status cause`, oldest first."""
        return [f"{entry.status} {entry.cause}" for entry in (await self.store.history(id))[3:]]

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def worker(self, *, stages: Sequence[Stage] = (), **pace: int) -> Worker:
        return Worker(
            id=self.worker_id,
            means=self.means,
            pace=msgspec.structs.replace(Pace(concurrency=20), **pace),
            stages=stages,
        )
