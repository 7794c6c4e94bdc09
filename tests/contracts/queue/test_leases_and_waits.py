"""Leases end and come back once; whoever waits is woken by what came, at the moment it came, and never polls."""

from __future__ import annotations

import asyncio

import pytest

from contracts.queues import NOW, Open, companies, job, jobs, numbers, take
from doubles.stocked import Clock
from staffetta.mail.limiter import Limit
from staffetta.queue.contract import Depth, Queue

LONG_SECONDS = 30.0
"""No test waits that long: a wait that is not woken fails by its own timeout."""


async def test_a_lease_is_held_to_its_last_moment_and_free_just_after(queue: Queue, clock: Clock) -> None:
    await queue.offer([job(1)])
    await take(queue, lease_ms=30_000)
    clock.turn(30_000)
    assert await take(queue, now=clock()) == []
    clock.turn(1)
    assert numbers(await take(queue, now=clock())) == [1]


async def test_an_ended_lease_comes_back_once_and_in_its_place(queue: Queue, clock: Clock) -> None:
    await queue.offer(jobs(range(1, 4)))
    assert numbers(await take(queue, 2, lease_ms=100)) == [1, 2]
    clock.turn(101)
    assert numbers(await take(queue, now=clock(), lease_ms=10_000)) == [1, 2, 3]
    assert await take(queue, now=clock()) == []
    assert await queue.depth() == Depth(waiting=0, delayed=0, active=3)


async def test_what_is_given_back_unsent_stands_before_its_equals_again(queue: Queue) -> None:
    """Taken for a company that turned out to be paused: giving back must not cost the place in the line."""
    await queue.offer(jobs(range(1, 7)))
    taken = await take(queue, 3)
    await queue.offer([job(9, due_at=NOW - 1)])
    await queue.postpone(taken)
    assert numbers(await take(queue, 3)) == [9, 1, 2]
    assert numbers(await take(queue)) == [3, 4, 5, 6]


async def test_given_back_to_a_full_line_the_last_makes_room(open_queue: Open) -> None:
    """The window is full of equals: the one that was out still stands before them, and the store brings the last."""
    queue = await open_queue(waiting_max=6, per_company_max=6)
    await queue.offer(jobs(range(1, 7)))
    (taken,) = await take(queue, 1)
    await queue.offer([job(7)])
    await queue.postpone([taken])
    assert numbers(await take(queue)) == [1, 2, 3, 4, 5, 6]
    assert dict(await queue.hungry()) == {"acme": job(6)}


async def test_a_suspect_beyond_its_companys_rate_does_not_spin(open_queue: Open) -> None:
    """The wait said "something may be taken" while the rate said "not yet": a busy loop until the window opened."""
    import time

    def present() -> int:
        return time.time_ns() // 1_000_000

    queue = await open_queue(clock=present, rates={"acme": Limit(max=1, duration_ms=60)})
    await queue.offer([job(1, due_at=present()), job(2, due_at=present(), suspect=True)])
    assert numbers(await take(queue, now=present())) == [1]
    await queue.settle([job(1).id])
    waits = 0
    while not (taken := await take(queue, now=present())):
        await queue.wait(LONG_SECONDS)
        waits += 1
    assert numbers(taken) == [2]
    assert waits <= 4


async def test_extended_leases_stay_and_lost_ones_are_named(queue: Queue, clock: Clock) -> None:
    await queue.offer(jobs(range(1, 4)))
    taken = await take(queue, 2, lease_ms=100)
    clock.turn(80)
    lost = await queue.extend([one.id for one in taken] + [job(3).id, job(9).id], now=clock(), lease_ms=100)
    assert list(lost) == [job(3).id, job(9).id]
    clock.turn(100)
    assert numbers(await take(queue, now=clock())) == [3]
    clock.turn(1)
    assert numbers(await take(queue, now=clock())) == [1, 2]


async def test_a_lease_that_ended_and_was_given_to_another_is_not_ended_again(
    queue: Queue, clock: Clock
) -> None:
    await queue.offer([job(1)])
    await take(queue, lease_ms=100)
    clock.turn(101)
    assert numbers(await take(queue, now=clock(), lease_ms=1_000)) == [1]
    clock.turn(500)
    assert await take(queue, now=clock()) == []


async def test_a_wait_returns_at_once_when_something_may_be_taken(queue: Queue) -> None:
    await queue.offer([job(1)])
    await asyncio.wait_for(queue.wait(LONG_SECONDS), 5)


async def test_a_wait_ends_with_its_timeout(queue: Queue) -> None:
    await asyncio.wait_for(queue.wait(0.01), 5)


@pytest.mark.parametrize("what", ["offer", "postpone", "unblock", "stock", "settle"])
async def test_a_wait_is_woken_by_what_comes(queue: Queue, what: str) -> None:
    if what == "unblock":
        await queue.block("acme")
        await queue.offer([job(1)])
    elif what == "postpone":
        await queue.offer([job(1)])
    elif what == "stock":
        await queue.full("acme", more=True)
    elif what == "settle":
        await queue.offer([job(1), job(2, suspect=True)])
    taken = await take(queue)
    waiting = asyncio.create_task(queue.wait(LONG_SECONDS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    match what:
        case "offer":
            await queue.offer([job(1)])
        case "postpone":
            await queue.postpone(taken)
        case "unblock":
            await queue.unblock("acme")
        case "stock":
            await queue.hungry()
            await queue.stock("acme", [job(1)], after=None, more=False)
        case "settle":
            await queue.settle([job(1).id])
    await asyncio.wait_for(waiting, 5)
    assert len(await take(queue)) == 1


async def test_a_wait_that_is_cancelled_ends_at_once_and_harms_nobody(queue: Queue) -> None:
    waiting = asyncio.create_task(queue.wait(LONG_SECONDS))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    await queue.offer([job(1)])
    await asyncio.wait_for(queue.wait(LONG_SECONDS), 5)
    assert numbers(await take(queue)) == [1]


async def test_a_delayed_job_wakes_within_fifty_milliseconds_of_its_time(open_queue: Open) -> None:
    """By the real clock, and by one timer: the wait returns once."""
    import time

    def present() -> int:
        return time.time_ns() // 1_000_000

    queue = await open_queue(clock=present)
    due_at = present() + 120
    await queue.offer([job(1, due_at=due_at)])
    waits = 0
    while not (taken := await take(queue, now=present())):
        await queue.wait(LONG_SECONDS)
        waits += 1
    late = present() - due_at
    assert numbers(taken) == [1]
    assert 0 <= late <= 50, f"{late} ms late"
    assert waits <= 3


async def test_an_ended_lease_wakes_too(open_queue: Open) -> None:
    import time

    def present() -> int:
        return time.time_ns() // 1_000_000

    queue = await open_queue(clock=present)
    await queue.offer([job(1, due_at=present())])
    assert numbers(await take(queue, now=present(), lease_ms=40)) == [1]
    waits = 0
    while not await take(queue, now=present()):
        await queue.wait(LONG_SECONDS)
        waits += 1
    assert waits <= 3


async def test_a_limit_over_all_is_never_passed_and_tells_when_to_come_again(
    open_queue: Open, clock: Clock
) -> None:
    queue = await open_queue(limiter=Limit(max=10, duration_ms=1_000))
    await queue.offer(jobs(range(1, 100)))
    assert len(await take(queue, 50)) == 10
    assert await take(queue, 50) == []
    clock.turn(999)
    assert await take(queue, 50, now=clock()) == []
    clock.turn(6)
    assert len(await take(queue, 50, now=clock())) == 10


async def test_a_used_up_limit_does_not_spin(open_queue: Open) -> None:
    """The wait knows the next moment: between two windows it returns a handful of times, not thousands."""
    import time

    def present() -> int:
        return time.time_ns() // 1_000_000

    queue = await open_queue(clock=present, limiter=Limit(max=2, duration_ms=60))
    await queue.offer(jobs(range(1, 7), due_at=present()))
    waits, given = 0, 0
    while given < 6:
        got = await take(queue, now=present())
        given += len(got)
        if not got:
            await queue.wait(LONG_SECONDS)
            waits += 1
    assert waits <= 12


async def test_a_companys_rate_holds_it_back_and_costs_nobody_else(open_queue: Open, clock: Clock) -> None:
    queue = await open_queue(rates={"slow": Limit(max=4, duration_ms=1_000)})
    await queue.offer(jobs(range(100, 150), "slow"))
    await queue.offer(jobs(range(200, 250), "fast"))
    order = companies(await take(queue, 19))
    assert order == "sssfffs" + "f" * 12
    clock.turn(1_005)
    order = companies(await take(queue, 10, now=clock()))
    assert order.count("s") == 4
    assert order.startswith("s"), "it was served least recently, and loses no place"


async def test_a_rate_banks_no_credit(open_queue: Open, clock: Clock) -> None:
    """After ten quiet windows it gets one window's worth, not ten."""
    queue = await open_queue(rates={"slow": Limit(max=4, duration_ms=1_000)})
    clock.turn(10_000)
    await queue.offer(jobs(range(100, 150), "slow"))
    assert len(await take(queue, 50, now=clock())) == 4


async def test_whoever_feeds_is_woken_by_hunger(queue: Queue) -> None:
    feeding = asyncio.create_task(queue.until_hungry(LONG_SECONDS))
    await asyncio.sleep(0)
    assert not feeding.done()
    await queue.full("acme", more=True)
    await asyncio.wait_for(feeding, 5)
    assert dict(await queue.hungry()) == {"acme": None}
    await queue.stock("acme", jobs(range(1, 4)), after=None, more=False)
    assert dict(await queue.hungry()) == {}
    await asyncio.wait_for(queue.until_hungry(0.01), 5)


async def test_nobody_is_served_past_a_company_that_is_owed(queue: Queue) -> None:
    """It has work in the store, and only feeding is late: passing it would make the order depend on reading speed."""
    await queue.full("a", more=True)
    await queue.offer(jobs(range(100, 110), "b"))
    assert await take(queue) == []
    await queue.hungry()
    await queue.stock("a", jobs(range(1, 6), "a"), after=None, more=False)
    assert companies(await take(queue, 9)) == "aaabbbaab"
