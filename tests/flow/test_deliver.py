"""One e-mail through `deliver`: what each kind of answer makes of it, and what can never happen."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from doubles.clock import run
from doubles.rig import Rig, new_email
from doubles.transport import (
    ACCEPTED,
    Call,
    ScriptedTransport,
    accepts,
    answers_each,
    breaks,
    hangs,
    hangs_after_dot,
    loses_reply,
    refuses,
)
from staffetta.errors import StoreUnavailable
from staffetta.flow.deliver import Rider, deliver
from staffetta.mail import backoff, rescue
from staffetta.mail.attempt import after_attempt
from staffetta.mail.events import Attempted, LockLost, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Claim, Delivery, Job, Reply, Transition
from staffetta.mail.rulebook import RuleBook
from staffetta.mail.verdict import judge
from staffetta.store.memory import MemoryStore


def test_an_accepted_e_mail_is_sent_and_forgotten_by_the_queue() -> None:
    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.SENT == email.status
        assert 1 == len(rig.transport.arrived)
        assert ["PROCESSING claimed", "SENT delivered"] == await rig.causes(job.id)
        assert 1 == email.attempts
        (told,) = rig.told(Attempted)
        assert isinstance(told, Attempted)
        assert (True, True, "relay") == (told.counted, told.committed, told.transport)

    run(story)


def test_the_mark_is_written_before_the_dot_and_the_reply_with_its_attempt() -> None:
    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock()))

        await rig.deliver(job)

        (attempt,) = await rig.store.attempts(job.id)
        assert attempt.committed_at > 0
        assert "relay" == attempt.transport
        assert 250 == attempt.replies[0].reply.code
        assert attempt.decision is not None
        assert "DELIVERED" == attempt.decision.verdict.action

    run(story)


def test_a_deferred_one_waits_as_the_policy_says_and_goes_back_to_the_queue() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=refuses("rcpt", 450, "4.2.1 busy"))])
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.READY == email.status
        assert 1 == email.attempts
        assert 750 <= email.due_at - rig.clock() <= 1250
        assert 1 == (await rig.bus.depth()).delayed

    run(story)


def test_a_refused_one_fails_with_a_dead_letter() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=refuses("rcpt", 550, "5.1.1 no such user"))])
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.FAILED == email.status
        letter = await rig.store.dead_letter(job.id)
        assert letter is not None
        assert "550" == letter.last_failure_code
        assert "5.1.1 no such user" in letter.last_failure_reason

    run(story)


def test_of_many_recipients_only_those_not_yet_accepted_are_tried_again() -> None:
    async def story() -> None:
        rig = Rig()
        good = Reply(stage="dot", code=250, text="ok", committed=True)
        later = Reply(stage="rcpt", code=451, enhanced="4.3.0", text="4.3.0 later")
        never = Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 unknown")
        rig.transport.script.append(answers_each(good, later, never))
        to = ("a@example.org", "b@example.org", "c@example.org")
        (job,) = await rig.add(new_email(now=rig.clock(), recipients=to))

        first = await rig.deliver(job)
        await asyncio.sleep(2)
        second = await rig.deliver(job)

        assert Status.READY == first.status
        assert Status.SENT == second.status
        assert [("a@example.org",), ("b@example.org",)] == [to for _, to in rig.transport.arrived]
        assert {"a@example.org": "accepted", "b@example.org": "accepted", "c@example.org": "refused"} == {
            r.address: r.state for r in second.recipients
        }

    run(story)


def test_a_split_goes_on_at_once_as_an_uncounted_part_under_the_same_claim() -> None:
    async def story() -> None:
        rig = Rig()
        good = Reply(stage="dot", code=250, text="ok", committed=True)
        many = Reply(stage="rcpt", code=452, enhanced="4.5.3", text="4.5.3 too many recipients")
        rig.transport.script.append(answers_each(good, many))
        (job,) = await rig.add(new_email(now=rig.clock(), recipients=("a@example.org", "b@example.org")))

        email = await rig.deliver(job)

        assert Status.SENT == email.status
        assert 1 == email.attempts
        journal = await rig.store.attempts(job.id)
        assert [(1, 1), (1, 2)] == [(entry.attempt, entry.part) for entry in journal]
        assert [("a@example.org",), ("b@example.org",)] == [to for _, to in rig.transport.arrived]
        assert ["PROCESSING claimed", "SENT delivered"] == await rig.causes(job.id)

    run(story)


def test_the_next_transport_is_tried_within_the_attempt_when_nothing_was_committed() -> None:
    async def story() -> None:
        away = ScriptedTransport("first", always=refuses("connect", name="refused", text="connection refused"))
        second = ScriptedTransport("second")
        rig = Rig(transports=[away, second])
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.SENT == email.status
        assert 1 == email.attempts
        journal = await rig.store.attempts(job.id)
        assert [("first", 1), ("second", 2)] == [(entry.transport, entry.part) for entry in journal]

    run(story)


def test_no_other_transport_is_tried_once_the_dot_may_have_left() -> None:
    async def story() -> None:
        second = ScriptedTransport("second")
        rig = Rig(transports=[ScriptedTransport("first", always=loses_reply), second])
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.READY == email.status
        assert 1 == email.doubts
        assert 0 == second.calls
        assert ["PROCESSING claimed", "READY in-doubt"] == await rig.causes(job.id)

    run(story)


def test_one_in_doubt_is_sent_once_more_with_the_same_bytes_and_then_given_up() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=loses_reply)])
        (job,) = await rig.add(new_email(now=rig.clock()))

        first = await rig.deliver(job)
        await asyncio.sleep(900)
        second = await rig.deliver(job)

        assert Status.READY == first.status
        assert 899_000 <= first.due_at - first.updated_at <= 900_000
        assert Status.FAILED == second.status
        letter = await rig.store.dead_letter(job.id)
        assert letter is not None
        assert "IN-DOUBT" == letter.last_failure_code
        assert 2 == len(rig.transport.arrived)
        assert rig.transport.arrived[0] == rig.transport.arrived[1]

    run(story)


def test_under_hold_one_in_doubt_is_never_sent_again() -> None:
    async def story() -> None:
        rulebook = RuleBook(policy=backoff.POLICIES["gateway"], in_doubt="hold")
        rig = Rig(transports=[ScriptedTransport(always=loses_reply)], rulebook=rulebook)
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.FAILED == email.status
        assert 1 == len(rig.transport.arrived)

    run(story)


def test_an_e_mail_taken_over_by_another_worker_gets_no_dot() -> None:
    """A worker that was stopped, restored and overtaken must neither send nor move anything."""

    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=accepts)])
        (job,) = await rig.add(new_email(now=rig.clock()))

        class Overtaken(MemoryStore):
            async def commit(self, claim: Claim, *, transport: str, now: int) -> None:
                back = Transition(
                    id=claim.id, source=Status.PROCESSING, target=Status.READY,
                    cause=Cause.RESTORED, at=now, token=claim.token, due_at=now,
                )  # fmt: skip
                await self.apply(back)
                await super().commit(claim, transport=transport, now=now)

        rig.means.store = Overtaken(rig.store.state)  # type: ignore[attr-defined]  # the memory store's own
        email = await rig.deliver(job)

        assert [] == rig.transport.arrived
        assert Status.READY == email.status
        assert ["PROCESSING claimed", "READY restored"] == await rig.causes(job.id)
        assert 1 == len(rig.told(LockLost))

    run(story)


def test_the_dot_is_not_sent_later_than_the_deadline() -> None:
    async def story() -> None:
        async def late(call: Call) -> Delivery:
            await asyncio.sleep(901)
            return await accepts(call)

        rig = Rig(transports=[ScriptedTransport(always=late)])
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert Status.READY == email.status
        assert [] == rig.transport.arrived
        assert 1 == email.attempts

    run(story)


def test_outcomes_wait_for_a_store_that_is_away_and_are_not_lost() -> None:
    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock()))

        class Away(MemoryStore):
            until = asyncio.get_running_loop().time() + 600

            async def apply(self, move: Transition) -> None:
                if asyncio.get_running_loop().time() < self.until:
                    raise StoreUnavailable
                await super().apply(move)

        rig.means.store = Away(rig.store.state)  # type: ignore[attr-defined]  # the memory store's own
        email = await rig.deliver(job)

        assert Status.SENT == email.status
        assert 1 == len(rig.transport.arrived)
        assert asyncio.get_running_loop().time() >= 600
        assert 1 == len(rig.told(Troubled)), "one alarm, not one for each try"

    run(story)


def test_a_store_that_is_away_before_the_dot_costs_no_attempt() -> None:
    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock()))

        class Away(MemoryStore):
            async def commit(self, claim: Claim, *, transport: str, now: int) -> None:
                raise StoreUnavailable

        rig.means.store = Away(rig.store.state)  # type: ignore[attr-defined]  # the memory store's own
        email = await rig.deliver(job)

        assert (Status.READY, 0) == (email.status, email.attempts)
        assert [] == rig.transport.arrived

    run(story)


def test_a_late_reply_is_believed_and_nothing_is_sent() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=hangs_after_dot)])
        (job,) = await rig.add(new_email(now=rig.clock()))
        rider = Rider(rig.means)
        riding = asyncio.create_task(deliver(job, rider, rig.means))
        await asyncio.sleep(1)
        claim = rider.carried()
        (held,) = await rig.store.stuck(now=rig.clock(), dead_after_ms=None, timeout_ms=1)
        rules = rig.rulebook.rules_for(claim.company_id, claim.options)
        await rig.store.apply(rescue.after_crash(held, rules, now=rig.clock()))
        # The first worker's answer comes after all.
        delivery = Call(rig.transport, "", claim.recipients, b"", rider.before_dot).delivery(
            ACCEPTED, committed=True
        )
        move = after_attempt(
            claim,
            delivery,
            [judge(ACCEPTED)],
            rules,
            now=rig.clock(),
            draw=0.5,
            committed_at=rider.committed_at,
        )
        with pytest.raises(Exception, match="failed to acquire processing lock"):
            await rig.store.apply(move)
        await asyncio.sleep(900)

        await deliver(job, Rider(rig.means), rig.means)

        email = await rig.email(job.id)
        assert Status.SENT == email.status
        assert 0 == email.doubts
        assert 1 == email.attempts
        assert 1 == len(rig.transport.arrived)
        riding.cancel()

    run(story)


def test_what_breaks_in_a_transport_is_tried_three_times_and_kept_in_words() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=breaks(ZeroDivisionError("oh")))])
        (job,) = await rig.add(new_email(now=rig.clock()))

        for _ in range(3):
            email = await rig.deliver(job)
            await asyncio.sleep(100)

        assert Status.FAILED == email.status
        assert 3 == email.attempts
        letter = await rig.store.dead_letter(job.id)
        assert letter is not None
        assert "ZeroDivisionError: oh" in letter.last_failure_reason

    run(story)


def test_what_breaks_after_the_dot_is_in_doubt() -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=breaks(ZeroDivisionError("oh"), after_dot=True))])
        (job,) = await rig.add(new_email(now=rig.clock()))

        email = await rig.deliver(job)

        assert (Status.READY, 1) == (email.status, email.doubts)

    run(story)


def test_one_that_is_over_is_not_sent_any_more() -> None:
    """After a weekend's outage nobody wants Friday's passwords."""

    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock(), expires_in_ms=1_000))
        await asyncio.sleep(5)

        email = await rig.deliver(job)

        assert Status.FAILED == email.status
        assert [] == rig.transport.arrived
        letter = await rig.store.dead_letter(job.id)
        assert letter is not None
        assert "EXPIRED" == letter.last_failure_code

    run(story)


@pytest.mark.parametrize("stop_at", [hangs, hangs_after_dot])
def test_an_interrupted_wait_gives_the_e_mail_back(stop_at: object) -> None:
    async def story() -> None:
        rig = Rig(transports=[ScriptedTransport(always=stop_at)])  # type: ignore[arg-type]  # one of two answers
        (job,) = await rig.add(new_email(now=rig.clock()))
        rider = Rider(rig.means)
        rider.task = asyncio.create_task(deliver(job, rider, rig.means))
        await asyncio.sleep(1)

        rider.interrupt("stopped")
        await rider.task

        email = await rig.email(job.id)
        assert Status.READY == email.status
        if stop_at is hangs:
            assert (0, 0) == (email.attempts, email.doubts)
            assert ["PROCESSING claimed", "READY stopped"] == await rig.causes(job.id)
        else:
            assert (1, 1) == (email.attempts, email.doubts)
            assert ["PROCESSING claimed", "READY in-doubt"] == await rig.causes(job.id)

    run(story)


def test_a_claim_whose_answer_was_lost_is_noted_for_later() -> None:
    async def story() -> None:
        rig = Rig()
        (job,) = await rig.add(new_email(now=rig.clock()))

        class Away(MemoryStore):
            async def claim(self, job: Job, *, token: str, now: int, alone: bool = False) -> Claim | None:
                await super().claim(job, token=token, now=now, alone=alone)
                raise StoreUnavailable

        rig.means.store = Away(rig.store.state)  # type: ignore[attr-defined]  # the memory store's own
        await deliver(job, Rider(rig.means), rig.means)

        assert [(job, "w1.1", "claim")] == rig.unsure
        assert not rig.presence.here

    run(story)


def test_a_message_file_that_cannot_be_found_holds_the_e_mail_and_tells() -> None:
    async def story() -> None:
        rig = Rig()
        e = new_email(now=rig.clock())
        (job,) = await rig.add(msgspec.structs.replace(e, message=None, eml_file_path="/spool/gone.eml"))

        email = await rig.deliver(job)

        assert (Status.READY, 0) == (email.status, email.attempts)
        assert 30_000 == email.due_at - email.updated_at
        assert 1 == len(rig.told(Troubled))
        rig.files["/spool/gone.eml"] = b"Subject: back\r\n\r\n"
        await asyncio.sleep(30)
        assert Status.SENT == (await rig.deliver(job)).status

    run(story)
