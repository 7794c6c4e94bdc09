"""Dead letters: written with the move, one an e-mail, listed and counted, gone when the e-mail is sent."""

from __future__ import annotations

import msgspec
import pytest

from contracts.letters import DAY, HOUR, MINUTE, Letters
from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.operators import Filter

S, C = Status, Cause


async def listed(post: Letters, filter: Filter | None = None, *, limit: int = 100) -> list[str]:
    return [one.outbox_id for one in (await post.store.dead_letters(filter or Filter(), limit=limit)).items]


async def test_it_is_written_with_the_move(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    move = post.refused(claim, code="5.1.1 a code", ago=MINUTE)

    await post.store.apply(move)

    assert await post.store.dead_letter(claim.id) == move.dead_letter


async def test_a_lost_move_writes_none(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.store.apply(post.deferred(claim))

    with pytest.raises(LockNotAcquired):
        await post.store.apply(post.refused(claim))

    assert await post.store.dead_letter(claim.id) is None
    assert (await post.store.dead_letter_counts()).size == 0


async def test_without_a_code_there_is_one_all_the_same(post: Letters) -> None:
    id = await post.failed(code=None)

    found = await post.store.dead_letter(id)

    assert found is not None
    assert found.last_failure_code is None
    assert await listed(post) == [id]


async def test_a_retry_marks_it_as_being_retried(post: Letters) -> None:
    id = await post.failed()
    before = await post.store.dead_letter(id)
    assert before is not None

    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    expected = msgspec.structs.replace(before, retrying_since=post.now)
    found = await post.store.dead_letter(id)
    assert found is not None
    assert found.retrying_since > 0
    assert msgspec.structs.replace(found, retrying_since=expected.retrying_since) == expected
    assert (await post.store.dead_letter_counts()).size == 1


async def test_sent_removes_it(post: Letters) -> None:
    id = await post.failed()
    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    await post.store.apply(post.delivered(await post.claim(id)))

    assert await post.store.dead_letter(id) is None
    assert (await post.store.dead_letter_counts()).size == 0


async def test_resolved_removes_it(post: Letters) -> None:
    id = await post.failed(code="IN-DOUBT")

    await post.store.apply(post.operator(id, S.FAILED, S.SENT, C.RESOLVED))

    assert await post.store.dead_letter(id) is None


async def test_another_failure_renews_it(post: Letters) -> None:
    id = await post.failed(ago=HOUR, code="421")
    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))
    second = post.refused(await post.claim(id), code="550")

    await post.store.apply(second)

    assert await post.store.dead_letter(id) == second.dead_letter
    counts = await post.store.dead_letter_counts()
    assert (counts.size, counts.by_code) == (1, {"550": 1})


async def test_a_failure_without_one_leaves_none(post: Letters) -> None:
    """Cancelled by an operator: nobody needs to look at it."""
    id = await post.failed()
    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    await post.store.apply(post.operator(id, S.READY, S.FAILED, C.CANCELLED))

    assert await post.store.dead_letter(id) is None


async def test_telling_the_owner_leaves_it(post: Letters) -> None:
    id = await post.failed(callback_due=True)
    before = await post.store.dead_letter(id)
    calling = await post.calling()
    await post.store.apply(post.move(calling, S.FAILED, C.RESTORED))
    calling = await post.calling()
    await post.store.apply(post.move(calling, S.FAILED_ACKNOWLEDGED, C.ACKNOWLEDGED))

    assert await post.store.dead_letter(id) == before


async def test_they_are_listed_newest_first_in_stable_pages(post: Letters) -> None:
    ids = [await post.failed(ago=ago * MINUTE) for ago in (5, 1, 3, 3, 2, 4)]
    young_first = [ids[1], ids[4], *sorted([ids[2], ids[3]], reverse=True), ids[5], ids[0]]
    assert await listed(post) in (young_first, [*young_first[:2], ids[2], ids[3], *young_first[4:]])

    first = await post.store.dead_letters(Filter(), limit=3)
    await post.failed()
    second = await post.store.dead_letters(Filter(), limit=3, cursor=first.cursor)

    assert [one.outbox_id for one in (*first.items, *second.items)] == (await listed(post))[1:]


async def test_every_field_of_a_filter_narrows(post: Letters) -> None:
    old = await post.failed(ago=2 * DAY, code="421", recipients=["a@example.com", "b@example.com"])
    other = await post.failed(ago=DAY, company_id="other", recipients=["b@example.com"])
    retried = await post.failed(ago=HOUR, code="421")
    await post.store.apply(post.operator(retried, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    expected = {
        Filter(): [retried, other, old],
        Filter(code="421"): [retried, old],
        Filter(company_id="other"): [other],
        Filter(recipient="b@example.com"): [other, old],
        Filter(status=(S.FAILED,)): [other, old],
        Filter(status=(S.READY,)): [retried],
        Filter(since=post.now - DAY - HOUR): [retried, other],
        Filter(until=post.now - DAY - HOUR): [old],
        Filter(code="421", company_id="acme", status=(S.FAILED,)): [old],
        Filter(code="550", company_id="acme"): [],
    }
    for filter, ids in expected.items():
        assert await listed(post, filter) == ids, filter


async def test_emails_are_found_by_the_code_of_their_dead_letter(post: Letters) -> None:
    id = await post.failed(code="421")
    await post.failed(code="550")

    assert [one.id for one in (await post.store.emails(Filter(code="421"), limit=10)).items] == [id]


async def test_they_are_counted_by_code_and_company(post: Letters) -> None:
    await post.failed(code="421", company_id="a", ago=HOUR)
    await post.failed(code="550", company_id="a")
    await post.failed(code="550", company_id="b")
    await post.failed(code=None, company_id="b")

    counts = await post.store.dead_letter_counts()

    assert counts.size == 4
    assert counts.by_code == {"421": 1, "550": 2, "": 1}
    assert counts.by_company == {"a": 2, "b": 2}
    assert counts.oldest_at is not None
    assert abs(counts.oldest_at - (post.now - HOUR)) < MINUTE


async def test_where_there_are_none_nothing_is_counted(post: Letters) -> None:
    counts = await post.store.dead_letter_counts()

    assert (counts.size, counts.by_code, counts.by_company, counts.oldest_at) == (0, {}, {}, None)


async def test_discarding_removes_the_entry_and_keeps_the_record(post: Letters) -> None:
    one, two = await post.failed(), await post.failed()

    assert await post.store.discard([one, one, "unknown"]) == 1

    assert await listed(post) == [two]
    assert await post.status(one) is S.FAILED
    assert await post.store.discard([one]) == 0
    assert await post.store.discard([]) == 0


async def test_what_was_discarded_can_be_retried_all_the_same(post: Letters) -> None:
    id = await post.failed()
    await post.store.discard([id])

    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    assert (await post.claim(id)).attempt == 2


@pytest.mark.parametrize("status", [S.ACCEPTED, S.READY])
async def test_an_expired_email_has_one(post: Letters, status: Status) -> None:
    id, _ = await post.brought_to(status)
    letter = post.letter(id, code="EXPIRED")

    await post.store.apply(post.operator(id, status, S.FAILED, C.EXPIRED, dead_letter=letter))

    assert await post.store.dead_letter(id) == letter
