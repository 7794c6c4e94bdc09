"""Records, stories, counts and pages: newest first, every one once, whatever is added meanwhile."""

from __future__ import annotations

import itertools

import pytest

from contracts.letters import DAY, HOUR, MINUTE, SECOND, Letters
from staffetta.errors import PayloadError
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.operators import Filter

S = Status


async def listed(post: Letters, filter: Filter, *, limit: int = 100) -> list[str]:
    return [found.id for found in (await post.store.emails(filter, limit=limit)).items]


async def walked(post: Letters, filter: Filter, *, limit: int) -> list[str]:
    found: list[str] = []
    cursor = None
    for _ in range(100):
        page = await post.store.emails(filter, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += [one.id for one in page.items]
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


async def test_of_an_unknown_email_nothing_is_told(post: Letters) -> None:
    story = await post.story("00000000-0000-0000-0000-000000000000")

    assert (story.email, story.history, story.attempts, story.content, story.dead_letter) == (
        None,
        [],
        [],
        None,
        None,
    )


async def test_a_history_is_told_oldest_first(post: Letters) -> None:
    id = await post.ready()
    for _ in range(3):
        await post.store.apply(post.deferred(await post.claim(id)))
    await post.store.apply(post.delivered(await post.claim(id)))

    told = [one.status for one in await post.store.history(id)]

    assert told == [S.ACCEPTED, S.INTAKING, *[S.READY, S.PROCESSING] * 4, S.SENT]
    times = [one.at for one in await post.store.history(id)]
    assert len(times) == 11
    assert [one.attempt for one in await post.store.attempts(id)] == [1, 2, 3, 4]


async def test_pages_go_newest_first(post: Letters) -> None:
    young, old, middle = [await post.ready(ago=ago) for ago in (MINUTE, HOUR, 30 * MINUTE)]

    assert await listed(post, Filter()) == [young, middle, old]


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
async def test_pages_together_are_the_whole_once(post: Letters, limit: int) -> None:
    """Many of the same moment: ties must not be lost between two pages."""
    ids = await post.add(*(post.new(ago=(n % 3) * MINUTE) for n in range(20)))

    found = await walked(post, Filter(), limit=limit)

    assert sorted(found) == sorted(ids)
    assert found == await listed(post, Filter())


async def test_a_full_last_page_is_the_last(post: Letters) -> None:
    for _ in range(4):
        await post.ready()
    first = await post.store.emails(Filter(), limit=2)
    second = await post.store.emails(Filter(), limit=2, cursor=first.cursor)

    assert len(second.items) == 2
    assert (
        second.cursor is None or (await post.store.emails(Filter(), limit=2, cursor=second.cursor)).items == ()
    )


async def test_pages_stand_still_while_others_are_added(post: Letters) -> None:
    ids = [await post.ready(ago=HOUR + n * MINUTE) for n in range(6)]
    first = await post.store.emails(Filter(), limit=3)
    await post.ready()

    second = await post.store.emails(Filter(), limit=3, cursor=first.cursor)

    assert [one.id for one in (*first.items, *second.items)] == ids


@pytest.mark.parametrize("cursor", ["", "nonsense", "1.x", "9" * 40, "'; DROP TABLE emails"])
async def test_a_cursor_that_is_not_ours_is_refused(post: Letters, cursor: str) -> None:
    with pytest.raises(PayloadError):
        await post.store.emails(Filter(), limit=3, cursor=cursor)
    with pytest.raises(PayloadError):
        await post.store.dead_letters(Filter(), limit=3, cursor=cursor)


async def test_every_field_of_a_filter_narrows(post: Letters) -> None:
    ready = await post.ready(ago=4 * HOUR, recipients=["a@example.com", "b@example.com"])
    held = (await post.claim(await post.ready(ago=3 * HOUR, company_id="other"))).id
    sent = await post.sent(ago=2 * HOUR, recipients=["b@example.com"])
    failed = await post.failed(ago=HOUR, code="421")
    accepted = await post.accepted()

    expected = {
        Filter(): [accepted, failed, sent, held, ready],
        Filter(status=(S.READY,)): [ready],
        Filter(status=(S.PROCESSING,)): [held],
        Filter(status=(S.SENT, S.FAILED)): [failed, sent],
        Filter(status=(S.INVALID,)): [],
        Filter(status=(S.ACCEPTED, S.PROCESSING, S.READY)): [accepted, held, ready],
        Filter(company_id="other"): [held],
        Filter(company_id="nobody"): [],
        Filter(recipient="b@example.com"): [sent, ready],
        Filter(recipient="B@EXAMPLE.COM"): [],
        Filter(recipient="b@example.com", status=(S.SENT,)): [sent],
        Filter(code="421"): [failed],
        Filter(code="550"): [],
        Filter(since=post.now - 2 * HOUR - SECOND): [accepted, failed, sent],
        Filter(until=post.now - 2 * HOUR - SECOND): [held, ready],
        Filter(since=post.now - 3 * HOUR - SECOND, until=post.now - HOUR - SECOND): [sent, held],
        Filter(company_id="acme", status=(S.READY, S.SENT)): [sent, ready],
        Filter(company_id="acme", recipient="a@example.com", status=(S.READY,), since=post.now - DAY): [ready],
    }
    for filter, ids in expected.items():
        assert await listed(post, filter) == ids, filter
        assert await walked(post, filter, limit=1) == ids, filter


async def test_since_is_meant_with_and_until_without_its_moment(post: Letters) -> None:
    new = post.new(ago=HOUR)
    await post.add(new)

    assert await listed(
        post, Filter(since=new.created_at, until=new.created_at + post.store.resolution_ms)
    ) == [new.id]
    assert await listed(post, Filter(until=new.created_at)) == []
    assert await listed(post, Filter(since=new.created_at + post.store.resolution_ms)) == []


@pytest.mark.parametrize("status", list(Status))
async def test_every_status_is_found_by_its_name(post: Letters, status: Status) -> None:
    id, _ = await post.brought_to(status)

    for asked in Status:
        expected = [id] if asked is status else []
        assert await listed(post, Filter(status=(asked,))) == expected
        assert await listed(post, Filter(status=(asked,), company_id="acme")) == expected


async def test_counts_are_those_of_all_emails_whatever_happened_to_them(post: Letters) -> None:
    for status in Status:
        if status not in (S.ACCEPTED, S.READY, S.SENT, S.FAILED):
            await post.brought_to(status)
    for status in (S.ACCEPTED, S.READY, S.SENT, S.FAILED):
        await post.brought_to(status)

    assert await post.store.counts() == dict.fromkeys(Status, 1)


async def test_every_status_is_counted_in_an_empty_store_too(post: Letters) -> None:
    assert await post.store.counts() == dict.fromkeys(Status, 0)


async def test_a_listed_email_is_told_as_it_is_told_alone(post: Letters) -> None:
    await post.sent(recipients=["a@example.com", "b@example.com"])
    await post.failed(callback_due=True)
    await post.claim(await post.ready(priority=2))
    await post.accepted()
    await post.calling()

    page = await post.store.emails(Filter(), limit=10)

    assert len(page.items) == 4
    assert list(page.items) == [await post.store.get(one.id) for one in page.items]


async def test_another_process_reads_the_same(post: Letters, there: Letters) -> None:
    ids = [await post.sent(), await post.failed(), (await post.claim(await post.ready())).id]

    for id in ids:
        assert await there.story(id) == await post.story(id)
    assert await there.store.counts() == await post.store.counts()
    assert await listed(there, Filter()) == await listed(post, Filter())


async def test_names_that_look_like_a_language_are_only_names(post: Letters) -> None:
    names = ["a'b", 'a"b', "a;b", "a%b", "a_b", "a\\b", "ünï", "A", "a", "a ", "ａ"]
    ids = {name: await post.ready(company_id=name) for name in names}

    for name in names:
        assert await listed(post, Filter(company_id=name)) == [ids[name]], name
        assert [job.id for job in await post.store.waiting(name, now=post.now, limit=5)] == [ids[name]], name
    assert sorted(await post.store.waiting_companies(now=post.now)) == sorted(names)


async def test_a_long_story_is_told_whole(post: Letters) -> None:
    id = await post.ready()
    for number in itertools.count(1):
        if number > 40:
            break
        await post.store.apply(post.deferred(await post.claim(id), reason=f"450 number {number}"))

    reasons = [one.reason for one in await post.store.history(id) if one.cause is Cause.DEFERRED]

    assert reasons == [f"450 number {number}" for number in range(1, 41)]
    assert [one.attempt for one in await post.store.attempts(id)] == list(range(1, 41))
