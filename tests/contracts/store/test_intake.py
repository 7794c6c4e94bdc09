"""E-mails that came another way: taken oldest first, each under its own token, and composed or refused."""

from __future__ import annotations

import asyncio

from contracts.letters import DAY, HOUR, MINUTE, SECOND, Letters
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import IntakeClaim, Intaken, Options
from staffetta.mail.operators import Filter


def made(post: Letters, *, company_id: str | None = None, message: bytes | None = b"Subject: x\r\n\r\nx\r\n",
         eml_file_path: str | None = None, due_in: int = 0) -> Intaken:  # fmt: skip
    return Intaken(
        sender="shop@example.com", recipients=("ada@example.com", "bob@example.com"), message=message,
        eml_file_path=eml_file_path, due_at=post.now + due_in, expires_at=post.now + DAY, priority=2,
        options=Options(tags=("t",)), company_id=company_id,
    )  # fmt: skip


async def take(post: Letters, count: int, worker: str = "w1") -> list[IntakeClaim]:
    return await post.store.claim_intake(tokens=post.tokens(count, worker), now=post.now)


async def test_accepted_emails_are_taken_oldest_first(post: Letters) -> None:
    young, old, middle = [await post.accepted(ago=ago) for ago in (MINUTE, HOUR, 30 * MINUTE)]

    assert [claim.id for claim in await take(post, 2)] == [old, middle]
    assert [claim.id for claim in await take(post, 2)] == [young]
    assert await take(post, 2) == []


async def test_a_claim_of_intake_brings_the_payload(post: Letters) -> None:
    new = post.new(Status.ACCEPTED, ago=HOUR, payload=b'{"from":"a"}', company_id="other")
    file = post.new(Status.ACCEPTED, payload=None, payload_file_path="incoming/a.json")
    await post.add(new, file)

    first, second = await post.store.claim_intake(tokens=["w1.a", "w1.b"], now=post.now)

    assert (first.id, first.token, first.company_id) == (new.id, "w1.a", "other")
    assert (first.payload, first.payload_file_path, first.created_at) == (new.payload, None, new.created_at)
    assert (second.token, second.payload, second.payload_file_path) == ("w1.b", None, "incoming/a.json")


async def test_taking_is_a_move_with_its_history(post: Letters) -> None:
    claim = await post.intaking()

    found = await post.email(claim.id)
    last = (await post.store.history(claim.id))[-1]
    assert (found.status, found.token, found.version) == (Status.INTAKING, claim.token, post.version(2))
    assert (last.status, last.cause) == (Status.INTAKING, Cause.CLAIMED)


async def test_only_accepted_emails_are_taken(post: Letters) -> None:
    await post.ready()
    await post.sent()
    await post.failed()

    assert await take(post, 10) == []


async def test_two_processes_never_take_the_same(post: Letters, there: Letters) -> None:
    ids = [await post.accepted() for _ in range(12)]

    taken = await asyncio.gather(*(take(who, 3, name) for who, name in ((post, "w1"), (there, "w2")) * 3))

    found = [claim.id for claims in taken for claim in claims]
    assert len(found) == len(set(found))
    assert set(found) <= set(ids)
    rest = await take(post, 20)
    assert sorted([*found, *(claim.id for claim in rest)]) == sorted(ids)


async def test_what_was_composed_is_ready_with_all_that_intake_made_of_it(post: Letters) -> None:
    claim = await post.intaking(priority=9)
    intaken = made(post)

    await post.store.apply(post.move(claim, Status.READY, Cause.COMPOSED, intaken=intaken))

    found = await post.email(claim.id)
    assert (found.status, found.sender, found.priority) == (Status.READY, "shop@example.com", 2)
    assert [one.address for one in found.recipients] == ["ada@example.com", "bob@example.com"]
    assert (found.due_at, found.expires_at, found.options) == (
        intaken.due_at,
        intaken.expires_at,
        intaken.options,
    )
    assert found.company_id == "acme"
    content = await post.store.content(claim.id)
    assert content is not None
    assert (content.message, content.payload) == (intaken.message, b'{"subject":"hello"}')
    sending = await post.claim(claim.id)
    assert (sending.message, sending.recipients) == (intaken.message, intaken.recipients)


async def test_a_message_in_a_file_is_named(post: Letters) -> None:
    claim = await post.intaking()
    intaken = made(post, message=None, eml_file_path="spool/a.eml")

    await post.store.apply(post.move(claim, Status.READY, Cause.COMPOSED, intaken=intaken))

    sending = await post.claim(claim.id)
    assert (sending.message, sending.eml_file_path) == (b"", "spool/a.eml")


async def test_composed_emails_wait_in_their_companys_line(post: Letters) -> None:
    claim = await post.intaking()
    await post.store.apply(post.move(claim, Status.READY, Cause.COMPOSED, intaken=made(post)))

    (job,) = await post.store.waiting("acme", now=post.now, limit=10)

    assert (job.id, job.priority) == (claim.id, 2)
    page = await post.store.emails(Filter(recipient="bob@example.com"), limit=10)
    assert [found.id for found in page.items] == [claim.id]


async def test_one_to_be_sent_later_is_not_due(post: Letters) -> None:
    claim = await post.intaking()
    await post.store.apply(post.move(claim, Status.READY, Cause.COMPOSED, intaken=made(post, due_in=HOUR)))

    assert await post.try_claim(claim.id) is None
    assert await post.store.waiting("acme", now=post.now, limit=10) == []


async def test_a_company_that_the_payload_names_is_written(post: Letters) -> None:
    """A row of another program knows no company: its payload does."""
    claim = await post.intaking(company_id="default")

    await post.store.apply(
        post.move(claim, Status.READY, Cause.COMPOSED, intaken=made(post, company_id="acme"))
    )

    assert (await post.email(claim.id)).company_id == "acme"
    assert await post.store.waiting_companies(now=post.now) == ["acme"]
    assert (await post.claim(claim.id)).company_id == "acme"
    assert (await post.store.emails(Filter(company_id="default"), limit=10)).items == ()


async def test_a_wrong_payload_ends_invalid_with_its_reason(post: Letters) -> None:
    claim = await post.intaking()

    await post.store.apply(post.move(claim, Status.INVALID, Cause.INVALID, reason="to: this is no address"))

    found = await post.email(claim.id)
    assert (found.status, found.reason, found.sequence) == (Status.INVALID, "to: this is no address", 0)
    assert await post.store.dead_letter(claim.id) is None
    assert await post.store.claim_reports(tokens=post.tokens(1), now=post.now) == []


async def test_a_restored_one_is_taken_again_before_the_younger(post: Letters) -> None:
    claim = await post.intaking(ago=HOUR)
    younger = await post.accepted(ago=SECOND)
    await post.store.apply(post.move(claim, Status.ACCEPTED, Cause.RESTORED))

    assert [again.id for again in await take(post, 5)] == [claim.id, younger]
