"""Many steps at once: calls are gathered into groups, and nobody notices."""

from __future__ import annotations

import asyncio
import random

from contracts.letters import DAY, Letters
from contracts.stores import Ground
from staffetta.errors import LockNotAcquired
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import KeptAnswer

S, C = Status, Cause


async def test_a_hundred_lives_at_once_end_as_one_after_the_other_would(post: Letters) -> None:
    async def live(number: int) -> None:
        id = await post.ready(company_id=f"c{number % 7}")
        claim = await post.claim(id)
        if number % 3 == 0:
            await post.commit(claim)
            await post.store.apply(post.delivered(claim))
        elif number % 3 == 1:
            await post.store.apply(post.refused(claim))
        else:
            await post.store.apply(post.deferred(claim))
            await post.commit(await post.claim(id))

    await asyncio.gather(*(live(number) for number in range(99)))

    counts = await post.store.counts()
    assert (counts[S.SENT], counts[S.FAILED], counts[S.PROCESSING]) == (33, 33, 33)
    assert sum(counts.values()) == 99
    assert (await post.store.dead_letter_counts()).size == 33
    assert await post.store.queue_counts(now=post.now) == (0, 0, 33)


async def test_losers_and_winners_in_one_group_do_not_touch_each_other(post: Letters) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    claims = [await post.claim(await post.ready()) for _ in range(30)]
    lost = set(chance.sample(range(30), 10))
    for number in lost:
        await post.store.apply(post.deferred(claims[number], attempt=None))
    order = list(range(30))
    chance.shuffle(order)

    results = dict(
        zip(
            order,
            await asyncio.gather(
                *(post.store.apply(post.delivered(claims[number])) for number in order), return_exceptions=True
            ),
            strict=True,
        )
    )

    for number, claim in enumerate(claims):
        assert isinstance(results[number], LockNotAcquired) is (number in lost)
        assert await post.status(claim.id) is (S.READY if number in lost else S.SENT)
        assert len(await post.store.history(claim.id)) == 5


async def test_the_same_id_handed_in_by_many_at_once_is_one_email(post: Letters, there: Letters) -> None:
    new = post.new()

    results = await asyncio.gather(*((post, there)[n % 2].store.add([new]) for n in range(10)))

    assert [result.fresh for (result,) in results if not isinstance(result, Exception)].count(True) == 1
    assert all(not isinstance(result, Exception) for (result,) in results)
    assert len(await post.store.history(new.id)) == 3


async def test_a_key_used_by_many_at_once_is_kept_once(post: Letters, there: Letters) -> None:
    emails = [post.new() for _ in range(10)]

    results = await asyncio.gather(
        *(
            (post, there)[n % 2].store.add(
                [new],
                keep=KeptAnswer(company_id="acme", key="k", fingerprint="b", answer=b"%d" % n, at=post.now),
            )
            for n, new in enumerate(emails)
        )
    )

    (won,) = [n for n, (result,) in enumerate(results) if not isinstance(result, Exception)]
    assert [new.id for new in emails if await post.store.get(new.id)] == [emails[won].id]
    answer = await post.store.recall("acme", "k", newer_than=post.now - DAY)
    assert answer is not None
    assert answer.answer == b"%d" % won


async def test_who_stops_waiting_stops_nobody_else(post: Letters) -> None:
    ids = [await post.ready() for _ in range(20)]
    tasks = [asyncio.ensure_future(post.try_claim(id, token=f"w1.{id}")) for id in ids]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()

    results = await asyncio.gather(*tasks, return_exceptions=True)

    for task, id, result in zip(tasks, ids, results, strict=True):
        if task.cancelled():
            again = await post.try_claim(id, token=f"w1.{id}")
            assert again is not None  # it took effect or it did not: its own token finds out
        else:
            assert not isinstance(result, BaseException)
            assert result is not None
            assert result.id == id
    assert (await post.store.counts())[S.PROCESSING] == 20


async def test_after_a_call_that_raised_the_store_works_on(post: Letters) -> None:
    claim = await post.claim(await post.ready())
    stranger = post.operator("unknown", S.READY, S.FAILED, C.CANCELLED)

    results = await asyncio.gather(
        post.store.apply(stranger), post.store.erase_content("unknown"), post.store.apply(post.delivered(claim)),
        post.store.revoke_key("unknown", now=post.now), return_exceptions=True,
    )  # fmt: skip

    assert [type(result).__name__ for result in results] == [
        "LockNotAcquired",
        "NotFound",
        "NoneType",
        "NotFound",
    ]
    assert await post.status(claim.id) is S.SENT


async def test_what_was_handed_over_before_the_close_is_done(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    emails = [post.new() for _ in range(25)]
    calls = [asyncio.ensure_future(store.add([new])) for new in emails]
    await asyncio.sleep(0)

    await store.close()

    await asyncio.gather(*calls)
    again = ground.store()
    await again.open()
    try:
        assert (await again.counts())[S.READY] == 25
    finally:
        await again.close()


async def test_closing_twice_is_no_error_and_the_store_can_be_opened_again(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    await store.close()
    await store.close()

    again = ground.store()
    await again.open()
    await again.close()


async def test_a_store_is_brought_up_to_date_as_often_as_one_likes(ground: Ground) -> None:
    first, second = ground.store(), ground.store()
    await first.migrate()

    assert list(await second.migrate()) == []

    await second.open()
    assert sum((await second.counts()).values()) == 0
    await second.close()
