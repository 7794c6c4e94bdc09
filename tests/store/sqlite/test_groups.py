"""Group commit: the calls of many steps in one transaction and one sync, each with its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
import pytest

from contracts.letters import Letters
from staffetta.errors import LockNotAcquired, StoreUnavailable, Unstorable
from staffetta.mail.lifecycle import Status
from staffetta.store.sqlite import SqliteStore
from staffetta.store.sqlite.group import Group


def _connection(group: Group) -> apsw.Connection:
    return cast("apsw.Connection", group.connection)


@pytest.fixture
async def commits(store: SqliteStore) -> Callable[[], int]:
    """How many transactions that changed anything were committed since."""
    seen = [0]

    def install(group: Group) -> None:
        def committing() -> bool:
            seen[0] += 1
            return False

        _connection(group).set_commit_hook(committing)

    await store._writer.do(install)
    seen[0] = 0
    return lambda: seen[0]


async def test_calls_that_come_while_one_is_written_are_one_transaction(
    post: Letters, store: SqliteStore, commits: Callable[[], int]
) -> None:
    ids = await post.add(*(post.new() for _ in range(200)))
    before = commits()

    claims = await asyncio.gather(*(post.claim(id) for id in ids))
    await asyncio.gather(*(post.commit(claim) for claim in claims))
    await asyncio.gather(*(post.store.apply(post.delivered(claim)) for claim in claims))

    assert commits() - before < 40  # 600 calls; a few groups while the first ones were under way
    assert (await store.counts())[Status.SENT] == 200


async def test_one_call_alone_is_one_transaction_and_waits_for_nobody(
    post: Letters, commits: Callable[[], int]
) -> None:
    id = await post.ready()
    before = commits()

    await post.claim(id)

    assert commits() - before == 1


async def test_a_bad_row_fails_alone_among_calls_of_every_kind(post: Letters) -> None:
    """Each then runs under a savepoint of its own."""
    half = "half \ud83d of a horse"
    good = [await post.claim(await post.ready()) for _ in range(3)]
    bad = [await post.claim(await post.ready()) for _ in range(3)]
    waiting = [await post.ready() for _ in range(2)]

    results = await asyncio.gather(
        post.store.add([post.new()]),
        post.store.add([msgspec.structs.replace(post.new(), sender=half)]),
        post.commit(good[0]),
        post.store.commit(bad[0], transport=half, now=post.now),
        post.store.apply(post.delivered(good[1])),
        post.store.apply(post.deferred(bad[1], reason=half)),
        post.try_claim(waiting[0]),
        post.try_claim(waiting[1], token=half),
        post.store.publish("w1", b"{}", post.now),
        post.store.put_setting(half, b"1"),
        post.store.apply(post.deferred(msgspec.structs.replace(bad[2], token="w9.x"))),
        return_exceptions=True,
    )

    kinds = [type(result).__name__ for result in results]
    assert kinds == [
        "list", "list", "NoneType", "Unstorable", "NoneType", "Unstorable", "Claim", "Unstorable", "NoneType",
        "Unstorable", "LockNotAcquired",
    ]  # fmt: skip
    assert isinstance(results[1], list)
    assert isinstance(results[1][0], Unstorable)
    assert await post.status(good[1].id) is Status.SENT
    assert await post.status(bad[1].id) is Status.PROCESSING
    assert await post.status(waiting[1]) is Status.READY
    counts = await post.store.counts()
    assert (counts[Status.READY], counts[Status.PROCESSING], counts[Status.SENT]) == (2, 6, 1)


async def test_when_the_transaction_fails_nobody_is_told_yes_and_nothing_is_half_written(
    post: Letters, store: SqliteStore
) -> None:
    claims = [await post.claim(await post.ready()) for _ in range(10)]

    def refuses() -> bool:
        return True  # SQLite makes a ROLLBACK of the COMMIT

    with pytest.raises(Unstorable):
        await store._writer.do(lambda group: _connection(group).set_commit_hook(refuses))
    results = await asyncio.gather(
        *(post.store.apply(post.delivered(claim)) for claim in claims), return_exceptions=True
    )
    assert all(isinstance(result, (StoreUnavailable, Unstorable)) for result in results)
    assert (await store.counts())[Status.PROCESSING] == 10
    assert store._writer._group is not None
    _connection(store._writer._group).set_commit_hook(None)  # the thread rests: nothing is asked of it

    for claim in claims:
        await post.store.apply(post.delivered(claim))
    assert (await store.counts())[Status.SENT] == 10


async def test_a_store_that_is_away_is_no_moves_own_result(post: Letters, path: Path) -> None:
    """On a full disk acknowledged callbacks were taken for moves that had lost, and forgotten: nobody insisted."""
    claims = [await post.claim(await post.ready()) for _ in range(3)]
    other = SqliteStore(path, owner=False, busy_ms=20)
    await other.open()
    blocker = apsw.Connection(str(path))
    blocker.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreUnavailable):
            await other.apply_all([post.delivered(claim) for claim in claims])
    finally:
        blocker.execute("ROLLBACK")
        blocker.close()

    assert [None] * 3 == await other.apply_all([post.delivered(claim) for claim in claims])
    await other.close()


async def test_losers_of_a_group_are_told_by_name(post: Letters) -> None:
    claims = [await post.claim(await post.ready()) for _ in range(6)]
    stale = [msgspec.structs.replace(claim, token="w9.x") if n % 2 else claim for n, claim in enumerate(claims)]

    results = await asyncio.gather(*(post.commit(claim) for claim in stale), return_exceptions=True)

    assert [isinstance(result, LockNotAcquired) for result in results] == [False, True] * 3


async def test_the_counts_of_statuses_are_those_of_the_rows_after_anything(
    post: Letters, store: SqliteStore
) -> None:
    for status in Status:
        if status is not Status.READY:
            await post.brought_to(status)

    def rows(opened: Any) -> dict[str, int]:
        return dict(opened.execute("SELECT status, count(*) FROM emails GROUP BY status").fetchall())

    found = await store._reader.read(rows)
    assert found == {str(status): total for status, total in (await store.counts()).items() if total}
