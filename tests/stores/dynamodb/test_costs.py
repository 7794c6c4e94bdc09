"""What DynamoDB is asked for is paid for: counted, and the same however much is finished."""

from __future__ import annotations

import random

import msgspec
import pytest

from contracts.letters import MINUTE, NEVER
from staffetta.mail.lifecycle import Cause, Status
from stores.dynamodb.conftest import Bench

pytestmark = pytest.mark.service


async def asked(bench: Bench) -> list[tuple[int, int]]:
    """Requests and items of every question for work."""
    store, now, costs = bench.store, bench.post.now, []
    for question in (
        store.waiting_companies(now=now),
        store.waiting("acme", now=now, limit=50),
        store.news(now=now, limit=50),
        store.next_due(now=now),
        store.claim_intake(tokens=["w1.a"], now=now),
        store.claim_reports(tokens=["w1.b"], now=now),
        store.stuck(now=now, dead_after_ms=MINUTE, timeout_ms=30 * MINUTE),
        store.expired(now=now, limit=50),
        store.counts(),
        store.queue_counts(now=now),
        store.heartbeat(bench.post.worker("w1")),
    ):
        before = (store.traffic.requests, store.traffic.items_read)
        await question
        costs.append((store.traffic.requests - before[0], store.traffic.items_read - before[1]))
    return costs


async def test_asking_for_work_costs_the_same_with_few_finished_and_with_many(bench: Bench) -> None:
    await bench.post.add(*(bench.post.new() for _ in range(5)))
    await bench.store.heartbeat(bench.post.worker("w1"))
    for _ in range(3):
        await bench.post.sent()
    await asked(bench)
    few = await asked(bench)

    for _ in range(60):
        await bench.post.sent()

    assert few == await asked(bench)


async def test_an_email_takes_eight_requests_from_hand_in_to_acknowledgement(bench: Bench) -> None:
    """One writes each step; two read what is to be sent and told; one asks what there is to tell, for many at once."""
    post, store = bench.post, bench.store
    await post.sent(callback_due=True)  # the counts are made once a process
    await post.calling()
    before = store.traffic.requests

    claim = await post.claim(await post.ready())
    await post.commit(claim)
    await store.apply(post.delivered(claim, callback_due=True))
    assert store.traffic.requests - before == 5

    before, parts_of_the_index = store.traffic.requests, 4
    calling = await post.calling()
    await store.apply(post.move(calling, Status.SENT_ACKNOWLEDGED, Cause.ACKNOWLEDGED))
    assert store.traffic.requests - before == parts_of_the_index + 3
    assert await post.status(claim.id) is Status.SENT_ACKNOWLEDGED


async def test_a_whole_email_of_the_largest_size_fits_its_items(bench: Bench) -> None:
    """Payload and message of 256 KiB each: together they would be more than an item holds."""
    payload, message = b"p" * 262_144, b"m" * 262_144
    id = await bench.post.ready(
        payload=payload, message=message, recipients=[f"{n}@example.com" for n in range(50)]
    )

    claim = await bench.post.claim(id)
    content = await bench.store.content(id)

    assert claim.message == message
    assert content is not None
    assert (content.payload, content.message) == (payload, message)


async def test_the_words_of_fifty_long_replies_fit_too(bench: Bench) -> None:
    id = await bench.post.ready(recipients=[f"{n}@example.com" for n in range(50)])
    claim = await bench.post.claim(id)
    chance = random.Random(7)
    texts = ["".join(chr(chance.randrange(0x3041, 0x9FFF)) for _ in range(20_000)) for _ in range(50)]
    long = [msgspec.structs.replace(NEVER, text=text) for text in texts]
    move = bench.post.refused(claim)
    attempt = bench.post.closed(claim, *long)
    reason = texts[0] * 3

    await bench.store.apply(msgspec.structs.replace(move, attempt=attempt, reason=reason))

    (kept,) = await bench.store.attempts(id)
    assert len(kept.replies) == 50
    assert all(one.reply.text.startswith(texts[n][:900]) for n, one in enumerate(kept.replies))
    assert (await bench.post.email(id)).reason.startswith(texts[0])
