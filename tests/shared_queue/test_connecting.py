"""Where Redis is, how it lets us in, and what is said of one that may lose jobs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
import redis
import trustme

from contracts.queues import NOW, job, jobs, numbers, take
from doubles.redis import SAFE, RedisServer, running
from doubles.stocked import Clock
from staffetta.app import doctor, wiring
from staffetta.config import Config, sections
from staffetta.errors import QueueError, SettingsError
from staffetta.mail.events import Event, Troubled
from staffetta.queue.redis import RedisQueue
from staffetta.queue.redis.address import Address, parse

service = pytest.mark.service


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://example.org", Address(kind="server", hosts=(("example.org", 6379),))),
        (
            "redis://mail:p%40ss@[::1]:7000/3",
            Address(kind="server", hosts=(("::1", 7000),), db=3, username="mail", password="p@ss"),
        ),
        (
            "rediss://:secret@host?ca=/etc/ca.pem&timeout=2",
            Address(kind="server", hosts=(("host", 6379),), password="secret", tls=True, ca="/etc/ca.pem",
                    timeout_seconds=2.0),
        ),
        (
            "redis+cluster://a:1,b:2,c?tls=true",
            Address(kind="cluster", hosts=(("a", 1), ("b", 2), ("c", 6379)), tls=True),
        ),
        (
            "redis+sentinel://u:p@a,b:2/outbox/1?sentinel_password=x",
            Address(kind="sentinel", hosts=(("a", 26379), ("b", 2)), service="outbox", db=1, username="u",
                    password="p", sentinel_password="x"),
        ),
    ],
)  # fmt: skip
def test_an_address_is_read(url: str, expected: Address) -> None:
    assert expected == parse(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://a:1", "names no service"),
        ("redis://a/x", "database number"),
        ("redis+cluster://a/1", "database number"),
        ("redis://a?colour=red", "knows no option colour"),
        ("redis+cluster://a:1,b:x", "host that cannot be read"),
        ("redis://a?timeout=soon", "no number of seconds"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_with_the_remedy(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse(url)


def test_an_address_is_shown_without_its_secrets() -> None:
    shown = str(parse("redis+sentinel://u:hidden@a,b:2/outbox?sentinel_password=hidden"))
    assert "a:26379,b:2 (outbox)" == shown


def test_a_missing_driver_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "redis" or ".queue.redis" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(SettingsError, match=r"pip install 'staffetta\[redis\]'"):
        wiring.queue_for(Config(queue=sections.Queue(url="redis://127.0.0.1:1/0")))


@service
async def test_a_user_with_the_commands_of_the_guide_does_everything(tmp_path: Path) -> None:
    """And with no other: the list is the guide's own."""
    with running(tmp_path, *SAFE) as server, contextlib.closing(server.client()) as client:
        guide = Path(__file__).parents[2] / "docs" / "guides" / "redis.md"
        (line,) = [one for one in guide.read_text().splitlines() if one.startswith("ACL SETUSER")]
        words = line.replace("PASSWORD", "hidden").split()
        client.execute_command(*words)  # type: ignore[no-untyped-call]  # the driver leaves it untyped
        client.acl_setuser("default", enabled=False)
        clock = Clock(NOW)
        queue = RedisQueue(f"redis://staffetta:hidden@127.0.0.1:{server.port}/0", clock=clock)
        await queue.open()
        try:
            await everything(queue, clock)
            told = await doctor_of(f"redis://staffetta:hidden@127.0.0.1:{server.port}/0")
        finally:
            await queue.close()
    assert [] == [one for one in told if not one.ok]


async def everything(queue: RedisQueue, clock: Clock) -> None:
    """Every move there is, and what happens beside them."""
    await queue.offer([job(n, due_at=NOW + n % 3, priority=1 + n % 9) for n in range(400)])
    await queue.offer([job(900, suspect=True), job(901, due_at=NOW - 5)])
    await queue.full("b", more=True)
    await queue.hungry()
    assert await queue.room("b") > 0
    await queue.stock("b", jobs(range(1_000, 1_009), "b"), after=None, more=True)
    await queue.set_weight("b", 2.0)
    await queue.block("b")
    await queue.unblock("b")
    clock.turn(10)
    taken = await take(queue, 50, now=clock(), lease_ms=100)
    await queue.extend([one.id for one in taken], now=clock(), lease_ms=100)
    await queue.postpone(taken[:9])
    await queue.settle([one.id for one in taken[9:20]])
    clock.turn(101)
    await take(queue, 1_000, now=clock())
    await queue.bury([job(1).id], now=NOW)
    await queue.index_dead([job(2).id], now=NOW)
    await queue.revive([job(2).id])
    await queue.depth()
    await queue.figures()
    waiting = asyncio.create_task(queue.wait(30))
    await asyncio.sleep(0.01)
    await queue.offer([job(5_000)])
    await asyncio.wait_for(waiting, 5)
    assert await queue.link.ask("INFO")


@service
async def test_tls_is_verified_and_a_stranger_is_not_trusted(tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    server = RedisServer(tmp_path / "redis")
    server.start_tls(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    try:
        queue = RedisQueue(f"rediss://127.0.0.1:{server.port}?ca={tmp_path / 'ca.pem'}", clock=lambda: NOW)
        await queue.open()
        await queue.offer([job(1)])
        assert numbers(await take(queue)) == [1]
        await queue.close()
        stranger = RedisQueue(
            f"rediss://127.0.0.1:{server.port}?ca={tmp_path / 'other.pem'}", clock=lambda: NOW
        )
        await stranger.open()
        with pytest.raises(QueueError, match="certificate"):
            await stranger.depth()
        await stranger.close()
    finally:
        server.kill()


async def doctor_of(url: str) -> list[doctor.Finding]:
    return await doctor._queue(Config(queue=sections.Queue(url=url)))


@service
async def test_settings_that_may_lose_jobs_are_named_with_the_remedy(tmp_path: Path) -> None:
    """At the start, by the doctor, and with `queue.strict` as a refusal."""
    wrong = ("--appendonly", "no", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "0")
    with running(tmp_path, *wrong) as server:
        heard: list[Event] = []
        queue = RedisQueue(server.url, clock=lambda: NOW, emit=heard.append)
        await queue.open()
        await queue.close()
        said = "\n".join(one.message for one in heard if isinstance(one, Troubled))
        remedies = ("set `appendonly yes`", "set `maxmemory-policy noeviction`", "set `maxmemory 512mb`")
        assert all(remedy in said for remedy in remedies), said
        found = await doctor_of(server.url)
        assert remedies == tuple(one.remedy.partition(",")[0] for one in found if not one.ok)
        strict = RedisQueue(server.url, clock=lambda: NOW, strict=True)
        with pytest.raises(SettingsError) as refused:
            await strict.open()
        assert 3 == len(refused.value.problems)
        with contextlib.closing(server.client()) as client:
            client.config_set("appendonly", "yes")
            client.config_set("appendfsync", "no")
            client.config_set("maxmemory", "100mb")
            client.config_set("maxmemory-policy", "noeviction")
        assert ["set `appendfsync everysec`"] == [
            one.remedy for one in await doctor_of(server.url) if not one.ok
        ]


@service
async def test_the_ready_made_settings_are_content(tmp_path: Path) -> None:
    deploy = Path(__file__).parents[2] / "deploy" / "redis.conf"
    server = RedisServer(tmp_path)
    server.start_as(str(deploy))
    try:
        found = await doctor_of(server.url)
        assert [True] == [one.ok for one in found]
        assert "of 512 MiB" in found[0].words
    finally:
        server.kill()


async def test_the_doctor_tells_of_a_redis_that_is_away() -> None:
    (found,) = await doctor_of("redis://127.0.0.1:1/0?timeout=1")
    assert not found.ok
    assert "127.0.0.1:1" in found.words


@service
async def test_memory_and_connections_turned_away_are_gauged(tmp_path: Path) -> None:
    with running(tmp_path, *SAFE) as server, contextlib.closing(server.client()) as client:
        for number in range(300):
            client.set(f"other-{number}", b"x" * 100_000)
        used = int(client.info("memory")["used_memory"])
        client.config_set("maxmemory", used * 100 // 85)
        client.config_set("maxclients", 2)
        for _ in range(3):
            with contextlib.suppress(redis.ConnectionError), contextlib.closing(server.client()) as turned_away:
                turned_away.ping()
                with contextlib.suppress(redis.ConnectionError), contextlib.closing(server.client()) as second:
                    second.ping()
        client.config_set("maxclients", 100)
        queue = RedisQueue(server.url, clock=lambda: NOW)
        await queue.open()
        health = await queue.health()
        await queue.close()
    assert health.memory_used_ratio is not None
    assert 0.8 < health.memory_used_ratio < 0.95
    assert health.rejected_connections


@service
async def test_a_full_redis_that_has_room_again_is_well_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else /readyz stays degraded through a quiet night."""
    monkeypatch.setattr("staffetta.queue.redis.care.KEEP_SECONDS", 0.02)
    with running(tmp_path, *SAFE) as server, contextlib.closing(server.client()) as client:
        queue = RedisQueue(server.url, clock=lambda: NOW)
        await queue.open()
        try:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(QueueError, match="maxmemory"):
                await queue.offer([job(1)])
            assert "maxmemory" in (await queue.health()).trouble
            client.config_set("maxmemory", "512mb")
            async with asyncio.timeout(10):
                while (await queue.health()).trouble:  # noqa: ASYNC110  # it looks by itself
                    await asyncio.sleep(0.01)
            assert list(await queue.offer([job(1)])) == []
        finally:
            await queue.close()
