"""Looks at everything that must be right and names the remedy for what is not. It sends and changes nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from staffetta import config as settings
from staffetta.app import wiring
from staffetta.config import Config
from staffetta.errors import QueueError, StaffettaError
from staffetta.flow import figures
from staffetta.mail.attempt import words
from staffetta.mail.message import Value
from staffetta.store.contract import Examined, Store
from staffetta.transport.contract import Transport

PROBE_SECONDS = 15.0
FREE_BYTES_LEAST = 1 << 30
BUILT_AT_MS = 1_767_225_600_000
"""A clock before 2026 is wrong."""
AHEAD_MS = 60_000
"""A worker's last sign from so far ahead: one of the two clocks is wrong."""
LOOPBACK = ("127.", "::1", "localhost")


class Finding(Value, frozen=True, kw_only=True):
    """How one part is. A remedy beside a part that is well is advice."""

    part: str
    ok: bool
    words: str
    remedy: str = ""


async def examine(config: Config) -> list[Finding]:
    """Every part's finding, in the order in which an e-mail meets them."""
    checks: list[tuple[str, Callable[[Config], Awaitable[list[Finding]]]]] = [
        ("settings", _settings),
        ("versions", _versions),
        ("clock", _clock),
        ("store", _store),
        ("disk", _disk),
        ("queue", _queue),
        ("transport", _transports),
        ("callback", _callback),
    ]
    findings: list[Finding] = []
    for part, check in checks:
        try:
            findings += await check(config)
        except StaffettaError as error:
            remedy = f"mend that, or see the settings of {part}"
            findings.append(Finding(part=part, ok=False, words=str(error), remedy=remedy))
    return findings


async def _settings(config: Config) -> list[Finding]:
    told = [
        Finding(part="settings", ok=True, words=f"{name} = {value} (from {source})")
        for name, value, source in settings.shown(config)
        if source != "default"
    ]
    return told or [Finding(part="settings", ok=True, words="all at their defaults")]


async def _versions(config: Config) -> list[Finding]:
    del config
    names = ("staffetta", "apsw", "aiohttp", "uvloop")
    told = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    return [Finding(part="versions", ok=True, words=f"Python {platform.python_version()}, {told}")]


async def _clock(config: Config) -> list[Finding]:
    del config
    if wiring.clock() < BUILT_AT_MS:
        remedy = "set the clock (NTP): due times, expiry and signatures depend on it"
        return [Finding(part="clock", ok=False, words="the clock is years behind", remedy=remedy)]
    return [Finding(part="clock", ok=True, words="plausible")]


# ----------------------------------------------------------------------------------------------- the store


async def _store(config: Config) -> list[Finding]:
    if _has_no_file_yet(config):
        words_ = "there is no file yet: the first command or `serve` makes it"
        return [Finding(part="store", ok=True, words=words_), _keys(0, config)]
    async with wiring.opened_store(config, owner=False) as store:
        valid = sum(1 for key in await store.keys() if not key.revoked_at)
        return [
            *await _setup(store),
            *await _workers(store, config),
            *await _breakers(store),
            *await _pauses(store),
            _keys(valid, config),
        ]


async def _setup(store: Store) -> list[Finding]:
    """What the store itself says of how it is set up."""
    examined: object = store
    if not isinstance(examined, Examined):
        return []
    return [
        Finding(part="store", ok=one.ok, words=one.words, remedy=one.remedy) for one in await examined.examine()
    ]


def _has_no_file_yet(config: Config) -> bool:
    is_file = config.store.url.startswith("sqlite")
    return is_file and not settings.sqlite_path(config.store.url).exists()


async def _workers(store: Store, config: Config) -> list[Finding]:
    now, counts = wiring.clock(), await store.counts()
    workers = await store.workers()
    living = [one for one in workers if now - one.seen_at < config.worker.dead_after_ms]
    who = ", ".join(f"process {one.pid} on {one.host}" for one in living) or "none"
    told = f"{sum(counts.values())} e-mails; workers alive: {who}"
    found = [Finding(part="store", ok=True, words=told)]
    if any(one.seen_at > now + AHEAD_MS for one in workers):
        remedy = "compare the clocks of all hosts (NTP): claims and due times go by them"
        found.append(Finding(part="clock", ok=False, words="a worker was seen in the future", remedy=remedy))
    return found


async def _breakers(store: Store) -> list[Finding]:
    """What the running workers last told of their transports."""
    told = [row for each in await figures.published(store, now=wiring.clock()) for row in each["breakers"]]
    return [
        Finding(
            part=f"transport {row['transport']}",
            ok=True,
            words=f"its breaker is {row['state']}: {row['reason']}",
            remedy="e-mails are held meanwhile and no attempt counts; a probe closes it when the way is free",
        )
        for row in told
        if row["state"] != "closed"
    ]


async def _pauses(store: Store) -> list[Finding]:
    return [
        Finding(
            part="store",
            ok=True,
            words=f"sending is paused: {pause.scope} {pause.name}".rstrip(),
            remedy=f"`staffetta resume{_option(pause.scope, pause.name)}` when it may go on",
        )
        for pause in await store.pauses()
    ]


def _option(scope: str, name: str) -> str:
    return "" if scope == "all" else f" --{scope} {name}"


def _keys(valid: int, config: Config) -> Finding:
    """Without a key the API answers on loopback only, and `serve` refuses any other address."""
    listen = config.api.listen
    if valid:
        return Finding(part="keys", ok=True, words=f"{valid} valid; the API listens on {listen}")
    host, _ = settings.listen_address(listen)
    if host.startswith(LOOPBACK):
        told = f"none: the API answers everybody on this machine, at {listen}"
        return Finding(part="keys", ok=True, words=told)
    remedy = "`staffetta keys create --role operate --all-companies`, or listen on 127.0.0.1"
    told = f"none, and api.listen is {listen}: `serve` refuses to start"
    return Finding(part="keys", ok=False, words=told, remedy=remedy)


# ----------------------------------------------------------------------------------------------- the disk


async def _disk(config: Config) -> list[Finding]:
    written = {"spool": Path(config.spool.path)}
    if config.store.url.startswith("sqlite"):
        written["store"] = settings.sqlite_path(config.store.url).absolute().parent
    read = {"attachments": config.attachments.base_path, "payload files": config.intake.payload_base_path}
    return [
        *[await asyncio.to_thread(_written, name, path) for name, path in written.items()],
        *[await asyncio.to_thread(_read, name, Path(path)) for name, path in read.items() if path],
    ]


def _written(name: str, path: Path) -> Finding:
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    part = f"disk of {name}"
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"staffetta")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        told = f"{existing} cannot be written ({error.strerror})"
        return Finding(part=part, ok=False, words=told, remedy=f"let this user write {existing}")
    free = shutil.disk_usage(existing).free
    if free < FREE_BYTES_LEAST:
        told = f"{free >> 20} MiB free in {existing}"
        return Finding(part=part, ok=False, words=told, remedy="make room: without it nothing is accepted")
    return Finding(part=part, ok=True, words=f"{free >> 30} GiB free in {existing}")


def _read(name: str, path: Path) -> Finding:
    part = f"folder of {name}"
    if path.is_dir() and os.access(path, os.R_OK | os.X_OK):
        return Finding(part=part, ok=True, words=f"{path} can be read")
    remedy = f"make {path}, or let this user read it: what names files there is refused"
    return Finding(part=part, ok=False, words=f"{path} cannot be read", remedy=remedy)


# ----------------------------------------------------------------------------------------------- the others


async def _queue(config: Config) -> list[Finding]:
    if config.queue.url == "local":
        return [Finding(part="queue", ok=True, words="local: kept in the process that serves")]
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            told, faults, ahead_ms = await wiring.redis_room(config).examine(
                config.queue.url, clock=wiring.clock
            )
    except (QueueError, TimeoutError) as error:
        remedy = "see queue.url, and that Redis is up; meanwhile e-mails are accepted and wait in the store"
        return [Finding(part="queue", ok=False, words=str(error) or "Redis does not answer", remedy=remedy)]
    bound = f"{told.maxmemory >> 20} MiB" if told.maxmemory else "no bound"
    words_ = f"{told.product} {told.version} at {told.server}: {told.used_memory >> 20} MiB used of {bound}"
    found = [Finding(part="queue", ok=True, words=words_)]
    found += [Finding(part=f"queue {one.name}", ok=False, words=one.words, remedy=one.remedy) for one in faults]
    if abs(ahead_ms) > AHEAD_MS:
        remedy = "compare the clocks of all hosts (NTP): leases and due times go by them"
        words_ = f"the clock of Redis's host is {abs(ahead_ms) / 1_000:.0f} s {'ahead' if ahead_ms > 0 else 'behind'}"
        found.append(Finding(part="clock", ok=False, words=words_, remedy=remedy))
    return found


async def _transports(config: Config) -> list[Finding]:
    transports = wiring.transports_for(config)
    if not transports:
        remedy = "set STAFFETTA_TRANSPORT=smtp://host:25 (sink:// to try things out)"
        return [Finding(part="transport", ok=False, words="none is set", remedy=remedy)]
    return list(await asyncio.gather(*(_transport(one) for one in transports)))


async def _transport(one: Transport) -> Finding:
    """Connects, greets, signs in where credentials are given, and leaves."""
    await one.open()
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reply = await one.probe()
    except TimeoutError:
        told, well = f"no answer within {PROBE_SECONDS:.0f} s", False
    else:
        told, well = words(reply), 200 <= reply.code < 300
    finally:
        await one.close()
    remedy = "" if well else "see address, port, TLS and credentials in transport.url, and the way there"
    return Finding(part=f"transport {one.name}", ok=well, words=told, remedy=remedy)


async def _callback(config: Config) -> list[Finding]:
    if config.callback.url is None:
        return [Finding(part="callback", ok=True, words="none is set: SENT and FAILED are the end")]
    parts = urlsplit(config.callback.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
            writer.close()
    except (OSError, TimeoutError) as error:
        remedy = "see callback.url and the way there; outcomes are kept and told later"
        told = f"cannot be reached: {error or 'no answer'}"
        return [Finding(part="callback", ok=False, words=told, remedy=remedy)]
    if config.callback.secret is None:
        remedy = "set callback.secret (whsec_…), so that receivers can know our calls"
        return [Finding(part="callback", ok=True, words="reachable; calls are not signed", remedy=remedy)]
    return [Finding(part="callback", ok=True, words="reachable; calls are signed")]
