"""The queue in this process's memory: bounded, fair, woken by timers alone. Nothing in it is the only copy.

Time comes with `take` or from the clock handed in; between takes the event loop's own clock counts on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from staffetta.mail.fairness import (
    BATCH_MAX,
    DEFAULT_PRIORITIES,
    Priorities,
    Turns,
    Weights,
    company_priority,
)
from staffetta.mail.limiter import Limit, Window
from staffetta.mail.message import Job, Millis
from staffetta.queue.contract import CompanyFigures, Depth, Health
from staffetta.queue.local.lines import Company, Lines

WAITING_MAX = 100_000
"""Waiting jobs in all: some 50 MB. Each company may have 2 × batch_max whatever the others have."""
PER_COMPANY_MAX = 2_000


class LocalQueue:
    """See `queue/contract.py`. All calls belong to one event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], Millis] | None = None,
        waiting_max: int = WAITING_MAX,
        per_company_max: int = PER_COMPANY_MAX,
        delayed_max: int = WAITING_MAX,
        batch_max: int = BATCH_MAX,
        enabled: bool = True,
        weights: Weights | Mapping[str, float] | None = None,
        priorities: Priorities = DEFAULT_PRIORITIES,
        limiter: Limit | None = None,
        rates: Mapping[str, Limit] | None = None,
    ) -> None:
        self._clock = clock
        self._delayed_max = delayed_max
        self._priorities = priorities
        self._limiter = Window(limiter) if limiter is not None else None
        self._turns: Turns[Company] = Turns(batch_max=batch_max, fair=enabled)
        self._known: dict[str, Job] = {}
        self._lines = Lines(
            self._turns,
            self._known,
            waiting_max=waiting_max,
            per_company_max=per_company_max,
            weights=weights if isinstance(weights, Weights) else Weights(named=weights or {}),
            rates=rates or {},
        )
        self._delayed: list[tuple[Millis, int, Job]] = []
        self._delayed_count = 0
        self._came = 0
        self._suspects: list[Job] = []
        self._suspect_out: str | None = None
        self._leases: dict[str, Millis] = {}
        self._lease_ends: Millis | None = None
        """No lease ends before this."""
        self._resting: list[tuple[Millis, int, Company]] = []
        self._now: Millis = 0
        self._now_at = 0.0
        self._sleepers: set[asyncio.Future[None]] = set()
        self._feeders: set[asyncio.Future[None]] = set()

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Wake whoever waits; forget nothing, for nothing here is the only copy."""
        _wake(self._sleepers)
        _wake(self._feeders)

    # --- what comes in ----------------------------------------------------------------------------------------

    async def offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        refused: list[Job] = []
        known, put = self._known, self._lines.put
        now = self._present()
        for job in jobs:
            if job.id in known:
                continue
            known[job.id] = job
            if not (self._enter(job, now) if job.due_at > now or job.suspect else put(job)):
                del known[job.id]
                refused.append(job)
        self._rouse()
        return refused

    def _enter(self, job: Job, now: Millis, *, back: bool = False) -> bool:
        """A known job finds its place by its due time, and its company is known from now on. False: no room."""
        self._lines.company(job.company_id)
        if job.due_at > now:
            return self._delay(job)
        if job.suspect:
            self._suspects.append(job)
            self._suspects.sort(key=_age)
            return True
        return self._lines.put(job, back=back)

    def _delay(self, job: Job) -> bool:
        if self._delayed_count >= self._delayed_max:
            return False
        self._came += 1
        heappush(self._delayed, (job.due_at, self._came, job))
        self._delayed_count += 1
        return True

    async def stock(self, company_id: str, jobs: Sequence[Job], *, after: Job | None, more: bool) -> int:
        fresh = self._lines.stock(self._lines.company(company_id), jobs, after=after, more=more)
        self._suspects.extend(job for job in fresh if job.suspect)
        self._suspects.sort(key=_age)
        self._rouse()
        return len(fresh)

    async def full(self, company_id: str, *, more: bool) -> None:
        self._lines.owe(self._lines.company(company_id), more=more)
        self._rouse()

    async def hungry(self) -> Mapping[str, Job | None]:
        return self._lines.hungry() if self._lines.any_hungry() else {}

    async def until_hungry(self, timeout_seconds: float) -> None:
        if not self._lines.any_hungry():
            await _sleep(self._feeders, timeout_seconds)

    async def room(self, company_id: str) -> int:
        return self._lines.room(self._lines.company(company_id))

    def _rouse(self) -> None:
        """Something came: who sleeps looks again."""
        if self._sleepers:
            _wake(self._sleepers)
        if self._feeders and self._lines.any_hungry():
            _wake(self._feeders)

    # --- what goes out ----------------------------------------------------------------------------------------

    async def take(self, limit: int, *, now: Millis, lease_ms: int) -> list[Job]:
        if self._clock is None:
            self._now, self._now_at = now, asyncio.get_running_loop().time()
        self._advance(now)
        if self._suspect_out is not None:
            return []
        room = limit if self._limiter is None else min(limit, self._limiter.room(now))
        taken: list[Job] = []
        turns = self._turns
        while room > 0:
            company = turns.holder or turns.peek()
            if company is None:
                if not taken:
                    taken = self._take_suspect(now)
                break
            waiting = len(company.line)
            if not waiting:
                break  # Owed: nobody is served past it, and `hungry` names it.
            room -= self._serve(company, min(room, waiting), taken, now)
        if taken:
            self._lease([job.id for job in taken], now + lease_ms)
            if self._limiter is not None:
                self._limiter.spend(len(taken), now)
        if self._feeders and self._lines.any_hungry():
            _wake(self._feeders)
        return taken

    def _serve(self, company: Company, most: int, taken: list[Job], now: Millis) -> int:
        """Give a company its turn, or what is left of it; how many it was given."""
        turns, lines = self._turns, self._lines
        if company is not turns.holder:
            turns.whose()
        count = min(most, turns.left)
        if company.window is not None:
            count = min(count, company.window.room(now))
            company.window.spend(count, now)
        lines.take(company, count, taken)
        turns.serve(count, at=now)
        waiting = len(company.line)
        if not waiting and not company.more:
            lines.compete(company)
        elif not turns.left:
            if not turns.fair:
                lines.age(company)
            turns.finish(waiting=True)
        if company.more and waiting <= company.low:
            lines.see_hunger(company)
        if company.window is not None and not company.window.room(now):
            self._rest(company, company.window.next_at(now))
        return count

    def _rest(self, company: Company, until: Millis) -> None:
        """Its rate is used up: it competes again when there is room, and loses nothing by it."""
        company.resting = True
        heappush(self._resting, (until, company.number, company))
        self._lines.compete(company)

    def _take_suspect(self, now: Millis) -> list[Job]:
        if self._leases:
            return []
        for place, job in enumerate(self._suspects):
            company = self._lines.company(job.company_id)
            if company.blocked or not company.has_room(now):
                continue
            del self._suspects[place]
            self._suspect_out = job.id
            if company.window is not None:
                company.window.spend(1, now)
            company.active += 1
            company.given += 1
            company.last_given_at = now
            return [job]
        return []

    def _lease(self, ids: Sequence[str], until: Millis) -> None:
        leases = self._leases
        for id in ids:  # noqa: A001
            leases[id] = until
        if self._lease_ends is None or until < self._lease_ends:
            self._lease_ends = until

    async def extend(self, ids: Sequence[str], *, now: Millis, lease_ms: int) -> Sequence[str]:
        leases = self._leases
        self._lease([id for id in ids if id in leases], now + lease_ms)  # noqa: A001
        return [id for id in ids if id not in leases]  # noqa: A001

    async def settle(self, ids: Sequence[str]) -> None:
        for id in ids:  # noqa: A001
            job = self._known.pop(id, None)
            if job is None:
                continue
            if self._leases.pop(id, None) is not None:
                self._release(job)
            else:
                self._withdraw(job)
        if self._suspects:
            self._rouse()

    def _release(self, job: Job) -> None:
        self._lines.company(job.company_id).active -= 1
        if job.id == self._suspect_out:
            self._suspect_out = None
            self._rouse()

    def _withdraw(self, job: Job) -> None:
        """It was not taken yet. A delayed one is found to be unknown when its time comes."""
        if job in self._suspects:
            self._suspects.remove(job)
        elif not self._lines.remove(self._lines.company(job.company_id), job):
            self._delayed_count -= 1
            if len(self._delayed) > 2 * self._delayed_count + 64:
                self._delayed = [one for one in self._delayed if self._known.get(one[2].id) is one[2]]
                heapify(self._delayed)

    async def postpone(self, jobs: Sequence[Job]) -> None:
        now = self._present()
        known = self._known
        wakes = False
        for job in jobs:
            leased = self._leases.pop(job.id, None) is not None
            if leased:
                self._release(job)
                known[job.id] = job
            elif known.setdefault(job.id, job) is not job:
                continue
            if not self._enter(job, now, back=leased):
                del known[job.id]
            wakes = wakes or job.due_at <= now or self._delayed[0][2] is job
        if wakes or self._feeders:
            self._rouse()

    # --- steering and figures ---------------------------------------------------------------------------------

    async def bury(self, ids: Sequence[str], *, now: Millis) -> None:
        """The index of dead letters serves those who look into a shared queue; here the store is asked."""

    async def revive(self, ids: Sequence[str]) -> None:
        """See `bury`."""

    async def index_dead(self, ids: Sequence[str], *, now: Millis) -> None:
        """See `bury`."""

    async def health(self) -> Health:
        return Health()

    async def block(self, company_id: str) -> None:
        await self._set_blocked(company_id, blocked=True)

    async def unblock(self, company_id: str) -> None:
        await self._set_blocked(company_id, blocked=False)

    async def _set_blocked(self, company_id: str, *, blocked: bool) -> None:
        company = self._lines.company(company_id)
        company.blocked = blocked
        self._lines.compete(company)
        self._lines.see_hunger(company)
        self._rouse()

    async def set_weight(self, company_id: str, weight: float) -> None:
        self._lines.set_weight(self._lines.company(company_id), weight)

    async def depth(self) -> Depth:
        self._advance(self._present())
        return Depth(
            waiting=self._lines.waiting + len(self._suspects),
            delayed=self._delayed_count,
            active=len(self._leases),
        )

    async def figures(self) -> list[CompanyFigures]:
        return [self._figures(company) for company in self._lines.companies.values()]

    def _figures(self, company: Company) -> CompanyFigures:
        rounds = self._turns.rounds_without_processing(company)
        return CompanyFigures(
            company_id=company.company_id,
            waiting=len(company.line),
            active=company.active,
            weight=company.weight,
            rounds_without_processing=rounds,
            current_priority=company_priority(rounds, self._priorities),
            consecutive_batch_count=self._turns.consecutive(company),
            total_processed=company.given,
            last_processed_at=company.last_given_at,
        )

    # --- time -------------------------------------------------------------------------------------------------

    def _present(self) -> Millis:
        """The time by the clock handed in, else by the last `take` and the event loop since."""
        if self._clock is not None:
            return self._clock()
        if not self._now_at:
            return self._now
        return self._now + int((asyncio.get_running_loop().time() - self._now_at) * 1000)

    def _advance(self, now: Millis) -> None:
        """What time alone changes: delayed jobs fall due, leases end, rates open again."""
        delayed, known = self._delayed, self._known
        while delayed and delayed[0][0] <= now:
            job = heappop(delayed)[2]
            if known.get(job.id) is job and job.id not in self._leases:  # Else settled, perhaps offered anew.
                self._delayed_count -= 1
                if not self._enter(job, now):
                    del known[job.id]
        if self._lease_ends is not None and self._lease_ends < now:
            self._take_back(now)
        while self._resting and self._resting[0][0] <= now:
            company = heappop(self._resting)[2]
            company.resting = False
            self._lines.compete(company)

    def _take_back(self, now: Millis) -> None:
        """Leases are over: whoever had them is late, and a claim will tell what became of these e-mails."""
        for id in [id for id, until in self._leases.items() if until < now]:  # noqa: A001
            del self._leases[id]
            job = self._known[id]
            self._release(job)
            if not self._enter(job, now, back=True):
                del self._known[id]
        self._lease_ends = min(self._leases.values(), default=None)

    def _takeable(self, now: Millis) -> bool:
        if self._suspect_out is not None or (self._limiter is not None and not self._limiter.room(now)):
            return False
        company = self._turns.peek()
        if company is not None:
            return bool(company.line)
        return not self._leases and any(
            not company.blocked and company.has_room(now) for company in self._suspected()
        )

    def _suspected(self) -> list[Company]:
        return [self._lines.company(job.company_id) for job in self._suspects]

    def _next_moment(self, now: Millis) -> Millis | None:
        """When time alone may next make something takeable."""
        moments = [heap[0][0] for heap in (self._delayed, self._resting) if heap]
        moments += [one.window.next_at(now) for one in self._suspected() if one.window and not one.blocked]
        if self._lease_ends is not None:
            moments.append(self._lease_ends + 1)
        if self._limiter is not None and not self._limiter.room(now):
            moments.append(self._limiter.next_at(now))
        return min(moments, default=None)

    async def wait(self, timeout_seconds: float) -> None:
        now = self._present()
        self._advance(now)
        if self._takeable(now):
            return
        moment = self._next_moment(now)
        if moment is not None:
            timeout_seconds = min(timeout_seconds, max(1, moment - now) / 1000)
        await _sleep(self._sleepers, timeout_seconds)


def _age(job: Job) -> Millis:
    return job.due_at


async def _sleep(sleepers: set[asyncio.Future[None]], timeout_seconds: float) -> None:
    """Until someone wakes the sleepers, or the time is over. No task is made for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(timeout_seconds, _end, future)
    sleepers.add(future)
    try:
        await future
    finally:
        timer.cancel()
        sleepers.discard(future)


def _wake(sleepers: set[asyncio.Future[None]]) -> None:
    for future in sleepers:
        _end(future)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
