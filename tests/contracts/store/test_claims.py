"""Who may send: exactly one, and only what is READY and due."""

from __future__ import annotations

import asyncio

import pytest

from contracts.letters import HOUR, SECOND, Letters, email_id, job_of
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Options, RecipientState


async def test_a_due_email_is_claimed_with_all_that_sending_needs(post: Letters) -> None:
    options = Options(in_doubt="hold", tags=("a",))
    new = post.new(recipients=["ada@example.com", "bob@example.com"], priority=2, options=options)
    await post.add(new)

    claim = await post.claim(new.id, token="w1.abc")

    assert (claim.id, claim.token, claim.company_id) == (new.id, "w1.abc", "acme")
    assert (claim.sender, claim.recipients) == ("shop@example.com", ("ada@example.com", "bob@example.com"))
    assert (claim.message, claim.options, claim.priority) == (new.message, options, 2)
    assert (claim.attempt, claim.part, claim.attempts, claim.doubts, claim.crashes) == (1, 1, 0, 0, 0)
    assert (claim.created_at, claim.expires_at) == (new.created_at, new.expires_at)
    assert (claim.settled, claim.late) == ((), None)


async def test_a_claim_is_a_move_with_its_history_and_opens_an_attempt(post: Letters) -> None:
    id = await post.ready()

    claim = await post.claim(id, token="w1.abc")

    found = await post.email(id)
    assert (found.status, found.token, found.opened) == (Status.PROCESSING, "w1.abc", 1)
    assert found.version == post.version(4)
    last = (await post.store.history(id))[-1]
    assert (last.status, last.cause) == (Status.PROCESSING, Cause.CLAIMED)
    (open_attempt,) = await post.store.attempts(id)
    assert (open_attempt.attempt, open_attempt.part, open_attempt.token) == (1, 1, "w1.abc")
    assert (open_attempt.opened_at, open_attempt.committed_at, open_attempt.replies) == (claim.at, 0, ())
    assert not open_attempt.counted


async def test_what_is_not_due_is_not_claimed_and_stays_as_it_was(post: Letters) -> None:
    id = await post.ready(due_in=HOUR)
    before = await post.story(id)

    assert await post.try_claim(id) is None
    assert await post.story(id) == before


async def test_it_is_claimed_as_soon_as_it_is_due_and_not_before(post: Letters) -> None:
    id = await post.ready(due_in=10 * SECOND)
    post.clock.turn(10 * SECOND - post.store.resolution_ms)
    assert await post.try_claim(id) is None

    post.clock.turn(post.store.resolution_ms)

    assert await post.try_claim(id) is not None


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.READY])
async def test_nothing_but_ready_is_claimed(post: Letters, status: Status) -> None:
    id, _ = await post.brought_to(status)
    before = await post.story(id)

    assert await post.try_claim(id) is None
    assert await post.story(id) == before


async def test_an_unknown_email_is_not_claimed(post: Letters) -> None:
    assert await post.try_claim(email_id(99)) is None


async def test_a_handle_of_another_email_claims_no_other(post: Letters) -> None:
    """A reminder that was kept across a change of stores: its id is what counts."""
    one, two = post.new(), post.new()
    added = await post.store.add([one, two])

    claim = await post.store.claim(
        job_of(one.id, ref=getattr(added[1], "ref", 0)), token=post.token(), now=post.now
    )

    assert claim is None or claim.id == one.id
    assert await post.status(two.id) is Status.READY


async def test_of_many_claims_at_once_exactly_one_wins(post: Letters) -> None:
    id = await post.ready()

    claims = await asyncio.gather(*(post.try_claim(id, token=f"w{n}.1") for n in range(50)))

    (won,) = [claim for claim in claims if claim is not None]
    assert (await post.email(id)).token == won.token
    assert [one.cause for one in await post.store.history(id)].count(
        Cause.CLAIMED
    ) == 2  # intake's and this one


async def test_of_claims_by_two_processes_at_once_exactly_one_wins(post: Letters, there: Letters) -> None:
    ids = [await post.ready() for _ in range(10)]

    claims = await asyncio.gather(
        *(who.try_claim(id, token=f"{name}.{id}") for id in ids for who, name in ((post, "w1"), (there, "w2")))
    )

    won = [claim for claim in claims if claim is not None]
    assert sorted(claim.id for claim in won) == sorted(ids)
    for claim in won:
        assert (await post.email(claim.id)).token == claim.token


async def test_the_same_claim_asked_for_again_is_given_again(post: Letters) -> None:
    """The answer to a COMMIT may be lost on the way: finding one's own token means success."""
    id = await post.ready()
    first = await post.claim(id, token="w1.abc")
    before = await post.story(id)

    again = await post.try_claim(id, token="w1.abc")

    assert again == first
    assert await post.story(id) == before


async def test_a_claim_whose_dot_may_have_left_is_never_given_again(post: Letters) -> None:
    id = await post.ready()
    await post.commit(await post.claim(id, token="w1.abc"))

    assert await post.try_claim(id, token="w1.abc") is None


async def test_attempts_are_numbered_as_they_are_opened_counted_or_not(post: Letters) -> None:
    id = await post.ready()
    for number in range(1, 4):
        claim = await post.claim(id)
        assert (claim.attempt, claim.attempts) == (number, 0)
        held = post.move(
            claim, Status.READY, Cause.HELD, attempt=post.closed(claim, counted=False), due_at=post.now
        )
        await post.store.apply(held)

    assert [(one.attempt, one.counted) for one in await post.store.attempts(id)] == [
        (n, False) for n in (1, 2, 3)
    ]
    found = await post.email(id)
    assert (found.opened, found.attempts) == (3, 0)


async def test_a_later_claim_goes_only_to_those_not_yet_settled(post: Letters) -> None:
    id = await post.ready(recipients=["a@example.com", "b@example.com", "c@example.com"])
    first = await post.claim(id)
    settled = (RecipientState(address="a@example.com", state="accepted", reply="250 Ok"),)
    await post.store.apply(post.deferred(first, settled=settled, recipients=("c@example.com",), attempt=None))

    claim = await post.claim(id)

    assert (claim.recipients, claim.settled) == (("c@example.com",), settled)


async def test_without_a_list_of_those_left_the_settled_are_left_out(post: Letters) -> None:
    id = await post.ready(recipients=["a@example.com", "b@example.com"])
    settled = (RecipientState(address="a@example.com", state="refused", reply="550 no"),)
    await post.store.apply(post.deferred(await post.claim(id), settled=settled, attempt=None))

    assert (await post.claim(id)).recipients == ("b@example.com",)


async def test_counters_of_the_email_come_with_its_claim(post: Letters) -> None:
    id = await post.ready()
    first = await post.claim(id)
    await post.store.apply(post.deferred(first, attempts=3, doubts=1, crashes=4, alone_crashes=1))

    claim = await post.claim(id)

    assert (claim.attempts, claim.doubts, claim.crashes, claim.alone_crashes) == (3, 1, 4, 1)


@pytest.mark.parametrize("alone", [True, False])
async def test_whether_anything_else_was_in_flight_is_kept(post: Letters, alone: bool) -> None:
    id = await post.ready()
    await post.claim(id, alone=alone)

    held = await post.store.held(id)

    assert held is not None
    assert held.alone is alone


async def test_claims_taken_together_each_carry_their_own_message(post: Letters) -> None:
    """Sizes around every border at which a store may keep or fetch messages differently."""
    sizes = [0, 1, 100, 2_000, 32_767, 32_768, 32_769, 70_000, 262_144]
    messages = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    ids = await post.add(*(post.new(message=message) for message in messages))

    claims = await asyncio.gather(*(post.claim(id) for id in ids))

    assert [claim.message for claim in claims] == messages


async def test_a_claim_leaves_its_neighbours_alone(post: Letters) -> None:
    one, two = await post.ready(), await post.ready()
    before = await post.story(two)

    await post.claim(one)

    assert await post.story(two) == before
