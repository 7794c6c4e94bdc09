"""E-mails whose time is over before they were sent."""

from __future__ import annotations

import pytest

from contracts.letters import HOUR, SECOND, Letters
from staffetta.mail.lifecycle import Cause, Status


async def over(post: Letters, limit: int = 100) -> list[str]:
    return [email.id for email in await post.store.expired(now=post.now, limit=limit)]


@pytest.mark.parametrize("status", [Status.ACCEPTED, Status.READY])
async def test_what_waits_past_its_time_is_found(post: Letters, status: Status) -> None:
    gone = post.new(status, expires_in=-SECOND)
    await post.add(gone, post.new(status, expires_in=HOUR))

    (found,) = await post.store.expired(now=post.now, limit=100)

    assert (found.id, found.status, found.expires_at) == (gone.id, status, gone.expires_at)


async def test_it_is_over_at_its_time_and_not_before(post: Letters) -> None:
    id = await post.ready(expires_in=HOUR)
    post.clock.turn(HOUR - post.store.resolution_ms)
    assert await over(post) == []

    post.clock.turn(post.store.resolution_ms)

    assert await over(post) == [id]


async def test_one_that_is_not_due_yet_expires_all_the_same(post: Letters) -> None:
    """Held or paused mail expires too: it is READY, due or not."""
    id = await post.ready(due_in=HOUR, expires_in=-SECOND)

    assert await over(post) == [id]


async def test_what_is_held_or_ended_does_not_expire(post: Letters) -> None:
    await post.claim(await post.ready(expires_in=-SECOND))
    await post.intaking(expires_in=-SECOND)
    await post.sent(expires_in=-SECOND)
    await post.failed(expires_in=-SECOND)

    assert await over(post) == []


async def test_a_new_time_counts(post: Letters) -> None:
    id = await post.failed(expires_in=-SECOND)
    retried = post.operator(
        id, Status.FAILED, Status.READY, Cause.RETRIED, due_at=post.now, expires_at=post.now + HOUR
    )
    await post.store.apply(retried)

    assert await over(post) == []


async def test_an_earlier_time_given_by_a_move_counts_too(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.store.apply(post.deferred(claim, expires_at=post.now - SECOND))

    assert await over(post) == [claim.id]


async def test_a_look_is_bounded_and_in_the_end_all_are_found(post: Letters) -> None:
    gone = [await post.ready(expires_in=-SECOND) for _ in range(4)]
    gone += [await post.accepted(expires_in=-SECOND) for _ in range(3)]
    await post.ready()
    seen: list[str] = []

    for _ in range(20):
        page = await post.store.expired(now=post.now, limit=3)
        assert len(page) <= 3
        for found in page:
            await post.store.apply(post.operator(found.id, found.status, Status.FAILED, Cause.EXPIRED,
                                                 dead_letter=post.letter(found.id, code="EXPIRED")))  # fmt: skip
            seen.append(found.id)

    assert sorted(seen) == sorted(gone)
    assert (await post.store.counts())[Status.FAILED] == 7
