"""What is over is let go of, a bounded share at a time; never anything of an unfinished e-mail."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.letters import DAY, HOUR, MINUTE, Letters
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Added, KeptAnswer
from staffetta.mail.operators import Filter
from staffetta.store.contract import RetireCount

S, C = Status, Cause
LONG = 100_000 * DAY


async def retire(post: Letters, **limits: Any) -> RetireCount:
    """Everything is kept for ever, but for what a test says."""
    values = {"content_ms": LONG, "record_ms": None, "dead_letter_max": 10_000, "limit": 100, **limits}
    return await post.store.retire(now=post.now, **values)


# ------------------------------------------------------------------------------------------ content


async def test_old_content_is_erased_and_the_record_kept(post: Letters) -> None:
    old, young = await post.sent(ago=40 * DAY), await post.sent(ago=20 * DAY)
    before = await post.story(old)

    count = await retire(post, content_ms=30 * DAY)

    assert (count.contents, count.records, count.dead_letters) == (1, 0, 0)
    assert await post.store.content(old) is None
    assert await post.store.content(young) is not None
    after = await post.story(old)
    assert (after.email, after.history, after.attempts) == (before.email, before.history, before.attempts)


async def test_erased_content_is_counted_once(post: Letters) -> None:
    await post.sent(ago=40 * DAY)
    await retire(post, content_ms=30 * DAY)

    assert (await retire(post, content_ms=30 * DAY)).contents == 0


@pytest.mark.parametrize("status", [status for status in Status if status not in
                                    {S.SENT, S.INVALID, S.SENT_ACKNOWLEDGED, S.FAILED, S.FAILED_ACKNOWLEDGED}])  # fmt: skip
async def test_nothing_of_an_unfinished_email_goes(post: Letters, status: Status) -> None:
    id, _ = await post.brought_to(status)
    before = await post.story(id)

    count = await retire(post, content_ms=0, record_ms=0)

    assert (count.contents, count.records) == (0, 0)
    assert await post.story(id) == before


@pytest.mark.parametrize("status", [S.SENT, S.INVALID, S.SENT_ACKNOWLEDGED])
async def test_what_is_over_goes(post: Letters, status: Status) -> None:
    id, _ = await post.brought_to(status)

    count = await retire(post, content_ms=0)

    assert count.contents == 1
    assert await post.store.content(id) is None


@pytest.mark.parametrize("status", [S.FAILED, S.FAILED_ACKNOWLEDGED])
async def test_content_stays_as_long_as_there_is_a_dead_letter(post: Letters, status: Status) -> None:
    """A dead letter is there to be retried: that needs the content."""
    id, _ = await post.brought_to(status)
    assert (await retire(post, content_ms=0, record_ms=0)).contents == 0
    assert await post.store.content(id) is not None

    await post.store.discard([id])

    assert (await retire(post, content_ms=0)).contents == 1
    assert await post.store.content(id) is None


async def test_an_outcome_that_its_owner_does_not_know_stays(post: Letters) -> None:
    id = await post.sent(callback_due=True, ago=40 * DAY)
    assert (await retire(post, content_ms=DAY, record_ms=DAY)).contents == 0

    calling = await post.calling()
    assert (await retire(post, content_ms=DAY, record_ms=DAY)).contents == 0
    await post.store.release_reports([calling], now=post.now, exhausted=True)

    assert (await retire(post, content_ms=DAY)).contents == 0
    assert (await retire(post, content_ms=0)).contents == 1
    assert await post.store.content(id) is None


async def test_what_came_back_to_life_stays(post: Letters) -> None:
    id = await post.failed(ago=40 * DAY)
    await post.store.apply(post.operator(id, S.FAILED, S.READY, C.RETRIED, due_at=post.now, attempts=0))
    await post.store.discard([id])

    assert (await retire(post, content_ms=DAY, record_ms=DAY)).contents == 0
    assert await post.store.content(id) is not None
    await post.store.apply(post.delivered(await post.claim(id)))
    assert (await retire(post, content_ms=DAY)).contents == 0
    assert (await retire(post, content_ms=0)).contents == 1


async def test_erasing_is_bounded_and_goes_on(post: Letters) -> None:
    for _ in range(7):
        await post.sent(ago=40 * DAY)

    counts = [(await retire(post, content_ms=DAY, limit=3)).contents for _ in range(4)]

    assert counts == [3, 3, 1, 0]


async def test_files_that_nobody_names_any_more_are_told(post: Letters) -> None:
    await post.sent(
        ago=40 * DAY, message=None, payload=None, eml_file_path="s/1.eml", payload_file_path="s/1.json"
    )
    await post.sent(ago=40 * DAY)

    count = await retire(post, content_ms=DAY)

    assert sorted(count.files) == ["s/1.eml", "s/1.json"]


async def test_a_file_that_another_email_names_is_not_told(post: Letters) -> None:
    await post.sent(ago=40 * DAY, message=None, eml_file_path="s/both.eml")
    other = await post.sent(message=None, eml_file_path="s/both.eml")
    assert (await retire(post, content_ms=DAY)).files == ()

    assert (await post.store.erase_content(other)) == ("s/both.eml",)


# ------------------------------------------------------------------------------------------ records


async def test_records_are_kept_unless_asked(post: Letters) -> None:
    id = await post.sent(ago=1_000 * DAY)

    assert (await retire(post, content_ms=0)).records == 0
    assert await post.store.get(id) is not None


async def test_old_records_go_with_all_that_tells_of_them(post: Letters) -> None:
    old, young = await post.sent(ago=40 * DAY, eml_file_path="s/1.eml", message=None), await post.sent(ago=DAY)

    count = await retire(post, record_ms=30 * DAY)

    assert (count.records, count.files) == (1, ("s/1.eml",))
    story = await post.story(old)
    assert (story.email, story.history, story.attempts, story.content) == (None, [], [], None)
    assert [found.id for found in (await post.store.emails(Filter(), limit=10)).items] == [young]
    assert (await post.store.emails(Filter(recipient="ada@example.com"), limit=10)).items != ()
    assert (await post.store.counts())[S.SENT] == 1


async def test_a_record_goes_after_its_content_was_erased_too(post: Letters) -> None:
    id = await post.sent(ago=40 * DAY)
    await retire(post, content_ms=30 * DAY, record_ms=60 * DAY)

    count = await retire(post, content_ms=30 * DAY, record_ms=35 * DAY)

    assert (count.contents, count.records) == (0, 1)
    assert await post.store.get(id) is None


async def test_an_id_whose_record_is_gone_is_new(post: Letters) -> None:
    new = post.new(ago=40 * DAY)
    await post.add(new)
    await post.store.apply(post.delivered(await post.claim(new.id), at=post.now - 39 * DAY))
    await retire(post, record_ms=30 * DAY)

    (again,) = await post.store.add([new])

    assert isinstance(again, Added)
    assert again.fresh
    assert [one.status for one in await post.store.history(new.id)] == [S.ACCEPTED, S.INTAKING, S.READY]
    assert (await post.claim(new.id)).attempt == 1


async def test_deleting_records_is_bounded_and_goes_on(post: Letters) -> None:
    for _ in range(7):
        await post.sent(ago=40 * DAY)

    counts = [(await retire(post, record_ms=DAY, limit=3)).records for _ in range(4)]

    assert counts == [3, 3, 1, 0]
    assert sum((await post.store.counts()).values()) == 0


# ------------------------------------------------------------------------------------------ dead letters, answers


async def test_dead_letters_go_when_their_time_is_over(post: Letters) -> None:
    old, young = await post.failed(ago=8 * DAY, company_id="a"), await post.failed(ago=6 * DAY)

    count = await retire(post)

    assert [(one.id, one.company_id, one.why) for one in count.dropped] == [(old, "a", "age")]
    assert count.dead_letters == 1
    assert await post.store.dead_letter(old) is None
    assert await post.store.dead_letter(young) is not None
    assert await post.status(old) is S.FAILED


async def test_beyond_the_cap_the_oldest_go_first(post: Letters) -> None:
    ids = [await post.failed(ago=ago * HOUR) for ago in (2, 5, 1, 4, 3)]

    count = await retire(post, dead_letter_max=3)

    assert [(one.id, one.why) for one in count.dropped] == [(ids[1], "cap"), (ids[3], "cap")]
    assert (await post.store.dead_letter_counts()).size == 3


async def test_dropping_dead_letters_is_bounded(post: Letters) -> None:
    for ago in range(7):
        await post.failed(ago=8 * DAY + ago * MINUTE)

    counts = [(await retire(post, limit=3)).dead_letters for _ in range(4)]

    assert counts == [3, 3, 1, 0]


async def test_a_dropped_dead_letter_lets_the_content_go_when_it_is_old(post: Letters) -> None:
    id = await post.failed(ago=40 * DAY)

    first, second = await retire(post, content_ms=DAY), await retire(post, content_ms=DAY)

    assert first.dead_letters == 1
    assert first.contents + second.contents == 1
    assert await post.store.content(id) is None


async def test_old_answers_go_and_young_ones_stay(post: Letters) -> None:
    for key, ago in (("old", DAY + MINUTE), ("young", HOUR)):
        answer = KeptAnswer(company_id="acme", key=key, fingerprint="b", answer=b"{}", at=post.now - ago)
        await post.store.add([post.new()], keep=answer)

    await retire(post)

    assert await post.store.recall("acme", "old", newer_than=0) is None
    assert await post.store.recall("acme", "young", newer_than=0) is not None


async def test_in_an_empty_store_nothing_goes(post: Letters) -> None:
    assert await retire(post, content_ms=0, record_ms=0, dead_letter_max=0) == RetireCount()
