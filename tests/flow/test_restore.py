"""What dead workers leave behind is taken back: by the late reply first, then by the journal; living ones keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from contracts.letters import HOUR, LATER, MINUTE, NEVER, OK, Letters
from contracts.stores import Ground, HandClock
from staffetta.errors import QueueError
from staffetta.flow.restore import PAGE, decide, restore
from staffetta.mail import backoff
from staffetta.mail.events import Event, LockLost, Restored, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import InWork, Job, Options
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.local import LocalQueue
from staffetta.store.memory import MemoryStore

S, C = Status, Cause
BOOK = RuleBook(policy=backoff.GATEWAY, callback_url="https://owner.example")


class Bench:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryStore()
        ground = Ground(store=lambda: self.store, beside=lambda: self.store, clock=self.clock)
        self.post = Letters(self.store, ground)
        self.queue = LocalQueue(clock=self.clock)
        self.events: list[Event] = []

    async def restored(self, *, live: Callable[[InWork], bool] = lambda _: False, **how: Any) -> int:
        values = {"dead_after_ms": None, "timeout_ms": 30 * MINUTE, "queue": self.queue, **how}
        return await restore(
            store=self.store, rulebook=BOOK, now=self.clock(), draw=lambda: 0.5, emit=self.events.append, live=live,
            **values,
        )  # fmt: skip

    async def taken(self) -> list[str]:
        return [job.id for job in await self.queue.take(100, now=self.clock(), lease_ms=1_000)]

    def told(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_every_stage_gets_its_e_mail_back_one_step(bench: Bench) -> None:
    post = bench.post
    sending, intaking = await post.claim(await post.ready(), worker="w1"), await post.intaking()
    await post.sent(callback_due=True)
    sent = await post.calling()
    await post.failed(callback_due=True)
    failed = await post.calling()

    assert await bench.restored() == 4

    expected = {sending.id: S.READY, intaking.id: S.ACCEPTED, sent.id: S.SENT, failed.id: S.FAILED}
    assert expected == {id: await post.status(id) for id in expected}
    assert {getattr(event, "worker", "") for event in bench.told(Restored)} == {"w1"}


async def test_the_queue_is_reminded_of_what_is_ready_again(bench: Bench) -> None:
    claim = await bench.post.claim(await bench.post.ready())
    await bench.queue.offer([Job(id=claim.id, company_id="acme", priority=5, due_at=0)])
    assert await bench.taken() == [claim.id], "leased to the worker that died"

    await bench.restored()

    assert await bench.taken() == [claim.id]


async def test_a_living_claim_of_this_very_process_is_left_alone(bench: Bench) -> None:
    mine, dead = [await bench.post.claim(await bench.post.ready()) for _ in range(2)]

    assert await bench.restored(live=lambda one: one.claim.token == mine.token) == 1

    assert await bench.post.status(mine.id) is S.PROCESSING
    assert await bench.post.status(dead.id) is S.READY


async def test_more_than_a_page_is_taken_back(bench: Bench) -> None:
    for _ in range(PAGE + 5):
        await bench.post.claim(await bench.post.ready())

    assert await bench.restored() == PAGE + 5


async def test_a_page_full_of_living_claims_ends_the_walk(bench: Bench) -> None:
    for _ in range(PAGE + 5):
        await bench.post.claim(await bench.post.ready())

    assert await bench.restored(live=lambda _: True) == 0


async def test_committed_ones_are_in_doubt_and_due_after_the_delay(bench: Bench) -> None:
    claim = await bench.post.claim(await bench.post.ready())
    await bench.post.commit(claim)

    await bench.restored()

    found = await bench.post.email(claim.id)
    assert (found.status, found.doubts, found.due_at) == (S.READY, 1, bench.clock() + 15 * MINUTE)
    assert await bench.taken() == []


async def test_under_an_e_mails_own_hold_it_fails_at_once(bench: Bench) -> None:
    claim = await bench.post.claim(await bench.post.ready(options=Options(in_doubt="hold")))
    await bench.post.commit(claim)

    await bench.restored()

    found, letter = await bench.post.email(claim.id), await bench.store.dead_letter(claim.id)
    assert (found.status, found.callback_due) == (S.FAILED, True)
    assert letter is not None
    assert letter.last_failure_code == "IN-DOUBT"


async def test_a_suspect_is_offered_as_one(bench: Bench) -> None:
    id = await bench.post.ready()
    for _ in range(3):
        await bench.post.claim(id)
        await bench.restored()
    other = await bench.post.ready()
    await bench.queue.offer([Job(id=other, company_id="acme", priority=9, due_at=0)])

    assert await bench.taken() == [other], "a suspect comes after all others"
    assert (await bench.post.email(id)).crashes == 3


async def test_whoever_was_faster_keeps_it_and_the_others_go_on(bench: Bench) -> None:
    lost, held = [await bench.post.claim(await bench.post.ready()) for _ in range(2)]
    stuck = bench.store.stuck

    async def late(**how: Any) -> list[InWork]:
        found = await stuck(**how)
        if await bench.post.status(lost.id) is S.PROCESSING:
            await bench.store.apply(bench.post.delivered(lost))
        return found

    bench.store.stuck = late  # type: ignore[method-assign]  # a move between the look and the hand

    assert await bench.restored() == 1

    assert await bench.post.status(lost.id) is S.SENT
    assert await bench.post.status(held.id) is S.READY
    (told,) = bench.told(LockLost)
    assert getattr(told, "id", "") == lost.id


async def test_a_row_that_cannot_be_moved_is_told_and_stops_nobody(bench: Bench) -> None:
    claims = [await bench.post.claim(await bench.post.ready()) for _ in range(2)]
    apply_all = bench.store.apply_all

    async def bad(moves: Sequence[Any]) -> list[Exception | None]:
        results = await apply_all([move for move in moves if move.id != claims[0].id])
        return [ValueError("a bad row") if move.id == claims[0].id else results.pop(0) for move in moves]

    bench.store.apply_all = bad  # type: ignore[method-assign]  # what a driver may refuse

    assert await bench.restored() == 1

    (told,) = bench.told(Troubled)
    assert isinstance(told, Troubled)
    assert claims[0].id in told.message
    assert "acme" in told.message


async def test_a_queue_that_is_away_is_told_and_nothing_is_lost(bench: Bench) -> None:
    claim = await bench.post.claim(await bench.post.ready())

    async def away(_: object) -> None:
        raise QueueError

    bench.queue.settle = away  # type: ignore[method-assign,assignment]  # as Redis may be

    assert await bench.restored() == 1

    assert await bench.post.status(claim.id) is S.READY
    (told,) = bench.told(Troubled)
    assert getattr(told, "part", "") == "queue"


async def test_without_a_queue_the_store_alone_is_told(bench: Bench) -> None:
    claim = await bench.post.claim(await bench.post.ready())

    assert await bench.restored(queue=None) == 1
    assert await bench.post.status(claim.id) is S.READY


# ------------------------------------------------------------------------------------------ late replies come first


async def overtaken(bench: Bench, reply: Any, *, committed_again: bool) -> InWork:
    """A claim was lost with a reply in hand; its successor died, before its own dot or after it."""
    post = bench.post
    first = await post.claim(await post.ready(), worker="w1")
    await post.commit(first)
    await post.store.apply(
        post.move(first, S.READY, C.IN_DOUBT, due_at=post.now, attempts=1, doubts=1, attempt=post.closed(first))
    )
    second = await post.claim(first.id, worker="w2")
    await post.store.apply_all([post.delivered(first, attempt=post.closed(first, reply, committed=True))])
    if committed_again:
        await post.commit(second)
    (found,) = await bench.store.stuck(now=post.now, dead_after_ms=None, timeout_ms=HOUR)
    assert found.claim.late is not None
    return found


@pytest.mark.parametrize("committed_again", [False, True])
async def test_a_late_yes_is_believed_and_nothing_is_sent_again(bench: Bench, committed_again: bool) -> None:
    found = await overtaken(bench, OK, committed_again=committed_again)

    await bench.restored()

    email = await bench.post.email(found.claim.id)
    assert email.status is S.SENT
    assert [(one.state, one.reply) for one in email.recipients] == [("accepted", "250 2.0.0 Ok: queued")]
    assert await bench.taken() == []


async def test_a_late_no_is_believed_and_the_doubt_is_over(bench: Bench) -> None:
    refused = msgspec.structs.replace(NEVER, stage="dot", committed=True)
    found = await overtaken(bench, refused, committed_again=False)

    await bench.restored()

    email, letter = await bench.post.email(found.claim.id), await bench.store.dead_letter(found.claim.id)
    assert (email.status, email.doubts, email.attempts) == (S.FAILED, 0, 1)
    assert letter is not None
    assert letter.last_failure_code == "550", "it was refused: nobody needs to wonder whether it arrived"


async def test_a_late_no_leaves_the_later_attempts_own_doubt(bench: Bench) -> None:
    """The reply speaks of the first attempt; the second was handed over too, and nobody knows."""
    later = msgspec.structs.replace(LATER, stage="dot", committed=True)
    found = await overtaken(bench, later, committed_again=True)

    move = decide(found, BOOK, now=bench.clock(), draw=0.5)

    assert (move.target, move.cause, move.believed) == (S.READY, C.IN_DOUBT, found.claim.late)
    assert move.doubts == 1


async def test_what_was_believed_once_is_not_believed_again(bench: Bench) -> None:
    later = msgspec.structs.replace(LATER, stage="dot", committed=True)
    found = await overtaken(bench, later, committed_again=False)
    await bench.restored()
    bench.clock.turn(HOUR)

    assert (await bench.post.claim(found.claim.id)).late is None
