"""Whole engines under a turned clock, on a real line to a relay that goes away, forgets a password, hangs up.

No e-mail pays for what is the relay's trouble or the account's, and none is doubled beyond what nobody can know.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from doubles.clock import TalkingLoop
from doubles.clock import run as turned_run
from doubles.mouth import DATE
from doubles.rig import Rig, new_email
from doubles.ses import KEY, REGION, SECRET, Play, SesServer
from staffetta.mail import backoff
from staffetta.mail.events import Attempted, BreakerMoved
from staffetta.mail.explain import same_decision
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis, NewEmail
from staffetta.mail.rulebook import RuleBook
from staffetta.sink import Rule, Script, SinkServer
from staffetta.transport.ses import SesSettings, SesTransport
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Credentials

RIGHT, WRONG = "the-new-password", "the-old-password"
TEN_MINUTES = 600.0


def story(told: Any) -> Any:
    """A test that is told under the turned clock, with real sockets."""

    def test(**arguments: Any) -> None:
        turned_run(lambda: told(**arguments), TalkingLoop)

    test.__doc__, test.__name__ = told.__doc__, told.__name__
    return test


def email(number: int, *, now: Millis, company_id: str = "acme", recipient: str = "") -> NewEmail:
    made = new_email(
        number, now=now, company_id=company_id, recipients=(recipient or f"r{number}@home.example",)
    )
    whole = f"From: us@example.com\r\nDate: {DATE}\r\nMessage-ID: <{number}@example.com>\r\n\r\nhello\r\n"
    return msgspec.structs.replace(made, message=whole.encode())


def smtp(port: int, **settings: Any) -> SmtpTransport:
    return SmtpTransport("127.0.0.1", port, ehlo_name="client.example", **{"tls": "none", **settings})


@contextlib.asynccontextmanager
async def at_work(rig: Rig, *, concurrency: int = 20) -> AsyncIterator[None]:
    for transport in rig.transports:
        await transport.open()
    worker = rig.worker(concurrency=concurrency)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running
        await rig.routes.close()
        for transport in rig.transports:
            await transport.close()


async def until(rig: Rig, counts: dict[Status, int], seconds: float) -> None:
    """Turn the clock until there are so many of each; so many seconds of it at most."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        found = await rig.store.counts()
        if all(found.get(status, 0) == count for status, count in counts.items()):
            return
        assert asyncio.get_running_loop().time() < end, f"{dict(found)} after {seconds} s"
        await asyncio.sleep(0.25)


def states(rig: Rig, transport: str) -> list[str]:
    return [
        event.state
        for event in rig.told(BreakerMoved)
        if isinstance(event, BreakerMoved) and event.transport == transport
    ]


def attempts_of(rig: Rig) -> list[Attempted]:
    return [event for event in rig.told(Attempted) if isinstance(event, Attempted)]


async def _port() -> int:
    async with SinkServer() as sink:
        return sink.port


# ------------------------------------------------------------------------------------------------ the two stories


@story
async def test_a_thousand_e_mails_against_a_wrong_password() -> None:
    """No dead letter, no attempt used, one alarm that stays; others go on; all are sent once it is mended."""
    script = Script(credentials={"shop": RIGHT}, auth_required=True)
    async with SinkServer(script, keep=True) as relay, SinkServer(keep=True) as others:
        signed_in = smtp(relay.port, credentials=Credentials(user="shop", password=WRONG), name="relay")
        rig = Rig(transports=[signed_in, smtp(others.port, name="others")], chains={"other": ("others",)})
        rig.routes._chain = rig.routes._chain[:1]
        await rig.add(*(email(n, now=rig.clock(), company_id=f"c{n % 9}") for n in range(1_000)))
        await rig.add(*(email(n, now=rig.clock(), company_id="other") for n in range(1_000, 1_050)))
        async with at_work(rig, concurrency=200):
            await until(rig, {Status.SENT: 50, Status.READY: 1_000}, 5)
            begun = rig.routes.figures()[0]["since"]
            await asyncio.sleep(1_800)

            assert {kept.recipients[0] for kept, _ in others.messages} == {
                f"r{n}@home.example" for n in range(1_000, 1_050)
            }
            assert (await rig.store.counts())[Status.READY] == 1_000
            assert relay.connections < 60, "one that is locked out is not hammered"
            assert "closed" not in states(rig, "relay"), "the alarm stays"
            alarm = rig.routes.figures()[0]
            assert alarm["since"] == begun
            assert "535" in str(alarm["reason"])

            _mend(signed_in)
            await until(rig, {Status.SENT: 1_050}, 120)

        assert (await rig.store.dead_letter_counts()).size == 0
        assert {(await rig.email(email(n, now=0).id)).attempts for n in range(1_000)} == {1}
        assert len(relay.messages) == len({content for _, content in relay.messages}) == 1_000


def _mend(transport: SmtpTransport) -> None:
    """The operator sets the right password and starts anew; here the client learns it while it runs."""
    right = Credentials(user="shop", password=RIGHT)
    transport.settings = msgspec.structs.replace(transport.settings, credentials=right)
    assert transport._pool is not None
    transport._pool.settings = transport.settings


@story
async def test_a_relay_that_refuses_for_ten_minutes() -> None:
    """The default policy gives up after 15 seconds of failures; an outage of the relay is none of the e-mail's."""
    port = await _port()
    rig = Rig(transports=[smtp(port, name="relay")])
    await rig.add(*(email(n, now=rig.clock()) for n in range(300)))
    async with at_work(rig, concurrency=100):
        await asyncio.sleep(TEN_MINUTES)
        assert (await rig.store.counts())[Status.READY] == 300
        slow = Script(rule=(Rule(at="dot", delay_ms=500),))
        async with SinkServer(slow, port=port, keep=True) as relay:
            back = asyncio.get_running_loop().time()
            await until(rig, {Status.SENT: 300}, 90)
            took = asyncio.get_running_loop().time() - back
            assert relay.connections <= 25
            assert sorted(kept.recipients for kept, _ in relay.messages) == sorted(
                (f"r{n}@home.example",) for n in range(300)
            )
    assert (await rig.store.dead_letter_counts()).size == 0
    assert {(await rig.email(email(n, now=0).id)).attempts for n in range(300)} == {1}
    assert took > 300 / 20 * 0.5, "at the rate it can take: twenty connections, half a second each"


@story
async def test_a_relay_that_is_restarted_again_and_again_fills_no_dead_letters() -> None:
    """Lines cut in mid-talk, a while with nobody there, then all at once: each arrives, none is given up."""
    port = await _port()
    slow = Script(rule=(Rule(at="dot", delay_ms=200),))
    copies: Counter[str] = Counter()
    rig = Rig(transports=[smtp(port, name="relay", connections_max=10)])
    async with at_work(rig, concurrency=50):
        for turn in range(8):
            await rig.add(*(email(n, now=rig.clock()) for n in range(turn * 100, turn * 100 + 100)))
            async with SinkServer(slow, port=port, keep=True) as relay:
                await asyncio.sleep(1.5)
            copies.update(kept.message_id for kept, _ in relay.messages)
            await asyncio.sleep(20)
        async with SinkServer(port=port, keep=True) as relay:
            await until(rig, {Status.SENT: 800}, 3_600)
        copies.update(kept.message_id for kept, _ in relay.messages)
    doubtful = [
        event for event in attempts_of(rig) if event.decision is not None and event.decision.verdict.in_doubt
    ]
    assert (await rig.store.dead_letter_counts()).size == 0
    assert len(copies) == 800
    assert sum(copies.values()) - 800 <= len(doubtful)
    assert max(copies.values()) <= 2


@story
async def test_waiting_for_a_slow_rate_is_no_failure() -> None:
    """One message in two seconds and six hundred claimed: many wait longer than their claim may last, none pays."""
    async with SinkServer(keep=True) as relay:
        rig = Rig(transports=[smtp(relay.port, messages_per_second=0.5, connections_max=3)])
        await rig.add(*(email(n, now=rig.clock()) for n in range(700)))
        async with at_work(rig, concurrency=600):
            await until(rig, {Status.SENT: 700}, 1_600)
        assert len(relay.messages) == len({content for _, content in relay.messages}) == 700
    assert {(await rig.email(email(n, now=0).id)).attempts for n in range(700)} == {1}


@story
async def test_an_account_over_its_daily_quota_waits_for_the_next_day() -> None:
    """SES tells by its account when e-mails may go again; until then none is spent on finding out."""
    quota = Play(429, "TooManyRequestsException", "Daily message quota exceeded.")
    full = {"SendingEnabled": True, "SendQuota": {"Max24HourSend": 10, "SentLast24Hours": 10}}
    async with SesServer(*[quota] * 5, account=full) as ses:
        settings = SesSettings(
            region=REGION, endpoint=ses.url, access_key=KEY, secret_key=SECRET, connections_max=5
        )
        rig = Rig(transports=[SesTransport(settings)])
        await rig.add(*(email(n, now=rig.clock()) for n in range(100)))
        async with at_work(rig, concurrency=5):
            await asyncio.sleep(2_400)
            assert (await rig.store.counts())[Status.READY] == 100
            asked = Counter(request.path for request in ses.requests)
            assert asked["/v2/email/outbound-emails"] <= 5
            assert asked["/v2/email/account"] <= 12, "an account is asked less and less often"

            ses.account["SendQuota"] = {"Max24HourSend": 10_000, "SentLast24Hours": 10}
            await until(rig, {Status.SENT: 100}, 1_200)
    assert (await rig.store.dead_letter_counts()).size == 0
    assert len(ses.messages) == 100


@story
async def test_an_accounts_rate_is_found_and_kept_without_a_dead_letter() -> None:
    """Everybody throttled at once is the usual way to lose a thousand mails: we go slower instead."""
    async with SesServer(per_second=14) as ses:
        settings = SesSettings(
            region=REGION, endpoint=ses.url, access_key=KEY, secret_key=SECRET, connections_max=50
        )
        rig = Rig(transports=[SesTransport(settings)])
        await rig.add(*(email(n, now=rig.clock()) for n in range(1_000)))
        async with at_work(rig, concurrency=200):
            begun = asyncio.get_running_loop().time()
            await until(rig, {Status.SENT: 1_000}, 600)
            took = asyncio.get_running_loop().time() - begun
    assert (await rig.store.dead_letter_counts()).size == 0
    assert len({content for _, content in ses.messages}) == len(ses.messages) == 1_000
    print(f"{took:.0f} s at 14 a second, {ses.throttled} throttled")
    assert took < 4 * 1_000 / 14
    assert ses.throttled < 500


# ------------------------------------------------------------------------------------------------ the fallback


@story
async def test_the_fallback_hides_an_outage_and_the_alarm_does_not() -> None:
    """The journal names who carried each; the first gets the mail back by itself, and neither flaps."""
    port = await _port()
    async with SinkServer(keep=True) as second:
        rig = Rig(transports=[smtp(port, name="first"), smtp(second.port, name="second")])
        await rig.add(*(email(n, now=rig.clock()) for n in range(100)))
        async with at_work(rig):
            await until(rig, {Status.SENT: 100}, 30)
            await asyncio.sleep(1_800)
            told = rig.routes.figures()
            assert [row["state"] == "closed" for row in told] == [False, True], "the alarm stays"
            assert {event.transport for event in attempts_of(rig)} == {"second"}
            journal = await rig.store.attempts(email(5, now=0).id)
            assert {(one.attempt, one.transport) for one in journal} <= {(1, "first"), (1, "second")}
            assert journal[-1].transport == "second"

            async with SinkServer(port=port, keep=True) as first:
                await asyncio.sleep(90)
                for start in range(100, 400, 50):
                    await rig.add(*(email(n, now=rig.clock()) for n in range(start, start + 50)))
                    await until(rig, {Status.SENT: start + 50}, 60)
                assert [row["state"] for row in rig.routes.figures()] == ["closed", "closed"]
                assert len(first.messages) > 200
        assert states(rig, "first").count("closed") == 1, "it closed once, and stayed so"
        assert states(rig, "second") == []


@story
async def test_a_relay_that_greets_well_and_then_fails_does_not_flap() -> None:
    """Its probe is good each time: on trial it carries little, and its next trial comes later and later."""
    script = Script(rule=(Rule(at="mail", reply="530 5.7.0 Must issue a STARTTLS command first"),))
    async with SinkServer(script) as first, SinkServer(keep=True) as second:
        rig = Rig(transports=[smtp(first.port, name="first"), smtp(second.port, name="second")])
        shown = set()
        async with at_work(rig):
            for minute in range(60):
                await rig.add(*(email(n, now=rig.clock()) for n in range(minute * 20, minute * 20 + 20)))
                for _ in range(60):
                    await asyncio.sleep(1)
                    if minute > 1:
                        shown.add(rig.routes.figures()[0]["state"])
            await until(rig, {Status.SENT: 1_200}, 60)
        assert states(rig, "first").count("closed") < 75, "once a minute at most, in the long run"
        assert "closed" not in shown, "the alarm stays: a probe does not see this trouble"
        assert len(second.messages) == 1_200
        assert (await rig.store.dead_letter_counts()).size == 0


@story
async def test_an_ses_that_cannot_be_reached_leaves_it_to_the_relay_in_the_same_attempt() -> None:
    """Its connection is made before the mark, so that nothing is committed where nobody is."""
    away = SesSettings(
        region=REGION, endpoint=f"http://127.0.0.1:{await _port()}", access_key=KEY, secret_key=SECRET
    )
    async with SinkServer(keep=True) as second:
        rig = Rig(transports=[SesTransport(away, name="ses"), smtp(second.port, name="second")])
        (job,) = await rig.add(email(1, now=rig.clock()))
        async with at_work(rig):
            await until(rig, {Status.SENT: 1}, 5)
        journal = await rig.store.attempts(job.id)
    assert [(one.attempt, one.part, one.transport, one.committed_at > 0) for one in journal] == [
        (1, 1, "ses", False), (1, 2, "second", True),
    ]  # fmt: skip
    assert (await rig.email(job.id)).attempts == 1


@story
async def test_too_many_recipients_are_sent_in_parts_of_one_attempt() -> None:
    """Those accepted are done, the rest goes at once under the same claim; nobody gets it twice."""
    few = Rule(at="rcpt", per="connection", skip=2, reply="452 4.5.3 Too many recipients")
    async with SinkServer(Script(rule=(few,)), keep=True) as relay:
        rig = Rig(transports=[smtp(relay.port, messages_per_connection=1)])
        to = [f"r{n}@home.example" for n in range(7)]
        (job,) = await rig.add(msgspec.structs.replace(email(1, now=rig.clock()), recipients=tuple(to)))
        async with at_work(rig):
            await until(rig, {Status.SENT: 1}, 5)
        journal = await rig.store.attempts(job.id)
    assert [kept.recipients for kept, _ in relay.messages] == [tuple(to[n : n + 2]) for n in range(0, 7, 2)]
    assert [(one.attempt, one.part, one.counted) for one in journal] == [
        (1, 1, False), (1, 2, False), (1, 3, False), (1, 4, True),
    ]  # fmt: skip
    assert (await rig.email(job.id)).attempts == 1


@story
async def test_a_servers_hint_is_waited_for() -> None:
    """Greylisted for eight minutes: the policy's one second would only annoy."""
    grey = Rule(at="rcpt", count=1, reply="451 4.7.1 Greylisted, please try again in 8 minutes")
    async with SinkServer(Script(rule=(grey,)), keep=True) as relay:
        rig = Rig(transports=[smtp(relay.port)])
        await rig.add(email(1, now=rig.clock()))
        async with at_work(rig):
            await asyncio.sleep(470)
            assert len(relay.messages) == 0
            assert relay.connections == 1
            await until(rig, {Status.SENT: 1}, 30)


@story
async def test_nothing_falls_back_once_it_was_committed() -> None:
    """The next transport is for what certainly did not go out."""
    script = Script(rule=(Rule(at="dot", disconnect=True, accept=True),))
    async with SinkServer(script, keep=True) as first, SinkServer(keep=True) as second:
        hold = RuleBook(policy=backoff.POLICIES["gateway"], in_doubt="hold")
        rig = Rig(transports=[smtp(first.port, name="first"), smtp(second.port, name="second")], rulebook=hold)
        await rig.add(*(email(n, now=rig.clock()) for n in range(30)))
        async with at_work(rig):
            await until(rig, {Status.FAILED: 30}, 60)
        assert len(first.messages) == 30
        assert second.messages == []


# ------------------------------------------------------------------------------------------------ hanging up

SHARES = [60, pytest.param(1_000, marks=[pytest.mark.soak])]
KINDS: list[dict[str, Any]] = [{"disconnect": True}, {"reset": True}]


def hanging_up(at: str, chance: random.Random, **more: Any) -> list[Rule]:
    """Once for each e-mail whose recipient (or sender's turn) says so."""
    per = "sender" if at == "mail" else "recipient"
    kind = chance.choice(KINDS)
    return [Rule(at=at, recipient=f"{at}-*", per=per, count=1, **kind, **more)]  # type: ignore[arg-type]  # each is a stage


@pytest.mark.parametrize("count", SHARES)
def test_hung_up_on_before_the_dot_there_is_no_extra_copy(count: int) -> None:
    """Whatever stage it happens at: certainly unsent, so it is sent again, and arrives once."""
    turned_run(lambda: _before_the_dot(count, seed=count), TalkingLoop)


async def _before_the_dot(count: int, *, seed: int) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    rules = tuple(rule for at in ("rcpt", "data") for rule in hanging_up(at, chance))
    early = (Rule(at="mail", every=7, count=count // 8, disconnect=True),)
    async with SinkServer(Script(rule=(*rules, *early)), keep=True) as relay:
        rig = Rig(transports=[smtp(relay.port)])
        to = [f"{chance.choice(('rcpt', 'data'))}-{n}@x.example" for n in range(count)]
        await rig.add(*(email(n, now=rig.clock(), recipient=to[n]) for n in range(count)))
        async with at_work(rig, concurrency=100):
            await until(rig, {Status.SENT: count}, 3_600)
        copies = Counter(content for _, content in relay.messages)
    assert len(copies) == count
    assert set(copies.values()) == {1}
    assert sum(relay.play.fired.values()) >= count


@pytest.mark.parametrize("count", SHARES)
@pytest.mark.parametrize("in_doubt", ["resend", "hold"])
def test_hung_up_on_after_the_dot_there_is_one_extra_copy_at_most(in_doubt: str, count: int) -> None:
    """The same bytes, Message-ID and Date, so that receivers can fold them; under `hold` there is none."""
    turned_run(lambda: _after_the_dot(in_doubt, count, seed=count), TalkingLoop)


async def _after_the_dot(in_doubt: Any, count: int, *, seed: int) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    taken = {n for n in range(count) if chance.random() < 0.5}
    rules = tuple(
        Rule(at="dot", recipient=f"{name}-*", per="recipient", count=1, accept=name == "taken", **kind)
        for name, kind in (("taken", chance.choice(KINDS)), ("dropped", chance.choice(KINDS)))
    )
    async with SinkServer(Script(rule=rules), keep=True) as relay:
        rig = Rig(
            transports=[smtp(relay.port)],
            rulebook=RuleBook(policy=backoff.POLICIES["gateway"], in_doubt=in_doubt),
        )
        to = [f"{'taken' if n in taken else 'dropped'}-{n}@x.example" for n in range(count)]
        await rig.add(*(email(n, now=rig.clock(), recipient=to[n]) for n in range(count)))
        async with at_work(rig, concurrency=100):
            await until(rig, {Status.SENT if in_doubt == "resend" else Status.FAILED: count}, 7_200)
        copies = Counter(kept.message_id for kept, _ in relay.messages)
        contents = {content for _, content in relay.messages}
    assert sum(relay.play.fired.values()) == count, "each was hung up on once"
    if in_doubt == "hold":
        assert copies == {f"<{n}@example.com>": 1 for n in taken}
    else:
        assert copies == {f"<{n}@example.com>": 2 if n in taken else 1 for n in range(count)}
    assert len(contents) == len(copies), "the same bytes each time"
    decisions = [event.decision for event in attempts_of(rig) if event.decision is not None]
    assert len(decisions) >= count
    assert all(same_decision(decision) for decision in decisions)
