"""The law of fairness, counted against what is due in the store: no arrivals, weights, pauses or bounds break it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from contracts.queues import NOW, Open
from doubles.ready import Law, Ready
from doubles.stocked import Clock
from staffetta.flow.offer import fill, offer_news, refill
from staffetta.mail.message import Job
from staffetta.queue.contract import Queue

COMPANIES = ("a", "b", "c", "d")

weights_strategy = st.lists(st.sampled_from([0.25, 1.0, 1.0, 2.0, 3.0, 7.5, 40.0]), min_size=4, max_size=4)
company = st.integers(0, 3)
steps_strategy = st.lists(
    st.one_of(
        st.tuples(st.just("hand in"), company, st.integers(1, 30)),
        st.tuples(st.just("news"), company, st.integers(1, 30)),
        st.tuples(st.just("take"), company, st.integers(1, 12)),
        st.tuples(st.just("take"), company, st.integers(1, 12)),
        st.tuples(st.just("refill"), company, st.just(0)),
        st.tuples(st.just("pause"), company, st.just(0)),
        st.tuples(st.just("resume"), company, st.just(0)),
        st.tuples(st.just("weigh"), company, st.integers(1, 9)),
        st.tuples(st.just("finish"), company, st.integers(1, 20)),
        st.tuples(st.just("again"), company, st.integers(1, 20)),
    ),
    max_size=100,
)


class Engine:
    """The store, the queue, and the law looking on: each take is claimed at once."""

    def __init__(
        self, queue: Queue, clock: Clock, weights: Sequence[float] = (1.0,) * 4, batch_max: int = 3
    ) -> None:
        self.store = Ready()
        self.queue = queue
        self.law = Law(batch_max)
        self.weights = dict(zip(COMPANIES, weights, strict=True))
        self.paused: set[str] = set()
        self.clock = clock
        self.made = 0
        self.in_work: list[Job] = []
        self.served: list[str] = []

    def look(self) -> None:
        self.law.look(
            [name for name in COMPANIES if name not in self.paused and self.store.due(name, now=self.clock())]
        )

    async def step(self, what: str, name: str, count: int) -> None:
        self.clock.turn(1)
        match what:
            case "hand in":
                jobs = [self._job(name, number) for number in range(count)]
                for job in jobs:
                    self.store.add(job)
                await self.queue.offer(jobs)
            case "news":
                for number in range(count):
                    self.store.add(self._job(name, number), news=True)
                await offer_news(self.store.as_store(), self.queue, now=self.clock())
            case "take":
                await self.take(count)
            case "refill":
                await refill(self.store.as_store(), self.queue, now=self.clock())
            case "pause":
                self.paused.add(name)
                await self.queue.block(name)
            case "resume":
                self.paused.discard(name)
                await self.queue.unblock(name)
            case "weigh":
                self.law.forget(name)
                self.weights[name] = float(count)
                await self.queue.set_weight(name, float(count))
            case "finish":
                ended, self.in_work = self.in_work[:count], self.in_work[count:]
                await self.queue.settle([job.id for job in ended])
            case "again":
                back, self.in_work = self.in_work[:count], self.in_work[count:]
                for job in back:
                    due = msgspec.structs.replace(job, due_at=self.clock(), ref=self.store.next_ref())
                    self.store.add(due)
                    await self.queue.postpone([due])
        self.look()

    def _job(self, name: str, number: int) -> Job:
        self.made += 1
        return self.store.make(
            self.made, name, priority=5 if number % 4 else 1 + number % 9, due_at=self.clock()
        )

    async def take(self, count: int) -> int:
        jobs = await self.queue.take(count, now=self.clock(), lease_ms=10**9)
        for job in jobs:
            assert job.company_id not in self.paused
            assert self.store.claim(job, now=self.clock()), "given twice, or before its time"
            self.law.served(job.company_id, self.weights)
            self.served.append(job.company_id)
            self.in_work.append(job)
            self.look()
        return len(jobs)

    async def drain(self) -> None:
        """Feed and take until nothing is left that may be served; it must come to an end."""
        for name in sorted(self.paused):
            await self.step("resume", name, 0)
        while self.store.ready():
            before = len(self.served)
            await fill(self.store.as_store(), self.queue, now=self.clock())
            while await self.take(7):
                pass
            assert len(self.served) > before, "due in the store, and never reminded of"


@given(
    steps=steps_strategy,
    weights=weights_strategy,
    batch_max=st.sampled_from([3, 3, 1, 5]),
    bounds=st.sampled_from([(1_000, 100), (12, 6), (20, 7), (60, 30)]),
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_no_arrivals_weights_pauses_or_bounds_break_the_law(
    open_queue: Open,
    clock: Clock,
    *,
    steps: list[tuple[str, int, int]],
    weights: list[float],
    batch_max: int,
    bounds: tuple[int, int],
) -> None:
    """Feeding comes when it comes: between two pages the queue must rather wait than serve past a company."""
    queue = await open_queue(
        batch_max=batch_max,
        waiting_max=bounds[0],
        per_company_max=bounds[1],
        weights=dict(zip(COMPANIES, weights, strict=True)),
    )
    note(f"steps={steps!r} weights={weights} batch_max={batch_max} bounds={bounds}")
    engine = Engine(queue, clock, weights, batch_max)
    for what, who, count in steps:
        await engine.step(what, COMPANIES[who], count)
    await engine.drain()


@pytest.mark.parametrize("window", [7, 40])
async def test_one_companys_hundred_thousand_never_hide_anothers_one(
    open_queue: Open, clock: Clock, window: int
) -> None:
    queue = await open_queue(waiting_max=window, per_company_max=window)
    engine = Engine(queue, clock)
    for number in range(2_000):
        engine.store.add(engine.store.make(number, "a", due_at=NOW - 10_000 + number))
    await fill(engine.store.as_store(), queue, now=NOW)
    engine.store.add(engine.store.make(9_999, "b", due_at=NOW), news=True)
    await offer_news(engine.store.as_store(), queue, now=NOW)
    assert len(await queue.take(1, now=NOW, lease_ms=1)) == 1
    rest = await queue.take(5, now=NOW, lease_ms=1)
    assert "b" in [job.company_id for job in rest]


async def test_a_bounded_queue_holds_no_more_than_its_bounds(open_queue: Open, clock: Clock) -> None:
    """A million READY in the store must not become a million jobs in memory."""
    queue = await open_queue(waiting_max=30, per_company_max=20)
    engine = Engine(queue, clock)
    for number in range(400):
        engine.store.add(engine.store.make(number, COMPANIES[number % 4], due_at=NOW))
    for _ in range(3):
        await fill(engine.store.as_store(), queue, now=NOW)
    depth = await queue.depth()
    assert 0 < depth.waiting <= 30 + 4 * 6
    await engine.drain()
    assert len(engine.served) == 400


async def test_a_window_that_is_refilled_goes_on_where_the_line_ended(open_queue: Open, clock: Clock) -> None:
    """Within a company the order is the store's, however small the window on it."""
    queue = await open_queue(waiting_max=8, per_company_max=8)
    engine = Engine(queue, clock)
    made = [engine.store.make(n, "a", priority=1 + n % 3, due_at=NOW - n // 7) for n in range(60)]
    for job in made:
        engine.store.add(job)
    await fill(engine.store.as_store(), queue, now=NOW)
    taken: list[str] = []
    while got := await queue.take(2, now=NOW, lease_ms=10**9):
        for job in got:
            assert engine.store.claim(job, now=NOW)
        taken += [job.id for job in got]
        await refill(engine.store.as_store(), queue, now=NOW)
    assert taken == [job.id for job in sorted(made, key=lambda job: (job.priority, job.due_at))]


async def test_a_full_line_makes_room_for_what_comes_before_its_last(open_queue: Open, clock: Clock) -> None:
    """An urgent e-mail does not wait until two thousand others are sent only because the window is full."""
    queue = await open_queue(waiting_max=8, per_company_max=8)
    engine = Engine(queue, clock)
    for number in range(50):
        engine.store.add(engine.store.make(number, "a", due_at=NOW))
    await fill(engine.store.as_store(), queue, now=NOW)
    urgent = engine.store.make(77, "a", priority=1, due_at=NOW)
    engine.store.add(urgent)
    assert list(await queue.offer([urgent])) == []
    assert (await queue.take(1, now=NOW, lease_ms=1))[0].id == urgent.id
    engine.store.claim(urgent, now=NOW)
    await engine.drain()
    assert len(engine.served) == 50


async def test_what_was_refused_while_a_page_was_read_is_asked_for_again(
    open_queue: Open, clock: Clock
) -> None:
    """The page was read before the e-mail was handed in, and stocked after it was refused: nobody else knows it."""
    queue = await open_queue(waiting_max=8, per_company_max=8)
    engine = Engine(queue, clock)
    await queue.full("a", more=True)
    hungry = await queue.hungry()
    assert dict(hungry) == {"a": None}
    page = await engine.store.waiting("a", now=NOW, limit=8)
    late = engine.store.make(1, "a", due_at=NOW)
    engine.store.add(late)
    assert list(await queue.offer([late])) == [late]
    await queue.stock("a", page, after=None, more=False)
    await engine.drain()
    assert engine.served == ["a"]


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 4.0], [9.0, 0.5]])
async def test_one_that_returns_is_served_within_what_the_law_says(
    open_queue: Open, clock: Clock, weights: list[float]
) -> None:
    """Idle for a whole turn: within 3 x (active companies) takes. Sooner: within the sum of (3 wj / wi + 3)."""
    others = [f"o{n}" for n in range(5)]
    queue = await open_queue(weights={"r": weights[0], **dict.fromkeys(others, weights[1])})
    engine = Engine(queue, clock)
    number = 0
    for name in others:
        for _ in range(400):
            number += 1
            await queue.offer([engine.store.make(number, name, due_at=NOW)])
    for away in (0, 1, 4, 15, 60):
        number += 1
        await queue.offer([engine.store.make(number, "r", due_at=NOW)])
        await _takes_until(queue, "r")
        for _ in range(away):
            await queue.take(1, now=NOW, lease_ms=10**9)
        number += 1
        await queue.offer([engine.store.make(number, "r", due_at=NOW)])
        sooner = sum(3 * weights[1] / weights[0] + 3 for _ in others)
        # Its own turn has passed when each other had served what its weight is worth of it.
        whole_turn = away >= len(others) * (3 * weights[1] / weights[0] + 3)
        assert await _takes_until(queue, "r") <= (3 * 6 if whole_turn else sooner + 1)


async def _takes_until(queue: Queue, name: str) -> int:
    for takes in range(1, 10_000):
        if (await queue.take(1, now=NOW, lease_ms=10**9))[0].company_id == name:
            return takes
    raise AssertionError(f"{name} was never served")
