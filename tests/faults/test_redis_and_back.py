"""`STAFFETTA_QUEUE` on an installation at work: to Redis and back again, with what waits. And what Redis then shows."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.invariants import check
from doubles.ordeal import Ordeal
from doubles.redis import SAFE, RedisServer, running

pytestmark = pytest.mark.service


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(tmp_path / "redis", *SAFE) as made:
        yield made


def test_the_queue_is_switched_with_what_waits_and_back_again(tmp_path: Path, server: RedisServer) -> None:
    """Each time at full work, once by a crash and once in order; jobs that are left in Redis are old by then."""
    folder = tmp_path / "engine"
    folder.mkdir()
    with Ordeal(folder, seed=81) as ordeal:
        with ordeal.calling(200):
            ordeal.start()
            ordeal.until_done_with(150)
            ordeal.kill()
            ordeal.start(STAFFETTA_QUEUE=server.url)
            ordeal.until_done_with(ordeal.answered + 150)
            ordeal.stop()
            ordeal.start()
            ordeal.until_done_with(ordeal.answered + 150)
            ordeal.kill()
            ordeal.start(STAFFETTA_QUEUE=server.url)
            ordeal.until_done_with(ordeal.answered + 150)
        check(ordeal.finish())
        with contextlib.closing(server.client()) as client:
            assert b"0" == client.get("{email:send}:waiting")


def test_redis_shows_as_many_dead_letters_as_there_are(tmp_path: Path, server: RedisServer) -> None:
    """From the first moment, and after Redis was wiped too."""
    folder = tmp_path / "engine"
    folder.mkdir()
    with Ordeal(folder, seed=82, STAFFETTA_QUEUE=server.url) as ordeal:
        ordeal.start()
        ordeal.call(300)
        ordeal.until_done()
        dead = json.loads(ordeal.get("/v1/dlq/stats")[1])["size"]
        assert dead > 0
        with contextlib.closing(server.client()) as client:
            until_dead(client, dead)
            client.flushall()
            until_dead(client, dead)
        check(ordeal.finish())


def until_dead(client: object, dead: int) -> None:
    ends = time.monotonic() + 20
    while (shown := client.zcard("{email:send}:dlq")) != dead:  # type: ignore[attr-defined]  # a client of Redis
        assert time.monotonic() < ends, f"Redis shows {shown} dead letters of {dead}"
        time.sleep(0.05)


def test_an_idle_engine_leaves_redis_alone(tmp_path: Path, server: RedisServer) -> None:
    """At most two calls a second, counted by Redis itself."""
    folder = tmp_path / "engine"
    folder.mkdir()
    with Ordeal(folder, seed=83, STAFFETTA_QUEUE=server.url, STAFFETTA_RESTORE__INTERVAL="10s") as ordeal:
        ordeal.start()
        ordeal.call(50)
        ordeal.until_done()
        time.sleep(2)  # the last figures of work are told
        with contextlib.closing(server.client()) as client:
            before, since = calls(client), time.monotonic()
            time.sleep(6)
            made, seconds = calls(client) - before, time.monotonic() - since
        assert made / seconds <= 2.0, f"{made} calls in {seconds:.1f} s"
        check(ordeal.finish())


def calls(client: object) -> int:
    """What clients asked for; what scripts did within is theirs."""
    told = client.info("commandstats")  # type: ignore[attr-defined]  # a client of Redis
    return sum(told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "blpop"))
