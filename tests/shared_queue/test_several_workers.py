"""What several workers on one Redis see of each other: each job once, one limit, one order, and no debts of the dead."""

from __future__ import annotations

import asyncio

import pytest
import redis

from contracts.queues import NOW, Open, companies, job, jobs, numbers, take
from doubles.stocked import Clock
from staffetta.mail.limiter import Limit
from staffetta.queue.contract import Depth
from staffetta.queue.redis import RedisQueue

pytestmark = pytest.mark.service
LONG_SECONDS = 30.0


async def test_each_job_goes_to_one_worker_and_turns_go_on_from_worker_to_worker(another: Open) -> None:
    first, second = await another(), await another()
    for name in ("a", "b"):
        await first.offer(jobs(range(ord(name) * 100, ord(name) * 100 + 6), name))
    taken = [await take(queue, limit) for queue, limit in ((first, 2), (second, 3), (first, 4), (second, 9))]
    assert "".join(companies(one) for one in taken) == "aaabbbaaabbb"
    assert 12 == len({one.id for some in taken for one in some})


async def test_what_a_dead_worker_held_comes_back_once_to_another(another: Open, clock: Clock) -> None:
    dead, alive = await another(), await another()
    await alive.offer(jobs(range(1, 4)))
    assert numbers(await take(dead, 2, lease_ms=1_000)) == [1, 2]
    await dead.close()
    assert numbers(await take(alive)) == [3]
    clock.turn(1_001)
    assert numbers(await take(alive, now=clock())) == [1, 2]


async def test_who_lost_its_lease_hears_it_and_ends_nothing_of_anothers(another: Open, clock: Clock) -> None:
    slow, quick = await another(), await another()
    await slow.offer([job(1)])
    await take(slow, lease_ms=100)
    clock.turn(101)
    assert numbers(await take(quick, now=clock(), lease_ms=10_000)) == [1]
    assert (
        await slow.extend([job(1).id], now=clock(), lease_ms=100) == []
    )  # the lease is one, whoever renews it
    await slow.settle([job(1).id])
    await quick.settle([job(1).id])
    assert await quick.depth() == Depth(waiting=0, delayed=0, active=0)


async def test_a_sleeping_worker_is_woken_by_anothers_offer(another: Open) -> None:
    sleeping, giving = await another(), await another()
    assert await take(sleeping) == []
    waiting = asyncio.create_task(sleeping.wait(LONG_SECONDS))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await giving.offer([job(1)])
    await asyncio.wait_for(waiting, 5)
    assert numbers(await take(sleeping)) == [1]


async def test_as_many_are_woken_as_there_are_jobs(another: Open) -> None:
    """A hundred idle workers must not all ask for one e-mail."""
    workers = [await another() for _ in range(4)]
    waiting = []
    for worker in workers:
        assert await take(worker) == []
        waiting.append(asyncio.create_task(worker.wait(LONG_SECONDS)))
    await (await another()).offer(jobs(range(1, 3)))
    done, asleep = await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 2:
        more, asleep = await asyncio.wait(asleep, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        assert more
        done |= more
    more, asleep = await asyncio.wait(asleep, timeout=0.2)
    assert (set(), 2) == (more, len(asleep))
    for one in asleep:
        one.cancel()


async def test_an_idle_worker_asks_redis_next_to_nothing(another: Open, client: redis.Redis) -> None:
    """As the worker's loops do it, a thousand times over: asked again only when it could have missed something."""
    idle = await another()
    assert isinstance(idle, RedisQueue)
    await take(idle)
    await idle.hungry()
    before = idle.link.round_trips
    for _ in range(1_000):
        assert await take(idle) == []
        assert dict(await idle.hungry()) == {}
        await idle.wait(0)
    assert idle.link.round_trips == before
    for _ in range(10):
        await idle.depth()
        await idle.figures()
    assert idle.link.round_trips - before <= 12


async def test_a_nearer_time_resets_the_clock_of_who_sleeps(another: Open, clock: Clock) -> None:
    """It sleeps until a job is due; one that is due sooner comes in by another worker."""
    sleeping, giving = await another(), await another()
    await giving.offer([job(1, due_at=NOW + 3_000)])
    assert await take(sleeping) == []
    waiting = asyncio.create_task(sleeping.wait(LONG_SECONDS))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await giving.offer([job(2, due_at=NOW + 20)])
    await asyncio.wait_for(waiting, 2)
    clock.turn(20)
    assert numbers(await take(sleeping, now=clock())) == [2]


async def test_a_limit_is_shared_exactly(another: Open, clock: Clock) -> None:
    """The seed's 100 a minute, by three workers, over ten minutes: never more, and at least 99 % of it."""
    limit = Limit(max=100, duration_ms=60_000)
    workers = [await another(limiter=limit) for _ in range(3)]
    await workers[0].offer(jobs(range(1, 1_500)))
    given: list[int] = []
    for step in range(6_000):
        clock.turn(100)
        for one in await take(workers[step % 3], 7, now=clock()):
            given.append(clock())
            await workers[step % 3].settle([one.id])
    for at in given:
        assert sum(at - 60_000 < other <= at for other in given) <= 100
    assert len(given) >= 990


async def test_companies_are_fed_by_one_worker_at_a_time(another: Open, clock: Clock) -> None:
    first, second = await another(), await another()
    await first.full("a", more=True)
    assert dict(await first.hungry()) == {"a": None}
    assert dict(await second.hungry()) == {}
    clock.turn(6_000)  # who was asked to feed it has died
    assert dict(await second.hungry()) == {"a": None}
    await second.stock("a", jobs(range(1, 3), "a"), after=None, more=False)
    assert numbers(await take(first, now=clock())) == [1, 2]


async def test_a_block_ends_with_who_blocked(another: Open, clock: Clock) -> None:
    """A breaker's block must not outlive the worker whose breaker it was."""
    dead, alive = await another(), await another()
    await dead.block("acme")
    await alive.offer([job(1)])
    assert await take(alive) == []
    await dead.close()
    clock.turn(30_000)
    assert numbers(await take(alive, now=clock())) == [1]


async def test_a_weight_is_everybodys(another: Open) -> None:
    first, second = await another(), await another()
    for name in ("a", "b"):
        await first.offer(jobs(range(ord(name) * 1000, ord(name) * 1000 + 300), name))
    await second.set_weight("a", 4.0)
    shares = companies(await take(first, 150))
    assert abs(shares.count("a") - 120) <= 6


async def test_other_settings_at_the_next_start_are_taken_on(another: Open) -> None:
    first = await another(weights={"a": 2.0}, rates={"b": Limit(max=5, duration_ms=1_000)})
    for name in ("a", "b"):
        await first.offer(jobs(range(ord(name) * 1000, ord(name) * 1000 + 300), name))
    await first.close()
    second = await another(weights={"a": 8.0})
    while {one.company_id: one.weight for one in await second.figures()} != {"a": 8.0, "b": 1.0}:  # noqa: ASYNC110  # told beside
        await asyncio.sleep(0.01)
    await second.room("b")
    shares = companies(await take(second, 90))
    assert shares.count("b") > 5


async def test_suspects_go_alone_in_their_worker_while_others_work_on(another: Open) -> None:
    """It may kill its worker, not its neighbours: they need not stand still."""
    lonely, busy = await another(), await another()
    await lonely.offer([job(1, suspect=True)])
    assert numbers(await take(lonely)) == [1]
    await busy.offer(jobs(range(2, 4)))
    assert await take(lonely) == []
    assert numbers(await take(busy)) == [2, 3]


async def test_what_a_worker_was_given_while_it_was_leaving_goes_to_another_at_once(another: Open) -> None:
    """An orderly stop cancels the question; its answer must not lie leased to nobody until the lease ends."""
    leaving, staying = await another(), await another()
    await staying.offer(jobs(range(1, 6)))
    asking = asyncio.create_task(take(leaving))
    for _ in range(3):
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await leaving.close()
    assert numbers(await take(staying)) == [1, 2, 3, 4, 5]
