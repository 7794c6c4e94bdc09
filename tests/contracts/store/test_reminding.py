"""What the queue is filled from: whose e-mails wait, in which order, and what became due."""

from __future__ import annotations

from contracts.letters import DAY, HOUR, MINUTE, SECOND, Letters
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Job
from staffetta.mail.rescue import SUSPECT_CRASHES

S, C = Status, Cause


async def line(
    post: Letters, company_id: str = "acme", *, limit: int = 100, after: Job | None = None
) -> list[Job]:
    return await post.store.waiting(company_id, now=post.now, limit=limit, after=after)


async def told(post: Letters, limit: int = 100) -> list[str]:
    return [job.id for job in await post.store.news(now=post.now, limit=limit)]


# ------------------------------------------------------------------------------------------ waiting


async def test_companies_with_due_emails_are_named(post: Letters) -> None:
    await post.ready(company_id="b")
    await post.ready(company_id="a")
    await post.ready(company_id="a")
    await post.ready(company_id="later", due_in=HOUR)
    await post.accepted(company_id="unread")
    await post.sent(company_id="done")

    assert sorted(await post.store.waiting_companies(now=post.now)) == ["a", "b"]


async def test_nobody_waits_in_an_empty_store(post: Letters) -> None:
    assert await post.store.waiting_companies(now=post.now) == []
    assert await line(post) == []
    assert await told(post) == []
    assert await post.store.next_due(now=post.now) is None


async def test_a_line_goes_by_priority_then_due_time_then_as_they_came(post: Letters) -> None:
    last = await post.ready(priority=9, ago=HOUR)
    third, fourth = await post.ready(ago=SECOND), await post.ready(ago=SECOND)
    second = await post.ready(ago=MINUTE)
    first = await post.ready(priority=1)

    assert [job.id for job in await line(post)] == [first, second, third, fourth, last]


async def test_a_job_says_what_the_queue_must_know(post: Letters) -> None:
    new = post.new(company_id="other", priority=3)
    await post.add(new)

    (job,) = await line(post, "other")

    assert (job.id, job.company_id, job.priority, job.due_at) == (new.id, "other", 3, new.due_at)
    assert not job.suspect
    claim = await post.store.claim(job, token=post.token(), now=post.now)
    assert claim is not None
    assert claim.id == new.id


async def test_a_line_has_only_its_companys_due_emails(post: Letters) -> None:
    mine = await post.ready()
    await post.ready(company_id="other")
    await post.ready(due_in=HOUR)
    held = await post.claim(await post.ready())
    await post.sent()
    await post.failed()

    assert [job.id for job in await line(post)] == [mine]
    await post.store.apply(post.deferred(held, due_in=HOUR))
    assert [job.id for job in await line(post)] == [mine]


async def test_pages_of_a_line_are_the_whole_line(post: Letters) -> None:
    for number in range(30):
        await post.ready(priority=1 + number % 3, ago=(number % 7) * SECOND)
    whole = await line(post)

    paged: list[Job] = []
    while page := await line(post, limit=4, after=paged[-1] if paged else None):
        assert len(page) <= 4
        paged += page

    assert [job.id for job in paged] == [job.id for job in whole]
    assert len(whole) == 30


async def test_a_page_goes_on_behind_one_that_is_no_longer_there(post: Letters) -> None:
    ids = [await post.ready() for _ in range(6)]
    first = await line(post, limit=3)
    for job in first:
        await post.store.apply(post.delivered(await post.claim(job.id)))

    assert [job.id for job in await line(post, limit=10, after=first[-1])] == ids[3:]


async def test_a_deferred_email_stands_at_its_new_time(post: Letters) -> None:
    first, second = await post.ready(ago=HOUR), await post.ready(ago=MINUTE)
    await post.store.apply(post.deferred(await post.claim(first)))

    assert [job.id for job in await line(post)] == [second, first]


async def test_a_suspect_is_known_as_one(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    await post.store.apply(
        post.move(
            claim, S.READY, C.RESTORED, due_at=post.now, crashes=SUSPECT_CRASHES, attempt=post.closed(claim)
        )
    )

    (job,) = await line(post)

    assert job.suspect


async def test_an_email_that_ended_and_came_back_waits_once(post: Letters) -> None:
    id = await post.failed()
    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    assert [job.id for job in await line(post)] == [id]
    assert await post.store.waiting_companies(now=post.now) == ["acme"]


async def test_companies_of_finished_emails_are_not_named(post: Letters) -> None:
    for _ in range(3):
        await post.sent()

    assert await post.store.waiting_companies(now=post.now) == []


# ------------------------------------------------------------------------------------------ news


async def test_what_another_process_hands_in_is_news_once(post: Letters, there: Letters) -> None:
    ids = [await there.ready() for _ in range(3)]

    assert sorted(await told(post)) == sorted(ids)
    if post.store.owned:
        assert await told(post) == []
    assert [job.id for job in await line(post)] == ids


async def test_what_an_operator_retries_is_news(post: Letters, there: Letters) -> None:
    id = await post.failed()
    await there.store.apply(there.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))

    assert await told(post) == [id]


async def test_news_come_in_pieces_of_the_limit_and_none_is_lost(post: Letters, there: Letters) -> None:
    ids = [await there.ready() for _ in range(7)]

    pieces = [await told(post, 3) for _ in range(4)]

    assert all(len(piece) <= 3 for piece in pieces)
    assert sorted({id for piece in pieces for id in piece}) == sorted(ids)


async def test_what_is_no_longer_ready_is_no_news(post: Letters, there: Letters) -> None:
    held, gone, here = [await there.ready() for _ in range(3)]
    await there.claim(held)
    await there.store.apply(there.operator(gone, S.READY, S.FAILED, C.CANCELLED))

    assert await told(post) == [here]


async def test_what_is_not_due_is_no_news_yet(post: Letters, there: Letters) -> None:
    await post.ready(due_in=HOUR)
    await there.ready(due_in=HOUR)

    assert await told(post) == []


async def test_what_became_due_by_time_is_news(post: Letters, there: Letters) -> None:
    mine, theirs = await post.ready(due_in=MINUTE), await there.ready(due_in=MINUTE)
    deferred = await post.ready()
    await post.store.apply(post.deferred(await post.claim(deferred), due_in=MINUTE))
    post.clock.turn(MINUTE - post.store.resolution_ms)
    assert await told(post) == []

    post.clock.turn(post.store.resolution_ms)

    assert sorted(await told(post)) == sorted([mine, theirs, deferred])
    if post.store.owned:
        assert await told(post) == []


async def test_one_that_was_put_off_again_is_news_at_its_last_time_only(post: Letters) -> None:
    id = await post.ready(due_in=MINUTE)
    post.clock.turn(MINUTE)
    await post.store.apply(post.deferred(await post.claim(id), due_in=HOUR))
    assert await told(post) == []

    post.clock.turn(HOUR)

    assert await told(post) == [id]


# ------------------------------------------------------------------------------------------ due times and counts


async def test_the_next_due_time_is_the_nearest_ahead(post: Letters) -> None:
    near = post.new(due_in=HOUR)
    await post.add(post.new(due_in=DAY), near, post.new())

    assert await post.store.next_due(now=post.now) == near.due_at


async def test_a_cancelled_email_is_not_waited_for(post: Letters) -> None:
    id = await post.ready(due_in=HOUR)
    far = post.new(due_in=2 * HOUR)
    await post.add(far)
    await post.store.apply(post.operator(id, S.READY, S.FAILED, C.CANCELLED))

    assert await post.store.next_due(now=post.now) == far.due_at


async def test_the_queue_is_counted_by_the_store(post: Letters) -> None:
    for _ in range(3):
        await post.ready()
    for _ in range(2):
        await post.ready(due_in=HOUR)
    held = await post.claim(await post.ready())
    await post.sent()
    await post.accepted()
    assert await post.store.queue_counts(now=post.now) == (3, 2, 1)

    await post.store.apply(post.deferred(held, due_in=HOUR))

    assert await post.store.queue_counts(now=post.now) == (3, 3, 0)


async def test_what_became_due_counts_as_waiting_told_or_not(post: Letters) -> None:
    await post.ready(due_in=MINUTE)
    await post.ready(due_in=HOUR)
    post.clock.turn(MINUTE)
    assert await post.store.queue_counts(now=post.now) == (1, 1, 0)

    await told(post)

    assert await post.store.queue_counts(now=post.now) == (1, 1, 0)


async def test_a_delayed_email_that_ends_is_counted_no_more(post: Letters) -> None:
    id = await post.ready(due_in=HOUR)
    await post.store.apply(post.operator(id, S.READY, S.FAILED, C.CANCELLED))

    assert await post.store.queue_counts(now=post.now) == (0, 0, 0)
