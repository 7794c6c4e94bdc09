"""The mark before the final dot: durable, and only for whoever still holds the e-mail."""

from __future__ import annotations

import pytest

from contracts.letters import Letters
from contracts.stores import Ground
from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Cause, Status


async def test_the_mark_stands_in_the_journal_and_with_the_claim(post: Letters) -> None:
    id = await post.ready()
    claim = await post.claim(id)

    await post.commit(claim, transport="relay-2")

    (attempt,) = await post.store.attempts(id)
    held = await post.store.held(id)
    assert held is not None
    assert attempt.committed_at > 0
    assert (attempt.transport, attempt.closed_at) == ("relay-2", 0)
    assert (held.committed_at, held.transport) == (attempt.committed_at, "relay-2")


async def test_a_mark_is_no_move(post: Letters) -> None:
    id = await post.ready()
    claim = await post.claim(id)
    before = await post.story(id)

    await post.commit(claim)

    after = await post.story(id)
    assert after.history == before.history
    assert after.email == before.email


async def test_what_is_marked_is_marked_after_opening_anew(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    id = await post.ready()
    await post.commit(await post.claim(id))
    await store.close()

    again = ground.store()
    await again.open()
    try:
        held = await again.held(id)
        assert held is not None
        assert held.committed_at > 0
    finally:
        await again.close()


async def test_marking_again_is_no_error(post: Letters) -> None:
    """The answer may have been lost: the claim still holds, so the mark may be asked for once more."""
    claim = await post.claim(await post.ready())
    await post.commit(claim)

    await post.commit(claim)

    assert len(await post.store.attempts(claim.id)) == 1


async def test_who_lost_the_claim_must_not_send_the_dot(post: Letters, there: Letters) -> None:
    """A worker was paused, its e-mail restored and claimed by another."""
    id = await post.ready()
    paused = await post.claim(id, worker="w1")
    restored = post.move(
        paused, Status.READY, Cause.RESTORED, due_at=post.now, attempt=post.closed(paused, counted=False)
    )
    await there.store.apply(restored)
    await there.claim(id, worker="w2")

    with pytest.raises(LockNotAcquired):
        await post.commit(paused)

    held = await post.store.held(id)
    assert held is not None
    assert held.committed_at == 0


@pytest.mark.parametrize("status", [Status.READY, Status.SENT, Status.FAILED])
async def test_an_email_that_has_moved_on_is_not_marked(post: Letters, status: Status) -> None:
    claim = await post.claim(await post.ready())
    moves = {Status.READY: post.deferred, Status.SENT: post.delivered, Status.FAILED: post.refused}
    await post.store.apply(moves[status](claim))
    before = await post.story(claim.id)

    with pytest.raises(LockNotAcquired):
        await post.commit(claim)

    assert await post.story(claim.id) == before


async def test_the_token_alone_does_not_do_the_email_must_be_its_own(post: Letters) -> None:
    one, two = await post.claim(await post.ready()), await post.claim(await post.ready())
    stranger = type(one)(
        id=two.id, ref=two.ref, token=one.token, company_id="acme", at=two.at, attempt=1, created_at=two.created_at,
        expires_at=two.expires_at, sender="", recipients=two.recipients,
    )  # fmt: skip

    with pytest.raises(LockNotAcquired):
        await post.commit(stranger)
