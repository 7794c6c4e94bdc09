"""Errors that pass by themselves, injected into real transactions before and after their commit: nothing is lost, no
move is made twice, and the waits are the seed's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asyncmy import errors as driver

from contracts.letters import _STEPS
from doubles.databases import Server
from staffetta.errors import LockNotAcquired, StoreUnavailable, StoreUnusable
from staffetta.mail import insistence
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, HistoryEntry, Job, NewEmail, RecipientReply, Reply, Transition
from staffetta.store import insisting
from staffetta.store.mysql import MysqlStore
from staffetta.store.mysql.session import Session

pytestmark = pytest.mark.service
PASSING = (1205, 1213, 1040, 1203, 1020, 2006, 2013)
LOST = (2006, 2013)
S = Status


class Injected:
    """Breaks every so-manieth transaction: at a statement, before its COMMIT, or after it with the answer lost."""

    def __init__(self, seed: int, *, one_in: int) -> None:
        self._chance = random.Random(seed)
        self._one_in = one_in
        self.on = False
        self.count: Counter[tuple[int, str]] = Counter()
        self._run = Session.run

    async def run(self, session: Session, sql: str, *facts: object) -> int:
        if not self.on or self._chance.randrange(self._one_in):
            return await self._run(session, sql, *facts)
        number = self._chance.choice(PASSING)
        where = "before"
        if sql == "COMMIT" and self._chance.random() < 0.5:
            where, number = "after", self._chance.choice(LOST)
            await self._run(session, sql, *facts)
        elif number == 1213:
            await self._run(session, "ROLLBACK")
        self.count[number, where] += 1
        raise driver.OperationalError(number, "injected")


@pytest.fixture
def url(mariadb_server: Server) -> str:
    return mariadb_server.url(mariadb_server.emptied())


@pytest.fixture
async def store(url: str) -> AsyncIterator[MysqlStore]:
    opened = MysqlStore(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, which nobody waits for."""
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    before = insisting.insist

    async def insist(transaction: Any, **how: Any) -> Any:
        return await before(transaction, **{**how, "pause": pause})

    monkeypatch.setattr("staffetta.store.mysql.pool.insist", insist)
    return waits


def now() -> int:
    return time.time_ns() // 1_000_000 - 2_000


def new(number: int) -> NewEmail:
    at = now()
    return NewEmail(
        id=f"0198f0a0-0000-7000-8000-{number:012d}", company_id=f"c{number % 5}", created_at=at, due_at=at,
        expires_at=at + 86_400_000, sender="us@example.com", recipients=("you@example.org",), message=b"x",
        history=tuple(HistoryEntry(status=s, cause=c, reason="", at=at) for s, c in _STEPS[S.READY]),
        fingerprint=str(number),
    )  # fmt: skip


async def live(store: MysqlStore, number: int) -> str:
    """One e-mail's whole life, each call made once. What is unavailable to the end is asked again, as the flow does."""
    email = new(number)

    async def insist(call: Any) -> Any:
        while True:
            try:
                return await call()
            except StoreUnavailable:
                continue

    (added,) = await insist(lambda: store.add([email]))
    assert not isinstance(added, Exception), added
    token = f"w{number % 3}.{number}"
    claim = await insist(
        lambda: store.claim(Job(id=email.id, company_id="", priority=5, due_at=0), token=token, now=now())
    )
    assert claim is not None, "nobody else wants it"
    at = now()
    await insist(lambda: store.commit(claim, transport="relay", now=at))
    reply = RecipientReply(
        address="you@example.org", reply=Reply(stage="dot", code=250, text="ok", committed=True)
    )
    move = Transition(
        id=email.id, source=S.PROCESSING, target=S.SENT, cause=Cause.DELIVERED, at=at, token=token, callback_due=False,
        attempt=Attempt(attempt=1, token=token, transport="relay", committed_at=at, closed_at=at, counted=True,
                        replies=(reply,)),
    )  # fmt: skip
    await insist(lambda: store.apply(move))
    return email.id


async def lives(store: MysqlStore, injected: Injected, faults: int) -> None:
    """Lives upon lives until so many faults were injected; then every one is looked at."""
    done: list[str] = []
    injected.on = True
    while injected.count.total() < faults:
        begin = len(done)
        done += await asyncio.gather(*(live(store, begin + n) for n in range(60)))
    injected.on = False
    assert await store.counts() == {**dict.fromkeys(S, 0), S.SENT: len(done)}
    for id in done[:: max(1, len(done) // 200)]:
        causes = [entry.cause for entry in await store.history(id)]
        assert causes == [Cause.ACCEPTED, Cause.CLAIMED, Cause.COMPOSED, Cause.CLAIMED, Cause.DELIVERED], id
        email = await store.get(id)
        assert email is not None
        assert (email.version, email.opened) == (5, 1)
        assert len(await store.attempts(id)) == 1


@pytest.mark.parametrize(
    "faults", [250, pytest.param(5_000, marks=[pytest.mark.soak, pytest.mark.timeout(1_200)])]
)
async def test_of_all_injected_errors_none_loses_or_doubles_anything(
    store: MysqlStore, quick: list[float], monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    injected = Injected(seed, one_in=12)
    monkeypatch.setattr(Session, "run", lambda session, sql, *facts: injected.run(session, sql, *facts))
    await lives(store, injected, faults)
    assert {number for number, _ in injected.count} == set(PASSING)
    after = {number for number, where in injected.count if where == "after"}
    assert after
    assert after <= set(LOST)
    assert len(quick) > faults / 2
    assert max(quick) <= insistence.LONGEST_MS / 1_000
    # Uniform between nothing and the most: the first wait's most is 30 ms, and most waits are first ones.
    assert sum(wait <= 0.030 for wait in quick) > len(quick) / 3
    assert max(quick) > 0.005


async def test_a_lock_that_was_lost_is_never_asked_for_again(
    store: MysqlStore, quick: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await live(store, 1)
    with pytest.raises(LockNotAcquired):
        await store.apply(
            Transition(id=id, source=S.PROCESSING, target=S.READY, cause=Cause.HELD, at=now(), token="w9.9")
        )
    assert quick == []


async def test_who_is_cancelled_leaves_nobody_another_ones_rows(store: MysqlStore) -> None:
    """The driver once handed a cancelled query's rows to the next caller. Here nobody's cancellation reaches it."""
    for number in range(20):
        await live(store, number)
    chance = random.Random(7)
    ids = [f"0198f0a0-0000-7000-8000-{number:012d}" for number in range(20)]

    async def ask(id: str) -> None:
        email = await store.get(id)
        assert email is not None
        assert email.id == id

    for _ in range(40):
        tasks = [asyncio.create_task(ask(id)) for id in ids]
        await asyncio.sleep(chance.uniform(0, 0.004))
        for task in tasks[:: chance.choice((2, 3))]:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result


async def test_cancellation_ends_a_wait_at_once(store: MysqlStore, mariadb_server: Server, url: str) -> None:
    """A row that another transaction holds: the caller does not stand there until the lock's own time is over."""
    await store.add([new(1)])
    database = url.rpartition("/")[2]
    with mariadb_server.connect(database) as holder, holder.cursor() as cursor:
        holder.begin()
        cursor.execute("SELECT id FROM emails FOR UPDATE")
        move = Transition(id=new(1).id, source=S.READY, target=S.FAILED, cause=Cause.CANCELLED, at=now())
        task = asyncio.create_task(store.apply(move))
        await asyncio.sleep(0.1)
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 1.0
        # A claim does not wait for anybody at all.
        assert (
            await store.claim(Job(id=new(1).id, company_id="", priority=5, due_at=0), token="w.1", now=now())
            is None
        )
        holder.rollback()


async def test_every_connection_is_as_ours_must_be(store: MysqlStore, mariadb_server: Server) -> None:
    """Whatever the server's defaults are."""
    facts = await store._pool.read(
        lambda session: session.row(
            "SELECT @@time_zone, @@tx_isolation, @@sql_mode, @@autocommit, @@collation_connection, @@foreign_key_checks"
        )
    )
    assert facts is not None
    zone, isolation, mode, autocommit, collation, keys = facts
    assert (zone, isolation, autocommit, collation, keys) == ("+00:00", "READ-COMMITTED", 1, "utf8mb4_bin", 1)
    assert "STRICT_ALL_TABLES" in mode


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("root@", "root:wrong@"), "user or password is wrong"),
        (lambda url: f"{url}x", "no such database"),
        (lambda url: f"{url}?tls=required", "does not answer|not trusted|SSL"),
    ],
    ids=["password", "database", "tls"],
)
async def test_what_is_wrong_at_the_start_is_named_with_the_remedy(url: str, change: Any, words: str) -> None:
    with pytest.raises((StoreUnusable, StoreUnavailable), match=words) as told:
        await MysqlStore(change(url)).open()
    assert "wrong@" not in str(told.value)
