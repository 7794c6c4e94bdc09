"""What an operator may do to one e-mail, on a real store: each action, and every status that does not allow it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from doubles.stocked import Clock, Stock
from staffetta.errors import LockNotAcquired, MoveNotAllowed, NotFound
from staffetta.flow.operate import Operator
from staffetta.mail.events import Event, Moved
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Options, Reply, RetryLimits, Transition
from staffetta.mail.operators import Pause
from staffetta.store.memory import MemoryStore

DAY_MS = 86_400_000


class Bench:
    """A store, an operator beside it, and everything that was told."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.stock = Stock(self.store, self.clock)
        self.told: list[Event] = []
        self.files = Files()
        self.operator = Operator(
            store=self.store, rulebook=self.stock.rulebook, clock=self.clock, draw=lambda: 0.5,
            emit=self.told.append, spool=self.files,
        )  # fmt: skip

    async def status(self, email_id: str) -> Status:
        email = await self.store.get(email_id)
        assert email is not None
        return email.status


class Files:
    """The files of the spool that are still there."""

    def __init__(self) -> None:
        self.there: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        try:
            return self.there[path]
        except KeyError:
            raise NotFound(path) from None

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            del self.there[path]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_failed_email_goes_back_with_its_attempts_reset_and_a_new_day_to_live(bench: Bench) -> None:
    email_id = await bench.stock.failed()
    bench.clock.turn(5 * DAY_MS)

    move = await bench.operator.retry(email_id)

    email = await bench.store.get(email_id)
    assert email is not None
    assert move.target is Status.READY
    assert (Status.READY, 0, bench.clock(), bench.clock() + DAY_MS) == (
        email.status, email.attempts, email.due_at, email.expires_at,
    )  # fmt: skip
    history = [entry.cause for entry in await bench.store.history(email_id)]
    assert [Cause.REFUSED, Cause.RETRIED] == history[-2:]
    letter = await bench.store.dead_letter(email_id)
    assert letter is not None
    assert bench.clock() == letter.retrying_since


async def test_a_retried_email_keeps_the_expiry_it_asked_for(bench: Bench) -> None:
    email_id = await bench.stock.ready(options=Options(expires_in_seconds=60))
    refusal = Reply(stage="rcpt", code=550, text="no")
    await bench.stock.answered(await bench.stock.processing(email_id), refusal, committed=False)

    await bench.operator.retry(email_id)

    email = await bench.store.get(email_id)
    assert email is not None
    assert bench.clock() + 60_000 == email.expires_at


async def test_a_retried_email_with_slow_limits_lives_long_enough_for_them(bench: Bench) -> None:
    """Three waits of a day do not fit into the usual day."""
    limits = RetryLimits(max_attempts=4, retry_delay_ms=DAY_MS, max_retry_delay_ms=DAY_MS)
    email_id = await bench.stock.ready(options=Options(limits=limits))
    refusal = Reply(stage="rcpt", code=550, text="no")
    await bench.stock.answered(await bench.stock.processing(email_id), refusal, committed=False)

    await bench.operator.retry(email_id)

    email = await bench.store.get(email_id)
    assert email is not None
    assert bench.clock() + 3 * DAY_MS + 3_600_000 == email.expires_at


@pytest.mark.parametrize("status", ["accepted", "ready", "processing", "sent"])
async def test_only_failed_emails_can_be_retried(bench: Bench, status: str) -> None:
    email_id = await in_status(bench, status)
    before = await bench.store.history(email_id)

    with pytest.raises(MoveNotAllowed, match="only failed ones"):
        await bench.operator.retry(email_id)

    assert before == await bench.store.history(email_id)


async def in_status(bench: Bench, status: str) -> str:
    match status:
        case "accepted":
            return await bench.stock.accepted()
        case "sent":
            return await bench.stock.sent()
        case "failed":
            return await bench.stock.failed()
        case "processing":
            email_id = await bench.stock.ready()
            await bench.stock.processing(email_id)
            return email_id
        case _:
            return await bench.stock.ready()


async def test_an_email_whose_content_was_erased_is_not_sent_empty(bench: Bench) -> None:
    email_id = await bench.stock.ready()
    await bench.operator.cancel(email_id)
    await bench.operator.erase(email_id)

    with pytest.raises(MoveNotAllowed, match="erased"):
        await bench.operator.retry(email_id)


async def test_an_email_that_was_never_composed_is_not_sent_empty(bench: Bench) -> None:
    email_id = await bench.stock.accepted()
    await bench.operator.cancel(email_id)

    with pytest.raises(MoveNotAllowed, match="never composed"):
        await bench.operator.retry(email_id)


async def test_cancelling_leaves_no_dead_letter(bench: Bench) -> None:
    email_id = await bench.stock.ready()

    await bench.operator.cancel(email_id)

    email = await bench.store.get(email_id)
    assert email is not None
    assert (Status.FAILED, "CANCELLED: by request, before it was sent") == (email.status, email.reason)
    assert await bench.store.dead_letter(email_id) is None


@pytest.mark.parametrize("status", ["processing", "sent", "failed"])
async def test_what_is_on_the_wire_or_over_cannot_be_cancelled(bench: Bench, status: str) -> None:
    email_id = await in_status(bench, status)
    with pytest.raises(MoveNotAllowed, match="only ACCEPTED or READY"):
        await bench.operator.cancel(email_id)


async def test_what_some_recipient_has_cannot_be_cancelled(bench: Bench) -> None:
    email_id = await bench.stock.ready(recipients=["ada@example.com", "bob@example.com"])
    accepted = Reply(stage="dot", code=250, text="OK", committed=True)
    later = Reply(stage="rcpt", code=450, enhanced="4.2.0", text="4.2.0 greylisted")
    await bench.stock.answered(await bench.stock.processing(email_id), accepted, later)

    with pytest.raises(MoveNotAllowed, match="already accepted"):
        await bench.operator.cancel(email_id)


async def test_one_in_doubt_is_resolved_as_sent_and_its_dead_letter_goes(bench: Bench) -> None:
    email_id = await bench.stock.in_doubt()
    letter = await bench.store.dead_letter(email_id)
    assert letter is not None
    assert letter.last_failure_code == "IN-DOUBT"

    await bench.operator.resolve_dead_letter(email_id)

    assert await bench.status(email_id) is Status.SENT
    assert await bench.store.dead_letter(email_id) is None


async def test_one_that_was_refused_cannot_be_resolved(bench: Bench) -> None:
    email_id = await bench.stock.failed()
    with pytest.raises(MoveNotAllowed, match="not in doubt"):
        await bench.operator.resolve_dead_letter(email_id)


async def test_erasing_keeps_the_record_and_removes_the_files(bench: Bench) -> None:
    email_id = await bench.stock.sent()
    await bench.operator.erase(email_id)
    assert await bench.store.content(email_id) is None
    assert await bench.status(email_id) is Status.SENT


@pytest.mark.parametrize("status", ["ready", "processing", "failed"])
async def test_content_that_may_still_be_needed_is_not_erased(bench: Bench, status: str) -> None:
    email_id = await in_status(bench, status)
    with pytest.raises(MoveNotAllowed):
        await bench.operator.erase(email_id)
    assert await bench.store.content(email_id) is not None


async def test_requeue_waits_for_the_worker_to_be_dead(bench: Bench) -> None:
    email_id = await bench.stock.ready()
    await bench.stock.alive("w1")
    await bench.stock.processing(email_id, "w1")

    with pytest.raises(MoveNotAllowed, match="alive"):
        await bench.operator.requeue(email_id)
    bench.clock.turn(60_000)
    await bench.operator.requeue(email_id)

    assert await bench.status(email_id) is Status.READY


async def test_requeue_follows_the_journal_into_doubt(bench: Bench) -> None:
    """Its worker died after the mark: the message may be out, so it waits as one in doubt does."""
    email_id = await bench.stock.ready()
    claim = await bench.stock.processing(email_id, "dead")
    await bench.store.commit(claim, transport="relay", now=bench.clock())

    move = await bench.operator.requeue(email_id)

    assert (Status.READY, Cause.IN_DOUBT) == (move.target, move.cause)
    assert bench.clock() + 900_000 == move.due_at


async def test_requeue_believes_a_reply_that_came_too_late(bench: Bench) -> None:
    """The first claim was taken back, the second is stuck; the first one's 250 settles it without a second send."""
    email_id = await bench.stock.ready()
    first = await bench.stock.processing(email_id, "w1")
    await bench.store.commit(first, transport="relay", now=bench.clock())
    taken_back = await bench.operator.requeue(email_id)
    assert taken_back.due_at is not None
    bench.clock.now = taken_back.due_at
    await bench.stock.processing(email_id, "w2")
    with pytest.raises(LockNotAcquired):
        await bench.stock.answered(
            first, Reply(stage="dot", code=250, text="OK", committed=True), committed=False
        )

    await bench.operator.requeue(email_id)

    assert await bench.status(email_id) is Status.SENT


async def test_nothing_is_requeued_that_nobody_holds(bench: Bench) -> None:
    email_id = await bench.stock.ready()
    with pytest.raises(MoveNotAllowed, match="only those in work"):
        await bench.operator.requeue(email_id)


async def test_stale_names_those_of_dead_workers_alone(bench: Bench) -> None:
    stuck, busy = await bench.stock.ready("acme"), await bench.stock.ready("acme")
    await bench.stock.alive("w1")
    await bench.stock.processing(stuck, "w1")
    bench.clock.turn(60_000)
    await bench.stock.alive("w2")
    await bench.stock.processing(busy, "w2")

    assert [stuck] == [one.claim.id for one in await bench.operator.stale()]
    assert [] == await bench.operator.stale("globex")


ACTIONS = (
    "find", "find_dead_letter", "retry", "cancel", "resolve", "erase", "requeue", "retry_dead_letter",
    "resolve_dead_letter", "discard",
)  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS)
async def test_another_companys_email_is_as_unknown_as_none(bench: Bench, action: str) -> None:
    """Even where the action would be allowed to its owner, and in the same words."""
    makers = {"cancel": bench.stock.ready, "erase": bench.stock.sent, "resolve": bench.stock.in_doubt,
              "resolve_dead_letter": bench.stock.in_doubt}  # fmt: skip
    email_id = await makers.get(action, bench.stock.failed)("acme")
    before = await bench.store.history(email_id)
    unknown = "0198f0a0-ffff-7000-8000-000000000000"
    act = getattr(bench.operator, action)

    with pytest.raises(NotFound) as foreign:
        await act(email_id, "globex")
    with pytest.raises(NotFound) as never:
        await act(unknown, "globex")

    assert str(never.value).replace(unknown, email_id) == str(foreign.value)
    assert before == await bench.store.history(email_id)


async def test_an_action_decided_on_an_old_reading_loses(bench: Bench) -> None:
    """A worker claims between the operator's look and his move."""
    email_id = await bench.stock.ready()
    operator = Operator(
        store=ClaimedMeanwhile(bench), rulebook=bench.stock.rulebook, clock=bench.clock, draw=lambda: 0.5,
        emit=bench.told.append,
    )  # fmt: skip

    with pytest.raises(LockNotAcquired):
        await operator.cancel(email_id)

    assert await bench.status(email_id) is Status.PROCESSING
    assert [] == bench.told


class ClaimedMeanwhile(MemoryStore):
    """The same store, on which a worker claims just before the operator's move arrives."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.store.state)
        self._bench = bench

    async def apply(self, move: Transition) -> None:
        await self._bench.stock.processing(move.id)
        await super().apply(move)


async def test_each_move_is_told_once(bench: Bench) -> None:
    email_id = await bench.stock.ready()
    await bench.operator.cancel(email_id)
    told = [event for event in bench.told if isinstance(event, Moved)]
    assert [(email_id, "acme", Status.READY, Status.FAILED, Cause.CANCELLED)] == [
        (event.id, event.company_id, event.source, event.target, event.cause) for event in told
    ]


async def test_pausing_survives_and_resuming_ends_it(bench: Bench) -> None:
    await bench.operator.pause("company", "acme")
    await bench.operator.pause("all")
    await bench.operator.pause("all")
    assert {("company", "acme"), ("all", "")} == {(p.scope, p.name) for p in await bench.store.pauses()}

    await bench.operator.resume("all")

    assert [Pause(scope="company", name="acme", since=bench.clock())] == await bench.store.pauses()


async def test_a_payload_is_found_in_the_store_or_in_its_file(bench: Bench) -> None:
    inside = await bench.stock.ready(payload=b'{"subject":"inside"}')
    outside = await bench.stock.accepted(payload_path="spool/outside.json")
    lost = await bench.stock.accepted(payload_path="spool/lost.json")
    bench.files.there["spool/outside.json"] = b'{"subject":"outside"}'

    assert b'{"subject":"inside"}' == await bench.operator.payload(inside)
    assert b'{"subject":"outside"}' == await bench.operator.payload(outside)
    assert await bench.operator.payload(lost) is None


async def test_erasing_removes_the_files_that_nobody_names_now(bench: Bench) -> None:
    email_id = await bench.stock.accepted(payload_path="spool/a.json")
    bench.files.there["spool/a.json"] = b"{}"
    await bench.operator.cancel(email_id)

    await bench.operator.erase(email_id)

    assert {} == bench.files.there
