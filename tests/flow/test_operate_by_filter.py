"""What an operator may do to all of a filter: what is meant, what is left, how it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from doubles.stocked import Clock, Stock
from staffetta.errors import MoveNotAllowed, QueueError, StoreUnavailable
from staffetta.flow import operate
from staffetta.flow.operate import Operator
from staffetta.mail.events import Event, Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Job, Transition
from staffetta.mail.operators import Filter
from staffetta.queue.contract import Queue
from staffetta.store.memory import MemoryStore


class Bench:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = Clock()
        self.stock = Stock(self.store, self.clock)
        self.told: list[Event] = []
        self.operator = self.over(self.store)

    def over(self, store: MemoryStore, queue: Queue | None = None) -> Operator:
        return Operator(
            store=store, rulebook=self.stock.rulebook, clock=self.clock, draw=lambda: 0.5, emit=self.told.append,
            queue=queue,
        )  # fmt: skip

    async def statuses(self, ids: Sequence[str]) -> list[Status]:
        found = [await self.store.get(each) for each in ids]
        return [email.status for email in found if email is not None]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(operate, "PAGE", 3)  # several pages with few e-mails
    return Bench()


async def test_all_failed_emails_of_a_company_are_retried_over_several_pages(bench: Bench) -> None:
    mine = [await bench.stock.failed("acme") for _ in range(8)]
    foreign = [await bench.stock.failed("globex") for _ in range(2)]
    sent = await bench.stock.sent("acme")

    done = await bench.operator.retry_emails(Filter(company_id="acme"))

    assert set(mine) == set(done.changed)
    assert ((), False, False) == (done.skipped, done.more, done.dry_run)
    assert [Status.READY] * 8 == await bench.statuses(mine)
    assert [Status.FAILED, Status.FAILED, Status.SENT] == await bench.statuses([*foreign, sent])


async def test_a_dry_run_names_the_same_and_changes_nothing(bench: Bench) -> None:
    failed = [await bench.stock.failed() for _ in range(5)]

    dry = await bench.operator.retry_emails(Filter(), dry_run=True)

    assert [Status.FAILED] * 5 == await bench.statuses(failed)
    assert dry.dry_run
    assert dry.changed == (await bench.operator.retry_emails(Filter())).changed


@pytest.mark.parametrize(("limit", "more"), [(1, True), (3, True), (4, True), (5, False), (6, False)])
async def test_the_limit_holds_and_says_whether_there_was_more(bench: Bench, limit: int, more: bool) -> None:
    for _ in range(5):
        await bench.stock.failed()
    done = await bench.operator.retry_emails(Filter(), limit=limit)
    assert (min(limit, 5), more) == (len(done.changed), done.more)


async def test_a_filter_on_another_status_is_refused_before_anything_is_done(bench: Bench) -> None:
    failed = await bench.stock.failed()
    with pytest.raises(MoveNotAllowed, match="SENT"):
        await bench.operator.retry_emails(Filter(status=(Status.FAILED, Status.SENT)))
    assert [Status.FAILED] == await bench.statuses([failed])


async def test_emails_without_content_are_named_and_left(bench: Bench) -> None:
    erased = await bench.stock.ready()
    await bench.operator.cancel(erased)
    await bench.operator.erase(erased)
    failed = await bench.stock.failed()

    done = await bench.operator.retry_emails(Filter())

    assert ((failed,), [erased]) == (done.changed, [each.id for each in done.skipped])
    assert "erased" in done.skipped[0].why


async def test_one_that_moved_meanwhile_is_named_and_the_others_are_retried(bench: Bench) -> None:
    quick, slow = await bench.stock.failed(), await bench.stock.failed()
    racing = Racing(bench, first=quick)

    done = await bench.over(racing).retry_emails(Filter())

    assert ((slow,), [quick]) == (done.changed, [each.id for each in done.skipped])
    assert [Status.READY, Status.READY] == await bench.statuses([quick, slow])


class Racing(MemoryStore):
    """Another operator retries one e-mail just before ours does."""

    def __init__(self, bench: Bench, first: str) -> None:
        super().__init__(bench.store.state)
        self._bench = bench
        self._first = first

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        await self._bench.operator.retry(self._first)
        return await super().apply_all(moves)


async def test_dead_letters_are_retried_by_code(bench: Bench) -> None:
    refused = [await bench.stock.failed(code=550) for _ in range(4)]
    full = [await bench.stock.failed(code=552) for _ in range(4)]

    done = await bench.operator.retry_dead_letters(Filter(code="552"))

    assert set(full) == set(done.changed)
    assert [Status.FAILED] * 4 + [Status.READY] * 4 == await bench.statuses([*refused, *full])


async def test_dead_letters_that_are_on_their_way_already_are_left(bench: Bench) -> None:
    first, second = await bench.stock.failed(), await bench.stock.failed()
    await bench.operator.retry_dead_letter(first)

    done = await bench.operator.retry_dead_letters(Filter())

    assert ((second,), ()) == (done.changed, done.skipped)


async def test_purging_takes_the_old_and_leaves_the_new_and_all_records(bench: Bench) -> None:
    old = [await bench.stock.failed() for _ in range(4)]
    bench.clock.turn(30 * 86_400_000)
    new = await bench.stock.failed()
    bench.clock.turn(1)

    dry = await bench.operator.purge(older_than_ms=86_400_000, dry_run=True)
    assert (await bench.store.dead_letter_counts()).size == 5
    done = await bench.operator.purge(older_than_ms=86_400_000)

    assert set(old) == set(dry.changed) == set(done.changed)
    assert [new] == [x.outbox_id for x in (await bench.store.dead_letters(Filter(), limit=10)).items]
    assert [Status.FAILED] * 5 == await bench.statuses([*old, new])


async def test_discarding_by_filter_stays_within_the_company(bench: Bench) -> None:
    mine, foreign = await bench.stock.failed("acme"), await bench.stock.failed("globex")
    done = await bench.operator.discard_dead_letters(Filter(company_id="acme"))
    assert (mine,) == done.changed
    assert await bench.store.dead_letter(foreign) is not None


async def test_an_export_brings_every_letter_with_its_payload(bench: Bench) -> None:
    ids = [await bench.stock.failed() for _ in range(7)]
    exported = [(letter.outbox_id, payload) async for letter, payload in bench.operator.export(Filter())]
    assert sorted((each, b'{"subject":"hello"}') for each in ids) == sorted(exported)


async def test_a_store_that_goes_away_midway_keeps_what_was_done(bench: Bench) -> None:
    ids = [await bench.stock.failed() for _ in range(6)]
    with pytest.raises(StoreUnavailable):
        await bench.over(AwayAfterOnePage(bench.store.state)).retry_emails(Filter())
    assert [Status.FAILED] * 3 + [Status.READY] * 3 == await bench.statuses(ids)


class AwayAfterOnePage(MemoryStore):
    pages = 0

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        self.pages += 1
        if self.pages > 1:
            raise StoreUnavailable
        return await super().apply_all(moves)


class BrokenQueue:
    """A queue that is away, as Redis may be."""

    async def revive(self, ids: Sequence[str]) -> None:
        raise QueueError("away")

    async def offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        raise AssertionError("not reached: revive failed before")


async def test_a_queue_that_is_away_spoils_nothing(bench: Bench) -> None:
    """The store is the truth; the queue hears of it from there."""
    failed = await bench.stock.failed()
    operator = bench.over(bench.store, BrokenQueue())  # type: ignore[arg-type]  # only what is called

    await operator.retry(failed)

    assert [Status.READY] == await bench.statuses([failed])
    assert any(isinstance(event, Troubled) for event in bench.told)
