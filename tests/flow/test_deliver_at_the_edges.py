"""Where `deliver` meets what else may fail: a silent queue, a claim lost between two parts, a fault of our own."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from doubles.clock import run
from doubles.rig import Rig, new_email
from doubles.transport import ACCEPTED, Call, ScriptedTransport, accepts, answers_each, hangs_after_dot, refuses
from staffetta.errors import LockNotAcquired, NotFound, QueueError
from staffetta.flow.deliver import Rider, deliver
from staffetta.mail import rescue
from staffetta.mail.events import LockLost, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, Claim, Delivery, RecipientReply, Reply, Transition

A, B = "a@example.org", "b@example.org"
MANY = Reply(stage="rcpt", code=452, enhanced="4.5.3", text="4.5.3 too many recipients")


@pytest.mark.parametrize(
    ("answer", "call", "status"),
    [
        (accepts, "settle", Status.SENT),
        (refuses("rcpt", 450, "4.2.0 busy"), "postpone", Status.READY),
        (refuses("rcpt", 550, "5.1.1 no such user"), "bury", Status.FAILED),
    ],
)
def test_a_queue_that_is_away_changes_nothing_of_the_outcome(answer: Any, call: str, status: Status) -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=answer)])
        (job,) = await rig.add(new_email(now=rig.clock()))

        async def away(*_: object, **__: object) -> None:
            raise QueueError("gone")

        setattr(rig.bus, call, away)

        email = await rig.deliver(job)

        assert email.status is status
        assert all(isinstance(event, Troubled) and event.part == "queue" for event in rig.told(Troubled))

    run(story)


def test_a_claim_that_is_lost_between_two_parts_sends_no_second_one_and_keeps_the_first_ones_replies() -> None:
    async def story() -> None:
        rig = Rig()
        rig.transport.script.extend([answers_each(ACCEPTED, MANY), accepts])
        (job,) = await rig.add(new_email(now=rig.clock(), recipients=(A, B)))
        next_part = rig.store.next_part

        async def overtaken(claim: Claim, closed: Attempt) -> Claim:
            (held,) = await rig.store.stuck(now=rig.clock(), dead_after_ms=None, timeout_ms=10**12)
            rules = rig.rulebook.rules_for(claim.company_id, claim.options)
            await rig.store.apply(rescue.after_crash(held, rules, now=rig.clock()))
            return await next_part(claim, closed)

        rig.store.next_part = overtaken  # type: ignore[method-assign]  # a restore between two parts

        email = await rig.deliver(job)

        assert rig.transport.calls == 1
        assert len(rig.told(LockLost)) == 1
        assert (email.status, email.doubts) == (Status.READY, 1)
        (kept,) = await rig.store.attempts(job.id)
        assert [answer.reply.code for answer in kept.replies] == [250, 452]

    run(story)


def test_a_stop_between_two_parts_gives_the_rest_back() -> None:
    """What the first part brought is kept; nothing of the second was begun."""

    async def story() -> None:
        rig = Rig()
        rig.transport.script.extend([answers_each(ACCEPTED, MANY), accepts])
        (job,) = await rig.add(new_email(now=rig.clock(), recipients=(A, B)))
        await rig.bus.take(1, now=rig.clock(), lease_ms=1_000)
        rider = Rider(rig.means)
        next_part = rig.store.next_part

        async def stopped(claim: Claim, closed: Attempt) -> Claim:
            rider.interrupt("stopped")
            return await next_part(claim, closed)

        rig.store.next_part = stopped  # type: ignore[method-assign]  # a stop at this very moment
        await deliver(job, rider, rig.means)

        email = await rig.email(job.id)
        assert (email.status, email.attempts) == (Status.READY, 0)
        assert [one.state for one in email.recipients] == ["accepted", "waiting"]
        assert (await rig.store.history(job.id))[-1].cause is Cause.STOPPED
        rig.store.next_part = next_part  # type: ignore[method-assign]  # as it was

        await rig.deliver(job)

        assert [to for _, to in rig.transport.arrived] == [(A,), (B,)]
        assert (await rig.email(job.id)).status is Status.SENT

    run(story)


def test_a_late_reply_that_speaks_of_some_leaves_the_others_to_be_tried() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=hangs_after_dot)])
        (job,) = await rig.add(new_email(now=rig.clock(), recipients=(A, B)))
        await rig.bus.take(1, now=rig.clock(), lease_ms=1_000)
        rider = Rider(rig.means)
        riding = asyncio.create_task(deliver(job, rider, rig.means))
        await asyncio.sleep(1)
        claim = rider.carried()
        (held,) = await rig.store.stuck(now=rig.clock(), dead_after_ms=None, timeout_ms=10**12)
        rules = rig.rulebook.rules_for(claim.company_id, claim.options)
        await rig.store.apply(rescue.after_crash(held, rules, now=rig.clock()))
        attempt = Attempt(
            attempt=1, token=claim.token, transport="relay", closed_at=rig.clock(),
            replies=(RecipientReply(address=A, reply=ACCEPTED),),
        )  # fmt: skip
        lost = Transition(
            id=claim.id, source=Status.PROCESSING, target=Status.SENT, cause=Cause.DELIVERED, at=rig.clock(),
            token=claim.token, attempt=attempt,
        )  # fmt: skip
        with pytest.raises(LockNotAcquired):
            await rig.store.apply(lost)
        riding.cancel()
        rig.transport.always = accepts
        await asyncio.sleep(900)

        await deliver(job, Rider(rig.means), rig.means)
        email = await rig.email(job.id)

        assert email.status is Status.READY
        assert [one.state for one in email.recipients] == ["accepted", "waiting"]
        rig.transport.arrived.clear()
        await asyncio.sleep(60)
        await deliver(msgspec.structs.replace(job), Rider(rig.means), rig.means)
        assert [to for _, to in rig.transport.arrived] == [(B,)]
        assert (await rig.email(job.id)).status is Status.SENT

    run(story)


def test_a_message_that_is_in_no_file_and_no_store_holds_the_e_mail() -> None:
    """A share that is not mounted looks like files that are gone."""

    async def story() -> None:
        rig = Rig()
        new = msgspec.structs.replace(new_email(now=rig.clock()), message=None, eml_file_path="s/gone.eml")
        (job,) = await rig.add(new)

        async def gone(path: str) -> bytes:
            raise NotFound(f"{path} is gone")

        rig.means.read_message = gone

        email = await rig.deliver(job)

        assert (email.status, email.attempts) == (Status.READY, 0)
        assert email.due_at == rig.clock() + 30_000
        (told,) = rig.told(Troubled)
        assert "acme" in getattr(told, "message", "")

    run(story)


def test_a_fault_of_our_own_stops_no_other_e_mail_and_the_broken_one_is_taken_back() -> None:
    async def story() -> None:
        rig = Rig()
        judge = rig.means.judge
        broken: list[Reply] = []

        def breaks_once(reply: Reply) -> Any:
            if not broken:
                broken.append(reply)
                raise ZeroDivisionError("a fault of ours")
            return judge(reply)

        rig.means.judge = breaks_once
        await rig.add(*(new_email(n, now=rig.clock()) for n in range(10)))
        worker = rig.worker()
        running = asyncio.create_task(worker.run())
        for _ in range(20_000):
            if (await rig.store.counts())[Status.SENT] == 10:
                break
            await asyncio.sleep(0.1)
        worker.stop()
        await running

        assert (await rig.store.counts())[Status.SENT] == 10
        told = [
            event for event in rig.told(Troubled) if "could not be carried on" in getattr(event, "message", "")
        ]
        assert len(told) == 1
        copies = len(rig.transport.arrived)
        assert copies == 11, "it had been handed over: in doubt, and sent once more"

    run(story)


def test_what_a_transport_says_of_the_whole_is_said_of_each_recipient() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport()])

        async def breaks(call: Call) -> Delivery:
            raise RuntimeError("oh")

        rig.transport.script.append(breaks)
        (job,) = await rig.add(new_email(now=rig.clock(), recipients=(A, B)))

        await rig.deliver(job)

        (attempt,) = await rig.store.attempts(job.id)
        assert [(answer.address, answer.reply.name) for answer in attempt.replies] == [
            (A, "unexpected"),
            (B, "unexpected"),
        ]

    run(story)
