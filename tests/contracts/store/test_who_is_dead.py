"""Who lives, who is silent, and what lies in the hands of the dead."""

from __future__ import annotations

import msgspec

from contracts.letters import DAY, HOUR, MINUTE, SECOND, Letters
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import InWork

LONG = 10_000 * DAY


async def stuck(post: Letters, *, dead_after_ms: int | None = MINUTE, timeout_ms: int = LONG,
                workers: tuple[str, ...] = (), limit: int = 1_000) -> list[InWork]:  # fmt: skip
    return await post.store.stuck(
        now=post.now, dead_after_ms=dead_after_ms, timeout_ms=timeout_ms, workers=workers, limit=limit
    )


def ids(found: list[InWork]) -> list[str]:
    return sorted(one.claim.id for one in found)


async def test_heartbeats_are_listed_and_renewed(post: Letters) -> None:
    first = post.worker("w2")
    await post.store.heartbeat(first)
    await post.store.heartbeat(post.worker("w1"))
    await post.store.heartbeat(msgspec.structs.replace(first, host="there", pid=7))

    found = {one.id: one for one in await post.store.workers()}

    assert sorted(found) == ["w1", "w2"]
    assert (found["w2"].host, found["w2"].pid, found["w2"].started_at) == ("there", 7, first.started_at)
    assert found["w2"].seen_at >= first.seen_at - post.store.resolution_ms


async def test_an_orderly_stop_is_forgotten_with_its_figures(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    await post.store.heartbeat(post.worker("w2"))
    await post.store.publish("w1", b"{}", post.now)

    await post.store.forget_worker("w1")

    assert [one.id for one in await post.store.workers()] == ["w2"]
    assert await post.store.figures(newer_than=0) == {}


async def test_forgetting_a_stranger_is_no_error(post: Letters) -> None:
    await post.store.forget_worker("nobody")


async def test_a_live_worker_keeps_its_claims(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    await post.claim(await post.ready(), worker="w1")

    assert await stuck(post) == []


async def test_a_worker_without_a_heartbeat_is_known_dead_by_nothing_but_age(post: Letters) -> None:
    """Programs of others keep none: `timeout_minutes` is for them."""
    claim = await post.claim(await post.ready(), worker="foreign")

    assert await stuck(post) == []
    assert ids(await stuck(post, timeout_ms=0)) == [claim.id]


async def test_a_silent_worker_is_dead_when_its_time_is_over_and_not_before(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    held = await post.claim(await post.ready(), worker="w1")
    post.clock.turn(MINUTE - post.store.resolution_ms)
    await post.store.heartbeat(post.worker("w2"))
    await post.claim(await post.ready(), worker="w2")
    assert await stuck(post) == []

    post.clock.turn(post.store.resolution_ms)

    assert ids(await stuck(post)) == [held.id]


async def test_a_heartbeat_brings_a_silent_worker_back(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    await post.claim(await post.ready(), worker="w1")
    post.clock.turn(HOUR)

    await post.store.heartbeat(post.worker("w1"))

    assert await stuck(post) == []


async def test_workers_named_as_dead_are_dead_heartbeat_or_not(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    held = await post.claim(await post.ready(), worker="w1")
    await post.claim(await post.ready(), worker="w11")
    await post.claim(await post.ready(), worker="w2")

    assert ids(await stuck(post, workers=("w1", "w9"))) == [held.id]


async def test_at_the_start_of_an_owned_store_every_claim_is_a_dead_workers(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    processing = await post.claim(await post.ready(), worker="w1")
    intaking = await post.intaking("w2")
    await post.sent(callback_due=True)
    calling = await post.calling("w3")
    await post.ready()
    await post.accepted()
    await post.sent()

    found = await stuck(post, dead_after_ms=None)

    assert ids(found) == sorted([processing.id, intaking.id, calling.id])
    assert {one.claim.id: one.status for one in found} == {
        processing.id: Status.PROCESSING,
        intaking.id: Status.INTAKING,
        calling.id: Status.CALLING_SENT_CALLBACK,
    }


async def test_age_alone_brings_in_what_has_not_moved(post: Letters) -> None:
    await post.store.heartbeat(post.worker("w1"))
    old = await post.claim(await post.ready(), worker="w1")
    post.clock.turn(30 * MINUTE - post.store.resolution_ms)
    await post.store.heartbeat(post.worker("w1"))
    assert await stuck(post, timeout_ms=30 * MINUTE) == []

    post.clock.turn(post.store.resolution_ms)

    assert ids(await stuck(post, timeout_ms=30 * MINUTE)) == [old.id]


async def test_what_restore_decides_on_is_told(post: Letters) -> None:
    id = await post.ready(recipients=["a@example.com", "b@example.com"])
    claim = await post.claim(id, worker="w1", alone=True)
    await post.commit(claim, transport="relay-2")

    (found,) = await stuck(post, workers=("w1",))

    assert (found.status, found.transport, found.alone) == (Status.PROCESSING, "relay-2", True)
    assert found.committed_at > 0
    assert found.updated_at == claim.at
    told = found.claim
    assert (told.id, told.token, told.attempt, told.part) == (id, claim.token, 1, 1)
    assert (told.recipients, told.company_id, told.expires_at) == (claim.recipients, "acme", claim.expires_at)
    assert await post.store.held(id) == found


async def test_a_claim_told_to_restore_moves_the_email(post: Letters) -> None:
    claim = await post.claim(await post.ready(), worker="w1")
    (found,) = await stuck(post, workers=("w1",))

    await post.store.apply(post.move(found.claim, Status.READY, Cause.RESTORED, due_at=post.now, crashes=1))

    assert await post.status(claim.id) is Status.READY
    assert await stuck(post, dead_after_ms=None) == []


async def test_pages_are_bounded_and_what_was_moved_makes_room(post: Letters) -> None:
    held = [(await post.claim(await post.ready(), worker="w1")).id for _ in range(7)]
    seen: list[str] = []

    while page := await stuck(post, workers=("w1",), limit=3):
        assert len(page) <= 3
        for one in page:
            await post.store.apply(post.move(one.claim, Status.READY, Cause.RESTORED, due_at=post.now + HOUR))
            seen.append(one.claim.id)

    assert sorted(seen) == sorted(held)


async def test_the_longest_held_come_first(post: Letters) -> None:
    ids_ = []
    for _ in range(3):
        ids_.append((await post.claim(await post.ready(), worker="w1")).id)
        post.clock.turn(SECOND)

    assert [one.claim.id for one in await stuck(post, workers=("w1",))] == ids_


async def test_nobody_holds_what_is_in_no_in_work_status(post: Letters) -> None:
    for status in (Status.ACCEPTED, Status.READY, Status.SENT, Status.FAILED, Status.INVALID):
        id, _ = await post.brought_to(status)
        assert await post.store.held(id) is None
        if status is Status.ACCEPTED:
            (claim,) = await post.store.claim_intake(tokens=post.tokens(1), now=post.now)
            await post.store.apply(post.move(claim, Status.INVALID, Cause.INVALID))
    assert await post.store.held("unknown") is None
