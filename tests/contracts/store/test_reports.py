"""Owners are told: each outcome claimed once, oldest first, let go of when nobody listens, brought round by age."""

from __future__ import annotations

import asyncio

import pytest

from contracts.letters import DAY, HOUR, MINUTE, NEVER, OK, SECOND, Letters
from contracts.stores import Ground
from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Options, RecipientState, ReportClaim

S, C = Status, Cause


async def take(post: Letters, count: int = 10, worker: str = "w1") -> list[ReportClaim]:
    return await post.store.claim_reports(tokens=post.tokens(count, worker), now=post.now)


async def test_outcomes_with_an_owner_are_taken_oldest_first(post: Letters) -> None:
    young, old, middle = [await post.sent(callback_due=True, ago=ago) for ago in (MINUTE, HOUR, 30 * MINUTE)]

    assert [claim.id for claim in await take(post, 2)] == [old, middle]
    assert [claim.id for claim in await take(post, 2)] == [young]
    assert await take(post) == []


async def test_an_outcome_that_nobody_waits_for_is_not_taken(post: Letters) -> None:
    await post.sent(callback_due=False)
    await post.failed(callback_due=False)
    await post.ready()

    assert await take(post) == []


@pytest.mark.parametrize(
    ("ending", "status"), [("sent", S.CALLING_SENT_CALLBACK), ("failed", S.CALLING_FAILED_CALLBACK)]
)
async def test_a_claim_of_a_report_tells_the_outcome(post: Letters, ending: str, status: Status) -> None:
    options = Options(callback_url="https://example.com/told")
    id = await getattr(post, ending)(callback_due=True, ago=HOUR, options=options)
    outcome = await post.email(id)

    claim = await post.calling()

    assert (claim.id, claim.status, claim.company_id) == (id, status, "acme")
    assert (claim.reason, claim.reached_at, claim.sequence) == (outcome.reason, outcome.reached_at, 1)
    assert (claim.options, claim.batch) == (options, None)
    found = await post.email(id)
    assert (found.status, found.token) == (status, claim.token)
    assert (await post.store.history(id))[-1].cause is C.REPORTING


async def test_a_first_claim_is_told_from_a_repeated_one(post: Letters) -> None:
    await post.sent(callback_due=True, ago=HOUR)
    first = await post.calling()
    await post.store.apply(post.move(first, S.SENT, C.RESTORED))

    again = await post.calling()

    assert first.updated_at == first.reached_at
    assert again.updated_at > again.reached_at


async def test_the_recipients_that_did_not_get_it_are_named(post: Letters) -> None:
    id = await post.ready(recipients=["a@example.com", "b@example.com", "c@example.com"])
    claim = await post.claim(id)
    settled = (
        RecipientState(address="a@example.com", state="accepted", reply="250 Ok"),
        RecipientState(address="b@example.com", state="refused", reply="550 5.1.1 no such user"),
        RecipientState(address="c@example.com", state="given-up", reply="450 4.2.0 try again later"),
    )
    move = post.move(claim, S.SENT, C.ENDED_IN_PART, settled=settled, callback_due=True,
                     attempt=post.closed(claim, OK, NEVER, NEVER))  # fmt: skip
    await post.store.apply(move)

    assert (await post.calling()).refused == settled[1:]


async def test_two_processes_never_tell_the_same(post: Letters, there: Letters) -> None:
    ids = [await post.sent(callback_due=True) for _ in range(12)]

    taken = await asyncio.gather(*(take(who, 3, name) for who, name in ((post, "w1"), (there, "w2")) * 3))

    found = [claim.id for claims in taken for claim in claims]
    assert len(found) == len(set(found))
    assert sorted([*found, *(claim.id for claim in await take(post, 20))]) == sorted(ids)


async def test_an_acknowledged_outcome_is_over(post: Letters) -> None:
    id = await post.sent(callback_due=True)
    await post.store.apply(post.move(await post.calling(), S.SENT_ACKNOWLEDGED, C.ACKNOWLEDGED))

    assert await take(post) == []
    found = await post.email(id)
    assert (found.status, found.callback_due) == (S.SENT_ACKNOWLEDGED, False)


# ------------------------------------------------------------------------------------------ letting go


async def test_letting_go_is_no_move_and_the_status_stays(post: Letters) -> None:
    await post.sent(callback_due=True, ago=HOUR)
    claim = await post.calling()
    before = await post.email(claim.id)
    history = await post.store.history(claim.id)

    assert await post.store.release_reports([claim], now=post.now) == [None]

    after = await post.email(claim.id)
    assert (after.status, after.version) == (before.status, before.version)
    assert not after.token
    assert not after.callback_exhausted
    assert await post.store.history(claim.id) == history
    assert await take(post) == []


async def test_who_was_let_go_of_comes_round_when_the_time_is_over_and_not_before(post: Letters) -> None:
    await post.sent(callback_due=True, ago=HOUR)
    claim = await post.calling()
    await post.store.release_reports([claim], now=post.now - 10 * MINUTE)

    early = await post.store.stuck(now=post.now, dead_after_ms=60_000, timeout_ms=10 * MINUTE + DAY)
    (found,) = await post.store.stuck(now=post.now, dead_after_ms=60_000, timeout_ms=10 * MINUTE)

    assert early == []
    assert (found.claim.id, found.claim.token, found.status) == (claim.id, "", S.CALLING_SENT_CALLBACK)


async def test_at_a_start_too_it_waits_for_its_time(post: Letters) -> None:
    """A released e-mail is nobody's claim: that every worker is dead brings it round no sooner."""
    await post.sent(callback_due=True)
    await post.store.release_reports([await post.calling()], now=post.now)

    assert await post.store.stuck(now=post.now, dead_after_ms=None, timeout_ms=HOUR) == []


async def test_brought_round_it_is_told_again(post: Letters) -> None:
    id = await post.sent(callback_due=True)
    await post.store.release_reports([await post.calling()], now=post.now - HOUR)
    (found,) = await post.store.stuck(now=post.now, dead_after_ms=None, timeout_ms=HOUR)
    await post.store.apply(post.operator(id, found.status, S.SENT, C.RESTORED, token=found.claim.token))

    assert [claim.id for claim in await take(post)] == [id]


async def test_given_up_for_good_it_is_marked_and_left_alone(post: Letters) -> None:
    id = await post.failed(callback_due=True)
    await post.store.release_reports([await post.calling()], now=post.now - DAY, exhausted=True)

    assert (await post.email(id)).callback_exhausted
    assert await post.store.stuck(now=post.now, dead_after_ms=None, timeout_ms=SECOND) == []
    assert await take(post) == []


@pytest.mark.parametrize(("target", "cause"), [(S.READY, C.RETRIED), (S.SENT, C.RESOLVED)])
async def test_an_operators_hand_clears_the_mark(post: Letters, target: Status, cause: Cause) -> None:
    id = await post.failed(callback_due=True)
    await post.store.release_reports([await post.calling()], now=post.now, exhausted=True)

    await post.store.apply(
        post.operator(id, S.CALLING_FAILED_CALLBACK, target, cause, due_at=post.now, callback_due=True)
    )

    found = await post.email(id)
    assert (found.status, found.callback_exhausted) == (target, False)


async def test_a_lost_claim_lets_go_of_nothing(post: Letters, there: Letters) -> None:
    ids = [await post.sent(callback_due=True) for _ in range(2)]
    lost, held = await take(post, 2)
    await there.store.apply(there.move(lost, S.SENT, C.RESTORED))
    (overtaking,) = await take(there, 1, "w2")

    results = await post.store.release_reports([lost, held], now=post.now, exhausted=True)

    assert isinstance(results[0], LockNotAcquired)
    assert results[1] is None
    found = await post.email(lost.id)
    assert (found.token, found.callback_exhausted) == (overtaking.token, False)
    assert sorted(ids) == sorted([lost.id, held.id])


# ------------------------------------------------------------------------------------------ batches


async def test_members_of_a_batch_are_kept_in_their_order(post: Letters) -> None:
    for ago in (3, 2, 1):
        await post.sent(callback_due=True, ago=ago * MINUTE)
    claims = (await take(post))[::-1]

    await post.store.bind_batch("batch-1", claims)

    assert await post.store.batch_members("batch-1") == [claim.id for claim in claims]
    assert await post.store.batch_members("batch-2") == []


async def test_binding_the_same_again_changes_nothing(post: Letters) -> None:
    for _ in range(2):
        await post.sent(callback_due=True)
    claims = await take(post)
    await post.store.bind_batch("batch-1", claims)

    await post.store.bind_batch("batch-1", claims)

    assert await post.store.batch_members("batch-1") == [claim.id for claim in claims]


async def test_a_repeat_carries_the_name_of_its_batch(post: Letters) -> None:
    await post.sent(callback_due=True)
    (claim,) = await take(post)
    await post.store.bind_batch("batch-1", [claim])
    await post.store.apply(post.move(claim, S.SENT, C.RESTORED))

    assert (await post.calling()).batch == "batch-1"


async def test_a_new_outcome_is_of_no_batch(post: Letters) -> None:
    id = await post.failed(callback_due=True)
    (claim,) = await take(post)
    await post.store.bind_batch("batch-1", [claim])
    await post.store.apply(post.move(claim, S.FAILED_ACKNOWLEDGED, C.ACKNOWLEDGED))
    await post.store.apply(
        post.operator(id, S.FAILED_ACKNOWLEDGED, S.READY, C.RETRIED, due_at=post.now, attempts=0)
    )
    await post.store.apply(post.delivered(await post.claim(id), callback_due=True))

    again = await post.calling()

    assert (again.batch, again.sequence) == (None, 2)


async def test_a_batch_outlives_the_process(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    ids = [await post.sent(callback_due=True) for _ in range(3)]
    claims = await take(post)
    await store.bind_batch("batch-1", claims)
    await store.close()

    again = ground.store()
    await again.open()
    try:
        assert sorted(await again.batch_members("batch-1")) == sorted(ids)
        found = await again.stuck(now=post.now, dead_after_ms=None, timeout_ms=HOUR)
        assert sorted(one.claim.id for one in found) == sorted(ids)
    finally:
        await again.close()
