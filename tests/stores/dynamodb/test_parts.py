"""Several workers on one table, each with a queue of its own: none reads what is another's to send."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from contracts.letters import MINUTE, SECOND, Letters
from contracts.stores import Ground, HandClock
from staffetta.store.dynamodb import DynamoStore, Place

pytestmark = pytest.mark.service


@pytest.fixture
async def hands(place: Place) -> AsyncIterator[list[Letters]]:
    """Three processes, under one clock."""
    clock = HandClock()
    async with contextlib.AsyncExitStack() as stack:
        hands = []
        for _ in range(3):
            store = DynamoStore(place, monotonic=lambda: clock() / 1_000, parted_after_ms=30 * SECOND)
            await store.open()
            stack.push_async_callback(store.close)

            def here(store: DynamoStore = store) -> DynamoStore:
                return store

            hands.append(Letters(store, Ground(store=here, beside=here, clock=clock)))
        first = hands[0]
        yield [first, *(first.beside(other.store) for other in hands[1:])]


async def beat(hands: list[Letters], *names: str) -> None:
    for name in names:
        who = hands[int(name[1:])]
        await who.store.heartbeat(msgspec.structs.replace(who.worker(name), feeds=True))


async def lines(who: Letters) -> set[str]:
    return {job.id for job in await who.store.waiting("acme", now=who.now, limit=100)}


async def test_every_email_is_read_by_exactly_one_of_those_who_live(hands: list[Letters]) -> None:
    for _ in range(2):  # whoever came first must hear of who came later
        await beat(hands, "w0", "w1", "w2")
    ids = set(await hands[0].add(*(hands[0].new() for _ in range(60))))

    parts = [await lines(who) for who in hands]

    assert sum(map(len, parts)) == 60
    assert set().union(*parts) == ids
    assert min(map(len, parts)) > 5


async def test_what_was_a_silent_workers_part_is_news_to_the_others(hands: list[Letters]) -> None:
    for _ in range(2):
        await beat(hands, "w0", "w1")
    ids = set(await hands[0].add(*(hands[0].new() for _ in range(40))))
    w0, w1 = hands[:2]
    assert await lines(w0) | await lines(w1) == ids
    await w0.store.news(now=w0.now, limit=1_000)
    for _ in range(4):
        w0.clock.turn(10 * SECOND)
        await beat(hands, "w0")

    told = {job.id for job in await w0.store.news(now=w0.now, limit=1_000)}

    assert await lines(w0) == ids
    assert told == ids


async def test_who_feeds_no_queue_has_no_part(hands: list[Letters]) -> None:
    await beat(hands, "w0")
    await hands[1].store.heartbeat(hands[1].worker("w1"))
    ids = set(await hands[0].add(*(hands[0].new() for _ in range(10))))

    assert await lines(hands[0]) == ids
    assert await lines(hands[1]) == set()


async def test_no_hosts_wrong_clock_makes_another_worker_dead(hands: list[Letters]) -> None:
    """It is the count of heartbeats that tells, by the observer's own clock."""
    observer, wrong = hands[:2]
    for minute in range(4):
        worker = msgspec.structs.replace(wrong.worker("w1"), seen_at=wrong.now - 1_000 * MINUTE)
        await wrong.store.heartbeat(worker)
        if not minute:
            await wrong.claim(await wrong.ready(), worker="w1")
        stuck = await observer.store.stuck(now=observer.now, dead_after_ms=MINUTE, timeout_ms=10_000 * MINUTE)
        assert stuck == []
        observer.clock.turn(40 * SECOND)

    observer.clock.turn(MINUTE)
    await observer.store.heartbeat(observer.worker("w0"))
    assert (
        len(await observer.store.stuck(now=observer.now, dead_after_ms=MINUTE, timeout_ms=10_000 * MINUTE)) == 1
    )
