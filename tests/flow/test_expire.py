"""E-mails whose time is over end, also while everything is paused or held, and nothing keeps the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from contracts.letters import HOUR, SECOND, Letters
from contracts.stores import Ground, HandClock
from staffetta.errors import QueueError, StoreUnavailable
from staffetta.flow.expire import end_expired, expire
from staffetta.mail import backoff
from staffetta.mail.events import Event, LockLost, Moved, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Job, RecipientState
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.local import LocalQueue
from staffetta.store.memory import MemoryStore

S, C = Status, Cause
BOOK = RuleBook(policy=backoff.GATEWAY, callback_url="https://owner.example")


class Bench:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryStore()
        self.post = Letters(
            self.store, Ground(store=lambda: self.store, beside=lambda: self.store, clock=self.clock)
        )
        self.queue = LocalQueue(clock=self.clock)
        self.events: list[Event] = []

    async def look(self, *, limit: int = 100, queue: LocalQueue | None = None) -> int:
        return await expire(
            store=self.store, queue=queue or self.queue, rulebook=BOOK, now=self.clock(), emit=self.events.append,
            limit=limit,
        )  # fmt: skip

    async def end(self, id: str) -> None:
        await end_expired(id, store=self.store, rulebook=BOOK, now=self.clock(), emit=self.events.append)

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_what_is_over_fails_as_expired_and_its_owner_is_told(bench: Bench) -> None:
    ready = await bench.post.ready(expires_in=-SECOND, due_in=HOUR)
    accepted = await bench.post.accepted(expires_in=-SECOND)
    fresh = await bench.post.ready()

    assert await bench.look() == 2

    for id in (ready, accepted):
        found, letter = await bench.post.email(id), await bench.store.dead_letter(id)
        assert (found.status, found.callback_due) == (S.FAILED, True)
        assert letter is not None
        assert letter.last_failure_code == "EXPIRED"
    assert await bench.post.status(fresh) is S.READY
    assert {getattr(event, "cause", "") for event in bench.told(Moved)} == {C.EXPIRED}


async def test_the_queue_forgets_what_is_over(bench: Bench) -> None:
    id = await bench.post.ready(expires_in=-SECOND)
    await bench.queue.offer([Job(id=id, company_id="acme", priority=5, due_at=0)])

    await bench.look()

    assert await bench.queue.take(10, now=bench.clock(), lease_ms=1_000) == []


async def test_accepted_by_some_it_is_sent_in_part(bench: Bench) -> None:
    id = await bench.post.ready(recipients=["a@example.com", "b@example.com"])
    claim = await bench.post.claim(id)
    settled = (RecipientState(address="a@example.com", state="accepted", reply="250"),)
    await bench.store.apply(
        bench.post.deferred(claim, settled=settled, recipients=("b@example.com",), expires_at=bench.clock())
    )

    await bench.look()

    found = await bench.post.email(id)
    assert (found.status, [one.state for one in found.recipients]) == (S.SENT, ["accepted", "given-up"])


async def test_a_look_is_bounded_and_says_that_there_was_something(bench: Bench) -> None:
    for _ in range(5):
        await bench.post.ready(expires_in=-SECOND)

    assert [await bench.look(limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_one_that_was_claimed_meanwhile_is_left_to_its_worker(bench: Bench) -> None:
    id = await bench.post.ready(expires_in=-SECOND)
    expired = bench.store.expired

    async def late(**how: Any) -> list[Any]:
        found = await expired(**how)
        await bench.post.claim(id)
        return found

    bench.store.expired = late  # type: ignore[method-assign]  # a claim between the look and the hand

    await bench.look()

    assert await bench.post.status(id) is S.PROCESSING
    assert len(bench.told(LockLost)) == 1


async def test_one_that_cannot_be_ended_is_told_and_stops_nobody(bench: Bench) -> None:
    bad, good = [await bench.post.ready(expires_in=-SECOND) for _ in range(2)]
    apply_all = bench.store.apply_all

    async def refusing(moves: Sequence[Any]) -> list[Exception | None]:
        return [ValueError("no") if move.id == bad else (await apply_all([move]))[0] for move in moves]

    bench.store.apply_all = refusing  # type: ignore[method-assign]  # what a driver may refuse

    await bench.look()

    assert await bench.post.status(good) is S.FAILED
    (told,) = bench.told(Troubled)
    assert bad in getattr(told, "message", "")


async def test_a_queue_that_is_away_is_told_and_the_e_mail_ends_all_the_same(bench: Bench) -> None:
    id = await bench.post.ready(expires_in=-SECOND)

    async def away(_: object) -> None:
        raise QueueError

    bench.queue.settle = away  # type: ignore[method-assign,assignment]  # as Redis may be

    await bench.look()

    assert await bench.post.status(id) is S.FAILED
    assert getattr(bench.told(Troubled)[0], "part", "") == "queue"


# ------------------------------------------------------------------------------------------ one, found by its worker


async def test_one_that_its_worker_finds_over_is_ended_at_once(bench: Bench) -> None:
    id = await bench.post.ready(expires_in=-SECOND)

    await bench.end(id)

    assert await bench.post.status(id) is S.FAILED


@pytest.mark.parametrize("status", [S.SENT, S.PROCESSING, S.INVALID])
async def test_one_that_has_moved_on_is_left_alone(bench: Bench, status: Status) -> None:
    id, _ = await bench.post.brought_to(status)
    bench.clock.turn(48 * HOUR)

    await bench.end(id)

    assert await bench.post.status(id) is status
    assert bench.events == []


async def test_one_that_is_not_over_or_unknown_is_left_alone(bench: Bench) -> None:
    id = await bench.post.ready()

    await bench.end(id)
    await bench.end("unknown")

    assert await bench.post.status(id) is S.READY


async def test_a_store_that_is_away_is_told_and_expiry_comes_by_again(bench: Bench) -> None:
    id = await bench.post.ready(expires_in=-SECOND)

    async def away(_: str) -> None:
        raise StoreUnavailable

    bench.store.get = away  # type: ignore[method-assign,assignment]  # as any store may be
    await bench.end(id)

    (told,) = bench.told(Troubled)
    assert "tried again" in getattr(told, "message", "")
