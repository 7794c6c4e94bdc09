"""Looks at everything that must be right, and names the remedy for what is not."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from staffetta import config as settings
from staffetta.app import wiring
from staffetta.config import Config
from staffetta.errors import StaffettaError
from staffetta.mail.attempt import words
from staffetta.mail.message import Value

PROBE_SECONDS = 15.0
FREE_BYTES_LEAST = 1 << 30
BUILT_AT_MS = 1_767_225_600_000
"""A clock before 2026 is wrong."""


class Finding(Value, frozen=True, kw_only=True):
    """How one part is; the remedy where it is not well."""

    part: str
    ok: bool
    words: str
    remedy: str = ""


async def examine(config: Config) -> list[Finding]:
    """Every part's finding, in the order in which an e-mail meets them. Nothing is sent and nothing changed."""
    checks: list[tuple[str, Callable[[Config], Awaitable[list[Finding]]]]] = [
        ("clock", _clock),
        ("store", _store),
        ("disk", _disk),
        ("transport", _transports),
        ("callback", _callback),
    ]
    findings = [
        Finding(part="settings", ok=True, words=f"read; {len(config.sources)} differ from the defaults")
    ]
    for part, check in checks:
        try:
            findings += await check(config)
        except StaffettaError as error:
            findings.append(
                Finding(part=part, ok=False, words=str(error), remedy=f"see the settings of {part}")
            )
    return findings


async def _clock(config: Config) -> list[Finding]:
    del config
    if wiring.clock() < BUILT_AT_MS:
        remedy = "set the clock (NTP): due times, expiry and signatures depend on it"
        return [Finding(part="clock", ok=False, words="the clock is years behind", remedy=remedy)]
    return [Finding(part="clock", ok=True, words="plausible")]


async def _store(config: Config) -> list[Finding]:
    async with wiring.opened_store(config, owner=False) as store:
        counts = await store.counts()
        living = [
            one for one in await store.workers() if wiring.clock() - one.seen_at < config.worker.dead_after_ms
        ]
        pauses = await store.pauses()
    found = [
        Finding(part="store", ok=True, words=f"{sum(counts.values())} e-mails, {len(living)} workers alive")
    ]
    for pause in pauses:
        what = f"{pause.scope} {pause.name}".strip()
        found.append(
            Finding(part="store", ok=False, words=f"sending is paused: {what}", remedy="staffetta resume")
        )
    return found


async def _disk(config: Config) -> list[Finding]:
    folders = {"spool": Path(config.spool.path)}
    if config.store.url.startswith("sqlite"):
        folders["store"] = settings.sqlite_path(config.store.url).absolute().parent
    return [await asyncio.to_thread(_folder, name, path) for name, path in folders.items()]


def _folder(name: str, path: Path) -> Finding:
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


async def _transports(config: Config) -> list[Finding]:
    transports = wiring.transports_for(config)
    if not transports:
        remedy = "set STAFFETTA_TRANSPORT=smtp://host:25 (sink:// to try things out)"
        return [Finding(part="transport", ok=False, words="none is set", remedy=remedy)]
    found = []
    for transport in transports:
        await transport.open()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                reply = await transport.probe()
        except TimeoutError:
            told, well = f"no answer within {PROBE_SECONDS:.0f} s", False
        else:
            told, well = words(reply), 200 <= reply.code < 300
        finally:
            await transport.close()
        remedy = "" if well else "see address, port, TLS and credentials in transport.url, and the way there"
        found.append(Finding(part=f"transport {transport.name}", ok=well, words=told, remedy=remedy))
    return found


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
        return [Finding(part="callback", ok=False, words=f"cannot be reached: {error}", remedy=remedy)]
    if config.callback.secret is None:
        remedy = "set callback.secret (whsec_…), so that receivers can know our calls"
        return [Finding(part="callback", ok=False, words="reachable; calls are not signed", remedy=remedy)]
    return [Finding(part="callback", ok=True, words="reachable; calls are signed")]
