"""What a network and a busy service do to a store: nothing is lost, no move is made twice, the waits are the seed's."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from contracts.letters import job_of
from doubles.dynamodb_proxy import LOST_AFTER, LOST_BEFORE, Fault, Request
from staffetta.errors import LockNotAcquired, StoreUnavailable, StoreUnusable
from staffetta.mail.lifecycle import Cause, Status
from staffetta.store.dynamodb.wire import Refused
from stores.dynamodb.conftest import Bench

pytestmark = pytest.mark.service

T = TypeVar("T")
PATH = ["ACCEPTED", "INTAKING", "READY", "PROCESSING", "SENT"]
PASSING = (
    "ProvisionedThroughputExceededException", "InternalServerError", "ResourceInUseException",
    "RequestLimitExceeded", "TransactionInProgressException", "ThrottlingException", "Throttling",
    "ServiceUnavailable",
)  # fmt: skip
REASONS_THAT_PASS = ("TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError")
LASTING = ("ItemCollectionSizeLimitExceeded", "ValidationError", "AccessDenied", "DuplicateItem")


def cancelled(*reasons: str) -> Fault:
    return Fault("TransactionCanceledException", reasons)


def is_move(request: Request) -> bool:
    return request.operation == "ExecuteTransaction"


async def statuses(bench: Bench, id: str) -> list[str]:
    return [str(entry.status) for entry in await bench.store.history(id)]


# ------------------------------------------------------------------------------------------------ what passes


@pytest.mark.parametrize("code", PASSING)
async def test_what_passes_by_itself_is_tried_again(bench: Bench, code: str) -> None:
    id = await bench.post.ready()
    bench.proxy.script(Fault(code), Fault(code), of=is_move)

    claim = await bench.post.claim(id)

    assert claim.attempt == 1
    assert len(bench.waits) == 2
    assert await statuses(bench, id) == PATH[:4]


@pytest.mark.parametrize("reason", REASONS_THAT_PASS)
async def test_a_transaction_cancelled_for_what_passes_is_tried_again(bench: Bench, reason: str) -> None:
    id = await bench.post.ready()
    bench.proxy.script(cancelled("None", reason), cancelled(reason, "None", reason), of=is_move)

    await bench.post.claim(id)

    assert await statuses(bench, id) == PATH[:4]


@pytest.mark.parametrize("beside", ["None", "DuplicateItem", "ValidationError", *REASONS_THAT_PASS])
async def test_a_lost_condition_is_another_workers_win_whatever_stands_beside_it(
    bench: Bench, beside: str
) -> None:
    """A duplicate history key comes along; tried again, it could only lose again."""
    claim = await bench.post.claim(await bench.post.ready())
    bench.proxy.script(*[cancelled("ConditionalCheckFailed", beside)] * 4, of=is_move)

    with pytest.raises(LockNotAcquired):
        await bench.store.apply(bench.post.delivered(claim))

    assert bench.waits == []
    assert await statuses(bench, claim.id) == PATH[:4]


@pytest.mark.parametrize("reason", LASTING)
async def test_a_transaction_cancelled_for_what_lasts_is_not_tried_again(bench: Bench, reason: str) -> None:
    claim = await bench.post.claim(await bench.post.ready())
    bench.proxy.script(*[cancelled(reason, "None")] * 20, of=is_move)

    with pytest.raises((StoreUnusable, StoreUnavailable)):
        await bench.store.apply(bench.post.delivered(claim))

    assert bench.waits == []
    bench.proxy.script()
    assert await bench.post.status(claim.id) is Status.PROCESSING


async def test_after_eight_tries_the_last_error_is_told_with_its_cause(bench: Bench) -> None:
    id = await bench.post.ready()
    bench.proxy.script(*[Fault("ThrottlingException")] * 20)

    with pytest.raises(StoreUnavailable) as told:
        await bench.store.get(id)

    assert len(bench.proxy.seen) == 8
    assert isinstance(told.value.__cause__, Refused)
    most = [0.030, 0.060, 0.120, 0.240, 0.480, 0.960, 1.0]
    assert len(bench.waits) == len(most)
    assert all(0 <= wait <= limit for wait, limit in zip(bench.waits, most, strict=True))


async def test_a_cancellation_ends_the_wait_at_once(bench: Bench) -> None:
    bench.proxy.script(*[Fault("ThrottlingException")] * 20)
    waiting = asyncio.Event()

    async def forever(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    bench.store.wire._pause = forever
    asked = asyncio.create_task(bench.store.get("unknown"))
    await waiting.wait()
    asked.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asked
    assert len(bench.proxy.seen) == 1


# ------------------------------------------------------------------------------------------------ lost answers


@pytest.mark.parametrize("fault", [LOST_BEFORE, LOST_AFTER], ids=["before", "after"])
async def test_an_answer_lost_on_the_way_makes_nothing_twice(bench: Bench, fault: Fault) -> None:
    """The same request goes again, byte by byte, under the same token: DynamoDB knows it."""
    post, store = bench.post, bench.store
    bench.proxy.script(fault, fault, of=is_move)
    id = await post.ready()
    bench.proxy.script(fault, of=is_move)
    claim = await post.claim(id)
    bench.proxy.script(fault, of=lambda request: request.is_write)
    await post.commit(claim)
    bench.proxy.script(fault, of=is_move)
    await store.apply(post.delivered(claim))

    first, second = [request for request in bench.proxy.seen if is_move(request)]
    assert first.body == second.body
    assert first.token == second.token
    assert await statuses(bench, id) == PATH
    assert (await store.counts())[Status.SENT] == 1
    assert sum((await store.counts()).values()) == 1
    assert len(await store.attempts(id)) == 1


async def test_two_moves_never_share_a_token(bench: Bench) -> None:
    for _ in range(3):
        await bench.store.apply(bench.post.delivered(await bench.post.claim(await bench.post.ready())))

    tokens = [request.token for request in bench.proxy.seen if is_move(request)]
    assert len(tokens) == len(set(tokens))


async def test_a_claim_asked_for_again_after_everything_was_lost_is_the_same_one(bench: Bench) -> None:
    """The flow insists longer than one call does: its next call carries another token, and its own claim."""
    id = await bench.post.ready()
    bench.proxy.script(*[LOST_AFTER] * 8, of=is_move)
    with pytest.raises(StoreUnavailable):
        await bench.store.claim(job_of(id), token="w1.7", now=bench.post.now)
    bench.proxy.script()

    claim = await bench.store.claim(job_of(id), token="w1.7", now=bench.post.now)

    assert claim is not None
    assert claim.token == "w1.7"
    assert await statuses(bench, id) == PATH[:4]


async def test_a_move_made_again_after_everything_was_lost_was_ones_own(bench: Bench) -> None:
    claim = await bench.post.claim(await bench.post.ready())
    move = bench.post.delivered(claim)
    bench.proxy.script(*[LOST_AFTER] * 8, of=is_move)
    with pytest.raises(StoreUnavailable):
        await bench.store.apply(move)
    bench.proxy.script()

    await bench.store.apply(move)

    assert await statuses(bench, claim.id) == PATH


# ------------------------------------------------------------------------------------------------ many at once


async def ordeal(bench: Bench, emails: int, faults_least: int, seed: int) -> None:
    """E-mails live their lives while a good share of all requests fails in every way, until enough have."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    store, post = bench.store, bench.post
    kinds = [
        LOST_BEFORE, LOST_AFTER, Fault("InternalServerError", status=500), *map(Fault, PASSING),
        *(cancelled("None", reason) for reason in REASONS_THAT_PASS),
        *(Fault(code, done=True) for code in ("ServiceUnavailable", "InternalServerError")),
    ]  # fmt: skip
    burst = 0

    def fate(request: Request) -> Fault | None:
        nonlocal burst
        if burst == 0 and chance.random() < 0.02:
            burst = chance.randrange(1, 12)  # throttling comes in bursts
        if burst:
            burst -= 1
            return Fault("ThrottlingException")
        if chance.random() > 0.35:
            return None
        fault = chance.choice(kinds)
        return fault if not fault.reasons or is_move(request) else Fault("ThrottlingException")

    async def insist(call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except StoreUnavailable:
                continue

    async def live(number: int) -> tuple[str, str]:
        new = post.new()
        (added,) = await insist(lambda: store.add([new]))
        assert not isinstance(added, Exception), added
        token = f"w1.{number}"
        claim = await insist(lambda: store.claim(job_of(new.id), token=token, now=post.now))
        assert claim is not None, new.id
        held = claim
        await insist(lambda: post.commit(held))
        if number % 3 == 0:
            move = post.deferred(claim)
            await insist(lambda: store.apply(move))
            claim = await insist(lambda: store.claim(job_of(new.id), token=f"{token}b", now=post.now))
            assert claim is not None
        move = post.refused(claim) if number % 5 == 0 else post.delivered(claim)
        await insist(lambda: store.apply(move))
        return new.id, str(move.target)

    bench.proxy.fate = fate
    lived: list[tuple[str, str]] = []
    while bench.proxy.faults < faults_least:
        lived += await asyncio.gather(*(live(len(lived) + number) for number in range(emails)))
        bench.proxy.seen.clear()
    bench.proxy.fate = lambda _: None

    counts = await store.counts()
    assert counts[Status.SENT] == sum(target == "SENT" for _, target in lived)
    assert counts[Status.FAILED] == sum(target == "FAILED" for _, target in lived)
    assert sum(counts.values()) == len(lived)
    for number, (id, target) in enumerate(lived):
        again = ["READY", "PROCESSING"] if number % 3 == 0 else []
        assert await statuses(bench, id) == [*PATH[:4], *again, target], f"seed {seed}"
        assert len(await store.attempts(id)) == (2 if again else 1)
    assert (await store.dead_letter_counts()).size == counts[Status.FAILED]
    assert all(0 <= wait <= 1 for wait in bench.waits)
    print(f"{len(lived)} e-mails, {bench.proxy.faults} faults, {store.traffic.retries} requests run again")


async def test_four_hundred_faults_lose_nothing_and_double_nothing(bench: Bench) -> None:
    await ordeal(bench, 20, 400, int(os.environ.get("STAFFETTA_SEED", "20261119")))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
async def test_five_thousand_faults_lose_nothing_and_double_nothing(bench: Bench) -> None:
    await ordeal(bench, 40, 5_000, random.SystemRandom().randrange(2**32))


# ------------------------------------------------------------------------------------------------ what others do


async def test_a_restorer_that_looked_before_the_mark_does_not_send_it_again(bench: Bench) -> None:
    """Restore read an e-mail as unmarked; before its move the worker's mark came: now it may be out."""
    post, store = bench.post, bench.store
    claim = await post.claim(await post.ready())
    (found,) = await store.stuck(now=post.now, dead_after_ms=None, timeout_ms=1)
    unmarked = post.closed(claim, counted=False)
    await post.commit(claim)

    with pytest.raises(LockNotAcquired):
        await store.apply(
            post.move(found.claim, Status.READY, Cause.RESTORED, due_at=post.now, attempt=unmarked)
        )

    assert await post.status(claim.id) is Status.PROCESSING
