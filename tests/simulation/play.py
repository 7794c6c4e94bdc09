"""One seed: some processes, some companies, everything that can go wrong, then calm; and the laws."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from hashlib import sha256

import msgspec

from doubles.clock import Stuck, run, turned
from simulation.engine import Engine, present
from simulation.laws import Laws, finished
from simulation.outside import BEFORE_MAIL, POISON, World
from simulation.process import Process, watch_tasks
from simulation.weather import queue_weather, store_weather
from staffetta.errors import Conflict, StaffettaError, StoreUnavailable
from staffetta.flow import restore
from staffetta.mail import backoff
from staffetta.mail.events import Event, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import HistoryEntry, NewEmail, RetryLimits
from staffetta.mail.operators import Filter
from staffetta.mail.rulebook import CompanyRules, RuleBook
from staffetta.queue.local import LocalQueue
from staffetta.store.memory import MemoryStore, State

CHAOS_SECONDS = 600
CALM_SECONDS = 3 * 3_600
"""Everything must be over this long after the last fault; most of it is waiting for replies that will not come."""
COMPANIES = ("acme", "acme", "acme", "beta", "patient", "second-only")


@dataclass
class Outcome:
    """What one seed came to."""

    seed: int
    broken: list[str]
    trace: str
    """The same for the same seed."""
    emails: int
    copies: int
    kinds: dict[str, int] = field(default_factory=dict)


def play(seed: int) -> Outcome:
    async def through() -> Outcome:
        return await Play(seed).through()

    return run(through)


class Play:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        watch_tasks(turned())
        self.world = World(chance, nasty=chance.choice((0.1, 0.3, 0.6)), deaf=chance.choice((0.1, 0.5)))
        self.state = State()
        self.shared = chance.random() < 0.4
        self.store_weather = store_weather(chance)
        self.queue_weather = queue_weather(chance)
        self.rulebook = RuleBook(
            policy=msgspec.structs.replace(backoff.GATEWAY, max_attempts=chance.choice((2, 5))),
            in_doubt=chance.choice(("resend", "resend", "hold")),
            in_doubt_delay_ms=60_000,
            callback_url="https://owner.example/told",
            companies={"patient": CompanyRules(limits=RetryLimits(max_attempts=3, retry_delay_ms=20_000))},
        )
        self.batch = chance.choice((1, 4))
        self.one_queue = LocalQueue(clock=turned().clock) if self.shared and chance.random() < 0.5 else None
        """Shared by all processes, as Redis is; None: each has its own."""
        self.poison = chance.choice((0, 0, 0, 1))
        self.world.dies = self._poisoned
        self.engines: list[Engine] = []
        self.made = 0
        self.ids: list[str] = []
        self.answers: dict[str, list[str]] = {}
        self.events: list[Event] = []
        self.kinds: dict[str, int] = {}
        self.deaths: list[asyncio.Task[None]] = []

    # --- the play ---------------------------------------------------------------------------------

    async def through(self) -> Outcome:
        for _ in range(2 if self.shared else 1):
            self._start()
        clients = [asyncio.ensure_future(self._client(number)) for number in range(self.chance.randint(8, 30))]
        strangers = asyncio.ensure_future(self._strangers())
        await self._chaos()
        await self._calm()
        await asyncio.gather(*clients, strangers)
        truth = MemoryStore(self.state)
        ids = [*self.ids, *sorted({answered[0] for answered in self.answers.values()})]
        late = await self._until_finished(truth, ids)
        for engine in self.engines:
            if engine.alive:
                await engine.stop()
        laws = Laws(truth, self.world, self.rulebook, self.answers)
        await laws.check(ids)
        broken = [*late, *laws.broken]
        broken += [f"L11: {e.message}" for e in self.events if isinstance(e, Troubled) and e.part == "spool"]
        broken += [f"a fault of ours: {event.message}: {event.error}" for event in self._faults()]
        broken += [
            f"{engine.process.name} ended by itself: {error!r}"
            for engine in self.engines
            if (error := engine.broke)
        ]
        broken += [
            f"in a process: {error!r}"
            for engine in self.engines
            for error in engine.process.faults
            if not isinstance(error, StaffettaError)
        ]
        return Outcome(
            self.seed, broken, await self._trace(truth, ids), len(ids), len(self.world.copies), self.kinds
        )

    def _faults(self) -> list[Troubled]:
        """What a part says of itself when it meets what nobody thought of."""
        return [
            event
            for event in self.events
            if isinstance(event, Troubled)
            and event.error.partition("(")[0]
            in ("AssertionError", "KeyError", "TypeError", "AttributeError", "IndexError")
        ]

    def _start(self) -> None:
        self.made += 1
        engine = Engine(
            f"p{self.made}", state=self.state, shared=self.shared, world=self.world, chance=self.chance,
            store_weather=self.store_weather, queue_weather=self.queue_weather, rulebook=self.rulebook,
            batch=self.batch, queue=self.one_queue, emit=self.events.append,
        )  # fmt: skip
        self.engines.append(engine)
        engine.start()

    async def _until_finished(self, truth: MemoryStore, ids: list[str]) -> list[str]:
        ends = turned().time() + CALM_SECONDS
        while turned().time() < ends:
            left = [email for id in ids if (email := await truth.get(id)) is not None and not finished(email)]
            if not left:
                return []
            await asyncio.sleep(15)
        return [f"never ends: {email.id} is {email.status} ({email.reason})" for email in left]

    async def _trace(self, truth: MemoryStore, ids: list[str]) -> str:
        told = [(id, await truth.history(id)) for id in ids]
        return sha256(msgspec.json.encode([told, [copy.id for copy in self.world.copies]])).hexdigest()[:16]

    # --- what is handed in ------------------------------------------------------------------------

    def _payload(self) -> dict[str, object]:
        chance = self.chance
        to = [f"r{chance.randrange(6)}@example.org" for _ in range(chance.choice((1, 1, 1, 2, 4)))]
        made: dict[str, object] = {
            "company_id": chance.choice(COMPANIES), "from": "shop@example.com", "to": list(dict.fromkeys(to)),
            "subject": "hello", "body_text": "hello", "priority": chance.randint(1, 10),
        }  # fmt: skip
        if chance.random() < 0.15:
            made["in_doubt"] = chance.choice(("resend", "hold"))
        if chance.random() < 0.15:
            made["expires_in"] = chance.randint(30, 900)
        if chance.random() < 0.1:
            made["max_attempts"] = chance.randint(1, 4)
        if self.poison and chance.random() < 0.2:
            self.poison -= 1
            made["custom_headers"] = {POISON.decode(): "yes"}
        return made

    async def _client(self, number: int) -> None:
        """Hands one e-mail in under a key, and repeats it until somebody answers, as clients do."""
        chance = self.chance
        await asyncio.sleep(chance.random() * CHAOS_SECONDS * 0.8)
        raw = json.dumps(self._payload()).encode()
        key = f"key-{number}"
        repeats = chance.choice((0, 0, 1, 2))
        while True:
            engine = await self._some_engine()
            asked = engine.process.spawn(engine.desk.accept(raw, key=key), "client")
            await asyncio.wait([asked], timeout=30)
            if not asked.done():
                asked.cancel()
            elif not asked.cancelled() and (error := asked.exception()) is not None:
                if not isinstance(error, StoreUnavailable | Conflict):
                    raise error
            elif not asked.cancelled():
                self.answers.setdefault(key, []).append(asked.result().id)
                if len(self.answers[key]) > repeats:
                    return
            await asyncio.sleep(chance.random() * 5)

    async def _some_engine(self) -> Engine:
        while True:
            alive = [engine for engine in self.engines if engine.alive]
            if alive:
                return self.chance.choice(alive)
            await asyncio.sleep(1)

    async def _strangers(self) -> None:
        """Another program writes rows of its own: ACCEPTED with a payload, or READY already; some are wrong."""
        chance = self.chance
        beside = MemoryStore(self.state, owner=False)
        for number in range(chance.randint(0, 12)):
            await asyncio.sleep(chance.random() * CHAOS_SECONDS / 10)
            payload = self._payload()
            if chance.random() < 0.2:
                payload["to"] = "nobody"
            now = present()
            new = NewEmail(
                id=f"5f000000-0000-7000-8000-{number:012d}",
                company_id=str(payload["company_id"]),
                history=(HistoryEntry(status=Status.ACCEPTED, cause=Cause.ACCEPTED, reason="", at=now),),
                created_at=now, due_at=now, expires_at=now + 86_400_000, payload=json.dumps(payload).encode(),
            )  # fmt: skip
            await beside.add([new])
            self.ids.append(new.id)

    # --- what goes wrong --------------------------------------------------------------------------

    async def _chaos(self) -> None:
        """One fault after the other, some at the same time; each has its own end, at the latest with the chaos."""
        chance = self.chance
        faults: tuple[Callable[[], Awaitable[None]], ...] = (
            self._store_away, self._store_shaky, self._queue_shaky, self._killed, self._killed, self._frozen,
            self._frozen, self._relay_down, self._relay_down, self._wiped, self._clock_steps, self._operator,
            self._operator, self._operator, self._restarted, self._thief, self._slow,
        )  # fmt: skip
        going: list[asyncio.Task[None]] = []
        while turned().time() < CHAOS_SECONDS:
            await asyncio.sleep(chance.expovariate(1 / 12))
            fault = chance.choice(faults)
            name = fault.__name__.strip("_")
            self.kinds[name] = self.kinds.get(name, 0) + 1
            going.append(asyncio.ensure_future(fault()))
        await asyncio.gather(*going)

    async def _calm(self) -> None:
        """The faults stop: everything answers again, and nothing is paused."""
        self.world.calm()
        self.store_weather.calm()
        self.queue_weather.calm()
        for engine in self.engines:
            engine.process.wake()
        if self.shared:
            # Due times are told by workers' clocks and kept by the store's: an hour between them is an hour's delay.
            turned().shift_ms = 0
        truth = MemoryStore(self.state)
        for pause in await truth.pauses():
            await truth.resume(pause)
        while sum(engine.alive for engine in self.engines) < (2 if self.shared else 1):
            self._start()
        if self.one_queue is not None:
            # What a killed process blocked comes free by itself: in Redis after 30 s, at the keeper at once.
            for company in await self.one_queue.figures():
                await self.one_queue.unblock(company.company_id)

    async def _store_away(self) -> None:
        self.store_weather.away = True
        await asyncio.sleep(self.chance.choice((1, 10, 90)) * self.chance.random())
        self.store_weather.away = False

    async def _store_shaky(self) -> None:
        self.store_weather.fails = self.chance.random() * 0.3
        self.store_weather.loses = self.chance.random() * 0.3
        await asyncio.sleep(self.chance.random() * 40)
        self.store_weather.fails = self.store_weather.loses = 0.0

    async def _queue_shaky(self) -> None:
        self.queue_weather.fails = self.chance.random() * 0.3
        self.queue_weather.loses = self.chance.random() * 0.2
        await asyncio.sleep(self.chance.random() * 30)
        self.queue_weather.fails = self.queue_weather.loses = 0.0

    async def _slow(self) -> None:
        self.store_weather.slow = 0.5
        await asyncio.sleep(self.chance.random() * 60)
        self.store_weather.slow = 0.0

    def _living(self) -> Engine | None:
        alive = [engine for engine in self.engines if engine.alive and not engine.process.frozen]
        return self.chance.choice(alive) if alive else None

    async def _killed(self) -> None:
        engine = self._living()
        if engine is not None:
            await engine.process.kill()
            await asyncio.sleep(self.chance.random() * 40)
            self._start()

    async def _restarted(self) -> None:
        engine = self._living()
        if engine is not None:
            await engine.stop()
            self._start()

    async def _frozen(self) -> None:
        """Stopped by a signal, past its heartbeat often enough, and woken. An owned store has nobody else."""
        engine = self._living()
        if engine is not None:
            engine.process.freeze()
            await asyncio.sleep(self.chance.choice((2, 40, 150)) * self.chance.random())
            engine.process.wake()

    async def _relay_down(self) -> None:
        name = self.chance.choice(("first", "first", "second"))
        self.world.trouble[name] = self.chance.choice(BEFORE_MAIL)
        await asyncio.sleep(self.chance.random() * 60)
        self.world.trouble.pop(name, None)

    async def _wiped(self) -> None:
        clock = turned().clock
        self.one_queue = LocalQueue(clock=clock) if self.one_queue is not None else None
        for engine in self.engines:
            engine.give_queue(self.one_queue or LocalQueue(clock=clock))

    def _poisoned(self, process: Process) -> None:
        """Somebody sends what kills him. Whoever looks after processes starts another one."""

        async def dies() -> None:
            self.kinds["poisoned"] = self.kinds.get("poisoned", 0) + 1
            await process.kill()
            await asyncio.sleep(5)
            while sum(engine.alive for engine in self.engines) < (2 if self.shared else 1):
                self._start()

        # In nobody's name: the one who dies would take its own end with it.
        task = asyncio.get_running_loop().create_task(dies(), context=Context())
        self.deaths.append(task)

    async def _clock_steps(self) -> None:
        loop = turned()
        loop.shift_ms += self.chance.choice((-3_600_000, 3_600_000, -1_000, 5_000, 60_000))
        loop.shift_ms = max(-3_600_000, min(3_600_000, loop.shift_ms))

    async def _thief(self) -> None:
        """Somebody takes a claim to be a dead worker's, though its worker lives."""
        truth = MemoryStore(self.state)
        found = await truth.stuck(now=present(), dead_after_ms=None, timeout_ms=10**12)
        if found:
            await restore.restore_these(
                [self.chance.choice(found)], store=truth, queue=None, rulebook=self.rulebook,
                now=turned().clock(), draw=self.chance.random, emit=self.events.append,
            )  # fmt: skip

    async def _operator(self) -> None:
        """One thing that an operator does, to an e-mail or to all; what is refused is refused."""
        chance = self.chance
        engine = self._living()
        known = [row.id for row in self.state.rows.values()]
        if engine is None or not known:
            return
        hand, id = engine.operator, chance.choice(known)
        act = chance.choice(
            (
                lambda: hand.cancel(id), lambda: hand.retry(id), lambda: hand.resolve(id), lambda: hand.requeue(id),
                lambda: hand.retry_emails(Filter()), lambda: hand.retry_dead_letters(Filter(), limit=3),
                lambda: hand.discard(id), lambda: hand.erase(id), self._paused, self._paused,
            )
        )  # fmt: skip
        doing = engine.process.spawn(act(), "operator")
        await asyncio.wait([doing], timeout=60)
        doing.cancel()
        await asyncio.wait([doing])

    async def _paused(self) -> None:
        engine = self._living()
        if engine is None:
            return
        scope, name = self.chance.choice(
            (("all", ""), ("company", "acme"), ("company", "beta"), ("transport", "first"))
        )
        await engine.operator.pause(scope, name)
        await asyncio.sleep(self.chance.random() * 50)
        await engine.operator.resume(scope, name)


def tell(seed: int) -> Outcome:
    """One seed; that nothing can ever happen again is broken too."""
    try:
        return play(seed)
    except Stuck as error:
        return Outcome(seed, [f"stuck: {error}"], "", 0, 0)
    except Exception as error:
        return Outcome(seed, [f"the play broke: {error!r}"], "", 0, 0)
