"""Redis may die, forget, fill up, move or crawl: hand-in goes on, everything is sent afterwards, nothing is doubled.

Each ordeal runs `staffetta serve` on SQLite with a private Redis, under load, through one kind of trouble.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.invariants import Facts, check
from doubles.ordeal import Ordeal
from doubles.redis import SAFE, RedisServer, running
from doubles.wire import wire

pytestmark = pytest.mark.service

PER_SECOND = 200
RECOVERS_SECONDS = 60.0
TROUBLE_SECONDS = 3.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(tmp_path / "redis", *SAFE) as made:
        yield made


@contextlib.contextmanager
def ordeal(folder: Path, url: str, seed: int) -> Iterator[Ordeal]:
    folder.mkdir(exist_ok=True)
    with Ordeal(folder, seed=seed, STAFFETTA_QUEUE=url) as made:
        made.start()
        yield made


def readiness(made: Ordeal) -> tuple[int, str, str]:
    """Of the answer of /readyz: its code, the whole's state, and what it says of the queue."""
    code, text = made.get("/readyz")
    told = json.loads(text)
    return code, told["status"], told["parts"]["queue"]["detail"]


def until_degraded(made: Ordeal) -> str:
    ends = time.monotonic() + 20
    while (found := readiness(made))[1] != "degraded":
        assert time.monotonic() < ends, "Redis is in trouble, and /readyz is content"
        time.sleep(0.02)
    code, _, why = found
    assert code == 200, "hand-in works, so it is able to work"
    return why


def until_well(made: Ordeal) -> None:
    ends = time.monotonic() + 20
    while readiness(made)[1] != "ok":
        assert time.monotonic() < ends, f"Redis is back, and /readyz says {readiness(made)}"
        time.sleep(0.02)


def hand_in_goes_on(made: Ordeal, count: int = 150) -> None:
    made.until_done_with(made.answered + count)


def ended(made: Ordeal) -> Facts:
    """Everything has ended within a minute, and every invariant holds."""
    made.until_done(RECOVERS_SECONDS)
    facts = made.finish()
    check(facts)
    return facts


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def down_for(tmp_path: Path, server: RedisServer, seconds: float) -> None:
    with ordeal(tmp_path / "engine", server.url, 71) as made:
        with made.calling(PER_SECOND):
            hand_in_goes_on(made)
            server.kill()
            why = until_degraded(made)
            assert f"127.0.0.1:{server.port}" in why
            hand_in_goes_on(made)
        while made.unanswered:
            time.sleep(0.05)
        before, since = cpu_seconds(made.process.pid), time.monotonic()
        time.sleep(seconds)  # the outage itself
        busy = (cpu_seconds(made.process.pid) - before) / (time.monotonic() - since)
        assert busy < 0.25, f"{busy:.0%} of a processor, to wait for Redis"
        server.start()
        until_well(made)
        ended(made)


def test_redis_is_down_for_a_while(tmp_path: Path, server: RedisServer) -> None:
    down_for(tmp_path, server, TROUBLE_SECONDS)


@pytest.mark.soak
def test_redis_is_down_for_a_minute(tmp_path: Path, server: RedisServer) -> None:
    down_for(tmp_path, server, 60.0)


def test_redis_is_away_at_the_start(tmp_path: Path, server: RedisServer) -> None:
    """An engine that starts first must not wait for it, nor give up."""
    server.kill()
    with ordeal(tmp_path / "engine", server.url, 72) as made:
        made.call(100)
        made.until_done_with(100)
        until_degraded(made)
        server.start()
        ended(made)


def test_redis_is_wiped_again_and_again(tmp_path: Path, server: RedisServer) -> None:
    with ordeal(tmp_path / "engine", server.url, 73) as made:
        with made.calling(PER_SECOND):
            for _ in range(4):
                hand_in_goes_on(made, 100)
                with contextlib.closing(server.client()) as client:
                    client.flushall()
        ended(made)


def test_redis_comes_back_as_it_was_some_time_ago(tmp_path: Path, server: RedisServer) -> None:
    """A restored copy knows jobs that are long sent, and not those that came since."""
    copy = tmp_path / "copy"
    with ordeal(tmp_path / "engine", server.url, 74) as made:
        with made.calling(PER_SECOND):
            hand_in_goes_on(made)
            shutil.copytree(server.folder / "appendonlydir", copy)
            hand_in_goes_on(made)
            server.kill()
            shutil.rmtree(server.folder / "appendonlydir")
            shutil.copytree(copy, server.folder / "appendonlydir")
            server.start()
            made.until_said("Redis was restarted, restored or has failed over")
            hand_in_goes_on(made)
        ended(made)


def test_redis_is_full(tmp_path: Path, server: RedisServer) -> None:
    """`noeviction` refuses what would take memory: that waits in the store, and what makes room goes on."""
    with ordeal(tmp_path / "engine", server.url, 75) as made:
        with made.calling(PER_SECOND):
            hand_in_goes_on(made)
            with contextlib.closing(server.client()) as client:
                client.config_set("maxmemory", "1mb")
                why = until_degraded(made)
                assert "maxmemory" in why
                hand_in_goes_on(made)
                client.config_set("maxmemory", "512mb")
        until_well(made)
        ended(made)


def test_redis_full_for_good_still_lets_everything_through(tmp_path: Path, server: RedisServer) -> None:
    """Nobody comes to mend it: a few jobs at a time find their way."""
    with ordeal(tmp_path / "engine", server.url, 76) as made:
        with contextlib.closing(server.client()) as client:
            client.config_set("maxmemory", "1mb")
        made.call(300)
        ended(made)


def test_redis_is_slow(tmp_path: Path, server: RedisServer) -> None:
    """A third of a second for each way: hand-in does not wait for it."""
    with wire(server.port) as way, ordeal(tmp_path / "engine", f"redis://127.0.0.1:{way.port}/0", 77) as made:
        made.call(50)
        made.until_done_with(50)
        way.delay_seconds = 0.3
        since = time.monotonic()
        made.call(100)
        made.until_done_with(150)
        assert time.monotonic() - since < 20
        way.delay_seconds = 0.0
        ended(made)


def test_the_way_to_redis_is_cut_without_a_word(tmp_path: Path, server: RedisServer) -> None:
    with (
        wire(server.port) as way,
        ordeal(tmp_path / "engine", f"redis://127.0.0.1:{way.port}/0?timeout=1", 78) as made,
    ):
        with made.calling(PER_SECOND):
            hand_in_goes_on(made)
            way.cut = True
            until_degraded(made)
            hand_in_goes_on(made)
            way.cut = False
        ended(made)


def test_redis_fails_over_to_its_replica(tmp_path: Path) -> None:
    """Found by Sentinel: the master dies, its replica is promoted and may have missed the last moves."""
    with (
        running(tmp_path / "master", *SAFE) as master,
        running(tmp_path / "replica", *SAFE, "--replicaof", f"127.0.0.1 {master.port}") as replica,
        sentinel(tmp_path / "sentinel", master) as port,
        ordeal(tmp_path / "engine", f"redis+sentinel://127.0.0.1:{port}/outbox", 79) as made,
    ):
        with made.calling(PER_SECOND):
            hand_in_goes_on(made)
            master.kill()
            until_degraded(made)
            made.until_said("Redis was restarted, restored or has failed over")
            with contextlib.closing(replica.client()) as client:
                assert client.role()[0] == b"master"
            hand_in_goes_on(made)
        until_well(made)
        ended(made)


@contextlib.contextmanager
def sentinel(folder: Path, master: RedisServer) -> Iterator[int]:
    """One Sentinel that watches one master; its port."""
    folder.mkdir()
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"sentinel monitor outbox 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds outbox 500\nsentinel failover-timeout outbox 3000\n"
    )
    watch = RedisServer(folder, product="redis")
    watch.start_as(str(settings), "--sentinel")
    try:
        ends = time.monotonic() + 20
        with contextlib.closing(watch.client()) as client:
            while not any(one["master-link-status"] == "ok" for one in client.sentinel_slaves("outbox")):
                assert time.monotonic() < ends, "it never found the replica, or that has not followed"
                time.sleep(0.05)
        yield watch.port
    finally:
        watch.kill()
