"""The same calls give the same answers in memory and in Redis, whatever they are: one order, two implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.queues import NOW, Open
from doubles.ready import Ready
from doubles.stocked import Clock
from staffetta.flow.offer import fill
from staffetta.mail.limiter import Limit
from staffetta.mail.message import Job
from staffetta.queue.contract import Queue
from staffetta.queue.local import LocalQueue

COMPANIES = ("a", "b", "c", "d", "e")
LEASE_MS = 1_000

step = st.one_of(
    st.tuples(st.just("offer"), st.integers(0, 4), st.integers(1, 12)),
    st.tuples(st.just("offer"), st.integers(0, 4), st.integers(1, 12)),
    st.tuples(st.just("mixed"), st.integers(0, 4), st.integers(1, 12)),
    st.tuples(st.just("later"), st.integers(0, 4), st.integers(1, 6)),
    st.tuples(st.just("suspect"), st.integers(0, 4), st.just(1)),
    st.tuples(st.just("take"), st.just(0), st.integers(1, 15)),
    st.tuples(st.just("take"), st.just(0), st.integers(1, 15)),
    st.tuples(st.just("take"), st.just(0), st.integers(1, 15)),
    st.tuples(st.just("settle"), st.integers(0, 4), st.integers(1, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 40), st.integers(1, 3)),
    st.tuples(st.just("postpone"), st.integers(0, 4), st.integers(1, 5)),
    st.tuples(st.just("give back"), st.integers(0, 4), st.integers(1, 5)),
    st.tuples(st.just("extend"), st.integers(0, 4), st.integers(1, 5)),
    st.tuples(st.just("turn"), st.integers(0, 4), st.sampled_from([1, 5, 40, 500, 1_001])),
    st.tuples(st.just("block"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("unblock"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("weigh"), st.integers(0, 4), st.integers(1, 9)),
    st.tuples(st.just("fill"), st.integers(0, 4), st.just(0)),
)


class Pair:
    """Two queues that are asked the same, each with a store of its own behind it."""

    def __init__(self, queues: Sequence[Queue], clock: Clock) -> None:
        self.queues = queues
        self.stores = [Ready() for _ in queues]
        self.clock = clock
        self.made: list[Job] = []
        self.held: list[Job] = []

    async def both(self, call: str, *args: Any, **named: Any) -> Any:
        answers = [await getattr(queue, call)(*args, **named) for queue in self.queues]
        assert answers[0] == answers[1], f"{call}: {answers[0]} in memory, {answers[1]} in Redis"
        return answers[0]

    def new(
        self, company: int, number: int, *, due: int = 0, mixed: bool = False, suspect: bool = False
    ) -> Job:
        made = len(self.made)
        job = self.stores[0].make(
            made,
            COMPANIES[company],
            priority=1 + (made * 7 + number) % 10 if mixed else 5,
            due_at=self.clock() + (-(made * 13 % 7) if mixed else due),
            suspect=suspect,
        )
        self.made.append(job)
        for store in self.stores:
            store.add(job)
        return job

    async def do(self, what: str, which: int, count: int) -> None:
        match what:
            case "offer" | "mixed":
                jobs = [self.new(which, n, mixed=what == "mixed") for n in range(count)]
                await self.both("offer", jobs)
            case "later":
                await self.both("offer", [self.new(which, n, due=1 + 30 * n) for n in range(count)])
            case "suspect":
                await self.both("offer", [self.new(which, 0, suspect=True)])
            case "take":
                taken = await self.both("take", count, now=self.clock(), lease_ms=LEASE_MS)
                self.held += taken
                for store in self.stores:
                    for job in taken:
                        store.claim(job, now=self.clock())
            case "settle":
                ended, self.held = (
                    self.held[which : which + count],
                    self.held[:which] + self.held[which + count :],
                )
                await self.both("settle", [job.id for job in ended])
            case "cancel":
                gone = self.made[which : which + count]
                for store in self.stores:
                    for job in gone:
                        store.claim(job, now=1 << 60)
                await self.both("settle", [job.id for job in gone])
            case "postpone" | "give back":
                back, self.held = (
                    self.held[which : which + count],
                    self.held[:which] + self.held[which + count :],
                )
                due = self.clock() + (0 if what == "give back" else 7 * count)
                await self.both("postpone", [replace(job, due_at=due) for job in back])
            case "extend":
                some = [job.id for job in self.held[which : which + count]]
                await self.both("extend", some, now=self.clock(), lease_ms=LEASE_MS)
            case "turn":
                self.clock.turn(count)
            case "block" | "unblock":
                await self.both(what, COMPANIES[which])
            case "weigh":
                await self.both("set_weight", COMPANIES[which], float(count))
            case "fill":
                for store, queue in zip(self.stores, self.queues, strict=True):
                    await fill(store.as_store(), queue, now=self.clock())
        depth = await self.both("depth")
        assert depth.active >= 0

    async def look(self) -> None:
        figures = []
        for queue in self.queues:
            told = {one.company_id: one for one in await queue.figures()}
            figures.append({name: told[name] for name in sorted(told)})
        assert figures[0] == figures[1]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


async def same(open_queue: Open, clock: Clock, steps: Sequence[tuple[str, int, int]], **kept: Any) -> None:
    clock.now = NOW
    local = LocalQueue(clock=clock, **kept)
    other = await open_queue(**kept)
    pair = Pair((local, other), clock)
    note(f"steps={steps!r} settings={kept!r}")
    for what, which, count in steps:
        await pair.do(what, which, count)
    await pair.look()


@given(
    steps=st.lists(step, max_size=60),
    weights=st.lists(st.sampled_from([0.25, 1.0, 1.0, 2.0, 7.5]), min_size=5, max_size=5),
    batch_max=st.sampled_from([3, 3, 1, 5]),
    bounds=st.sampled_from([(1_000, 1_000), (12, 6), (40, 15)]),
)
@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
async def test_the_same_traces_give_the_same_order(
    open_queue: Open,
    clock: Clock,
    *,
    steps: list[tuple[str, int, int]],
    weights: list[float],
    batch_max: int,
    bounds: tuple[int, int],
) -> None:
    """What every take gives, what every offer refuses, every depth and every figure of the companies."""
    await same(
        open_queue, clock, steps, weights=dict(zip(COMPANIES, weights, strict=True)), batch_max=batch_max,
        waiting_max=bounds[0], per_company_max=bounds[1],
    )  # fmt: skip


@given(steps=st.lists(step, max_size=60))
@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
async def test_the_same_limits_hold_back_the_same_jobs(
    open_queue: Open, clock: Clock, *, steps: list[tuple[str, int, int]]
) -> None:
    await same(
        open_queue, clock, steps, limiter=Limit(max=9, duration_ms=400),
        rates={"a": Limit(max=2, duration_ms=300), "b": Limit(max=1, duration_ms=50)},
    )  # fmt: skip


@given(steps=st.lists(step.filter(lambda one: one[0] != "fill"), max_size=60))
@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
async def test_plain_order_by_age_is_the_same_order(
    open_queue: Open, clock: Clock, *, steps: list[tuple[str, int, int]]
) -> None:
    await same(open_queue, clock, steps, enabled=False)
