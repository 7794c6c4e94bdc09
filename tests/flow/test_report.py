"""Owners are told how their e-mails ended: over real HTTP, signed, once, and again when nobody acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from doubles.listener import Listener
from doubles.receiver import DROP, HANG, OK, Receiver, Say
from doubles.stocked import Clock, Stock
from staffetta.callback import Caller
from staffetta.errors import StoreUnavailable
from staffetta.flow.presence import Presence
from staffetta.flow.report import COMPANY_CALLS_MAX, Reporter, ReportMeans
from staffetta.http import Http
from staffetta.mail import rescue, steering
from staffetta.mail.events import LockLost, Reported, Troubled
from staffetta.mail.identity import uuid7
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email, Options, Reply, ReportClaim, Transition
from staffetta.mail.report import Receivers, ReportRules
from staffetta.store.memory import MemoryStore

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_c2VjcmV0LW9mLWFub3RoZXItY29tcGFueQ=="
HALF_HOUR_MS = 30 * 60_000


class Timer:
    """Sleep that passes when the clock is turned."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[float] = []
        self._sleepers: list[tuple[int, asyncio.Event]] = []
        self._asleep = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        until = asyncio.Event()
        self._sleepers.append((self.clock() + round(seconds * 1000), until))
        self._asleep.set()
        await until.wait()

    async def turn(self, ms: int) -> None:
        """Turn the clock once somebody sleeps, and wake those whose time has come."""
        while not self._sleepers:
            self._asleep.clear()
            async with asyncio.timeout(30):
                await self._asleep.wait()
        self.clock.turn(ms)
        for until, event in [sleeper for sleeper in self._sleepers if sleeper[0] <= self.clock()]:
            self._sleepers.remove((until, event))
            event.set()


class Bench:
    """A report stage with real HTTP on a memory store."""

    def __init__(self, receivers: Receivers, store: MemoryStore | None = None, **settings: Any) -> None:
        self.clock = Clock()
        self.store = store or MemoryStore()
        self.stock = Stock(self.store, self.clock, callback_url="https://set.example.com/")
        self.heard = Listener()
        self.timer = Timer(self.clock)
        numbers = itertools.count(1)
        self.http = [Http(timeout_seconds=settings.pop("timeout", 10.0)), Http(guarded=True)]
        rules = {key: settings.pop(key) for key in list(settings) if key in ReportRules.__struct_fields__}
        self.presence = Presence(clock=self.clock, draw=lambda: 0.0, emit=self.heard)
        self.reporter = Reporter(
            ReportMeans(
                store=self.store,
                presence=self.presence,
                calls=Caller(trusted=self.http[0], guarded=self.http[1], clock=self.clock),
                receivers=receivers,
                rules=ReportRules(**rules),
                new_token=lambda: f"w.{next(numbers)}",
                new_batch=lambda at: uuid7(at, next(numbers).to_bytes(10, "big")),
                clock=self.clock,
                ticks=self.clock,
                emit=self.heard,
                sleep=self.timer.sleep,
                **settings,
            )
        )

    async def close(self) -> None:
        await self.reporter.stop(0)
        for http in self.http:
            await http.close()

    async def told(self, count: int) -> list[Reported]:
        """Walk the stage once, and wait until so many calls have ended since the beginning."""
        await self.reporter.step()
        return await self.heard.until(Reported, count)

    async def status(self, made: str) -> Status:
        return (await self.email(made)).status

    async def email(self, made: str) -> Email:
        email = await self.store.get(made)
        assert email is not None
        return email

    async def restored(self) -> int:
        """What restore would do now: take back what has been let go for long enough."""
        found = await self.store.stuck(now=self.clock(), dead_after_ms=60_000, timeout_ms=HALF_HOUR_MS)
        moves = [
            rescue.after_crash(one, self.stock.rulebook.rules_for("acme", Options()), now=self.clock())
            for one in found
        ]
        assert await self.store.apply_all(moves) == [None] * len(moves)
        return len(found)


@contextlib.asynccontextmanager
async def bench(receivers: Receivers, **settings: Any) -> AsyncIterator[Bench]:
    one = Bench(receivers, **settings)
    try:
        yield one
    finally:
        await one.close()


# ------------------------------------------------------------------------------------------ told and acknowledged


async def test_a_sent_email_is_told_signed_and_acknowledged() -> None:
    async with Receiver(secret=SECRET) as receiver, bench(Receivers(url=receiver.url(), secret=SECRET)) as one:
        made = await one.stock.sent()
        reached = one.clock()
        one.clock.turn(5_000)
        await one.told(1)
        email, history = await one.email(made), await one.store.history(made)

    (call,) = receiver.calls
    assert call.verified
    assert call.webhook_id == f"msg_{made}_1"
    assert call.headers["webhook-timestamp"] == str((reached + 5_000) // 1000)
    assert call.headers["content-type"] == "application/json"
    assert call.json == {
        "code": "TRAVELING",
        "reached_at": "2027-01-15T08:00:00.000Z",
        "message_ids": [made],
        "reason": "Delivered to the mail server",
        "sequence": 1,
    }
    assert [entry.status for entry in history][-3:] == ["SENT", "CALLING-SENT-CALLBACK", "SENT-ACKNOWLEDGED"]
    assert email.reason == "250 OK"


async def test_a_failed_email_is_told_with_its_reason_and_who_refused() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        made = await one.stock.failed()
        await one.told(1)
        status = await one.status(made)

    assert status == "FAILED-ACKNOWLEDGED"
    assert receiver.calls[0].json == {
        "code": "DISPATCH-ERROR",
        "reached_at": "2027-01-15T08:00:00.000Z",
        "message_ids": [made],
        "reason": "550 5.1.1 no such user",
        "refused": [{"address": "ada@example.com", "state": "refused", "reply": "550 5.1.1 no such user"}],
        "sequence": 1,
    }


async def test_an_email_that_went_out_in_part_names_those_left_out() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        made = await one.stock.ready(recipients=["ada@example.com", "bob@example.com"])
        replies = [
            Reply(stage="dot", code=250, text="OK", committed=True),
            Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 gone"),
        ]
        await one.stock.answered(await one.stock.processing(made), *replies)
        await one.told(1)

    told = receiver.calls[0].json
    assert told["code"] == "TRAVELING"
    assert told["refused"] == [{"address": "bob@example.com", "state": "refused", "reply": "550 5.1.1 gone"}]


async def test_without_a_secret_calls_are_not_signed_but_carry_their_id() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        await one.stock.sent()
        await one.told(1)

    assert "webhook-signature" not in receiver.calls[0].headers
    assert receiver.calls[0].webhook_id


async def test_a_company_is_told_at_its_own_url_with_its_own_secret() -> None:
    async with Receiver(secret=OTHER_SECRET) as own, Receiver(secret=SECRET) as common:
        receivers = Receivers(url=common.url(), secret=SECRET, companies={"acme": (own.url(), OTHER_SECRET)})
        async with bench(receivers) as one:
            await one.stock.sent("acme")
            await one.stock.sent("other")
            await one.told(2)

    assert [(call.json["message_ids"][0][-1], call.verified) for call in (*own.calls, *common.calls)] == [
        ("1", True),
        ("2", True),
    ]


async def test_a_thousand_are_told_over_few_connections() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        for number in range(1_000):
            await one.stock.sent(f"company-{number % 10}")
        while await one.reporter.step():
            pass
        await one.told(1_000)
        counts = await one.store.counts()

    assert counts[Status.SENT_ACKNOWLEDGED] == 1_000
    assert len({call.webhook_id for call in receiver.calls}) == 1_000
    assert receiver.connections <= 32
    assert receiver.at_once["/"] <= 32


# ------------------------------------------------------------------------------------------ not acknowledged


@pytest.mark.parametrize("status", [301, 307, 400, 404, 410, 500, 503])
async def test_any_other_answer_leaves_the_status_and_lets_the_claim_go(status: int) -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        receiver.answer("/", Say(status, b"no " * 2_000, (("location", receiver.url("/else")),)))
        made = await one.stock.sent()
        (told,) = await one.told(1)
        email = await one.email(made)
        await one.reporter.step()

    assert len(receiver.calls) == 1
    assert (email.status, email.token or "") == ("CALLING-SENT-CALLBACK", "")
    assert (told.outcome, told.status, told.body) == ("refused", status, ("no " * 2_000)[:2_048])


@pytest.mark.parametrize("say", [HANG, DROP], ids=["hangs", "hangs up"])
async def test_no_answer_leaves_the_status_too(say: Say) -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url("/x?key=hidden")), timeout=0.2) as one:
        receiver.answer("/x?key=hidden", say)
        made = await one.stock.failed()
        (told,) = await one.told(1)
        status = await one.status(made)

    assert len(receiver.calls) == 1
    assert status == "CALLING-FAILED-CALLBACK"
    assert (told.outcome, told.status) == ("failed", 0)
    assert "hidden" not in told.body


async def test_what_was_let_go_comes_round_after_the_restore_timeout_and_says_the_same() -> None:
    async with Receiver(secret=SECRET) as receiver, bench(Receivers(url=receiver.url(), secret=SECRET)) as one:
        receiver.answer("/", Say(500), Say(204))
        made = await one.stock.failed()
        one.clock.turn(1_000)
        await one.told(1)
        one.clock.turn(HALF_HOUR_MS - 1)
        early = await one.restored()
        one.clock.turn(1)
        late = await one.restored()
        await one.told(2)
        status = await one.status(made)

    first, second = receiver.calls
    assert (early, late) == (0, 1)
    assert (first.webhook_id, first.body) == (second.webhook_id, second.body)
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    assert first.verified
    assert second.verified
    assert status == "FAILED-ACKNOWLEDGED"


async def test_an_operators_retry_makes_a_new_outcome_with_a_new_number() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        made = await one.stock.failed()
        await one.told(1)
        one.clock.turn(60_000)
        await one.store.apply(steering.retry(await one.email(made), now=one.clock(), expires_in_ms=86_400_000))
        claim = await one.stock.processing(made)
        await one.stock.answered(claim, Reply(stage="dot", code=250, text="OK", committed=True))
        await one.told(2)

    first, second = (call.json for call in receiver.calls)
    assert [call.webhook_id for call in receiver.calls] == [f"msg_{made}_1", f"msg_{made}_2"]
    assert (first["sequence"], second["sequence"]) == (1, 2)
    assert (first["reached_at"], second["reached_at"]) == (
        "2027-01-15T08:00:00.000Z",
        "2027-01-15T08:01:00.000Z",
    )


async def test_past_the_window_it_is_marked_exhausted_and_stays() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), window_ms=3_600_000) as one:
        receiver.answer("/", Say(500, b"still down"))
        made = await one.stock.sent()
        outcomes = []
        for round_ in range(1, 4):
            outcomes.append((await one.told(round_))[-1].outcome)
            one.clock.turn(HALF_HOUR_MS)
            await one.restored()
        one.clock.turn(365 * 86_400_000)
        left_alone = await one.restored()
        email = await one.email(made)

    assert outcomes == ["refused", "refused", "exhausted"]
    assert left_alone == 0
    assert (email.status, email.callback_exhausted) == ("CALLING-SENT-CALLBACK", True)
    assert len(receiver.calls) == 3


async def test_when_the_url_was_taken_out_of_the_settings_somebody_is_told_and_nothing_moves() -> None:
    async with bench(Receivers()) as one:
        made = await one.stock.sent()
        (told,) = await one.told(1)
        status = await one.status(made)

    assert (told.outcome, status) == ("failed", "CALLING-SENT-CALLBACK")
    assert "callback.url" in told.body


# ------------------------------------------------------------------------------------------ conflicts


async def test_a_conflict_is_asked_again_three_times_five_seconds_apart() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        receiver.answer("/", Say(409, b"busy with this one"))
        made = await one.stock.sent()
        await one.told(1)
        for _ in range(3):
            await one.timer.turn(5_000)
        told = await one.heard.until(Reported, 4)
        status = await one.status(made)

    assert [one.outcome for one in told] == ["conflict", "conflict", "conflict", "refused"]
    assert one.timer.asked == [5.0, 5.0, 5.0]
    assert len({(call.webhook_id, call.body) for call in receiver.calls}) == 1
    assert (len(receiver.calls), status) == (4, "CALLING-SENT-CALLBACK")


async def test_a_conflict_that_ends_is_acknowledged() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), retry_interval_ms=2_000) as one:
        receiver.answer("/", Say(409), OK)
        made = await one.stock.sent()
        await one.told(1)
        await one.timer.turn(2_000)
        await one.heard.until(Reported, 2)
        status = await one.status(made)

    assert (len(receiver.calls), status) == (2, "SENT-ACKNOWLEDGED")


async def test_while_a_conflict_waits_others_are_told() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), concurrency=1) as one:
        receiver.answer("/", Say(409), OK)
        first, second = await one.stock.sent(), await one.stock.sent()
        await one.told(2)
        statuses = [await one.status(first), await one.status(second)]

    assert statuses == ["CALLING-SENT-CALLBACK", "SENT-ACKNOWLEDGED"]


# ------------------------------------------------------------------------------------------ batches


async def test_a_batch_tells_of_many_with_one_call() -> None:
    async with (
        Receiver(secret=SECRET) as receiver,
        bench(Receivers(url=receiver.url(), secret=SECRET), batch=50) as one,
    ):
        ids = [await one.stock.sent() for _ in range(50)]
        await one.told(1)
        counts = await one.store.counts()

    (call,) = receiver.calls
    assert call.verified
    assert call.json["message_ids"] == ids
    assert counts[Status.SENT_ACKNOWLEDGED] == 50


async def test_a_batch_never_mixes_companies_codes_reasons_or_outcomes_with_refusals() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), batch=100) as one:
        groups = [
            {await one.stock.sent("a"), await one.stock.sent("a")},
            {await one.stock.sent("b"), await one.stock.sent("b")},
            {await one.stock.failed("a")},
            {await one.stock.failed("a")},
        ]
        await one.told(4)

    assert sorted(sorted(call.json["message_ids"]) for call in receiver.calls) == sorted(map(sorted, groups))


async def test_a_batch_that_was_not_acknowledged_is_told_again_word_for_word_even_in_pieces() -> None:
    """Members may come round at different times, to different workers: the receiver must be able to know it again."""
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), batch=10) as one:
        receiver.answer("/", Say(500), Say(204))
        ids = [await one.stock.sent() for _ in range(10)]
        one.clock.turn(1_000)
        await one.told(1)
        one.clock.turn(HALF_HOUR_MS)
        await one.restored()
        newcomer = await one.stock.sent()
        only_some = await one.store.claim_reports(tokens=["v.1", "v.2", "v.3"], now=one.clock())
        await one.told(3)
        statuses = [await one.status(made) for made in ids]

    first, *others = receiver.calls
    again = [call for call in others if call.webhook_id == first.webhook_id]
    assert [call.body for call in again] == [first.body]
    assert [call.json["message_ids"] for call in others if call not in again] == [[newcomer]]
    assert statuses.count(Status.SENT_ACKNOWLEDGED) == 10 - len(only_some)


async def test_what_was_told_alone_is_never_told_in_a_batch() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), batch=10) as one:
        receiver.answer("/", Say(500), Say(204))
        alone = await one.stock.sent()
        await one.told(1)
        one.clock.turn(HALF_HOUR_MS)
        await one.restored()
        others = [await one.stock.sent(), await one.stock.sent()]
        await one.told(3)

    assert [call.webhook_id for call in receiver.to("/")][:1] == [f"msg_{alone}_1"]
    told = {call.webhook_id: call.json["message_ids"] for call in receiver.calls[1:]}
    assert told.pop(f"msg_{alone}_1") == [alone]
    assert list(told.values()) == [others]


async def test_a_batch_is_kept_before_it_is_called() -> None:
    """If the worker dies during the call, the next one must repeat the same batch."""
    gate = asyncio.Event()
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), batch=10) as one:
        receiver.answer("/", Say(204, before=gate))
        ids = [await one.stock.sent() for _ in range(3)]
        await one.reporter.step()
        (call,) = await receiver.heard(1)
        kept = await one.store.batch_members(call.webhook_id.removeprefix("msg_"))
        gate.set()
        await one.heard.until(Reported)

    assert kept == ids


# ------------------------------------------------------------------------------------------ one receiver, others


async def test_a_dead_receiver_delays_no_other() -> None:
    async with Receiver() as dead, Receiver() as live:
        dead.answer("/", HANG)
        receivers = Receivers(companies={"dead": (dead.url(), None), "live": (live.url(), None)})
        async with bench(receivers) as one:
            for _ in range(500):
                await one.stock.sent("dead")
            ids = [await one.stock.sent("live") for _ in range(20)]
            while await one.reporter.step():
                pass
            await one.heard.until(Reported, 20)
            statuses = {await one.status(made) for made in ids}
            in_vain = dead.at_once["/"]

    assert statuses == {Status.SENT_ACKNOWLEDGED}
    assert in_vain <= 2  # an unknown receiver does not get every place at once


async def test_a_receiver_that_is_down_is_asked_one_call_at_a_time_until_it_answers() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), concurrency=8) as one:
        receiver.answer("/", Say(503))
        ids = [await one.stock.sent() for _ in range(30)]
        await one.told(5)
        await one.heard.until(Troubled)
        asked_before = len(receiver.calls)
        await one.timer.turn(5_000)
        await receiver.heard(asked_before + 1)
        asked_once = len(receiver.calls)
        receiver.answer("/", OK)
        await one.timer.turn(10_000)
        await one.heard.until(Reported, 30)
        statuses = [await one.status(made) for made in ids]

    assert asked_before <= 5 + 2
    assert asked_once == asked_before + 1
    assert statuses.count(Status.SENT_ACKNOWLEDGED) == 30 - asked_once
    assert [trouble.part for trouble in one.heard.of(Troubled)] == ["callback", "callback"]


async def test_no_line_fills_the_stage() -> None:
    """Whatever finds no room is let go; the stage stays open for receivers that answer."""
    async with Receiver() as dead, Receiver() as live:
        dead.answer("/", HANG)
        receivers = Receivers(companies={"dead": (dead.url(), None), "live": (live.url(), None)})
        async with bench(receivers, held_max=100) as one:
            for _ in range(300):
                await one.stock.sent("dead")
            made = await one.stock.sent("live")
            while await one.reporter.step():
                pass
            for _ in range(10):
                await one.reporter.step()
            await one.heard.until(Reported, 1)
            status, held = await one.status(made), one.reporter.held
            counts = await one.store.counts()

    assert status == Status.SENT_ACKNOWLEDGED
    assert held <= 52
    assert counts[Status.CALLING_SENT_CALLBACK] + counts[Status.SENT] == 300
    assert one.heard.of(Troubled)[0].part == "report"


async def test_more_than_a_line_takes_waits_in_the_store_while_the_owner_answers() -> None:
    """A receiver slower than the sending is no dead one: nobody is let go to wait half an hour for restore."""
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), held_max=64) as one:
        for _ in range(5):
            await one.stock.sent()
        await one.told(5)
        for _ in range(300):
            await one.stock.sent()
        async with asyncio.timeout(20):
            while (await one.store.counts()).get(Status.SENT_ACKNOWLEDGED, 0) < 305:
                await one.reporter.step()
                await asyncio.sleep(0)

    assert [] == one.heard.of(Troubled)
    assert 305 == len(receiver.calls)


async def test_claims_are_not_held_for_ever() -> None:
    async with Receiver() as dead, bench(Receivers(url=dead.url()), hold_ms=60_000) as one:
        dead.answer("/", HANG)
        for _ in range(10):
            await one.stock.sent()
        await one.reporter.step()
        await dead.heard(2)
        before = one.reporter.held
        one.clock.turn(60_001)
        await one.reporter.step()
        after = one.reporter.held

    assert (before, after) == (10, 2)


async def sent_for(one: Bench, url: str, company_id: str = "acme") -> str:
    """A sent e-mail whose payload named its own receiver."""
    made = await one.stock.ready(company_id, options=Options(callback_url=url))
    delivered = Reply(stage="dot", code=250, text="OK", committed=True)
    await one.stock.answered(await one.stock.processing(made), delivered)
    return made


async def test_one_company_cannot_take_every_place_with_many_dead_urls() -> None:
    """Each of its URLs is a line of its own: without a bound of the company they would take all calls together."""
    async with Receiver() as receiver, bench(Receivers(allow_private=True)) as one:
        for number in range(400):
            receiver.answer(f"/dead/{number}", HANG)
            await sent_for(one, receiver.url(f"/dead/{number}"), "flooder")
        made = await sent_for(one, receiver.url("/live"), "modest")
        while await one.reporter.step():
            pass
        await receiver.heard(1, "/live")
        await one.heard.until(Reported)
        await receiver.heard(COMPANY_CALLS_MAX + 1)
        status = await one.status(made)

    assert status == Status.SENT_ACKNOWLEDGED
    assert len(receiver.calls) == COMPANY_CALLS_MAX + 1


async def test_a_payloads_url_never_reaches_a_private_network() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        made = await sent_for(one, receiver.url("/inside"))
        (told,) = await one.told(1)
        status = await one.status(made)

    assert receiver.calls == []
    assert (told.outcome, status) == ("failed", "CALLING-SENT-CALLBACK")
    assert "may not be called" in told.body


async def test_a_payloads_url_may_be_private_where_the_operator_allows_it() -> None:
    async with Receiver() as receiver, bench(Receivers(allow_private=True)) as one:
        await sent_for(one, receiver.url("/inside"))
        await one.told(1)

    assert [call.path for call in receiver.calls] == ["/inside"]


# ------------------------------------------------------------------------------------------ others at work, trouble


async def test_an_email_that_another_worker_took_over_is_left_to_it() -> None:
    gate = asyncio.Event()
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        receiver.answer("/", Say(204, before=gate))
        made = await one.stock.sent()
        await one.reporter.step()
        await receiver.heard(1)
        one.clock.turn(HALF_HOUR_MS)
        await one.restored()
        gate.set()
        (lost,) = await one.heard.until(LockLost)
        status = await one.status(made)

    assert (lost.id, lost.step, status) == (made, "report", "SENT")


class Flaky(MemoryStore):
    """A store that is away for some calls of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self.away: dict[str, int] = {}

    def _maybe(self, call: str) -> None:
        if self.away.get(call, 0):
            self.away[call] -= 1
            raise StoreUnavailable

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        self._maybe("apply_all")
        return await super().apply_all(moves)

    async def bind_batch(self, batch: str, claims: Sequence[ReportClaim]) -> None:
        self._maybe("bind_batch")
        await super().bind_batch(batch, claims)

    async def claim_reports(self, *, tokens: Sequence[str], now: int) -> list[ReportClaim]:
        self._maybe("claim_reports")
        return await super().claim_reports(tokens=tokens, now=now)


async def test_an_acknowledgement_is_not_forgotten_while_the_store_is_away() -> None:
    store = Flaky()
    store.away = {"apply_all": 3, "bind_batch": 2}
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), store=store, batch=2) as one:
        ids = [await one.stock.sent(), await one.stock.sent()]
        await one.told(1)
        statuses = {await one.status(made) for made in ids}

    assert len(receiver.calls) == 1
    assert statuses == {Status.SENT_ACKNOWLEDGED}


async def test_a_claim_that_fails_is_told_to_who_paces_and_forgotten() -> None:
    store = Flaky()
    store.away = {"claim_reports": 1}
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), store=store) as one:
        await one.stock.sent()
        with pytest.raises(StoreUnavailable):
            await one.reporter.step()
        await one.told(1)

    assert len(receiver.calls) == 1


# ------------------------------------------------------------------------------------------ stopping


async def test_an_orderly_stop_leaves_nothing_in_work() -> None:
    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), concurrency=4) as one:
        receiver.answer("/", HANG)
        ids = [await one.stock.sent() for _ in range(10)] + [await one.stock.failed()]
        await one.reporter.step()
        await receiver.heard(2)
        await one.reporter.stop(0.05)
        statuses = [await one.status(made) for made in ids]

    assert statuses == [Status.SENT] * 10 + [Status.FAILED]


async def test_a_stop_lets_calls_under_way_end() -> None:
    gate = asyncio.Event()
    async with Receiver() as receiver, bench(Receivers(url=receiver.url())) as one:
        receiver.answer("/", Say(204, before=gate))
        conflict = await one.stock.sent("third")
        under_way, waiting = await one.stock.sent(), await one.stock.sent("other")
        receiver.check = lambda call: Say(409) if conflict in call.json["message_ids"] else None
        await one.reporter.step()
        await one.heard.until(Reported)
        stopping = asyncio.ensure_future(one.reporter.stop(30))
        await asyncio.sleep(0)
        gate.set()
        await stopping
        statuses = [await one.status(made) for made in (under_way, waiting, conflict)]

    assert statuses[0] == Status.SENT_ACKNOWLEDGED
    assert statuses[2] == Status.SENT
    assert Status.CALLING_SENT_CALLBACK not in statuses


async def test_a_stop_in_the_middle_of_a_claim_gives_back_what_was_claimed() -> None:
    claimed = asyncio.Event()

    class Slow(MemoryStore):
        async def claim_reports(self, *, tokens: Sequence[str], now: int) -> list[ReportClaim]:
            claims = await super().claim_reports(tokens=tokens, now=now)
            claimed.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return claims

    async with Receiver() as receiver, bench(Receivers(url=receiver.url()), store=Slow()) as one:
        made = await one.stock.sent()
        step = asyncio.ensure_future(one.reporter.step())
        await claimed.wait()
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        await one.reporter.stop(1)
        status = await one.status(made)

    assert (status, receiver.calls) == (Status.SENT, [])
