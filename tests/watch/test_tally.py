"""Counting in one process, and adding up what several counted."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from doubles.stocked import START
from staffetta.flow.gathering import Gathering
from staffetta.mail.counting import Counting
from staffetta.mail.events import Moved, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.tally import BOUNDS_MS, KEYS_MAX, OTHER, Spread, Tally
from staffetta.store.memory import MemoryStore

HOUR_MS = 3_600_000

steps = st.lists(
    st.tuples(st.sampled_from(["retries", "ended"]), st.sampled_from(["1", "2"]), st.integers(0, 90_000_000)),
    max_size=20,
)


def counted(tally: Tally, taken: list[tuple[str, str, int]]) -> None:
    for name, key, milliseconds in taken:
        tally.count(name, key)
        tally.spread(name, key).add(milliseconds)
        tally.minute(milliseconds // 10_000_000).setdefault(1, [0, 0])[1] += 1


@given(steps, steps, steps)
def test_adding_what_was_grown_is_adding_everything_once(
    first: list[tuple[str, str, int]], second: list[tuple[str, str, int]], elsewhere: list[tuple[str, str, int]]
) -> None:
    """However often a reader looks in between, the sums are those of all that was ever counted."""
    process, other, sums, whole = Tally(), Tally(), Tally(), Tally()
    counted(other, elsewhere)
    sums.grow(other)
    counted(process, first)
    sums.grow(process)
    seen = process.copy()
    counted(process, second)
    sums.grow(process, seen)
    sums.grow(process, process.copy())
    counted(whole, elsewhere + first + second)
    assert (whole.counts, whole.spreads) == (sums.counts, sums.spreads)


def test_a_duration_on_a_bound_is_within_it() -> None:
    """Prometheus's `le` is less or equal; a limit of 300 s is kept by what took 300 s."""
    spread = Spread()
    for bound in BOUNDS_MS:
        spread.add(bound)
        spread.add(bound + 1)
    assert [1, *[2] * (len(BOUNDS_MS) - 1), 1] == spread.buckets
    assert spread.above(300_000) == sum(bound >= 300_000 for bound in BOUNDS_MS) * 2 - 1


def test_what_servers_say_cannot_fill_the_memory() -> None:
    """A hostile server answers with a new word each time; its words become `other`, and nothing is lost."""
    tally = Tally()
    for number in range(10 * KEYS_MAX):
        tally.count("reply_codes", f"Word{number}")
        tally.spread("sends", f"Word{number}").add(1)
    assert len(tally.counts["reply_codes"]) == KEYS_MAX + 1
    assert tally.counts["reply_codes"][OTHER] == 9 * KEYS_MAX
    assert len(tally.spreads["sends"]) == KEYS_MAX + 1


def test_the_success_rate_forgets_what_is_older_than_an_hour() -> None:
    """It tells how attempts go now, not how they went this morning."""
    tally = Tally()
    minute = START // 60_000
    tally.minute(minute)[1] = [0, 10]
    tally.minute(minute + 30)[1] = [5, 10]
    assert {1: 0.25} == tally.success_rates(now=START + HOUR_MS // 2)
    assert {1: 0.5} == tally.success_rates(now=START + HOUR_MS)
    assert {} == tally.success_rates(now=START + 2 * HOUR_MS)
    tally.minute(minute + 60)
    assert [minute + 30, minute + 60] == sorted(tally.minutes)


def test_a_cancelled_email_is_no_dead_letter_and_an_expired_one_is() -> None:
    counting = Counting()
    for cause in (Cause.CANCELLED, Cause.EXPIRED):
        counting(
            Moved(at=START, id="x", company_id="acme", source=Status.READY, target=Status.FAILED, cause=cause)
        )
    assert counting.tally.total("dead_letters") == 1
    assert {"SENT": 0, "FAILED": 1} == counting.tally.counts["ended"]


class Process:
    """A process that publishes its tally as workers do."""

    def __init__(self, store: MemoryStore, name: str, *, began: int) -> None:
        self.counting = Counting()
        self._store, self._name, self._began = store, name, began

    def trouble(self, times: int) -> None:
        for _ in range(times):
            self.counting(Troubled(at=START, part="store", message="x"))

    async def publish(self, *, processed: int = 0) -> None:
        worker = {"id": self._name, "host": "h", "pid": 1, "started_at": self._began, "done": 0, "in_flight": 0}
        company = {"companyId": "acme", "totalProcessed": processed}
        told = {"worker": worker, "companies": [company], "tally": self.counting.tally}
        await self._store.publish(self._name, msgspec.json.encode(told), START)


async def test_a_process_that_ends_takes_nothing_back() -> None:
    """A counter that falls looks like a restart, and every rate would jump at each deployment."""
    store = MemoryStore()
    gathering = Gathering(store, lambda: START)
    one, two = (Process(store, name, began=START + 1) for name in ("1-a", "2-b"))
    one.trouble(3)
    two.trouble(4)
    await one.publish(processed=10)
    await two.publish(processed=20)
    sight = await gathering.look()
    assert (7, 30) == (sight.sums.total("troubles"), sight.processed["acme"])
    await store.forget_worker("1-a")
    two.trouble(1)
    await two.publish(processed=21)
    sight = await gathering.look()
    assert (8, 31) == (sight.sums.total("troubles"), sight.processed["acme"])
    assert ["2-b"] == [each["worker"]["id"] for each in sight.processes]


async def test_a_process_that_ran_before_is_counted_from_the_first_look_on() -> None:
    """The API was restarted and its counters begin at 0: what others did before is no sudden growth."""
    store = MemoryStore()
    old = Process(store, "1-a", began=START - HOUR_MS)
    old.trouble(1_000)
    await old.publish(processed=1_000)
    gathering = Gathering(store, lambda: START)
    assert (await gathering.look()).sums.total("troubles") == 0
    old.trouble(2)
    await old.publish(processed=1_003)
    sight = await gathering.look()
    assert (2, 3) == (sight.sums.total("troubles"), sight.processed["acme"])


async def test_a_queue_that_forgot_a_company_does_not_turn_its_counter_back() -> None:
    store = MemoryStore()
    gathering = Gathering(store, lambda: START)
    process = Process(store, "1-a", began=START)
    for processed in (5, 2, 4):
        await process.publish(processed=processed)
        sight = await gathering.look()
    assert sight.processed["acme"] == 9
