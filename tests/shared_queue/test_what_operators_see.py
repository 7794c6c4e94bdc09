"""The runbook's keys, and what is noticed when somebody else has had his hands on Redis."""

from __future__ import annotations

import asyncio

import pytest
import redis

from contracts.queues import NOW, Open, companies, job, jobs, numbers, take
from doubles.redis import RedisServer
from doubles.stocked import Clock
from staffetta.mail.events import Event, Troubled

pytestmark = pytest.mark.service


def look(client: redis.Redis) -> tuple[object, ...]:
    """Waiting, delayed, active and dead letters, as the runbook asks for them."""
    return (
        int(str(client.get("{email:send}:waiting"))),
        *(client.zcard(f"{{email:send}}:{what}") for what in ("delayed", "active", "dlq")),
    )


def names(client: redis.Redis) -> list[str]:
    return [str(key) for key in client.scan_iter(count=10_000)]


async def test_the_runbooks_keys_answer(another: Open, client: redis.Redis) -> None:
    queue = await another()
    assert look(client) == (0, 0, 0, 0) or client.get("{email:send}:waiting") is None
    await queue.offer([*jobs(range(1, 8), "acme"), *jobs(range(20, 23), "other")])
    await queue.offer([job(30, due_at=NOW + 1_000), job(31, suspect=True)])
    await queue.bury([job(50).id, job(51).id], now=NOW)
    await take(queue, 4)
    assert look(client) == (7, 1, 4, 2)
    assert client.hgetall("{email:send}:waiting:by_company") == {"acme": "4", "other": "2"}
    await queue.revive([job(50).id])
    await take(queue)
    assert look(client) == (1, 1, 10, 1)
    assert client.hget("{email:send}:waiting:by_company", "acme") is None


async def test_every_key_begins_with_the_hash_tag(another: Open, client: redis.Redis) -> None:
    """So that a Cluster keeps them together, and an ACL can name them."""
    queue = await another(weights={"a": 2.0})
    await queue.offer([job(n, "ab"[n % 2], due_at=NOW + n % 3, priority=1 + n % 9) for n in range(300)])
    await queue.full("c", more=True)
    await queue.hungry()
    await queue.block("b")
    await take(queue, 50)
    assert [] == [key for key in names(client) if not key.startswith("{email:send}")]


async def test_nothing_is_left_of_a_hundred_thousand_jobs(another: Open, client: redis.Redis) -> None:
    """No key per job, none that outlives its job."""
    queue = await another()
    for start in range(0, 20_000, 1_000):
        await queue.offer([job(n, f"c{n % 50}") for n in range(start, start + 1_000)])
    while taken := await take(queue, 600):
        await queue.settle([one.id for one in taken])
    assert [] == [key for key in names(client) if ":known:" in key or ":line:" in key]
    assert look(client) == (0, 0, 0, 0)


async def test_the_index_of_dead_letters_becomes_what_the_store_has(another: Open, client: redis.Redis) -> None:
    queue = await another()
    await queue.bury([job(n).id for n in range(5)], now=NOW)
    await queue.index_dead([job(n).id for n in range(3, 2_500)], now=NOW)
    assert 2_497 == client.zcard("{email:send}:dlq")
    await queue.index_dead([], now=NOW)
    assert 0 == client.zcard("{email:send}:dlq")


async def test_a_wiped_redis_is_told_weights_and_blocks_again(another: Open, client: redis.Redis) -> None:
    queue = await another()
    await queue.set_weight("a", 4.0)
    await queue.block("x")
    client.flushall()
    for name in ("a", "b", "x"):
        await queue.offer(jobs(range(ord(name) * 1000, ord(name) * 1000 + 100), name))
    while not client.zcard("{email:send}:blocked"):  # noqa: ASYNC110  # told beside, by the engine itself
        await asyncio.sleep(0.01)
    shares = companies(await take(queue, 100))
    assert shares.count("x") == 0
    assert abs(shares.count("a") - 80) <= 3


async def test_another_run_forgets_jobs_and_keeps_accounts(
    another: Open, server: RedisServer, client: redis.Redis, clock: Clock, heard: list[Event]
) -> None:
    """What waits there may be old: the store tells it anew. What companies have had is not the jobs' affair."""
    queue = await another()
    await queue.offer(
        [*jobs(range(1, 50)), job(90, due_at=NOW + 5), job(91, suspect=True), job(92, priority=1)]
    )
    await queue.offer([job(93, due_at=NOW - 9), job(94, "other")])
    await queue.bury([job(60).id], now=NOW)
    await take(queue, 5)
    await queue.close()
    client.set("{email:send}:server", "fair:of-another-run")
    again = await another()
    assert look(client) == (0, 0, 0, 1)
    assert 5 == sum(one.total_processed for one in await again.figures())
    assert any(isinstance(one, Troubled) and "offered again" in one.message for one in heard)
    await again.offer(jobs(range(1, 4)))
    assert numbers(await take(again)) == [1, 2, 3]
    assert [] == [key for key in names(client) if ":line:" in key or ":late:" in key or ":end:" in key]


async def test_a_change_of_the_kind_of_order_begins_anew(another: Open, client: redis.Redis) -> None:
    """Lines of another order would give jobs in neither."""
    fair = await another()
    await fair.offer(jobs(range(1, 9)))
    await fair.close()
    plain = await another(enabled=False)
    assert look(client) == (0, 0, 0, 0)
    await plain.offer([job(2, due_at=NOW - 1, priority=9), job(1, priority=1)])
    assert numbers(await take(plain)) == [2, 1]
