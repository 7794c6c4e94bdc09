"""How soon do the dashboard's pages answer while the store holds a million e-mails?

Most are sent and acknowledged, as after months; 1 in 100 waits, 1 in 100 is delayed, 1 in 100 is a dead letter, a few
are in each other status. Every page is asked by HTTP, cold once and then again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import itertools
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from benchmarks import parts
from staffetta.app import wiring
from staffetta.app.engine import engine
from staffetta.app.running import answering
from staffetta.config import Config, sections
from staffetta.mail import attempt, backoff, identity, verdict
from staffetta.mail.attempt import Rules
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import (
    NO_OPTIONS,
    Claim,
    Delivery,
    HistoryEntry,
    Job,
    NewEmail,
    RecipientReply,
    Reply,
    ReportClaim,
    Transition,
)
from staffetta.mail.operators import Pause
from staffetta.mail.rulebook import RuleBook
from staffetta.store.contract import Store

PASSED = ((Status.ACCEPTED, Cause.ACCEPTED), (Status.INTAKING, Cause.CLAIMED), (Status.READY, Cause.COMPOSED))
CHUNK = 4_000
ACCEPTED = 5
"""The oldest few were never taken in: few and old is what an index must find."""
SENT_FOR_GOOD = 50_000
"""One in so many has no owner to be told: SENT is its end, among all the acknowledged."""
AT_ONCE = 2_000
SPREAD_MS = 30 * 86_400_000
"""The e-mails came over the last month."""
ALLOWED_MS = 100.0
TIMES = 15
MIX = 2_654_435_761
"""Spreads numbers over companies as if by chance."""
TAKEN = Reply(stage="dot", code=250, text="2.0.0 Ok", committed=True)
REFUSED = Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 No such user here")
MESSAGE = b"From: us@example.com\r\nSubject: One of many\r\n\r\nhello\r\n"


class Filler:
    """Walks e-mails through their lives by the moves that the engine makes."""

    def __init__(self, store: Store, count: int) -> None:
        self.store = store
        self.count = count
        self.now = wiring.clock()
        self.rules: Rules = RuleBook(
            policy=backoff.POLICIES["gateway"], callback_url="http://127.0.0.1:9/"
        ).rules_for("x", NO_OPTIONS)
        self.tokens = (f"filler.{number}" for number in itertools.count())

    async def fill(self) -> None:
        for start in range(0, self.count, CHUNK):
            numbers = range(start, min(start + CHUNK, self.count))
            emails = [self._email(number) for number in numbers]
            await self.store.add(emails)
            ending = [(n, e) for n, e in zip(numbers, emails, strict=True) if n % 100 > 1 and n > ACCEPTED]
            for some in _batched(ending):
                await asyncio.gather(*(self._end(number, email) for number, email in some))
            if numbers.stop < self.count:
                await self._acknowledge()
            print(f"\r{numbers.stop:,}", end="", file=sys.stderr, flush=True)

    def _email(self, number: int) -> NewEmail:
        at = self.now - SPREAD_MS + SPREAD_MS * number // self.count
        return NewEmail(
            id=identity.uuid7(at, number.to_bytes(10)),
            company_id=f"company-{(number * MIX >> 12) % parts.COMPANIES:03d}",
            history=tuple(
                HistoryEntry(status=status, cause=cause, reason="", at=at)
                for status, cause in PASSED[: 1 if number <= ACCEPTED else None]
            ),
            created_at=at,
            due_at=self.now + 7_200_000 if number % 100 == 1 else at,
            expires_at=self.now + 86_400_000,
            sender="us@example.com",
            recipients=(f"user{number}@example.org",),
            payload=b"{}",
            message=MESSAGE,
        )

    async def _end(self, number: int, email: NewEmail) -> None:
        job = Job(id=email.id, company_id=email.company_id, priority=5, due_at=email.due_at)
        at = email.created_at
        claim = await self.store.claim(job, token=next(self.tokens), now=at)
        assert isinstance(claim, Claim), "it is READY and due"
        reply = REFUSED if number % 100 == 2 else TAKEN
        delivery = Delivery(
            transport="relay",
            replies=(RecipientReply(address=email.recipients[0], reply=reply),),
            committed=reply is TAKEN,
        )
        told = number % SENT_FOR_GOOD != 7
        rules = self.rules if told else msgspec.structs.replace(self.rules, callback_due=False)
        move = attempt.after_attempt(
            claim, delivery, [verdict.judge(reply)], rules, now=at, draw=0.5,
            committed_at=at if reply is TAKEN else 0,
        )  # fmt: skip
        await self.store.apply(move)

    async def _acknowledge(self) -> None:
        while True:
            tokens = [next(self.tokens) for _ in range(AT_ONCE)]
            claims = await self.store.claim_reports(tokens=tokens, now=self.now)
            if len(claims) < AT_ONCE // 4:
                await self.store.apply_all([self._move(claim, back=True) for claim in claims])
                return
            await self.store.apply_all([self._move(claim) for claim in claims])

    def _move(self, claim: ReportClaim, *, back: bool = False) -> Transition:
        sent = claim.status is Status.CALLING_SENT_CALLBACK
        ended = Status.SENT if sent else Status.FAILED
        told = Status.SENT_ACKNOWLEDGED if sent else Status.FAILED_ACKNOWLEDGED
        return Transition(
            id=claim.id, ref=claim.ref, source=claim.status, target=ended if back else told, token=claim.token,
            cause=Cause.RESTORED if back else Cause.ACKNOWLEDGED, at=self.now,
        )  # fmt: skip


def _batched(pairs: list[tuple[int, NewEmail]]) -> list[list[tuple[int, NewEmail]]]:
    return [pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE)]


async def pages(url: str, session: aiohttp.ClientSession, count: int) -> list[tuple[str, str]]:
    """What is asked: (name, address)."""
    middle, early = count // 2 + 7, count // 10 + 7
    now = wiring.clock()
    since = time.strftime("%Y-%m-%dT%H:%M", time.gmtime((now - SPREAD_MS // 2) / 1000))
    until = time.strftime("%Y-%m-%dT%H:%M", time.gmtime((now - SPREAD_MS // 2 + 3_600_000) / 1000))
    deep = "/emails"
    for _ in range(10):
        async with session.get(url + deep) as answer:
            older = re.search(r'href="([^"]+)" rel="next"', await answer.text())
        assert older, "there is more"
        deep = html.unescape(older[1])
    async with session.get(f"{url}/emails?q=user{middle}@example.org") as answer:
        story = re.search(r'href="(/emails/[0-9a-f-]{36})"', await answer.text())
    assert story, "the one in the middle is found"
    found = [
        ("overview", "/"),
        ("overview, 1 hour", "/?span=1h"),
        ("e-mails", "/emails"),
        ("e-mails, ten pages on", deep),
        *((f"e-mails, {status}", f"/emails?status={status}") for status in Status),
        ("e-mails of a company", "/emails?company_id=company-042"),
        *(
            (f"e-mails of a company, {status}", f"/emails?company_id=company-042&status={status}")
            for status in (Status.READY, Status.SENT, Status.SENT_ACKNOWLEDGED, Status.FAILED_ACKNOWLEDGED)
        ),
        ("e-mails of an unknown company", "/emails?company_id=nobody"),
        ("e-mails to a recipient", f"/emails?q=user{early}@example.org"),
        ("e-mails of an hour in between", f"/emails?since={since}&until={until}"),
        ("e-mails of that hour, FAILED", f"/emails?since={since}&until={until}&status=FAILED"),
        ("one e-mail's story", story[1]),
        ("its message", f"{story[1]}/body"),
        ("dead letters", "/dead-letters"),
        ("dead letters, one code", "/dead-letters?code=550"),
        ("dead letters, one company", "/dead-letters?company_id=company-042"),
        ("dead letters, an unknown code", "/dead-letters?code=999"),
        ("companies", "/companies"),
        ("transports", "/transports"),
        ("alerts", "/alerts"),
        ("settings", "/settings"),
    ]
    return [(name, url + path) for name, path in found]


async def ask(config: Config, count: int) -> list[tuple[str, float, float, float, int]]:
    """Name, first, median and longest time in milliseconds, bytes."""
    rows = []
    async with (
        engine(config, stages={"deliver"}) as running,
        answering(running) as served,
        aiohttp.ClientSession() as session,
    ):
        for name, address in await pages(served.url, session, count):
            times = []
            for _ in range(TIMES):
                started = time.perf_counter()
                async with session.get(address) as answer:
                    body = await answer.read()
                    assert answer.status == 200, (address, answer.status, body[:200])
                times.append((time.perf_counter() - started) * 1_000)
            rows.append((name, times[0], statistics.median(times[1:]), max(times[1:]), len(body)))
    return rows


async def fill(config: Config, count: int) -> None:
    store = wiring.store_for(config, owner=True)
    if not config.store.url.startswith("sqlite"):
        await store.migrate()
    await store.open()
    await Filler(store, count).fill()
    # The engine that answers sends nothing meanwhile: the pages are measured, not the sending.
    await store.pause(Pause(scope="all", name="", since=wiring.clock()))
    await store.close()


def measure(count: int = 1_000_000, store: str | None = None, kept: Path | None = None) -> None:
    with parts.folder() as made:
        folder = kept or made
        config = msgspec.structs.replace(parts.settings(folder, port=1), api=sections.Api(listen="127.0.0.1:0"))
        if store:
            config = msgspec.structs.replace(config, store=sections.Store(url=store))
        if not (folder / "outbox.db").exists() or store:
            started = time.monotonic()
            uvloop.run(fill(config, count))
            print(f"\rfilled in {time.monotonic() - started:.0f} s", file=sys.stderr)
        rows = uvloop.run(ask(config, count))
    slow = [name for name, _, median, _, _ in rows if median > ALLOWED_MS]
    shown = [(name, f"{a:.1f}", f"{b:.1f}", f"{c:.1f}", f"{size / 1024:.0f}") for name, a, b, c, size in rows]
    parts.table(
        f"Pages at {count:,} e-mails ({config.store.url.partition(':')[0]})",
        ("page", "first, ms", "median, ms", "longest, ms", "KiB"),
        shown,
    )
    print(f"Over {ALLOWED_MS:.0f} ms at the median: {', '.join(slow) or 'none'}")


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    reader.add_argument("--count", type=int, default=1_000_000)
    reader.add_argument("--store", help="another store's URL; it must be empty")
    reader.add_argument("--folder", type=Path, help="keep the filled outbox here, and use it again")
    given = reader.parse_args(arguments)
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    measure(given.count, given.store, given.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
