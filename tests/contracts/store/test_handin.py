"""What was accepted is there, once, whatever is handed in twice."""

from __future__ import annotations

import asyncio

import msgspec

from contracts.letters import DAY, HOUR, Letters, email_id, job_of
from contracts.stores import Ground
from staffetta.errors import Conflict, MoveNotAllowed, Unstorable
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Added, HistoryEntry, KeptAnswer, Options, RetryLimits

ALL_OPTIONS = Options(
    limits=RetryLimits(max_attempts=7, retry_delay_ms=1_000, max_retry_delay_ms=9_000),
    in_doubt="hold",
    callback_url="https://example.com/told",
    tags=("first", "zweite", "terça"),
    metadata={"order": 7, "paid": True, "lines": [{"sku": "x", "price": 1.5}], "none": None},
    expires_in_seconds=600,
)


async def test_an_accepted_email_can_be_read_back_whole(post: Letters) -> None:
    new = post.new(
        recipients=["ada@example.com", "Zoë@exämple.org"], priority=3, due_in=HOUR, options=ALL_OPTIONS,
        payload='{"subject":"Grüße 🐎"}'.encode(), message=b"Subject: hello\r\n\r\n" + bytes(range(256)),
    )  # fmt: skip
    await post.add(new)

    found = await post.email(new.id)
    assert (found.status, found.company_id, found.priority) == (Status.READY, "acme", 3)
    assert (found.created_at, found.due_at, found.expires_at) == (new.created_at, new.due_at, new.expires_at)
    assert (found.sender, found.options) == ("shop@example.com", ALL_OPTIONS)
    assert [(one.address, one.state) for one in found.recipients] == [
        ("ada@example.com", "waiting"),
        ("Zoë@exämple.org", "waiting"),
    ]
    assert (found.attempts, found.opened, found.doubts, found.crashes, found.sequence) == (0, 0, 0, 0, 0)
    assert found.version == post.version(3)
    assert not found.token
    content = await post.store.content(new.id)
    assert content is not None
    assert (content.payload, content.message) == (new.payload, new.message)


async def test_creation_writes_the_first_history_row_and_each_status_passed_has_its_own(post: Letters) -> None:
    accepted, ready = await post.accepted(), await post.ready()

    assert [(one.status, one.cause) for one in await post.store.history(accepted)] == [
        (Status.ACCEPTED, Cause.ACCEPTED)
    ]
    assert [(one.status, one.cause) for one in await post.store.history(ready)] == [
        (Status.ACCEPTED, Cause.ACCEPTED),
        (Status.INTAKING, Cause.CLAIMED),
        (Status.READY, Cause.COMPOSED),
    ]
    assert (await post.email(accepted)).version == post.version(1)


async def test_paths_of_content_in_files_are_kept(post: Letters) -> None:
    id = await post.ready(payload=None, message=None, payload_file_path="a/p.json", eml_file_path="a/m.eml")

    found, content = await post.email(id), await post.store.content(id)
    assert content is not None
    assert (content.payload_file_path, content.eml_file_path) == ("a/p.json", "a/m.eml")
    assert (found.payload_file_path, found.eml_file_path) == ("a/p.json", "a/m.eml")


async def test_every_email_of_a_call_has_its_own_result_in_order(post: Letters) -> None:
    emails = [post.new(Status.ACCEPTED if n % 3 == 0 else Status.READY) for n in range(20)]

    results = await post.store.add(emails)

    expected = [(new.id, new.status, True) for new in emails]
    assert expected == [(r.id, r.status, r.fresh) for r in results if isinstance(r, Added)]


async def test_nothing_handed_in_is_nothing_done(post: Letters) -> None:
    assert await post.store.add([]) == []
    assert sum((await post.store.counts()).values()) == 0


async def test_a_known_id_with_the_same_content_gives_its_present_status_and_changes_nothing(
    post: Letters,
) -> None:
    new = post.new()
    await post.add(new)
    await post.store.apply(post.delivered(await post.claim(new.id)))
    before = await post.story(new.id)

    (again,) = await post.store.add([new])

    assert isinstance(again, Added)
    assert (again.id, again.status, again.fresh) == (new.id, Status.SENT, False)
    assert await post.story(new.id) == before


async def test_the_status_told_again_is_the_one_it_is_held_in(post: Letters) -> None:
    new = post.new()
    await post.add(new)
    await post.claim(new.id)

    (again,) = await post.store.add([new])

    assert isinstance(again, Added)
    assert again.status is Status.PROCESSING


async def test_a_known_id_with_another_content_is_a_conflict_and_its_neighbours_are_kept(post: Letters) -> None:
    known = post.new()
    await post.add(known)
    before = await post.story(known.id)
    other = msgspec.structs.replace(known, fingerprint="another", message=b"another")
    one, two = post.new(), post.new()

    results = await post.store.add([one, other, two])

    assert isinstance(results[1], Conflict)
    assert [one.id, two.id] == [r.id for r in results if isinstance(r, Added)]
    assert await post.story(known.id) == before


async def test_a_known_id_of_another_company_is_a_conflict(post: Letters) -> None:
    known = post.new()
    await post.add(known)

    (result,) = await post.store.add([msgspec.structs.replace(known, company_id="other")])

    assert isinstance(result, Conflict)
    assert (await post.email(known.id)).company_id == "acme"


async def test_the_same_email_twice_in_one_call_is_made_once(post: Letters) -> None:
    new = post.new()

    first, second = await post.store.add([new, new])

    assert isinstance(first, Added)
    assert isinstance(second, Added)
    assert (first.fresh, second.fresh) == (True, False)
    assert len(await post.store.history(new.id)) == 3
    assert (await post.store.counts())[Status.READY] == 1


async def test_a_history_that_is_no_walk_through_the_table_is_refused_alone(post: Letters) -> None:
    good, bad = post.new(), post.new()
    jump = (
        bad.history[0],
        HistoryEntry(status=Status.SENT, cause=Cause.DELIVERED, reason="", at=post.now),
    )
    results = await post.store.add([msgspec.structs.replace(bad, history=jump), good])

    assert isinstance(results[0], MoveNotAllowed)
    assert isinstance(results[1], Added)
    assert await post.store.get(bad.id) is None


async def test_an_email_is_never_born_in_a_status_that_only_a_claim_may_give(post: Letters) -> None:
    new = post.new()

    (result,) = await post.store.add([msgspec.structs.replace(new, history=new.history[:2])])

    assert isinstance(result, MoveNotAllowed)
    assert await post.store.get(new.id) is None


async def test_a_text_that_is_not_unicode_fails_alone(post: Letters) -> None:
    """Half of a surrogate pair: JSON can carry it, no database can keep it."""
    one, bad, two = post.new(), post.new(), post.new()
    bad = msgspec.structs.replace(bad, sender="half \ud83d of a horse")

    results = await post.store.add([one, bad, two])

    assert isinstance(results[1], Unstorable)
    assert [one.id, two.id] == [result.id for result in results if isinstance(result, Added)]
    assert await post.store.get(bad.id) is None
    assert (await post.store.counts())[Status.READY] == 2


async def test_a_text_that_is_not_unicode_fails_alone_among_calls_that_came_together(post: Letters) -> None:
    emails = [post.new() for _ in range(9)]
    emails[4] = msgspec.structs.replace(emails[4], recipients=("half \ud83d of a horse",))

    results = await asyncio.gather(*(post.store.add([new]) for new in emails))

    assert [isinstance(result, Added) for (result,) in results] == [n != 4 for n in range(9)]
    assert (await post.store.counts())[Status.READY] == 8


async def test_with_an_answer_to_be_kept_what_cannot_be_kept_fails_the_whole_call(post: Letters) -> None:
    """The answer tells of every e-mail of the call: half of it must not be given again."""
    good = post.new()
    bad = msgspec.structs.replace(post.new(), sender="half \ud83d of a horse")

    results = await post.store.add([good, bad], keep=kept(post))

    assert [type(result) for result in results] == [Unstorable, Unstorable]
    assert await post.store.get(good.id) is None
    assert await post.store.recall("acme", "k1", newer_than=post.now - DAY) is None


async def test_what_was_acknowledged_is_there_after_opening_anew(ground: Ground) -> None:
    store = ground.store()
    await store.open()
    post = Letters(store, ground)
    id = await post.ready()
    before = await post.story(id)
    await store.close()

    again = ground.store()
    await again.open()
    try:
        assert await Letters(again, ground).story(id) == before
    finally:
        await again.close()


async def test_another_process_sees_it_and_makes_no_second_one(post: Letters, there: Letters) -> None:
    new = post.new()
    await post.add(new)

    (again,) = await there.store.add([new])

    assert isinstance(again, Added)
    assert not again.fresh
    assert await there.story(new.id) == await post.story(new.id)


async def test_the_handle_that_was_answered_finds_the_email(post: Letters) -> None:
    new = post.new()
    (added,) = await post.store.add([new])
    assert isinstance(added, Added)

    claim = await post.store.claim(job_of(new.id, ref=added.ref), token=post.token(), now=post.now)

    assert claim is not None
    assert claim.id == new.id


# ------------------------------------------------------------------------------------------ idempotency keys


def kept(
    post: Letters, *, company_id: str = "acme", key: str = "k1", ago: int = 0, answer: bytes = b"first"
) -> KeptAnswer:
    return KeptAnswer(company_id=company_id, key=key, fingerprint="body", answer=answer, at=post.now - ago)


async def test_an_answer_is_kept_with_its_emails_and_recalled(post: Letters) -> None:
    answer = kept(post)

    await post.store.add([post.new()], keep=answer)

    assert await post.store.recall("acme", "k1", newer_than=post.now - DAY) == answer
    assert await post.store.recall("acme", "k2", newer_than=post.now - DAY) is None
    assert await post.store.recall("other", "k1", newer_than=post.now - DAY) is None


async def test_a_key_that_is_known_keeps_nothing_of_the_call(post: Letters) -> None:
    await post.store.add([post.new()], keep=kept(post))
    one, two = post.new(), post.new()

    results = await post.store.add([one, two], keep=kept(post, answer=b"second"))

    assert [type(result) for result in results] == [Conflict, Conflict]
    assert await post.store.get(one.id) is None
    assert await post.store.get(two.id) is None
    found = await post.store.recall("acme", "k1", newer_than=post.now - DAY)
    assert found is not None
    assert found.answer == b"first"


async def test_two_companies_may_use_the_same_key(post: Letters) -> None:
    await post.store.add([post.new()], keep=kept(post))

    (result,) = await post.store.add([post.new(company_id="other")], keep=kept(post, company_id="other"))

    assert isinstance(result, Added)


async def test_keys_compare_byte_for_byte(post: Letters) -> None:
    await post.store.add([post.new()], keep=kept(post, key="Key"))

    (result,) = await post.store.add([post.new()], keep=kept(post, key="key"))

    assert isinstance(result, Added)


async def test_an_answer_older_than_a_day_is_not_recalled_and_makes_room(post: Letters) -> None:
    await post.store.add([post.new()], keep=kept(post, ago=DAY + HOUR))
    assert await post.store.recall("acme", "k1", newer_than=post.now - DAY) is None

    (result,) = await post.store.add([post.new()], keep=kept(post, answer=b"second"))

    assert isinstance(result, Added)
    found = await post.store.recall("acme", "k1", newer_than=post.now - DAY)
    assert found is not None
    assert found.answer == b"second"


async def test_ids_and_companies_compare_byte_for_byte(post: Letters) -> None:
    lower = post.new(number=0xABCDEF, company_id="acme")
    upper = msgspec.structs.replace(lower, id=email_id(0xABCDEF).upper(), company_id="ACME")

    await post.add(lower, upper)

    assert (await post.email(lower.id)).company_id == "acme"
    assert (await post.email(upper.id)).company_id == "ACME"
    assert await post.store.waiting_companies(now=post.now) == ["ACME", "acme"]
