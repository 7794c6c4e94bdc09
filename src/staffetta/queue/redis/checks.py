"""How the Redis server is set, and how it is: what may lose jobs, with the remedy, and its gauges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staffetta.errors import QueueError
from staffetta.mail.message import Millis, Value
from staffetta.queue.redis.address import parse
from staffetta.queue.redis.server import AWAY, RedisError, ResponseError, Server, find

OLDEST = (7, 0)


class Gauge(Value, frozen=True, kw_only=True):
    """What `INFO` tells."""

    server: str
    """Address of the one that holds the queue."""
    run_id: str
    version: str
    product: str
    used_memory: int
    maxmemory: int
    policy: str
    rejected_connections: int
    connected_clients: int
    aof_enabled: bool
    last_write_failed: bool

    @property
    def memory_share(self) -> float:
        """Used of what may be used; 0 where there is no bound."""
        return self.used_memory / self.maxmemory if self.maxmemory else 0.0


class Shortcoming(Value, frozen=True, kw_only=True):
    """A setting that may lose jobs or stop the queue."""

    name: str
    words: str
    remedy: str


async def gauge(server: Server) -> Gauge:
    return read(await server.ask("INFO"), server.name)


def read(text: bytes, server: str = "") -> Gauge:
    told = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
    return Gauge(
        server=server,
        run_id=told.get("run_id", ""),
        version=told.get("valkey_version") or told.get("redis_version", "0"),
        product="Valkey" if "valkey_version" in told else "Redis",
        used_memory=int(told.get("used_memory", 0)),
        maxmemory=int(told.get("maxmemory", 0)),
        policy=told.get("maxmemory_policy", ""),
        rejected_connections=int(told.get("rejected_connections", 0)),
        connected_clients=int(told.get("connected_clients", 0)),
        aof_enabled=told.get("aof_enabled") == "1",
        last_write_failed=told.get("aof_last_write_status", "ok") != "ok",
    )


async def examine(url: str, *, clock: Callable[[], Millis]) -> tuple[Gauge, list[Shortcoming], Millis]:
    """How the server behind a URL is, what is set wrongly there, and how far its clock is ahead of ours.

    :raises QueueError: it cannot be asked.
    """
    address = parse(url)
    try:
        server = await find(address, client_name="staffetta-doctor")
        try:
            told = await gauge(server)
            seconds, micros = await server.ask("TIME")
            ahead = int(seconds) * 1_000 + int(micros) // 1_000 - clock()
            return told, await shortcomings(server, told), ahead
        finally:
            await server.close()
    except (*AWAY, RedisError) as error:
        raise QueueError(f"Redis at {address} does not answer: {error or type(error).__name__}") from error


async def shortcomings(server: Server, told: Gauge) -> list[Shortcoming]:
    """What is not as `deploy/redis.conf` has it, each with the remedy."""
    found: list[Shortcoming] = []
    if _numbers(told.version) < OLDEST:
        found.append(_short("version", f"{told.product} {told.version} is too old", "use Redis 7 or Valkey"))
    if not told.aof_enabled:
        words = (
            "appendonly is no: a restart forgets every waiting job, and all are offered again from the store"
        )
        found.append(_short("appendonly", words, "set `appendonly yes`"))
    else:
        fsync = await _setting(server, "appendfsync")
        if fsync not in ("everysec", "always", None):
            words = f"appendfsync is {fsync}: a crash may forget minutes"
            found.append(_short("appendfsync", words, "set `appendfsync everysec`"))
    if told.policy not in ("noeviction", ""):
        words = f"maxmemory-policy is {told.policy}: Redis may throw jobs away without a word"
        found.append(_short("maxmemory-policy", words, "set `maxmemory-policy noeviction`"))
    if not told.maxmemory:
        words = "maxmemory is not set: Redis may grow until the host kills it"
        found.append(_short("maxmemory", words, "set `maxmemory 512mb`, or what the host can spare"))
    if told.last_write_failed:
        found.append(_short("disk", "the last write of the append-only file failed", "see the disk of Redis"))
    return found


async def _setting(server: Server, name: str) -> str | None:
    """None where it may not be asked (managed servers, an ACL without CONFIG)."""
    try:
        answer: Any = await server.ask("CONFIG", "GET", name)
    except ResponseError:
        return None
    if isinstance(answer, dict):
        answer = [item for pair in answer.items() for item in pair]
    return answer[1].decode() if len(answer) > 1 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _short(name: str, words: str, remedy: str) -> Shortcoming:
    return Shortcoming(name=name, words=words, remedy=remedy)
