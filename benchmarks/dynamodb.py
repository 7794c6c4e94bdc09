"""What an e-mail costs on DynamoDB: requests, items, bytes and CPU for its whole journey, beside the least possible;
and whether asking for work costs the same with many finished e-mails as with few.

Real requests to DynamoDB Local (`make engines`), through `Traffic`, which counts them. Time is not measured: the
service beneath is not Amazon's. Bytes are those of the bodies; signatures and headers are some 700 more a request.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks import parts

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from contracts.letters import Letters, job_of  # the hands of the suite, so that it is the same journey
from contracts.stores import Ground, HandClock
from doubles.dynamodb_local import DynamoDBLocal, dynamodb_local
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import NewEmail, ReportClaim
from staffetta.store.dynamodb import DynamoStore, keys
from staffetta.store.dynamodb.counting import FAMILY
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.wire import Statement

EMAILS = 400
AT_ONCE = 32
TEXT = b"Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 36
PAYLOAD = b'{"body_html":"' + TEXT + b'"}'
MESSAGE = b"Subject: hello\r\n\r\n" + TEXT

LEAST: dict[str, tuple[int, int, int, str]] = {
    # call: (requests, items read, items written) that nobody could do with less, and why
    "hand-in": (1, 0, 6, "record, three statuses, content, recipient"),
    "claim": (2, 2, 2, "content must be read; status and record written"),
    "mark": (1, 0, 1, "before the dot, durably"),
    "outcome": (1, 0, 3, "record, status, attempt"),
    "report": (2, 2, 2, "asked for, record read; record and status written"),
    "acknowledge": (1, 0, 2, "record and status"),
}


class Hands:
    """One store, what it did last, and the clock that both stand under."""

    def __init__(self, store: DynamoStore) -> None:
        clock = HandClock()
        self.store = store
        self.post = Letters(store, Ground(store=lambda: store, beside=lambda: store, clock=clock))
        self.seen = (0, 0, 0, 0)

    def since(self) -> tuple[int, int, int, int]:
        traffic = self.store.traffic
        now = (traffic.requests, traffic.items_read, traffic.items_written, traffic.sent + traffic.received)
        before, self.seen = self.seen, now
        return now[0] - before[0], now[1] - before[1], now[2] - before[2], now[3] - before[3]


def new(hands: Hands) -> NewEmail:
    return hands.post.new(message=MESSAGE, payload=PAYLOAD)


async def warm(hands: Hands) -> None:
    """The numbers of the counts are made once a process, not once an e-mail."""
    await asyncio.gather(*(hands.store.add([new(hands)]) for _ in range(AT_ONCE)))


async def journey(local: DynamoDBLocal) -> None:
    place = local.place()
    store = DynamoStore(place)
    await store.migrate()
    await store.open()
    hands = Hands(store)
    post = hands.post
    await warm(hands)
    hands.since()
    rows: list[tuple[str, ...]] = []
    sums, least_sums = [0.0] * 4, [0, 0, 0]

    def told(call: str) -> None:
        figures = [figure / EMAILS for figure in hands.since()]
        least = LEAST[call]
        for place_, figure in enumerate(figures):
            sums[place_] += figure
        for place_, figure in enumerate(least[:3]):
            least_sums[place_] += figure
        shown = [f"{figure:.2f} ({least[n]})" for n, figure in enumerate(figures[:3])]
        rows.append((call, *shown, f"{figures[3]:,.0f}", str(least[3])))

    began = os.times()
    sent_at = began
    emails = [new(hands) for _ in range(EMAILS)]
    gate = asyncio.Semaphore(AT_ONCE)

    async def each(calls: Sequence[object]) -> list[object]:
        async def one(call: object) -> object:
            async with gate:
                return await call  # type: ignore[misc]  # each is a coroutine of the store

        return list(await asyncio.gather(*map(one, calls)))

    await each([store.add([one]) for one in emails])
    told("hand-in")
    claims = await each([store.claim(job_of(one.id), token=post.token(), now=post.now) for one in emails])
    told("claim")
    await each([post.commit(claim) for claim in claims])  # type: ignore[arg-type]  # every one was claimed
    told("mark")
    await each([store.apply(post.delivered(claim, callback_due=True)) for claim in claims])  # type: ignore[arg-type]  # as above
    told("outcome")
    sent_at = os.times()
    calling: list[ReportClaim] = []
    while len(calling) < EMAILS:
        calling += await store.claim_reports(tokens=post.tokens(100), now=post.now)
    told("report")
    await each([store.apply(post.move(one, Status.SENT_ACKNOWLEDGED, Cause.ACKNOWLEDGED)) for one in calling])
    told("acknowledge")
    ended = os.times()
    total = [f"{sums[n]:.2f} ({least_sums[n]})" for n in range(3)]
    rows.append(
        ("all", *total, f"{sums[3]:,.0f}", f"least bytes: content thrice, {2 * len(MESSAGE) + len(PAYLOAD):,}")
    )
    header = ("call", "requests (least)", "items read (least)", "items written (least)", "bytes", "the least")
    parts.table(f"DynamoDB: one e-mail's journey, mean of {EMAILS}", header, rows)
    for name, until in (("to SENT", sent_at), ("to SENT-ACKNOWLEDGED", ended)):
        own, kernel = (1_000 * (until[n] - began[n]) / EMAILS for n in (0, 1))
        print(
            f"client CPU {name}: {own:.2f} ms of its own and {kernel:.2f} ms in the kernel an e-mail (wanted: 2)"
        )
    await store.close()
    await local.drop(place)


# ------------------------------------------------------------------------------------------------ flat


async def finish(hands: Hands, count: int, first: int) -> None:
    """Records of e-mails that were sent long ago, some thirty a transaction."""
    store = hands.store

    def records(number: int) -> list[Statement]:
        made = hands.post.new(number=number, ago=1_000_000, company_id=f"company-{number % 100}")
        row = Row.of(made)
        row.status = row.ours = Status.SENT
        row.attempts = row.opened = 1
        meta = {"Attributes": row.attributes(), **row.root()}
        listed = {"Listed": keys.listing(keys.EVERY, row.id), "ListedAt": keys.listed_at(row.created_at, row.id),
                  "Company": keys.listing(row.company_id, row.id), "Attributes": {"Cause": "accepted"}}  # fmt: skip
        return [store.ledger.insert(row, keys.META, meta), store.ledger.insert(row, "ACCEPTED", listed)]

    gate = asyncio.Semaphore(8)

    async def some(numbers: range) -> None:
        async with gate:
            await store.wire.transact([one for number in numbers for one in records(number)])

    await asyncio.gather(
        *(some(range(start, min(start + 49, first + count))) for start in range(first, first + count, 49))
    )


async def asked(hands: Hands) -> list[tuple[str, tuple[int, int, int, int]]]:
    """What every question for work costs now."""
    store, now = hands.store, hands.post.now
    questions = {
        "companies": lambda: store.waiting_companies(now=now),
        "one company's line": lambda: store.waiting("acme", now=now, limit=500),
        "news": lambda: store.news(now=now, limit=500),
        "next due": lambda: store.next_due(now=now),
        "claim for intake": lambda: store.claim_intake(tokens=hands.post.tokens(10), now=now),
        "claim to report": lambda: store.claim_reports(tokens=hands.post.tokens(10), now=now),
        "stuck": lambda: store.stuck(now=now, dead_after_ms=60_000, timeout_ms=1_800_000),
        "expired": lambda: store.expired(now=now, limit=500),
        "counts": store.counts,
        "queue counts": lambda: store.queue_counts(now=now),
    }
    found = []
    for name, question in questions.items():
        hands.since()
        await question()  # type: ignore[no-untyped-call]  # each is a call of the store
        found.append((name, hands.since()))
    return found


async def flat(local: DynamoDBLocal, few: int, many: int) -> float:
    """The greatest ratio of what a question costs with many finished e-mails to what it costs with few."""
    place = local.place()
    store = DynamoStore(place)
    await store.migrate()
    await store.open()
    hands = Hands(store)
    await hands.post.add(*(hands.post.new(company_id="acme") for _ in range(50)))
    await finish(hands, few, 100_000)
    small = await asked(hands)
    await finish(hands, many - few, 200_000)
    large = await asked(hands)
    worst = 0.0
    rows = []
    for (name, before), (_, after) in zip(small, large, strict=True):
        ratio = max(a / b for a, b in zip(after[:2], before[:2], strict=True) if b) if any(before[:2]) else 1.0
        worst = max(worst, ratio)
        rows.append((name, *(f"{b} → {a}" for b, a in zip(before[:2], after[:2], strict=True)), f"{ratio:.2f}"))
    parts.table(
        f"DynamoDB: asking for work with {few:,} and {many:,} finished",
        ("question", "requests", "items", "ratio"),
        rows,
    )
    await store.close()
    await local.drop(place)
    return worst


def measure(few: int = 1_000, many: int = 20_000) -> None:
    with dynamodb_local() as local:
        uvloop.run(journey(local))
        worst = uvloop.run(flat(local, few, many))
    print(f"greatest ratio {worst:.2f} (wanted: at most 1.20); counts are kept in {FAMILY} items")


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--few", type=int, default=1_000)
    reader.add_argument("--many", type=int, default=20_000)
    given = reader.parse_args()
    measure(given.few, given.many)
