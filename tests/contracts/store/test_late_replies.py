"""A reply is never lost: it is kept with its attempt though the move loses, and read by whoever comes next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.letters import LATER, NEVER, OK, Letters
from contracts.stores import Ground
from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, Claim, Decision, RecipientState, Verdict


async def overtaken(
    post: Letters, there: Letters, *, recipients: tuple[str, ...] = ("ada@example.com",)
) -> Claim:
    """A claim whose e-mail was marked, restored by somebody else, and is READY again."""
    claim = await post.claim(await post.ready(recipients=recipients), worker="w1")
    await post.commit(claim)
    await restored(there, claim)
    return claim


async def restored(post: Letters, claim: Claim, **facts: Any) -> None:
    await post.store.apply(
        post.move(
            claim,
            Status.READY,
            Cause.IN_DOUBT,
            due_at=post.now,
            attempt=post.closed(claim, counted=True),
            **facts,
        )
    )


async def test_a_lost_move_changes_nothing_but_keeps_the_reply_with_its_attempt(
    post: Letters, there: Letters
) -> None:
    claim = await overtaken(post, there)
    before = await post.story(claim.id)
    late = post.delivered(claim)

    with pytest.raises(LockNotAcquired):
        await post.store.apply(late)

    after = await post.story(claim.id)
    assert (after.email, after.history, after.dead_letter) == (before.email, before.history, before.dead_letter)
    (kept,) = after.attempts
    assert late.attempt is not None
    assert kept.replies == late.attempt.replies


async def test_several_lost_moves_keep_each_its_reply(post: Letters, there: Letters) -> None:
    claims = [await overtaken(post, there) for _ in range(3)]

    results = await post.store.apply_all([post.delivered(claim) for claim in claims])

    assert all(isinstance(result, LockNotAcquired) for result in results)
    for claim in claims:
        (kept,) = await post.store.attempts(claim.id)
        assert kept.replies[0].reply == OK


async def test_the_decision_is_kept_with_the_late_reply(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    verdict = Verdict(category="PERMANENT", action="FAIL", reach="recipient", rule="x")
    attempt = msgspec.structs.replace(
        post.closed(claim, NEVER), decision=Decision(reply=NEVER, verdict=verdict)
    )

    with pytest.raises(LockNotAcquired):
        await post.store.apply(post.refused(claim, attempt=attempt))

    (kept,) = await post.store.attempts(claim.id)
    assert kept.decision == attempt.decision


async def test_the_next_claim_reads_it(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    await post.store.apply_all([post.delivered(claim)])

    following = await there.claim(claim.id, worker="w2")

    assert following.late is not None
    assert (following.late.attempt, following.late.part, following.late.token) == (1, 1, claim.token)
    assert following.late.replies[0].reply == OK
    assert following.late.committed_at > 0


async def test_restore_reads_it(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    following = await there.claim(claim.id, worker="w2")
    await post.store.apply_all([post.delivered(claim)])

    (found,) = await post.store.stuck(now=post.now, dead_after_ms=60_000, timeout_ms=10**9, workers=["w2"])
    held = await post.store.held(following.id)

    assert held is not None
    for one in (found, held):
        assert one.claim.late is not None
        assert one.claim.late.replies[0].reply == OK


async def test_without_a_late_reply_there_is_none(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)

    assert (await there.claim(claim.id)).late is None


async def test_what_was_believed_is_not_told_again(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    await post.store.apply_all([post.refused(claim)])
    following = await there.claim(claim.id, worker="w2")
    assert following.late is not None
    move = there.move(following, Status.READY, Cause.DEFERRED, due_at=post.now, believed=following.late,
                      attempt=there.closed(following, counted=False))  # fmt: skip
    await there.store.apply(move)

    assert (await post.claim(claim.id)).late is None
    assert len(await post.store.attempts(claim.id)) == 3


async def test_a_believed_acceptance_names_who_has_it(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    await post.store.apply_all([post.delivered(claim)])
    following = await there.claim(claim.id, worker="w2")
    move = there.move(following, Status.SENT, Cause.DELIVERED, believed=following.late,
                      attempt=there.closed(following, counted=False))  # fmt: skip
    await there.store.apply(move)

    assert (await post.email(claim.id)).recipients == (
        RecipientState(address="ada@example.com", state="accepted", reply="250 2.0.0 Ok: queued"),
    )


async def test_a_second_word_does_not_replace_the_first(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    await post.store.apply_all([post.delivered(claim)])

    await post.store.apply_all([post.refused(claim)])

    (kept,) = await post.store.attempts(claim.id)
    assert kept.replies[0].reply == OK


async def test_a_reply_that_was_read_in_time_is_not_replaced(post: Letters, there: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.store.apply(post.deferred(claim))

    await post.store.apply_all([post.delivered(claim)])

    (kept,) = await post.store.attempts(claim.id)
    assert kept.replies[0].reply == LATER
    assert (await post.claim(claim.id)).late is None


async def test_words_of_nobody_we_know_are_kept_nowhere(post: Letters, there: Letters) -> None:
    claim = await overtaken(post, there)
    stranger: Attempt = msgspec.structs.replace(post.closed(claim, OK), token="w9.x")
    forged = msgspec.structs.replace(post.delivered(claim), token="w9.x", attempt=stranger)

    with pytest.raises(LockNotAcquired):
        await post.store.apply(forged)

    (kept,) = await post.store.attempts(claim.id)
    assert kept.replies == ()


async def test_a_late_reply_that_speaks_only_of_the_settled_tells_nothing_new(
    post: Letters, there: Letters
) -> None:
    both = ("a@example.com", "b@example.com")
    claim = await post.claim(await post.ready(recipients=both))
    await post.commit(claim)
    settled = (RecipientState(address="a@example.com", state="accepted", reply="250"),)
    await restored(there, claim, settled=settled, recipients=("b@example.com",))
    attempt = msgspec.structs.replace(post.closed(claim, OK), replies=post.closed(claim, OK).replies[:1])
    await post.store.apply_all([post.delivered(claim, attempt=attempt)])

    assert (await there.claim(claim.id)).late is None


async def test_an_acceptance_is_told_before_anything_else(post: Letters, there: Letters) -> None:
    first = await overtaken(post, there)
    second = await there.claim(first.id, worker="w2")
    await there.commit(second)
    await restored(post, second)
    await post.store.apply_all([post.refused(first), there.delivered(second)])

    following = await post.claim(first.id, worker="w3")

    assert following.late is not None
    assert following.late.attempt == 2


async def test_late_replies_outlive_the_process(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    claim = await overtaken(post, post)
    await store.apply_all([post.delivered(claim)])
    await store.close()

    again = ground.store()
    await again.open()
    try:
        following = await Letters(again, ground).claim(claim.id, worker="w2")
        assert following.late is not None
    finally:
        await again.close()


async def test_a_late_reply_for_an_email_that_ended_stands_in_its_journal(
    post: Letters, there: Letters
) -> None:
    """FAILED in doubt, and then the server's word is found: whoever resolves it must be able to read it."""
    claim = await post.claim(await post.ready())
    await post.commit(claim)
    letter = there.letter(claim.id, code="IN-DOUBT")
    await there.store.apply(
        there.move(claim, Status.FAILED, Cause.IN_DOUBT, attempt=there.closed(claim), dead_letter=letter)
    )

    with pytest.raises(LockNotAcquired):
        await post.store.apply(post.delivered(claim))

    (kept,) = await post.store.attempts(claim.id)
    assert kept.replies[0].reply == OK
    assert await post.status(claim.id) is Status.FAILED
