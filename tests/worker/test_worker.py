"""The worker as a whole: e-mails go out, trouble delays only itself, and a stop leaves nothing in work."""

from __future__ import annotations

import asyncio

import pytest

from doubles.clock import run, turned
from doubles.rig import HOUR_MS, Rig, new_email
from doubles.transport import (
    ScriptedTransport,
    accepts,
    after,
    hangs,
    hangs_after_dot,
    loses_reply,
    refuses,
)
from staffetta.errors import StoreUnavailable
from staffetta.mail.events import BreakerMoved, Restored, Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Claim, Job, Reply, Transition
from staffetta.mail.operators import Pause
from staffetta.mail.operators import Worker as WorkerRecord
from staffetta.store.memory import MemoryStore
from staffetta.worker import Stage, Worker


async def until(rig: Rig, wanted: dict[Status, int], within_seconds: float = 600) -> None:
    """Wait on the turned clock until the store counts so."""
    for _ in range(int(within_seconds * 10)):
        counts = await rig.store.counts()
        if all(counts.get(status, 0) == count for status, count in wanted.items()):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"wanted {wanted}, have { {s: n for s, n in counts.items() if n} }")


async def stopped(worker: Worker, running: asyncio.Task[None]) -> None:
    worker.stop()
    await running


def test_everything_that_is_due_is_sent() -> None:
    async def story() -> None:
        rig = Rig()
        await rig.add(*(new_email(n, now=rig.clock(), company_id=f"c{n % 7}") for n in range(500)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())

        await until(rig, {Status.SENT: 500})
        await stopped(worker, running)

        assert 500 == len(rig.transport.arrived)
        assert 20 >= rig.transport.at_once_most

    run(story)


def test_what_comes_later_is_sent_when_it_is_due() -> None:
    async def story() -> None:
        rig = Rig()
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(10)
        await rig.add(new_email(1, now=rig.clock()), new_email(2, now=rig.clock(), due_in_ms=60_000))

        await until(rig, {Status.SENT: 1}, 2)
        await asyncio.sleep(50)
        assert 1 == len(rig.transport.arrived)
        await until(rig, {Status.SENT: 2}, 12)
        await stopped(worker, running)

    run(story)


def test_a_relay_that_is_down_for_an_hour_costs_an_hour_and_no_dead_letter() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=refuses("connect", name="refused", text="refused"))])
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(300)))
        rig.transport.probes.extend([_REFUSED] * 10_000)
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(3600)
        assert 300 == (await rig.store.counts())[Status.READY]
        assert rig.transport.calls < 100, "an open breaker is asked by its probe alone"

        rig.transport.always = accepts
        rig.transport.probes.clear()
        await until(rig, {Status.SENT: 300}, 120)
        await stopped(worker, running)

        attempts = [(await rig.email(new_email(n, now=0).id)).attempts for n in range(300)]
        assert [1] * 300 == attempts, "an outage uses up no attempt"
        states = [event.state for event in rig.told(BreakerMoved) if isinstance(event, BreakerMoved)]
        assert "open" == states[0]
        assert "closed" == states[-1]

    run(story)


def test_a_thousand_e_mails_against_a_wrong_password_are_held_and_then_sent() -> None:
    async def story() -> None:
        wrong = refuses("auth", 535, "5.7.8 authentication failed")
        rig = Rig(transports=[ScriptedTransport(always=wrong)])
        rig.transport.probes.extend([_WRONG_PASSWORD] * 10_000)
        await rig.add(*(new_email(n, now=rig.clock(), company_id=f"c{n % 9}") for n in range(1000)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(1800)

        assert 1000 == (await rig.store.counts())[Status.READY]
        assert 1 == len([e for e in rig.told(BreakerMoved) if getattr(e, "state", "") == "open"][:1])
        rig.transport.always = accepts
        rig.transport.probes.clear()
        await until(rig, {Status.SENT: 1000}, 900)
        await stopped(worker, running)

        assert 0 == (await rig.store.dead_letter_counts()).size

    run(story)


def test_after_an_outage_the_relay_is_not_flooded() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=refuses("connect", name="refused", text="refused"))])
        rig.transport.probes.extend([_REFUSED] * 2)
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(300)))
        worker = rig.worker(concurrency=200)
        running = asyncio.create_task(worker.run())
        while rig.transport.probes:  # noqa: ASYNC110  # the clock is turned: this takes no time
            await asyncio.sleep(0.1)
        rig.transport.at_once_most = 0
        rig.transport.always = after(1.0, accepts)
        await asyncio.sleep(4)
        early = rig.transport.at_once_most
        await until(rig, {Status.SENT: 300}, 60)
        await stopped(worker, running)

        assert early <= 16
        assert rig.transport.at_once_most > 100

    run(story)


def test_the_fallback_carries_the_mail_and_the_first_gets_it_back() -> None:
    async def story() -> None:
        first = ScriptedTransport("first", always=refuses("connect", name="refused", text="refused"))
        second = ScriptedTransport("second")
        first.probes.extend([_REFUSED] * 3)
        rig = Rig(transports=[first, second])
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(100)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await until(rig, {Status.SENT: 100}, 30)
        first.always = accepts
        await asyncio.sleep(120)
        carried = len(second.arrived)
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(100, 200)))
        await until(rig, {Status.SENT: 200}, 30)
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(200, 300)))
        await until(rig, {Status.SENT: 300}, 30)
        await stopped(worker, running)

        assert 100 == carried
        assert len(first.arrived) > 100

    run(story)


def test_a_paused_company_waits_and_the_others_go_on() -> None:
    async def story() -> None:
        rig = Rig()
        pause = Pause(scope="company", name="c1", since=rig.clock())
        await rig.store.pause(pause)
        await rig.add(*(new_email(n, now=rig.clock(), company_id=f"c{n % 2}") for n in range(100)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(60)
        assert 50 == (await rig.store.counts())[Status.SENT]

        await rig.store.resume(pause)
        await until(rig, {Status.SENT: 100}, 3)
        await stopped(worker, running)

    run(story)


@pytest.mark.parametrize("scope", ["all", "transport"])
def test_a_pause_takes_effect_and_ends_within_a_second(scope: str) -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=after(0.1, accepts))])
        worker = rig.worker(concurrency=5)
        running = asyncio.create_task(worker.run())
        pause = Pause(scope=scope, name="relay" if scope == "transport" else "", since=rig.clock())  # type: ignore[arg-type]  # one of the literals
        await rig.store.pause(pause)
        await asyncio.sleep(1.2)
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(50)))
        await asyncio.sleep(60)
        assert [] == rig.transport.arrived
        assert 0 == (await rig.store.counts())[Status.PROCESSING]

        await rig.store.resume(pause)
        await until(rig, {Status.SENT: 50}, 5)
        await stopped(worker, running)

    run(story)


def test_expiry_comes_also_while_everything_is_paused() -> None:
    async def story() -> None:
        rig = Rig()
        await rig.store.pause(Pause(scope="all", name="", since=rig.clock()))
        await rig.add(new_email(1, now=rig.clock(), expires_in_ms=HOUR_MS))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(3_602)
        await stopped(worker, running)

        assert Status.FAILED == (await rig.email(new_email(1, now=0).id)).status

    run(story)


def test_a_stop_gives_back_what_is_in_flight_and_leaves_nothing_in_work() -> None:
    async def story() -> None:
        rig = Rig()
        rig.transport.script.extend([hangs] * 4 + [hangs_after_dot] * 3 + [after(10, accepts)] * 5)
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(60)))
        worker = rig.worker(concurrency=12)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(1)
        before = turned().time()

        await stopped(worker, running)

        assert 19.9 <= turned().time() - before <= 26
        counts = await rig.store.counts()
        assert 0 == counts[Status.PROCESSING]
        assert 5 == counts[Status.SENT]
        assert 55 == counts[Status.READY]
        doubts = [(await rig.email(new_email(n, now=0).id)).doubts for n in range(60)]
        assert 3 == sum(doubts)

    run(story)


def test_claims_found_at_start_in_an_owned_store_are_taken_back_at_once() -> None:
    async def story() -> None:
        rig = Rig()
        jobs = await rig.add(*(new_email(n, now=rig.clock()) for n in range(10)))
        for number, job in enumerate(jobs):
            assert await rig.store.claim(job, token=f"dead.{number}", now=rig.clock()) is not None
        worker = rig.worker()
        running = asyncio.create_task(worker.run())

        await until(rig, {Status.SENT: 10}, 2)
        await stopped(worker, running)

        assert 10 == len(rig.told(Restored))

    run(story)


def test_a_shared_store_is_not_restored_before_everybody_could_show_a_heartbeat() -> None:
    async def story() -> None:
        class Shared(MemoryStore):
            owned = False

        rig = Rig(store=Shared())
        (job,) = await rig.add(new_email(1, now=rig.clock()))
        dead = WorkerRecord(id="dead", host="gone", pid=1, started_at=0, seen_at=rig.clock() - HOUR_MS)
        await rig.store.heartbeat(dead)
        assert await rig.store.claim(job, token="dead.1", now=rig.clock()) is not None
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(59)
        assert 1 == (await rig.store.counts())[Status.PROCESSING]

        await until(rig, {Status.SENT: 1}, 16)
        await stopped(worker, running)

    run(story)


def test_while_the_store_is_away_nothing_is_claimed_and_all_goes_on_when_it_is_back() -> None:
    async def story() -> None:
        class Moody(MemoryStore):
            away = False
            claims = 0

            async def claim(self, job: Job, *, token: str, now: int, alone: bool = False) -> Claim | None:
                type(self).claims += 1
                if self.away:
                    raise StoreUnavailable
                return await super().claim(job, token=token, now=now, alone=alone)

            async def apply(self, move: Transition) -> None:
                if self.away:
                    raise StoreUnavailable
                await super().apply(move)

            async def heartbeat(self, worker: object) -> None:
                if self.away:
                    raise StoreUnavailable
                await super().heartbeat(worker)  # type: ignore[arg-type]  # handed through

        store = Moody()
        rig = Rig(store=store, transports=[ScriptedTransport(always=after(0.5, accepts))])
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(200)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(2)
        store.away = True
        await asyncio.sleep(10)
        claims = Moody.claims
        await asyncio.sleep(600)
        assert claims == Moody.claims
        store.away = False

        await until(rig, {Status.SENT: 200}, 60)
        await stopped(worker, running)

        assert 200 == len(rig.transport.arrived), "no outcome was lost, nothing was sent twice"

    run(story)


def test_a_lost_claim_of_ones_own_is_found_and_sent() -> None:
    async def story() -> None:
        class Forgetful(MemoryStore):
            forgets = 1

            async def claim(self, job: Job, *, token: str, now: int, alone: bool = False) -> Claim | None:
                claim = await super().claim(job, token=token, now=now, alone=alone)
                if type(self).forgets:
                    type(self).forgets -= 1
                    raise StoreUnavailable
                return claim

        rig = Rig(store=Forgetful())
        await rig.add(new_email(1, now=rig.clock()))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())

        await until(rig, {Status.SENT: 1}, 30)
        await stopped(worker, running)

    run(story)


def test_a_loop_that_fails_is_told_and_tried_again_and_delays_nobody() -> None:
    async def story() -> None:
        walked: list[float] = []

        async def step() -> int:
            walked.append(turned().time())
            if len(walked) < 4:
                raise ZeroDivisionError("oh")
            return 0

        rig = Rig()
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(50)))
        worker = rig.worker(stages=[Stage(name="odd", every_ms=1_000, step=step)])
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(60)
        await stopped(worker, running)

        assert 50 == (await rig.store.counts())[Status.SENT]
        assert 3 == len([e for e in rig.told(Troubled) if getattr(e, "part", "") == "odd"])
        assert len(walked) > 20

    run(story)


def test_suspects_are_sent_alone_after_the_others() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=after(0.2, accepts))])
        jobs = await rig.add(*(new_email(n, now=rig.clock(), due_in_ms=-n) for n in range(30)))
        suspect = jobs[7]
        for crash in range(3):
            assert await rig.store.claim(suspect, token=f"dead{crash}.1", now=rig.clock()) is not None
            await rig.worker()._begin()
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await until(rig, {Status.SENT: 30}, 60)
        await stopped(worker, running)

        assert suspect.id.encode() in rig.transport.arrived[-1][0]

    run(story)


def test_an_e_mail_that_kills_its_worker_alone_twice_is_given_up() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=hangs)])
        (job,) = await rig.add(new_email(1, now=rig.clock()))
        for crash in range(5):
            fresh = Rig(store=rig.store, transports=[ScriptedTransport(always=hangs)], worker_id=f"w{crash}")
            worker = fresh.worker()
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(5)
            await kill(running, worker)
        final = Rig(store=rig.store, worker_id="last")
        worker = final.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        await stopped(worker, running)

        email = await rig.email(job.id)
        assert Status.FAILED == email.status
        letter = await rig.store.dead_letter(job.id)
        assert letter is not None
        assert "CRASHED" == letter.last_failure_code
        assert [] == final.transport.arrived

    run(story)


async def kill(running: asyncio.Task[None], worker: Worker) -> None:
    """As SIGKILL would: nothing is written any more."""
    everything = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    class Gone:
        def __getattr__(self, name: str) -> object:
            raise asyncio.CancelledError

    worker._means.store = Gone()  # type: ignore[assignment]  # whoever asks ends
    for task in everything:
        task.cancel()
    await asyncio.gather(*everything, return_exceptions=True)


def test_one_in_doubt_is_sent_once_more_after_its_delay() -> None:
    async def story() -> None:
        rig = Rig()
        rig.transport.script.append(loses_reply)
        await rig.add(new_email(1, now=rig.clock()))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(890)
        assert 1 == len(rig.transport.arrived)

        await until(rig, {Status.SENT: 1}, 20)
        await stopped(worker, running)

        assert 2 == len(rig.transport.arrived)

    run(story)


_REFUSED = Reply(stage="connect", name="refused", text="connection refused")
_WRONG_PASSWORD = Reply(stage="auth", code=535, enhanced="5.7.8", text="5.7.8 authentication failed")
