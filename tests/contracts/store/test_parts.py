"""An attempt may go on in parts under the same claim: fewer recipients at a time, or another transport."""

from __future__ import annotations

import pytest

from contracts.letters import LATER, NEVER, OK, Letters
from contracts.stores import Ground
from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Claim

FOUR = ("a@example.com", "b@example.com", "c@example.com", "d@example.com")


async def begun(post: Letters) -> Claim:
    claim = await post.claim(await post.ready(recipients=FOUR))
    await post.commit(claim)
    return claim


async def test_the_next_part_goes_to_those_without_a_final_reply(post: Letters) -> None:
    claim = await begun(post)

    following = await post.store.next_part(claim, post.closed(claim, OK, NEVER, LATER, LATER))

    assert (following.part, following.attempt, following.token) == (2, claim.attempt, claim.token)
    assert following.recipients == ("c@example.com", "d@example.com")
    assert [(one.address, one.state) for one in following.settled] == [
        ("a@example.com", "accepted"),
        ("b@example.com", "refused"),
    ]
    assert (following.message, following.attempts) == (claim.message, claim.attempts)


async def test_the_first_part_is_closed_with_its_replies_and_the_second_is_not_committed(post: Letters) -> None:
    claim = await begun(post)
    closed = post.closed(claim, OK, NEVER, LATER, LATER, counted=False)

    await post.store.next_part(claim, closed)

    first, second = await post.store.attempts(claim.id)
    assert (first.attempt, first.part, first.replies, first.counted) == (1, 1, closed.replies, False)
    assert first.committed_at > 0
    assert (second.attempt, second.part, second.token, second.committed_at) == (1, 2, claim.token, 0)
    held = await post.store.held(claim.id)
    assert held is not None
    assert held.committed_at == 0
    assert held.claim.part == 2


async def test_a_part_is_no_move(post: Letters) -> None:
    claim = await begun(post)
    before = await post.story(claim.id)

    await post.store.next_part(claim, post.closed(claim, OK, NEVER, LATER, LATER))

    after = await post.story(claim.id)
    assert after.history == before.history
    assert after.email is not None
    assert before.email is not None
    assert (after.email.status, after.email.version) == (before.email.status, before.email.version)


async def test_only_the_open_part_can_be_marked(post: Letters) -> None:
    claim = await begun(post)
    following = await post.store.next_part(claim, post.closed(claim, OK, LATER, LATER, LATER))

    with pytest.raises(LockNotAcquired):
        await post.commit(claim)
    await post.commit(following)

    _, second = await post.store.attempts(claim.id)
    assert second.committed_at > 0


async def test_asked_for_again_the_next_part_is_the_same(post: Letters) -> None:
    """The answer to the first call may have been lost."""
    claim = await begun(post)
    closed = post.closed(claim, OK, NEVER, LATER, LATER)
    first = await post.store.next_part(claim, closed)

    again = await post.store.next_part(claim, closed)

    assert again == first
    assert len(await post.store.attempts(claim.id)) == 2


async def test_a_part_that_is_marked_already_is_not_given_again(post: Letters) -> None:
    claim = await begun(post)
    closed = post.closed(claim, OK, NEVER, LATER, LATER)
    await post.commit(await post.store.next_part(claim, closed))

    with pytest.raises(LockNotAcquired):
        await post.store.next_part(claim, closed)


async def test_whoever_lost_the_claim_gets_no_part_but_his_replies_are_kept(
    post: Letters, there: Letters
) -> None:
    claim = await begun(post)
    restored = there.move(claim, Status.READY, Cause.IN_DOUBT, due_at=post.now, attempt=there.closed(claim))
    await there.store.apply(restored)

    with pytest.raises(LockNotAcquired):
        await post.store.next_part(claim, post.closed(claim, OK, NEVER, LATER, LATER))

    (kept,) = await post.store.attempts(claim.id)
    assert [answer.reply for answer in kept.replies] == [OK, NEVER, LATER, LATER]
    following = await there.claim(claim.id, worker="w2")
    assert following.late is not None


async def test_the_outcome_closes_the_last_part(post: Letters) -> None:
    claim = await begun(post)
    second = await post.store.next_part(claim, post.closed(claim, OK, OK, LATER, LATER))
    third = await post.store.next_part(second, post.closed(second, OK, LATER))
    await post.commit(third)

    await post.store.apply(post.delivered(third))

    assert [(one.attempt, one.part, len(one.replies)) for one in await post.store.attempts(claim.id)] == [
        (1, 1, 4), (1, 2, 2), (1, 3, 1),
    ]  # fmt: skip
    assert {one.state for one in (await post.email(claim.id)).recipients} == {"accepted"}


async def test_what_a_crash_leaves_between_two_parts_knows_who_has_it(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    claim = await begun(post)
    await store.next_part(claim, post.closed(claim, OK, NEVER, LATER, LATER))
    await store.close()

    again = ground.store()
    await again.open()
    try:
        (found,) = await again.stuck(now=post.now, dead_after_ms=None, timeout_ms=10**9)
        assert (found.committed_at, found.claim.part) == (0, 2)
        assert found.claim.recipients == ("c@example.com", "d@example.com")
    finally:
        await again.close()


async def test_the_next_attempt_begins_with_part_one_again(post: Letters) -> None:
    claim = await begun(post)
    second = await post.store.next_part(claim, post.closed(claim, OK, OK, LATER, LATER))
    await post.store.apply(post.deferred(second))

    following = await post.claim(claim.id)

    assert (following.attempt, following.part) == (2, 1)
    assert following.recipients == ("c@example.com", "d@example.com")
