"""Claims of a living worker that no rider works under: nobody else would take them back before it dies."""

from __future__ import annotations

from doubles.clock import run
from doubles.rig import Rig, new_email
from staffetta.errors import LockNotAcquired
from staffetta.flow.orphans import Orphans
from staffetta.mail.events import LockLost
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Claim, Job, Transition


async def claimed(rig: Rig, number: int = 1) -> tuple[Job, Claim]:
    (job,) = await rig.add(new_email(number, now=rig.clock()))
    await rig.bus.take(10, now=rig.clock(), lease_ms=60_000)
    claim = await rig.store.claim(job, token=f"w1.{number}00", now=rig.clock())
    assert claim is not None
    return job, claim


async def taken(rig: Rig) -> list[str]:
    return [job.id for job in await rig.bus.take(10, now=rig.clock(), lease_ms=60_000)]


def test_a_claim_whose_answer_was_lost_goes_back_and_costs_nothing() -> None:
    async def story() -> None:
        rig = Rig()
        job, claim = await claimed(rig)
        await rig.bus.settle([job.id])
        orphans = Orphans(rig.means)
        orphans.note(job, claim.token, "claim")

        assert await orphans.look() == 1

        email = await rig.email(job.id)
        assert (email.status, email.attempts, email.crashes, email.doubts) == (Status.READY, 0, 0, 0)
        assert await taken(rig) == [job.id]
        assert len(orphans) == await orphans.look() == 0

    run(story)


def test_a_ride_that_broke_is_restored_by_its_journal() -> None:
    async def story() -> None:
        rig = Rig()
        job, claim = await claimed(rig)
        await rig.store.commit(claim, transport="relay", now=rig.clock())
        orphans = Orphans(rig.means)
        orphans.note(job, claim.token, "broken")

        await orphans.look()

        email = await rig.email(job.id)
        assert (email.status, email.doubts) == (Status.READY, 1)
        assert email.due_at == rig.clock() + 900_000

    run(story)


def test_a_claim_that_was_never_made_is_offered_again() -> None:
    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock()))
        await rig.bus.take(10, now=rig.clock(), lease_ms=60_000)
        await rig.bus.settle([job.id])
        orphans = Orphans(rig.means)
        orphans.note(job, "w1.7", "claim")

        await orphans.look()

        assert await taken(rig) == [job.id]

    run(story)


def test_another_workers_claim_is_left_alone() -> None:
    async def story() -> None:
        rig = Rig()
        job, claim = await claimed(rig)
        orphans = Orphans(rig.means)
        orphans.note(job, "w1.other", "claim")

        await orphans.look()

        email = await rig.email(job.id)
        assert (email.status, email.token) == (Status.PROCESSING, claim.token)

    run(story)


def test_one_that_moves_at_the_last_moment_is_told_and_left() -> None:
    async def story() -> None:
        rig = Rig()
        job, claim = await claimed(rig)
        orphans = Orphans(rig.means)
        orphans.note(job, claim.token, "claim")

        async def lost(move: Transition) -> None:
            raise LockNotAcquired

        rig.store.apply = lost  # type: ignore[method-assign]  # somebody was faster

        await orphans.look()

        assert len(rig.told(LockLost)) == 1
        assert await taken(rig) == []

    run(story)
