"""The table as the seed makes it, and the seed's own program beside ours: what it knows stays as it knows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from contracts.letters import DAY, Letters, email_id
from contracts.stores import Ground, HandClock
from doubles.dynamodb_local import DynamoDBLocal
from doubles.seeds_table import SeedsProgram, make
from staffetta.errors import LockNotAcquired, StoreUnusable
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Intaken, Millis, Options
from staffetta.mail.operators import Filter
from staffetta.store.dynamodb import DynamoStore, Owners, Place
from staffetta.store.dynamodb.values import Item, millis, moment
from staffetta.store.dynamodb.work import Seeds

pytestmark = pytest.mark.service

RECORD_DAYS_MS = 90 * DAY
OLD = "2026-11-01T10:20:30Z"


@dataclass
class Old:
    """A table of the seed's, its program, and ours, not opened yet."""

    store: DynamoStore
    program: SeedsProgram
    post: Letters
    place: Place

    async def records(self, id: str) -> dict[str, Item]:
        text = f'SELECT * FROM "{self.place.table}" WHERE Id=?'
        return {item["Status"]: item for item in await self.store.wire.execute(text, id, consistent=True)}


@pytest.fixture
async def old(dynamodb_local: DynamoDBLocal) -> AsyncIterator[Old]:
    """The seed's table as it stands."""
    async with ground(dynamodb_local) as old:
        await make(old.store.wire, old.place.table)
        yield old


@pytest.fixture
async def shared(dynamodb_local: DynamoDBLocal) -> AsyncIterator[Old]:
    """A table that `migrate` made, with the seed's program at work on it."""
    async with ground(dynamodb_local) as shared:
        await shared.store.migrate()
        await shared.store.open()
        yield shared


@asynccontextmanager
async def ground(dynamodb_local: DynamoDBLocal) -> AsyncIterator[Old]:
    place = dynamodb_local.place()
    clock = HandClock(time.time_ns() // 1_000_000)
    store = DynamoStore(place, monotonic=lambda: clock() / 1_000)
    here = Ground(store=lambda: store, beside=lambda: store, clock=clock)
    yield Old(store, SeedsProgram(store.wire, place.table), Letters(store, here), place)
    await store.close()
    await dynamodb_local.drop(place)


def known(now: Millis) -> Intaken:
    """What has to be known of an e-mail before it can be sent."""
    return Intaken(
        sender="shop@example.com", recipients=("ada@example.com",), message=b"Subject: hi\r\n\r\nhi\r\n",
        eml_file_path=None, due_at=now, expires_at=now + DAY, priority=5, options=Options(), company_id="acme",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ as it stands


async def test_the_seeds_query_is_asked_word_by_word(old: Old) -> None:
    """Its own index projects no TTL, so TTL is not asked of it."""
    await old.store.open()
    assert isinstance(old.store.work, Seeds)
    bare = f'SELECT Id, Status, Attributes FROM "{old.place.table}"."StatusIndex" WHERE Status=? AND Attributes.Latest=?'
    assert bare == old.store.work.query

    with_ttl = Seeds(old.place, old.store.wire, projects_ttl=True).query
    assert bare.replace("Attributes FROM", "Attributes, TTL FROM") == with_ttl


async def test_an_email_lives_its_life_on_a_table_without_our_indexes(old: Old) -> None:
    await old.store.open()
    post = old.post
    id = await post.ready()
    assert await old.store.waiting_companies(now=post.now) == ["acme"]
    (job,) = await old.store.waiting("acme", now=post.now, limit=10)
    assert job.id == id

    await old.store.apply(post.deferred(await post.claim(id)))
    await old.store.apply(post.delivered(await post.claim(id)))

    records = await old.records(id)
    assert {"_META", "_CONTENT", "_ATTEMPT#1", "_ATTEMPT#2", "ACCEPTED", "INTAKING", "READY", "READY#2",
            "PROCESSING", "PROCESSING#2", "SENT", "_RCPT#ada@example.com"} == set(records)  # fmt: skip
    meta = records["_META"]["Attributes"]
    assert meta["Latest"] == "SENT"
    assert millis(meta["UpdatedAt"]) == post.now
    assert "Claim" not in meta
    assert all(
        "Attributes" not in item for name, item in records.items() if name.startswith("_") and name != "_META"
    )
    assert await old.program.find("SENT") == [id]
    assert (await post.email(id)).version == 0


async def test_a_listing_by_status_works_and_one_that_would_read_all_is_refused(old: Old) -> None:
    await old.store.open()
    id = await old.post.ready()
    page = await old.store.emails(Filter(status=(Status.READY,)), limit=10)
    assert [email.id for email in page.items] == [id]

    for wide in (Filter(), Filter(company_id="acme"), Filter(recipient="ada@example.com")):
        with pytest.raises(StoreUnusable, match="staffetta migrate"):
            await old.store.emails(wide, limit=10)


async def test_a_table_with_other_keys_is_named_with_the_remedy(
    old: Old, dynamodb_local: DynamoDBLocal
) -> None:
    place = dynamodb_local.place()
    store = DynamoStore(place)
    await make(store.wire, place.table, keys=("Key", "Range"), index=False)

    for asked in (store.open, store.migrate):
        with pytest.raises(StoreUnusable, match="keys Key, Range.*EMAIL_OUTBOX_TABLE"):
            await asked()
    await store.wire.call("DeleteTable", {"TableName": place.table})
    await store.close()
    await old.store.open()


async def test_a_missing_table_is_named_with_the_remedy(old: Old, dynamodb_local: DynamoDBLocal) -> None:
    await old.store.open()
    store = DynamoStore(dynamodb_local.place("nowhere"))
    with pytest.raises(StoreUnusable, match="no table nowhere in eu-south-1.*staffetta migrate"):
        await store.open()


# ------------------------------------------------------------------------------------------------ adopted


async def test_a_table_with_emails_in_every_status_is_adopted_and_nothing_of_their_life_changes(
    old: Old,
) -> None:
    program, ids = old.program, {}
    for number, status in enumerate(Status, 1):
        id = ids[status] = email_id(number)
        await program.create(id, payload_path=f"{number}.json", at=OLD)
        if status is not Status.ACCEPTED:
            assert await program.move(id, "ACCEPTED", status, at=OLD, reason="as it was")
    before = {id: await old.records(id) for id in ids.values()}

    done = await old.store.migrate()
    await old.store.open()

    assert "adopted 11 e-mails of other programs" in done
    assert dict.fromkeys(Status, 1) == await old.store.counts()
    for status, id in ids.items():
        email = await old.post.email(id)
        assert (email.status, email.updated_at) == (status, millis(OLD))
        after = await old.records(id)
        for name in ("Latest", "UpdatedAt", "Reason", "PayloadFilePath"):
            assert before[id]["_META"]["Attributes"].get(name, "") == after["_META"]["Attributes"][name]
        assert next(str(entry.status) for entry in await old.store.history(id)) == "ACCEPTED"
    for filter in (Filter(), Filter(company_id="default")):
        assert len((await old.store.emails(filter, limit=50)).items) == 11
    assert list(await old.store.migrate()) == []


async def test_an_older_record_without_a_counter_has_its_entries_counted_first(old: Old) -> None:
    """Its second READY is READY#2, or the move could not be made."""
    id = email_id(7)
    await old.program.create(id, payload_path="7.json", at=OLD)
    for source, target in (("ACCEPTED", "INTAKING"), ("INTAKING", "READY")):
        assert await old.program.move(id, source, target, at=OLD)
    await old.store.migrate()
    await old.store.open()
    post = old.post
    (visitor,) = await old.store.visitors(limit=10)
    await old.store.welcome(visitor, known(post.now))

    await old.store.apply(post.deferred(await post.claim(id)))

    assert {"READY", "READY#2", "PROCESSING"} <= set(await old.records(id))
    assert [str(one.status) for one in await old.store.history(id)][-2:] == ["PROCESSING", "READY"]


async def test_what_it_enters_between_two_of_our_moves_is_counted_too(shared: Old) -> None:
    """It writes plain names: ours gives way to another number."""
    post = shared.post
    id = await post.ready()
    assert await shared.program.move(id, "READY", "PROCESSING", at=moment(post.now))
    wire = shared.store.wire
    await wire.execute(
        f"UPDATE \"{shared.place.table}\" SET Attributes.Latest='READY' WHERE Id=? AND Status='_META'", id
    )

    await post.claim(id)

    assert {"PROCESSING", "PROCESSING#2"} <= set(await shared.records(id))


# ------------------------------------------------------------------------------------------------ beside ours


async def test_both_programs_race_for_emails_and_each_is_won_once(shared: Old) -> None:
    post, at = shared.post, moment(shared.post.now)
    ids = [await post.ready() for _ in range(24)]

    async def ours(id: str) -> bool:
        return await post.try_claim(id) is not None

    async def theirs(id: str) -> bool:
        return await shared.program.move(id, "READY", "PROCESSING", at=at)

    races = [(ours(id), theirs(id)) if number % 2 else (theirs(id), ours(id)) for number, id in enumerate(ids)]
    won = await asyncio.gather(*(asyncio.gather(*race) for race in races))

    assert [sum(race) for race in won] == [1] * len(ids)


async def test_a_move_of_theirs_takes_the_email_from_under_our_claim(shared: Old) -> None:
    post = shared.post
    claim = await post.claim(await post.ready())
    at = moment(post.now + 1)
    assert await shared.program.move(claim.id, "PROCESSING", "FAILED", at=at, reason="theirs")

    for asked in (post.commit(claim), shared.store.apply(post.delivered(claim))):
        with pytest.raises(Exception, match="failed to acquire"):
            await asked

    email = await post.email(claim.id)
    assert (email.status, email.reason) == (Status.FAILED, "theirs")


async def test_on_a_shared_table_what_they_bring_and_move_is_found(shared: Old) -> None:
    place = msgspec.structs.replace(shared.place, shared=True)
    store = DynamoStore(place, monotonic=lambda: shared.post.now / 1_000)
    await store.open()
    try:
        id = email_id(3)
        await shared.program.create(id, payload_path="3.json", at=OLD)
        (claim,) = await store.claim_intake(tokens=["w1.1", "w1.2"], now=shared.post.now)
        assert (claim.id, claim.payload_file_path, claim.company_id) == (id, "3.json", "default")
        assert (await store.counts())[Status.INTAKING] == 1

        assert await shared.program.move(id, "INTAKING", "INVALID", at=moment(shared.post.now))
        shared.post.clock.turn(1_000)
        await store.news(now=shared.post.now, limit=10)
        counts = await store.counts()
        assert (counts[Status.INTAKING], counts[Status.INVALID]) == (0, 1)
    finally:
        await store.close()


async def test_what_they_made_ready_is_sent_only_once_it_is_known_how(shared: Old) -> None:
    """Their rows have no envelope: it is found in the payload or in the message, and kept beside the row."""
    store, post, id = shared.store, shared.post, email_id(5)
    await shared.program.create(id, payload_path="5.json", at=OLD)
    for source, target in (("ACCEPTED", "INTAKING"), ("INTAKING", "READY")):
        assert await shared.program.move(id, source, target, at=OLD)
    await store.migrate()
    assert await post.try_claim(id) is None
    assert await store.waiting_companies(now=post.now) == []

    (visitor,) = await store.visitors(limit=10)
    assert (visitor.id, visitor.payload_file_path) == (id, "5.json")
    made = known(post.now)
    before = await post.email(id)
    await store.welcome(visitor, made)

    with pytest.raises(LockNotAcquired):
        await store.welcome(visitor, made)
    assert await store.visitors(limit=10) == []
    after = await post.email(id)
    assert (before.status, before.updated_at) == (after.status, after.updated_at)
    assert [job.id for job in await store.waiting("acme", now=post.now, limit=5)] == [id]
    claim = await post.claim(id)
    assert (claim.recipients, claim.message) == (made.recipients, made.message)
    assert [one.id for one in (await store.emails(Filter(company_id="acme"), limit=5)).items] == [id]


async def test_owners_hear_of_what_they_ended_while_it_is_young(shared: Old) -> None:
    """Whether a callback is due is fixed when the outcome is first seen."""
    owners = Owners(
        window_ms=3 * DAY, waits=lambda company_id, _: company_id == "default", clock=lambda: shared.post.now
    )
    store = DynamoStore(shared.place, owners=owners)
    await store.open()
    try:
        for number, at in ((1, OLD), (2, moment(shared.post.now - DAY))):
            await shared.program.create(email_id(number), payload_path="x.json", at=at)
            assert await shared.program.move(email_id(number), "ACCEPTED", "SENT", at=at)
        await store.migrate()

        claims = await store.claim_reports(tokens=["w1.1", "w1.2"], now=shared.post.now)

        assert [claim.id for claim in claims] == [email_id(2)]
        assert claims[0].sequence == 1
    finally:
        await store.close()


# ------------------------------------------------------------------------------------------------ time to live


async def test_every_record_carries_the_same_ttl_from_the_beginning(shared: Old) -> None:
    store = DynamoStore(msgspec.structs.replace(shared.place, life_ms=RECORD_DAYS_MS))
    await store.open()
    post = shared.post.beside(store)
    try:
        id = await post.failed()
        first = -(-((await post.email(id)).expires_at + RECORD_DAYS_MS) // 1_000)
        assert {first} == {item["TTL"] for item in (await shared.records(id)).values()}
        assert (await post.email(id)).ttl == first

        retried = post.operator(id, Status.FAILED, Status.READY, Cause.RETRIED, due_at=post.now,
                                expires_at=post.now + 5 * DAY, attempts=0)  # fmt: skip
        await store.apply(retried)

        longer = -(-(post.now + 5 * DAY + RECORD_DAYS_MS) // 1_000)
        assert {longer} == {item["TTL"] for item in (await shared.records(id)).values()}
    finally:
        await store.close()


async def test_an_older_ttl_is_read_and_brought_to_the_root_by_the_next_move(old: Old) -> None:
    id, ttl = email_id(9), 1_900_000_000
    await old.program.create(id, payload_path="9.json", at=OLD)
    wire, table = old.store.wire, old.place.table
    await wire.execute(f"UPDATE \"{table}\" SET Attributes.TTL=? WHERE Id=? AND Status='_META'", ttl, id)
    await old.store.migrate()
    await old.store.open()
    assert (await old.post.email(id)).ttl == ttl

    (claim,) = await old.store.claim_intake(tokens=["w1.1"], now=old.post.now)

    records = await old.records(claim.id)
    assert records["_META"]["TTL"] == ttl
    assert records["INTAKING"]["TTL"] == ttl
    assert "TTL" not in records["_META"]["Attributes"]


async def test_a_ttl_at_the_root_goes_before_an_older_one(old: Old) -> None:
    id = email_id(9)
    await old.program.create(id, payload_path="9.json", at=OLD, ttl=1_950_000_000)
    wire, table = old.store.wire, old.place.table
    await wire.execute(
        f"UPDATE \"{table}\" SET Attributes.TTL=? WHERE Id=? AND Status='_META'", 1_900_000_000, id
    )
    await old.store.open()

    assert (await old.post.email(id)).ttl == 1_950_000_000
