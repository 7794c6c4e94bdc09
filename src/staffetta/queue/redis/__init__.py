"""The queue in Redis: shared by workers on any number of hosts, in the order of `mail/fairness.py`. A reminder only.

Every move is one Lua file (`queue/lua/`); this module asks for them, remembers what this process holds, and sleeps
without polling. Whatever Redis forgets, the store tells again.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staffetta.errors import FieldProblem, QueueError, SettingsError
from staffetta.mail.events import Emit, Troubled
from staffetta.mail.fairness import (
    BATCH_MAX,
    DEFAULT_PRIORITIES,
    Priorities,
    Weights,
    check_weight,
)
from staffetta.mail.limiter import Limit
from staffetta.mail.message import Job, Millis
from staffetta.queue.contract import CompanyFigures, Depth, Health
from staffetta.queue.redis import wire
from staffetta.queue.redis.address import Address, parse
from staffetta.queue.redis.bell import Bell
from staffetta.queue.redis.care import BLOCK_MS, LAST_WORDS, Care
from staffetta.queue.redis.checks import Gauge, Shortcoming, examine, gauge, shortcomings
from staffetta.queue.redis.companies import Companies
from staffetta.queue.redis.holding import Holding
from staffetta.queue.redis.link import Link
from staffetta.queue.redis.moves import Moves
from staffetta.queue.redis.scripts import load
from staffetta.queue.redis.server import Server

WAITING_MAX = 2_000_000
"""Waiting jobs in all: some 120 MB of Redis."""
PER_COMPANY_MAX = 1_000_000
LOOK_AGAIN_MS = 5_000
"""Who sleeps asks again after this, should a wake-up have been lost."""
SLEEP_MS = 30_000
"""How long a sleeper counts as one that may be woken."""
FEED_MS = 5_000
"""How long a hungry company is one worker's to feed."""
OFFER_SECONDS = 0.25
"""Whoever hands in waits no longer for a slow Redis: the e-mail is durable, and the offer goes on its way."""
HUNGRY_MAX = 100

_SETTINGS = struct.Struct(">dddddd")
_COMPANY = struct.Struct(">ddd")

__all__ = ["Gauge", "RedisQueue", "Shortcoming", "examine"]


class RedisQueue:
    """See `queue/contract.py`. All calls belong to one event loop."""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], Millis],
        waiting_max: int = WAITING_MAX,
        per_company_max: int = PER_COMPANY_MAX,
        delayed_max: int = WAITING_MAX,
        batch_max: int = BATCH_MAX,
        enabled: bool = True,
        weights: Weights | Mapping[str, float] | None = None,
        priorities: Priorities = DEFAULT_PRIORITIES,
        limiter: Limit | None = None,
        rates: Mapping[str, Limit] | None = None,
        strict: bool = False,
        offer_seconds: float = OFFER_SECONDS,
        emit: Emit | None = None,
    ) -> None:
        self.address: Address = parse(url)
        self._clock = clock
        self._bounds = (
            float(batch_max if enabled else 1), float(enabled), float(waiting_max), float(per_company_max),
            float(delayed_max),
        )  # fmt: skip
        self._weights = weights if isinstance(weights, Weights) else Weights(named=weights or {})
        self._weights_now: dict[str, float] = {}
        self._limiter = (float(limiter.max), float(limiter.duration_ms)) if limiter is not None else (0.0, 0.0)
        self._rates = rates or {}
        self._strict = strict
        self._offer_seconds = offer_seconds
        self._emit = emit
        self._figures_of: dict[str, bytes] = {}
        self.name = f"w{uuid.uuid4().hex[:12]}"
        self._moves = Moves(self._company)
        self.link = Link(
            self.address,
            load(),
            name=self.name,
            settings=self._settings,
            arrived=self._arrive,
            forgotten=self._remember,
            told=self._tell,
        )
        self._bell = Bell(self.link, self._ring)
        self._companies = Companies(self.link, self._moves.figures, priorities)
        self._care = Care(self.link, self._moves, self._companies, clock=clock, figures_of=self._company)
        self._holding = Holding()
        self._dozing_until: Millis = 0
        """Nothing can be taken before, unless the bell rings."""
        self._full_until: Millis = 0
        self._woken = asyncio.Event()
        self._hunger = asyncio.Event()
        self._named: Mapping[str, Job | None] = {}
        """Who was hungry when somebody waited for that."""
        self._faults: list[Shortcoming] = []
        self._dead_letters: int | None = None

    # --- opening and closing ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Redis being away is no error; with `strict`, settings that may lose jobs are.

        :raises SettingsError: `queue.strict` is set, and Redis is set so that it may lose jobs.
        """
        await self.link.open()
        if self._strict and self._faults:
            await self.link.close()
            raise SettingsError([FieldProblem(f"queue.url ({one.name})", one.words) for one in self._faults])
        await self._bell.hang()
        self._care.keep()

    async def close(self) -> None:
        """Wake whoever waits, and hang up. What was taken and not settled comes back when its lease ends."""
        await self._care.close()
        await self._bell.close()
        await self.link.close()
        self._woken.set()
        self._hunger.set()

    async def _arrive(self, server: Server) -> None:
        """Before the first move on a new connection: is it the server that knows our jobs, and is it set well?"""
        info = self._care.gauge = await gauge(server)
        emptied = await self.link.enrol(server, info.run_id)
        if emptied:
            self._tell(
                "Redis was restarted, restored or has failed over: everything due is offered again from the store",
                f"server {server.name}, run_id {info.run_id}",
            )
        self._faults = await shortcomings(server, info)
        for one in self._faults:
            self._tell(f"Redis may lose jobs or stop: {one.words}; {one.remedy}", one.name)
        self._woken.set()
        self._hunger.set()
        self._care.arrived()

    def _remember(self) -> None:
        """Redis has forgotten: what only this process knew is told again."""
        self._dozing_until = self._full_until = 0
        self._woken.set()
        self._hunger.set()
        self._care.arrived()

    def _tell(self, message: str, error: str) -> None:
        if self._emit is not None:
            self._emit(Troubled(at=self._clock(), part="queue", message=message, error=error))

    def _settings(self, now: Millis | None = None) -> bytes:
        return _SETTINGS.pack(self._clock() if now is None else now, *self._bounds)

    def _company(self, company_id: str) -> bytes:
        """What a company is met with: its weight, its rate."""
        packed = self._figures_of.get(company_id)
        if packed is None:
            rate = self._rates.get(company_id)
            weight = self._weights_now.get(company_id) or self._weights.of(company_id)
            max_, duration = (rate.max, rate.duration_ms) if rate is not None else (0, 0)
            packed = _COMPANY.pack(weight, max_, duration)
            if len(self._figures_of) > 100_000:
                self._figures_of.clear()
            self._figures_of[company_id] = packed
        return packed

    # --- what comes in ----------------------------------------------------------------------------------------

    async def offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        refused: list[Job] = []
        for start in range(0, len(jobs), 1_000):
            refused += await self._offer(jobs[start : start + 1_000])
        return refused

    async def _offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        asked = asyncio.ensure_future(self.link.call(self._moves.offer, jobs, len(jobs)))
        done, _ = await asyncio.wait((asked,), timeout=self._offer_seconds)
        self._changes()
        if not done:
            asked.add_done_callback(_heard)
            raise QueueError(
                "Redis is slow: the offer goes on its way; if it is lost, the store tells it again"
            )
        found: Sequence[Job] = asked.result()
        return found

    async def stock(self, company_id: str, jobs: Sequence[Job], *, after: Job | None, more: bool) -> int:
        try:
            try:
                page = (company_id, jobs, after, int(more))
                fresh: int = await self.link.call(self._moves.stock, page, len(jobs))
            except QueueError:
                if not self.link.full:
                    raise
                # A company that is owed its turn holds up all others: a few of its jobs come in though Redis is full.
                few = (company_id, jobs[: int(self._bounds[0])], after, 2)
                fresh = await self.link.call(self._moves.stock, few, 1)
        finally:
            self._full_until = 0
            self._changes()
        return fresh

    async def full(self, company_id: str, *, more: bool) -> None:
        self._full_until = 0
        await self.link.call(self._moves.full, (company_id, more))

    async def hungry(self) -> Mapping[str, Job | None]:
        if self._named:
            named, self._named = self._named, {}
            return named
        now = self._clock()
        if now < self._full_until and not self._hunger.is_set():
            return {}
        self._hunger.clear()
        others, found = await self.link.call(
            self._moves.hungry,
            [struct.pack(">ddd", HUNGRY_MAX, FEED_MS, now + SLEEP_MS), self.name],
        )
        if not found:
            self._full_until = now + (FEED_MS // 5 if others else LOOK_AGAIN_MS)
            return {}
        names: dict[str, Job | None] = {}
        for place in range(0, len(found), 2):
            company_id, cursor = wire.decode_name(found[place]), found[place + 1]
            names[company_id] = wire.decode_job(cursor, company_id) if cursor else None
        self._full_until = 0
        return names

    async def until_hungry(self, timeout_seconds: float) -> None:
        now = self._clock()
        if self._named or now >= self._full_until or self._hunger.is_set():
            self._named = await self.hungry()
            if self._named:
                return
        await _either(self._hunger, timeout_seconds)

    async def room(self, company_id: str) -> int:
        room: int = await self.link.call(self._moves.room, company_id)
        return room

    # --- what goes out ----------------------------------------------------------------------------------------

    async def take(self, limit: int, *, now: Millis, lease_ms: int) -> list[Job]:
        if limit < 1 or self._holding.a_suspect(now):
            return []
        if now < self._dozing_until and not self._woken.is_set():
            return []
        self._woken.clear()
        self._companies.seen = ()
        asked = [self._question(limit, now, lease_ms), self.name]
        asking = asyncio.ensure_future(self.link.call(self._moves.take, asked, now=now))
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # Whoever asked is gone, the question is on its way: what it brings must not lie leased to nobody.
            self._care.begin(self._give_back(asking, now + lease_ms), LAST_WORDS)
            raise
        if len(answer) == 1:
            self._doze_until(now, int(answer[0]))
            return []
        self._dozing_until = 0
        return self._given(answer, now + lease_ms)

    async def _give_back(self, asking: asyncio.Future[Any], until: Millis) -> None:
        with contextlib.suppress(QueueError):
            answer = await asking
            if len(answer) > 1:
                await self.postpone(self._given(answer, until))

    def _question(self, limit: int, now: Millis, lease_ms: int) -> bytes:
        return struct.pack(
            ">dddddd", limit, lease_ms, float(not self._holding.anything(now)), now + SLEEP_MS, *self._limiter
        )

    def _given(self, answer: Sequence[bytes], until: Millis) -> list[Job]:
        jobs: list[Job] = []
        place = 1
        while place < len(answer):
            company_id, number, count = (
                wire.decode_name(answer[place]),
                int(answer[place + 1]),
                int(answer[place + 2]),
            )
            texts = answer[place + 3 : place + 3 + count]
            theirs = [wire.decode_job(text, company_id) for text in texts]
            self._holding.given(theirs, number, until)
            jobs += theirs
            place += 3 + count
        return jobs

    def _doze_until(self, now: Millis, moment: Millis) -> None:
        self._dozing_until = min(now + LOOK_AGAIN_MS, moment if moment >= 0 else now + LOOK_AGAIN_MS)

    async def wait(self, timeout_seconds: float) -> None:
        now = self._clock()
        if (self._woken.is_set() or now >= self._dozing_until) and not self._holding.a_suspect(now):
            self._woken.clear()
            moment = int(await self.link.call(self._moves.doze, [self._question(1, now, 0), self.name]))
            if moment == 0:
                return
            self._doze_until(now, moment)
        if self._dozing_until > now:
            timeout_seconds = min(timeout_seconds, (self._dozing_until - now) / 1_000)
        await _either(self._woken, timeout_seconds)

    async def extend(self, ids: Sequence[str], *, now: Millis, lease_ms: int) -> Sequence[str]:
        lost: list[str] = []
        for start in range(0, len(ids), 1_000):
            some = ids[start : start + 1_000]
            places = await self.link.call(self._moves.extend, (float(now + lease_ms), some), len(some))
            lost += [some[place - 1] for place in places]
        self._holding.extended(ids, set(lost), now + lease_ms)
        return lost

    async def settle(self, ids: Sequence[str]) -> None:
        gone = self._let_go(ids)
        for start in range(0, len(gone), 1_000):
            some = gone[start : start + 1_000]
            try:
                await self.link.call(self._moves.settle, some, len(some))
            except QueueError:
                self._care.note({name: None for name, _ in some})

    async def postpone(self, jobs: Sequence[Job]) -> None:
        self._let_go([job.id for job in jobs])
        for start in range(0, len(jobs), 1_000):
            some = jobs[start : start + 1_000]
            try:
                await self.link.call(self._moves.postpone, some, len(some))
            except QueueError:
                self._care.note({job.id: job for job in some})

    def _changes(self) -> None:
        """What is asked now may change what can be taken, and every figure."""
        self._dozing_until = 0
        self._companies.seen = ()

    def _let_go(self, ids: Sequence[str]) -> list[tuple[str, int]]:
        gone = self._holding.let_go(ids)
        if self._holding.suspect_gone():
            self._woken.set()
        self._changes()
        return gone

    def _ring(self, what: str) -> None:
        if what == "f":
            self._hunger.set()
        else:
            self._woken.set()

    # --- steering and figures ---------------------------------------------------------------------------------

    async def bury(self, ids: Sequence[str], *, now: Millis) -> None:
        await self._index("bury", ids, now=now)

    async def revive(self, ids: Sequence[str]) -> None:
        await self._index("revive", ids)

    async def _index(self, what: str, ids: Sequence[str], *, now: Millis | None = None) -> None:
        for start in range(0, max(len(ids), what == "only"), 1_000):
            some = [wire.encode_id(name) for name in ids[start : start + 1_000]]
            await self.link.call(self._moves.bury, [what, *some], len(some), now=now)

    async def block(self, company_id: str) -> None:
        self._care.blocks.add(company_id)
        self._changes()
        with contextlib.suppress(QueueError):  # remembered, and told at the next arrival
            await self.link.call(self._moves.block, ((company_id,), float(self._clock() + BLOCK_MS)))

    async def unblock(self, company_id: str) -> None:
        self._care.blocks.discard(company_id)
        self._changes()
        with contextlib.suppress(QueueError):  # a block that nobody renews ends by itself
            await self.link.call(self._moves.block, ((company_id,), 0.0))

    async def set_weight(self, company_id: str, weight: float) -> None:
        check_weight(company_id, weight)
        self._weights_now[company_id] = weight
        self._changes()
        self._figures_of.pop(company_id, None)
        with contextlib.suppress(QueueError):  # remembered, and told at the next arrival
            await self.link.call(self._moves.weigh, (company_id,))

    async def index_dead(self, ids: Sequence[str], *, now: Millis) -> None:
        await self._index("only", ids[:1_000], now=now)
        await self._index("bury", ids[1_000:], now=now)

    async def health(self) -> Health:
        gauge = self._care.gauge
        return Health(
            trouble=self.link.why if not self.link.here.is_set() else self.link.full,
            shared=self.link.epoch.hex(),
            memory_used_ratio=gauge.memory_share if gauge is not None and gauge.maxmemory else None,
            rejected_connections=gauge.rejected_connections if gauge is not None else None,
            dead_letters=self._dead_letters,
        )

    async def depth(self) -> Depth:
        answer = await self.link.call(self._moves.depth, [])
        waiting, delayed, active, self._dead_letters, _ = answer
        self._companies.seen = tuple(answer)
        return Depth(waiting=waiting, delayed=delayed, active=active)

    async def figures(self) -> list[CompanyFigures]:
        return await self._companies.figures(self._clock())


async def _either(event: asyncio.Event, timeout_seconds: float) -> None:
    """Until the event, or the time is over."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await event.wait()
    except TimeoutError:
        return


def _heard(asked: asyncio.Future[object]) -> None:
    """Nobody waits for it any more; an error was told as slowness."""
    if not asked.cancelled():
        asked.exception()
