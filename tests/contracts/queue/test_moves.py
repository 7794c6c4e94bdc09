"""What comes in goes out once: offering, taking, settling, giving back, and the order within a company."""

from __future__ import annotations

import pytest

from contracts.queues import NOW, Open, companies, job, jobs, numbers, take
from doubles.stocked import Clock
from staffetta.queue.contract import Depth, Queue


async def test_what_is_offered_is_given_once(queue: Queue) -> None:
    assert list(await queue.offer(jobs(range(1, 5)))) == []
    assert numbers(await take(queue)) == [1, 2, 3, 4]
    assert await take(queue) == []


async def test_a_job_comes_back_as_it_was_offered(queue: Queue) -> None:
    """The store's handle and the due time travel with it."""
    offered = job(7, "acme-1", priority=3, due_at=NOW - 5)
    await queue.offer([offered])
    (given,) = await take(queue)
    assert given == offered


async def test_any_text_may_be_an_id_or_a_company(queue: Queue) -> None:
    """Ids of other programs need not be UUIDs; companies have up to 64 characters of any script."""
    from msgspec.structs import replace

    names = ["x", "sixteen-letters-", "é" * 40, "550e8400-E29B-41d4-a716-446655440000", "00", "~", "a:b{c}"]
    offered = [replace(job(n, f"co:{{{n}}} ü"), id=name, ref=n * 10**9) for n, name in enumerate(names)]
    await queue.offer(offered)
    given = []
    while got := await take(queue, 2):
        given += got
    assert sorted(given, key=lambda one: one.ref) == offered
    await queue.settle(names)
    assert await queue.depth() == Depth(waiting=0, delayed=0, active=0)


@pytest.mark.parametrize("state", ["waiting", "delayed", "active"])
async def test_offering_a_known_id_again_changes_nothing(queue: Queue, state: str) -> None:
    await queue.offer([job(1, due_at=NOW + 50 if state == "delayed" else NOW)])
    if state == "active":
        assert numbers(await take(queue)) == [1]
    before = await queue.depth()
    await queue.offer([job(1), job(1, "other"), job(1, due_at=NOW + 10)])
    assert await queue.depth() == before
    assert getattr(before, state) == 1


async def test_twice_in_one_batch_is_once(queue: Queue) -> None:
    await queue.offer([job(1), job(2), job(1)])
    assert numbers(await take(queue)) == [1, 2]


async def test_depth_tells_where_everything_stands(queue: Queue) -> None:
    await queue.offer([*jobs(range(1, 6)), *jobs(range(6, 9), due_at=NOW + 1_000)])
    await take(queue, 2)
    assert await queue.depth() == Depth(waiting=3, delayed=3, active=2)


async def test_settled_is_forgotten_and_may_be_offered_anew(queue: Queue) -> None:
    await queue.offer([job(1)])
    await take(queue)
    await queue.settle([job(1).id])
    assert await queue.depth() == Depth(waiting=0, delayed=0, active=0)
    await queue.offer([job(1)])
    assert numbers(await take(queue)) == [1]


async def test_settling_what_is_unknown_or_already_settled_is_no_error(queue: Queue) -> None:
    await queue.settle([job(1).id])
    await queue.offer([job(1)])
    await take(queue)
    await queue.settle([job(1).id, job(1).id])
    await queue.settle([])
    assert await queue.depth() == Depth(waiting=0, delayed=0, active=0)


async def test_what_is_settled_before_it_was_taken_is_never_given(queue: Queue, clock: Clock) -> None:
    """A cancelled e-mail must not come up again only because it waited, or waited for its time."""
    await queue.offer([*jobs(range(1, 6)), job(9, due_at=NOW + 100), job(10, due_at=NOW + 100)])
    await queue.settle([job(3).id, job(9).id])
    assert await queue.depth() == Depth(waiting=4, delayed=1, active=0)
    assert numbers(await take(queue)) == [1, 2, 4, 5]
    clock.turn(100)
    assert numbers(await take(queue, now=clock())) == [10]


async def test_settled_while_delayed_and_offered_anew_is_given_once(queue: Queue, clock: Clock) -> None:
    await queue.offer([job(1, due_at=NOW + 100)])
    await queue.settle([job(1).id])
    await queue.offer([job(1, due_at=NOW + 50)])
    clock.turn(200)
    assert numbers(await take(queue, now=clock())) == [1]
    assert await queue.depth() == Depth(waiting=0, delayed=0, active=1)


async def test_within_a_company_priority_goes_before_age_and_age_before_arrival(queue: Queue) -> None:
    await queue.offer([job(1), job(2, priority=9), job(3, due_at=NOW - 7), job(4, priority=1)])
    await queue.offer([job(5, due_at=NOW - 7), job(6, priority=1, due_at=NOW - 1), job(7, priority=9)])
    assert numbers(await take(queue)) == [6, 4, 3, 5, 1, 2, 7]


async def test_late_comers_find_their_place_between_takes(queue: Queue) -> None:
    await queue.offer([job(n, due_at=NOW - 100 + n) for n in range(10, 20)])
    assert numbers(await take(queue, 2)) == [10, 11]
    await queue.offer([job(n, due_at=NOW - 100 + n) for n in (13, 3, 40, 14)])
    await queue.offer([job(5, due_at=NOW - 100 + 15)])
    assert numbers(await take(queue, 3)) == [3, 12, 13]
    await queue.offer([job(41, due_at=NOW - 100 + 14)])
    assert numbers(await take(queue)) == [14, 41, 15, 5, 16, 17, 18, 19, 40]


async def test_a_delayed_job_is_given_at_its_time_and_not_before(queue: Queue, clock: Clock) -> None:
    await queue.offer([job(1, due_at=NOW + 1_000), job(2, due_at=NOW + 500), job(3)])
    assert numbers(await take(queue)) == [3]
    clock.turn(499)
    assert await take(queue, now=clock()) == []
    clock.turn(1)
    assert numbers(await take(queue, now=clock())) == [2]
    clock.turn(500)
    assert numbers(await take(queue, now=clock())) == [1]


async def test_jobs_that_fall_due_together_come_in_the_order_of_their_times(queue: Queue, clock: Clock) -> None:
    await queue.offer([job(n, due_at=NOW + 1_000 - n) for n in range(1, 30)])
    clock.turn(2_000)
    assert numbers(await take(queue, now=clock())) == list(range(29, 0, -1))


async def test_a_postponed_job_comes_again_at_its_new_time(queue: Queue, clock: Clock) -> None:
    from msgspec.structs import replace

    await queue.offer(jobs(range(1, 4)))
    taken = await take(queue)
    await queue.postpone([replace(taken[0], due_at=NOW + 300), replace(taken[1], due_at=NOW)])
    assert await queue.depth() == Depth(waiting=1, delayed=1, active=1)
    assert numbers(await take(queue)) == [2]
    clock.turn(300)
    (again,) = await take(queue, now=clock())
    assert again == replace(taken[0], due_at=NOW + 300)


async def test_a_job_postponed_by_who_does_not_have_it_is_offered(queue: Queue) -> None:
    """A restarted queue has forgotten the lease: giving back must still remind."""
    await queue.postpone([job(1)])
    await queue.offer([job(2)])
    await queue.postpone([job(2)])
    assert numbers(await take(queue)) == [1, 2]


async def test_a_take_of_nothing_takes_nothing(queue: Queue) -> None:
    await queue.offer([job(1)])
    assert await take(queue, 0) == []
    assert await queue.depth() == Depth(waiting=1, delayed=0, active=0)


async def test_nothing_offered_is_nothing_refused(queue: Queue) -> None:
    assert list(await queue.offer([])) == []
    await queue.postpone([])
    assert list(await queue.extend([], now=NOW, lease_ms=1)) == []


async def test_turns_go_round_in_threes(queue: Queue) -> None:
    for name in ("a", "b", "c"):
        await queue.offer(jobs(range(ord(name) * 100, ord(name) * 100 + 7), name))
    assert companies(await take(queue)) == "aaabbbcccaaabbbcccabc"


async def test_a_turn_goes_on_in_the_next_take(queue: Queue) -> None:
    """However many are asked for at once, the order is the same."""
    for name in ("a", "b"):
        await queue.offer(jobs(range(ord(name) * 100, ord(name) * 100 + 6), name))
    taken = [(await take(queue, limit)) for limit in (1, 1, 2, 4, 1, 3)]
    assert "".join(companies(one) for one in taken) == "aaabbbaaabbb"


async def test_a_company_that_returns_comes_first(queue: Queue) -> None:
    for name in ("a", "b"):
        await queue.offer(jobs(range(ord(name) * 1000, ord(name) * 1000 + 60), name))
    assert companies(await take(queue, 30)) == "aaabbb" * 5
    await queue.offer(jobs(range(1, 9), "x"))
    assert companies(await take(queue, 18)) == "xxxaaabbb" * 2


async def test_weights_are_shares_and_a_new_one_acts_at_once(open_queue: Open) -> None:
    queue = await open_queue(weights={"a": 2.0})
    for name in ("a", "b"):
        await queue.offer(jobs(range(ord(name) * 1000, ord(name) * 1000 + 900), name))
    assert companies(await take(queue, 90)).count("a") == 60
    await queue.set_weight("b", 8.0)
    shares = companies(await take(queue, 150))
    assert abs(shares.count("b") - 120) <= 6


async def test_patterns_give_weights_to_companies_never_seen_before(open_queue: Open) -> None:
    queue = await open_queue(weights={"gold-*": 4.0})
    await queue.offer(jobs(range(1, 200), "gold-new"))
    await queue.offer(jobs(range(201, 400), "silver"))
    assert companies(await take(queue, 100)).count("g") == pytest.approx(80, abs=5)


async def test_a_blocked_company_keeps_its_jobs_and_others_go_on(queue: Queue) -> None:
    for name in ("a", "b"):
        await queue.offer(jobs(range(ord(name) * 100, ord(name) * 100 + 6), name))
    await queue.block("a")
    await queue.block("a")
    assert companies(await take(queue)) == "bbbbbb"
    assert (await queue.depth()).waiting == 6
    await queue.offer([job(1, "b")])
    await queue.unblock("a")
    assert companies(await take(queue)) == "aaabaaa"


async def test_a_company_may_be_blocked_before_anything_is_known_of_it(queue: Queue) -> None:
    await queue.block("x")
    await queue.offer(jobs(range(1, 4), "x"))
    assert await take(queue) == []
    await queue.unblock("x")
    assert numbers(await take(queue)) == [1, 2, 3]


async def test_blocked_in_its_turn_a_company_gives_the_turn_away(queue: Queue) -> None:
    for name in ("a", "b"):
        await queue.offer(jobs(range(ord(name) * 100, ord(name) * 100 + 6), name))
    assert companies(await take(queue, 1)) == "a"
    await queue.block("a")
    assert companies(await take(queue, 1)) == "b"


async def test_without_fairness_the_oldest_is_next(open_queue: Open) -> None:
    """`fairness.enabled = false`: plain order by age, whoever it belongs to."""
    queue = await open_queue(enabled=False)
    await queue.offer([job(n, "ab"[n % 5 == 0], due_at=NOW - 1_000 + n) for n in range(20)])
    await queue.offer([job(50, "c", due_at=NOW - 2_000), job(51, "a", priority=1, due_at=NOW - 1)])
    assert numbers(await take(queue)) == [50, *range(20), 51]


async def test_a_suspect_goes_alone_and_last(queue: Queue) -> None:
    """It may kill its worker: nothing else may be in flight then."""
    await queue.offer([job(1, suspect=True), job(2), job(3, suspect=True), job(4)])
    assert numbers(await take(queue)) == [2, 4]
    assert await take(queue) == []
    await queue.settle([job(2).id])
    assert await take(queue) == []
    await queue.settle([job(4).id])
    assert numbers(await take(queue)) == [1]
    await queue.offer([job(5)])
    assert await take(queue) == []
    await queue.settle([job(1).id])
    assert numbers(await take(queue)) == [5]
    await queue.settle([job(5).id])
    assert numbers(await take(queue)) == [3]


async def test_a_suspect_of_a_blocked_company_waits_without_stopping_another(queue: Queue) -> None:
    await queue.offer([job(1, "a", suspect=True), job(2, "b", suspect=True)])
    await queue.block("a")
    assert numbers(await take(queue)) == [2]
    await queue.settle([job(2).id])
    assert await take(queue) == []
    await queue.unblock("a")
    assert numbers(await take(queue)) == [1]


async def test_a_postponed_suspect_lets_the_others_on(queue: Queue, clock: Clock) -> None:
    from msgspec.structs import replace

    await queue.offer([job(1, suspect=True)])
    (suspect,) = await take(queue)
    await queue.offer([job(2)])
    await queue.postpone([replace(suspect, due_at=NOW + 10)])
    assert numbers(await take(queue)) == [2]
    await queue.settle([job(2).id])
    clock.turn(10)
    assert numbers(await take(queue, now=clock())) == [1]


async def test_the_seeds_figures_are_kept_per_company(queue: Queue) -> None:
    for name in ("a", "b", "c"):
        await queue.offer(jobs(range(ord(name) * 100, ord(name) * 100 + 20), name))
    await take(queue, 7, now=NOW + 5)
    figures = {one.company_id: one for one in await queue.figures()}
    assert {name: one.total_processed for name, one in figures.items()} == {"a": 3, "b": 3, "c": 1}
    assert {name: one.waiting for name, one in figures.items()} == {"a": 17, "b": 17, "c": 19}
    assert {name: one.active for name, one in figures.items()} == {"a": 3, "b": 3, "c": 1}
    assert {name: one.rounds_without_processing for name, one in figures.items()} == {"a": 2, "b": 1, "c": 0}
    assert {name: one.current_priority for name, one in figures.items()} == {"a": 3, "b": 4, "c": 5}
    assert {name: one.consecutive_batch_count for name, one in figures.items()} == {"a": 0, "b": 0, "c": 1}
    assert {name: one.last_processed_at for name, one in figures.items()} == dict.fromkeys("abc", NOW + 5)
    assert {one.weight for one in figures.values()} == {1.0}


async def test_who_waits_for_nothing_has_waited_no_rounds(queue: Queue) -> None:
    await queue.offer([job(1, "a")])
    await queue.offer(jobs(range(10, 30), "b"))
    await take(queue, 20)
    figures = {one.company_id: one for one in await queue.figures()}
    assert figures["a"].rounds_without_processing == 0
    assert figures["a"].current_priority == 5


async def test_the_index_of_dead_letters_takes_any_id(queue: Queue) -> None:
    await queue.bury([job(1).id, job(2).id], now=NOW)
    await queue.bury([job(1).id], now=NOW + 1)
    await queue.revive([job(1).id, job(9).id])
    assert await queue.depth() == Depth(waiting=0, delayed=0, active=0)
