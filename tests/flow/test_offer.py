"""The queue is filled from the store, company by company; what is lost there is found again."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.letters import HOUR, MINUTE, Letters
from contracts.stores import Ground, HandClock
from staffetta.flow import offer
from staffetta.queue.local import LocalQueue
from staffetta.store.memory import MemoryStore


class Bench:
    def __init__(self, **queue: Any) -> None:
        self.clock = HandClock()
        self.store = MemoryStore()
        self.post = Letters(
            self.store, Ground(store=lambda: self.store, beside=lambda: self.store, clock=self.clock)
        )
        self.beside = self.post.beside(MemoryStore(self.store.state, owner=False))
        self.queue = LocalQueue(clock=self.clock, **queue)

    async def fill(self) -> int:
        return await offer.fill(self.store, self.queue, now=self.clock())

    async def refill(self) -> int:
        return await offer.refill(self.store, self.queue, now=self.clock())

    async def news(self) -> int:
        return await offer.offer_news(self.store, self.queue, now=self.clock())

    async def taken(self, limit: int = 1_000) -> list[str]:
        return [job.id for job in await self.queue.take(limit, now=self.clock(), lease_ms=60_000)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_at_the_start_everything_due_is_found(bench: Bench) -> None:
    ids = [await bench.post.ready(company_id=f"c{n % 3}") for n in range(30)]
    await bench.post.ready(due_in=HOUR)
    await bench.post.sent()

    await bench.fill()

    assert sorted(await bench.taken()) == sorted(ids)


async def test_filling_again_changes_nothing(bench: Bench) -> None:
    ids = [await bench.post.ready() for _ in range(5)]
    await bench.fill()

    await bench.fill()
    await bench.refill()

    assert await bench.taken() == ids
    assert await bench.taken() == []


async def test_one_companys_hundred_thousand_never_hide_anothers_one() -> None:
    """A bounded queue, more in the store than it holds: every company's head is there."""
    bench = Bench(waiting_max=50, per_company_max=20)
    await bench.post.add(*(bench.post.new(company_id="noisy") for _ in range(500)))
    quiet = await bench.post.ready(company_id="quiet")

    await bench.fill()

    assert quiet in await bench.taken(8)


async def test_a_line_that_runs_low_is_brought_its_next_page_until_all_went() -> None:
    bench = Bench(waiting_max=50, per_company_max=20)
    ids = await bench.post.add(*(bench.post.new() for _ in range(137)))
    await bench.fill()
    went: list[str] = []

    for _ in range(200):
        for id in await bench.taken(7):
            await bench.store.apply(bench.post.delivered(await bench.post.claim(id)))
            await bench.queue.settle([id])
            went.append(id)
        await bench.refill()

    assert went == ids


async def test_where_nobody_is_hungry_nothing_is_read(bench: Bench) -> None:
    await bench.post.ready()
    await bench.fill()

    assert await bench.refill() == 0


async def test_news_of_other_processes_are_offered(bench: Bench) -> None:
    ids = [await bench.beside.ready() for _ in range(3)]

    assert await bench.news() == 3
    assert await bench.news() == 0
    assert await bench.taken() == ids


async def test_what_became_due_is_offered_when_it_is(bench: Bench) -> None:
    id = await bench.post.ready(due_in=MINUTE)
    assert await bench.news() == 0

    bench.clock.turn(MINUTE)

    assert await bench.news() == 1
    assert await bench.taken() == [id]


async def test_news_that_find_no_room_come_with_their_companys_line() -> None:
    bench = Bench(waiting_max=10, per_company_max=10)
    ids = [await bench.beside.ready() for _ in range(30)]

    await bench.news()

    went: list[str] = []
    for _ in range(30):
        for id in await bench.taken(5):
            await bench.store.apply(bench.post.delivered(await bench.post.claim(id)))
            await bench.queue.settle([id])
            went.append(id)
        await bench.refill()
    assert sorted(went) == sorted(ids)


async def test_a_wiped_queue_is_filled_from_the_store_again(bench: Bench) -> None:
    ids = [await bench.post.ready(company_id=f"c{n % 4}") for n in range(20)]
    await bench.fill()
    bench.queue = LocalQueue(clock=bench.clock)

    await bench.fill()

    assert sorted(await bench.taken()) == sorted(ids)
