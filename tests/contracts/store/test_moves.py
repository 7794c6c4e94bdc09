"""Every move of the table works, every other is refused; a lost one changes nothing and says so."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from contracts.letters import DAY, HOUR, MINUTE, NEVER, OK, Letters, email_id
from contracts.stores import Ground
from staffetta.errors import LockNotAcquired, MoveNotAllowed
from staffetta.mail.lifecycle import IN_WORK, MOVES, Cause, Status
from staffetta.mail.message import RecipientState, Transition

S, C = Status, Cause
BY_MOVE = sorted((s, t, c) for s, t, c in MOVES if s is not None and t not in IN_WORK)
BY_CLAIM = sorted((s, t, c) for s, t, c in MOVES if s is not None and t in IN_WORK)
ENDS = {S.SENT, S.FAILED}


def any_move(
    post: Letters, id: str, token: str, move: tuple[Status, Status, Cause], **facts: Any
) -> Transition:
    source, target, cause = move
    return Transition(
        id=id, token=token or None, source=source, target=target, cause=cause, at=post.now, **facts
    )


# ------------------------------------------------------------------------------------------ the table


@pytest.mark.parametrize(("source", "target", "cause"), BY_MOVE)
async def test_every_move_of_the_table_is_made_with_its_history_row(
    post: Letters, source: Status, target: Status, cause: Cause
) -> None:
    id, token = await post.brought_to(source)
    before = await post.story(id)
    assert before.email is not None

    await post.store.apply(any_move(post, id, token, (source, target, cause), reason="so it was"))

    after = await post.story(id)
    assert after.email is not None
    assert after.email.status is target
    assert after.email.version == before.email.version + post.version(1)
    assert not after.email.token
    assert after.history[:-1] == before.history
    last = after.history[-1]
    assert (last.status, last.cause, last.reason, last.at) == (
        target,
        cause,
        "so it was",
        after.email.updated_at,
    )
    assert await post.store.held(id) is None
    counted = await post.store.counts()
    assert {status: total for status, total in counted.items() if total} == {target: 1}


@pytest.mark.parametrize(("source", "target", "cause"), BY_CLAIM)
async def test_in_work_statuses_are_entered_by_claims(
    post: Letters, source: Status, target: Status, cause: Cause
) -> None:
    id, token = await post.brought_to(target)

    last = (await post.store.history(id))[-1]
    assert (last.status, last.cause) == (target, cause)
    assert (await post.store.history(id))[-2].status is source
    found = await post.email(id)
    assert (found.status, found.token) == (target, token)
    counted = await post.store.counts()
    assert {status: total for status, total in counted.items() if total} == {target: 1}


@pytest.mark.parametrize("source", list(Status))
async def test_every_move_that_is_not_in_the_table_is_refused_and_leaves_no_trace(
    post: Letters, source: Status
) -> None:
    id, token = await post.brought_to(source)
    before = await post.story(id)

    for target in Status:
        for cause in Cause:
            if (source, target, cause) not in MOVES:
                with pytest.raises(MoveNotAllowed):
                    await post.store.apply(any_move(post, id, token, (source, target, cause)))

    assert await post.story(id) == before


@pytest.mark.parametrize(("source", "target", "cause"), BY_CLAIM)
async def test_no_move_enters_an_in_work_status(
    post: Letters, source: Status, target: Status, cause: Cause
) -> None:
    """Such a move would put the e-mail into nobody's hands."""
    id, token = await post.brought_to(source)

    with pytest.raises(MoveNotAllowed):
        await post.store.apply(any_move(post, id, token, (source, target, cause)))

    assert await post.status(id) is source


# ------------------------------------------------------------------------------------------ compare and set


@pytest.mark.parametrize(("source", "target", "cause"), BY_MOVE)
async def test_a_move_from_another_status_than_expected_changes_nothing_and_says_so(
    post: Letters, source: Status, target: Status, cause: Cause
) -> None:
    other = S.READY if source is not S.READY else S.ACCEPTED
    id, token = await post.brought_to(other)
    before = await post.story(id)

    with pytest.raises(LockNotAcquired):
        await post.store.apply(any_move(post, id, token or "w1.x", (source, target, cause)))

    assert await post.story(id) == before


@pytest.mark.parametrize("source", sorted(IN_WORK))
@pytest.mark.parametrize("token", ["w2.other", "", None], ids=["foreign", "empty", "none"])
async def test_out_of_an_in_work_status_the_claims_token_decides(
    post: Letters, source: Status, token: str | None
) -> None:
    id, _ = await post.brought_to(source)
    before = await post.story(id)
    for move in (move for move in BY_MOVE if move[0] is source):
        with pytest.raises(LockNotAcquired):
            await post.store.apply(msgspec.structs.replace(any_move(post, id, "", move), token=token))

    assert await post.story(id) == before


async def test_a_paused_worker_that_was_restored_and_overtaken_moves_nothing(
    post: Letters, there: Letters
) -> None:
    paused = await post.claim(await post.ready(), worker="w1")
    await there.store.apply(
        post.move(paused, S.READY, C.RESTORED, due_at=post.now, attempt=post.closed(paused, counted=False))
    )
    overtaking = await there.claim(paused.id, worker="w2")
    before = await post.story(paused.id)

    for move in (
        post.deferred(paused, attempt=None),
        post.delivered(paused, attempt=None),
        post.refused(paused, attempt=None),
    ):
        with pytest.raises(LockNotAcquired):
            await post.store.apply(move)

    assert await post.story(paused.id) == before
    await there.store.apply(there.delivered(overtaking))
    assert await post.status(paused.id) is S.SENT


async def test_an_unknown_email_is_not_moved(post: Letters) -> None:
    move = post.operator(email_id(77), S.READY, S.FAILED, C.CANCELLED)

    with pytest.raises(LockNotAcquired):
        await post.store.apply(move)


async def test_an_operator_moves_only_the_version_that_he_read(post: Letters) -> None:
    id = await post.failed()
    read = (await post.email(id)).version
    await post.store.apply(
        post.operator(id, S.FAILED, S.READY, C.RETRIED, version=read, due_at=post.now, attempts=0)
    )
    await post.store.apply(post.refused(await post.claim(id)))
    before = await post.story(id)
    stale = post.operator(id, S.FAILED, S.READY, C.RETRIED, version=read, due_at=post.now, attempts=0)

    if post.store.keeps_version:
        with pytest.raises(LockNotAcquired):
            await post.store.apply(stale)
        assert await post.story(id) == before


async def test_of_many_moves_at_once_exactly_one_is_made(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    moves = [post.deferred(claim, reason=f"number {n}", at=post.now + n) for n in range(20)]

    results = await post.store.apply_all(moves)

    assert results.count(None) == 1
    assert all(isinstance(result, LockNotAcquired) for result in results if result is not None)
    assert len(await post.store.history(claim.id)) == 5


async def test_of_two_operators_at_once_exactly_one_moves_it(post: Letters, there: Letters) -> None:
    ids = [await post.ready() for _ in range(5)]
    for id in ids:
        results = await asyncio.gather(
            post.store.apply(post.operator(id, S.READY, S.FAILED, C.CANCELLED)),
            there.store.apply(there.operator(id, S.READY, S.FAILED, C.CANCELLED)),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == ["LockNotAcquired", "NoneType"]
        assert len(await post.store.history(id)) == 4


async def test_the_same_move_of_the_same_claim_again_is_no_error_and_changes_nothing(post: Letters) -> None:
    """The answer to a COMMIT may be lost: finding that it was done under one's own token means success."""
    claim = await post.claim(await post.ready())
    move = post.deferred(claim)
    await post.store.apply(move)
    before = await post.story(claim.id)

    await post.store.apply(move)

    assert await post.story(claim.id) == before


async def test_the_same_move_again_is_known_even_when_the_email_has_moved_on(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    move = post.deferred(claim)
    await post.store.apply(move)
    await post.claim(claim.id, worker="w2")
    before = await post.story(claim.id)

    await post.store.apply(move)

    assert await post.story(claim.id) == before


async def test_an_operators_move_again_is_a_lost_one(post: Letters) -> None:
    id = await post.ready()
    move = post.operator(id, S.READY, S.FAILED, C.CANCELLED)
    await post.store.apply(move)

    with pytest.raises(LockNotAcquired):
        await post.store.apply(move)


# ------------------------------------------------------------------------------------------ what a move changes


async def test_a_move_writes_what_it_says_and_leaves_the_rest(post: Letters) -> None:
    id = await post.ready(priority=4)
    claim = await post.claim(id)
    later = post.now + HOUR
    move = post.move(claim, S.READY, C.DEFERRED, due_at=later, attempts=1, attempt=post.closed(claim, NEVER))
    await post.store.apply(move)
    before = await post.email(id)
    assert (before.due_at, before.attempts, before.priority, before.doubts) == (later, 1, 4, 0)

    cancelled = post.operator(id, S.READY, S.FAILED, C.CANCELLED)
    await post.store.apply(cancelled)

    after = await post.email(id)
    assert (after.due_at, after.attempts, after.expires_at) == (
        before.due_at,
        before.attempts,
        before.expires_at,
    )
    assert after.recipients == before.recipients


async def test_all_that_a_move_may_set_is_set(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    move = post.deferred(
        claim, due_in=MINUTE, attempts=2, doubts=1, crashes=3, alone_crashes=1, expires_at=post.now + 3 * DAY
    )

    await post.store.apply(move)

    found = await post.email(claim.id)
    assert (found.attempts, found.doubts, found.crashes, found.alone_crashes) == (2, 1, 3, 1)
    assert (found.due_at, found.expires_at) == (move.due_at, move.expires_at)
    assert found.updated_at == move.at


async def test_the_closed_attempt_keeps_its_replies_and_its_decision(post: Letters) -> None:
    from staffetta.mail.message import Decision, Verdict

    claim = await post.claim(await post.ready())
    await post.commit(claim)
    verdict = Verdict(
        category="TRANSIENT", action="RETRY", reach="recipient", rule="code-450", code="450", min_delay_ms=5
    )
    decision = Decision(reply=NEVER, verdict=verdict, policy="gateway", attempt=1, draw=0.25, delay_ms=900,
                        next_at=post.now + 900, figures=(1_000, 60_000, 5), at=post.now, not_before=7)  # fmt: skip
    attempt = msgspec.structs.replace(post.closed(claim, NEVER, committed=True), decision=decision)

    await post.store.apply(post.deferred(claim, attempt=attempt))

    assert await post.store.attempts(claim.id) == [attempt]


async def test_a_move_that_does_not_say_all_of_its_attempt_is_completed_from_the_journal(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.commit(claim, transport="relay-2")
    (marked,) = await post.store.attempts(claim.id)

    await post.store.apply(post.deferred(claim, attempt=None))

    (closed,) = await post.store.attempts(claim.id)
    assert (closed.attempt, closed.part, closed.token, closed.transport) == (1, 1, claim.token, "relay-2")
    assert (closed.opened_at, closed.committed_at) == (claim.at, marked.committed_at)
    assert closed.closed_at > 0


async def test_the_mark_of_the_journal_is_not_lost_by_a_move_that_does_not_know_it(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.commit(claim)

    await post.store.apply(post.deferred(claim, attempt=post.closed(claim, NEVER)))

    (closed,) = await post.store.attempts(claim.id)
    assert closed.committed_at > 0


async def test_recipients_are_told_as_they_are_settled(post: Letters) -> None:
    id = await post.ready(recipients=["a@example.com", "b@example.com", "c@example.com"])
    settled = (
        RecipientState(address="b@example.com", state="refused", reply="550 5.1.1 no such user"),
        RecipientState(address="a@example.com", state="accepted", reply="250 2.0.0 Ok"),
    )
    await post.store.apply(
        post.deferred(await post.claim(id), settled=settled, recipients=("c@example.com",), attempt=None)
    )

    found = await post.email(id)

    assert found.recipients == (
        settled[1],
        settled[0],
        RecipientState(address="c@example.com", state="waiting"),
    )


async def test_who_is_sent_by_the_only_attempt_is_accepted_with_its_reply(post: Letters) -> None:
    id = await post.sent(recipients=["a@example.com", "b@example.com"])

    assert [(one.address, one.state, one.reply) for one in (await post.email(id)).recipients] == [
        ("a@example.com", "accepted", "250 2.0.0 Ok: queued"),
        ("b@example.com", "accepted", "250 2.0.0 Ok: queued"),
    ]


async def test_an_operators_retry_tries_all_again_that_he_names(post: Letters) -> None:
    id = await post.failed(recipients=["a@example.com", "b@example.com"])
    retried = post.operator(
        id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, expires_at=post.now + DAY, attempts=0, doubts=0, crashes=0,
        alone_crashes=0, settled=(), recipients=("a@example.com", "b@example.com"),
    )  # fmt: skip
    await post.store.apply(retried)

    claim = await post.claim(id)

    assert (claim.recipients, claim.settled, claim.attempts) == (("a@example.com", "b@example.com"), (), 0)
    assert claim.attempt == 2


# ------------------------------------------------------------------------------------------ outcomes


async def test_an_outcome_has_its_time_and_its_number(post: Letters) -> None:
    id = await post.failed(callback_due=True)

    found = await post.email(id)
    assert (found.sequence, found.reached_at, found.callback_due) == (1, found.updated_at, True)


async def test_a_restored_outcome_keeps_time_and_number(post: Letters) -> None:
    id = await post.sent(callback_due=True, ago=HOUR)
    before = await post.email(id)
    calling = await post.calling()
    await post.store.apply(post.move(calling, S.SENT, C.RESTORED))

    after = await post.email(id)

    assert (after.sequence, after.reached_at) == (1, before.reached_at)
    assert after.callback_due


async def test_an_operators_retry_leads_to_a_new_outcome(post: Letters) -> None:
    id = await post.failed(ago=HOUR)
    first = await post.email(id)
    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))
    await post.store.apply(post.delivered(await post.claim(id)))

    second = await post.email(id)

    assert (first.sequence, second.sequence) == (1, 2)
    assert second.reached_at > first.reached_at


@pytest.mark.parametrize("ending", ["sent", "failed"])
async def test_the_reason_goes_on_telling_how_it_ended_while_its_owner_is_told(
    post: Letters, ending: str
) -> None:
    id = await getattr(post, ending)(callback_due=True)
    why = (await post.email(id)).reason
    calling = await post.calling()
    assert (await post.email(id)).reason == why
    back = S.SENT if ending == "sent" else S.FAILED
    await post.store.apply(post.move(calling, back, C.RESTORED, reason="worker w1 is gone"))
    assert (await post.email(id)).reason == why
    calling = await post.calling()
    end = S.SENT_ACKNOWLEDGED if ending == "sent" else S.FAILED_ACKNOWLEDGED
    await post.store.apply(post.move(calling, end, C.ACKNOWLEDGED, reason="200"))

    assert (await post.email(id)).reason == why
    assert [one.reason for one in (await post.store.history(id))[-3:]] == ["worker w1 is gone", "", "200"]


async def test_a_claim_leaves_the_reason_of_the_last_move(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.store.apply(post.deferred(claim, reason="450 4.2.0 try again later"))

    await post.claim(claim.id)

    assert (await post.email(claim.id)).reason == "450 4.2.0 try again later"


async def test_any_text_of_a_server_is_kept_as_it_is(post: Letters) -> None:
    words = "550 5.1.1 «nessun utente» 无此用户 \U0001f600 'quoted' \"twice\" % ? \\ " + "x" * 2_000
    claim = await post.claim(await post.ready())

    await post.store.apply(post.deferred(claim, reason=words))

    assert (await post.email(claim.id)).reason == words
    assert (await post.store.history(claim.id))[-1].reason == words


# ------------------------------------------------------------------------------------------ several at once


async def test_several_moves_have_each_their_result_and_a_loser_stops_nobody(post: Letters) -> None:
    claims = [await post.claim(await post.ready()) for _ in range(5)]
    await post.store.apply(post.deferred(claims[2], attempt=None))
    moves = [post.delivered(claim, attempt=post.closed(claim, OK)) for claim in claims]
    moves[3] = msgspec.structs.replace(moves[3], target=S.INVALID)

    results = await post.store.apply_all(moves)

    assert [type(result).__name__ for result in results] == [
        "NoneType", "NoneType", "LockNotAcquired", "MoveNotAllowed", "NoneType",
    ]  # fmt: skip
    expected = [S.SENT, S.SENT, S.READY, S.PROCESSING, S.SENT]
    assert expected == [await post.status(claim.id) for claim in claims]


async def test_a_text_that_no_store_could_keep_fails_alone(post: Letters) -> None:
    claims = [await post.claim(await post.ready()) for _ in range(3)]
    moves = [post.deferred(claim, attempt=None) for claim in claims]
    moves[1] = msgspec.structs.replace(moves[1], reason="half \ud83d of a horse")

    results = await post.store.apply_all(moves)

    assert (results[0], results[2]) == (None, None)
    assert isinstance(results[1], ValueError)
    assert await post.status(claims[1].id) is S.PROCESSING
    await post.store.apply(post.deferred(claims[1], attempt=None))


async def test_no_moves_are_no_work(post: Letters) -> None:
    assert await post.store.apply_all([]) == []


async def test_moves_of_one_email_keep_their_order(post: Letters) -> None:
    """Claim, mark and outcome may be handed over without waiting in between."""
    claims = [await post.claim(await post.ready()) for _ in range(20)]

    await asyncio.gather(
        *(call for claim in claims for call in (post.commit(claim), post.store.apply(post.deferred(claim))))
    )

    for claim in claims:
        (attempt,) = await post.store.attempts(claim.id)
        assert attempt.committed_at > 0


async def test_what_was_moved_is_moved_after_opening_anew(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    ids = [await post.sent(), await post.failed(), await post.ready()]
    held = await post.claim(await post.ready())
    before = [await post.story(id) for id in (*ids, held.id)]
    await store.close()

    again = ground.store()
    await again.open()
    try:
        later = Letters(again, ground)
        assert [await later.story(id) for id in (*ids, held.id)] == before
        assert (await again.counts())[S.PROCESSING] == 1
    finally:
        await again.close()
