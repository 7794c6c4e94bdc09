"""How many connections there are, how long they live, how fast messages go; and who waits for what."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from doubles.mouth import PATIENT, Mark, all_of, client, hand_over, heard, relay, sending
from staffetta.sink import Rule, Script
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_pool import Pool
from staffetta.transport.smtp_settings import Credentials, Timeouts, default_tls


async def test_connections_are_kept_for_the_next_message() -> None:
    async with relay() as sink, sending(sink) as smtp:
        for number in range(10):
            await hand_over(smtp, number=number)
        assert smtp.connections == 1
    assert sink.connections == 1
    assert sink.commands.count(b"EHLO client.example") == 1


async def test_there_are_never_more_connections_than_allowed() -> None:
    """Also while some are being left: relays count those too, and refuse the one too many."""
    most = 0

    def count(_: object) -> None:
        nonlocal most
        most = max(most, sink.open_connections)

    async with relay() as sink, sending(sink, connections_max=3, messages_per_connection=4) as smtp:
        sink._on_accept = count
        deliveries = await all_of([hand_over(smtp, number=n) for n in range(60)])
    assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 60
    assert most <= 3
    assert sink.connections >= 15


async def test_each_connection_carries_so_many_and_leaves_politely() -> None:
    async with relay() as sink, sending(sink, connections_max=1, messages_per_connection=2) as smtp:
        await all_of([hand_over(smtp, number=n) for n in range(6)])
        await smtp.close()
        assert sink.connections == 3
        assert sink.commands.count(b"QUIT") == 3
    carried = [kept.connection for kept, _ in sink.messages]
    assert carried == [1, 1, 2, 2, 3, 3]


async def test_a_slow_message_does_not_hold_up_the_others() -> None:
    """A relay may think for ten minutes about one message: the rest have other connections.

    The first one behind it had left its envelope with the slow dot, and sat there as long.
    """
    slow = Rule(at="dot", recipient="slow@*", stall=True)
    async with relay(slow) as sink:
        smtp = client(sink, connections_max=2)
        loop = asyncio.get_running_loop()
        smtp._loop = loop
        smtp._pool = Pool(smtp.settings, smtp._contexts, loop, ride_seconds=0.1)
        stuck = asyncio.ensure_future(hand_over(smtp, "slow@x.example"))
        deliveries = await all_of([hand_over(smtp, number=n) for n in range(20)])
        assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 20
        assert not stuck.done()
        await smtp.close()
        assert [(one.reply.name, one.reply.committed) for one in (await stuck).replies] == [("stopped", True)]
    assert len(sink.messages) == 20


async def test_the_rate_is_kept_and_waiting_is_no_failure() -> None:
    """Twenty a second: eleven messages take half a second, whoever asks and on however many connections."""
    async with relay() as sink, sending(sink, messages_per_second=20.0) as smtp:
        begun = time.monotonic()
        deliveries = await all_of([hand_over(smtp, number=n) for n in range(11)])
        took = time.monotonic() - begun
    assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 11
    assert took >= 10 / 20 - 0.06
    assert sink.connections <= 2, "who waits for the rate needs no connection"


async def test_an_unused_connection_is_left_after_a_while() -> None:
    async with relay() as sink, sending(sink, idle_seconds=0.1) as smtp:
        await hand_over(smtp)
        assert smtp._pool is not None
        (connection,) = smtp._pool._ready
        async with asyncio.timeout(30):
            await connection.closed()
        assert sink.commands[-1] == b"QUIT"
        assert heard(await hand_over(smtp, number=2)) == [("dot", 250)]
    assert sink.connections == 2


async def test_a_wrong_password_is_said_once_and_all_who_wait_hear_the_answer() -> None:
    """A hundred tries with a wrong password lock the account out; one tells all there is to know."""
    script = Script(credentials={"shop": "right"}, auth_required=True)
    wrong = Credentials(user="shop", password="wrong")
    async with relay(script=script) as sink, sending(sink, credentials=wrong) as smtp:
        deliveries = await all_of([hand_over(smtp, number=n) for n in range(100)])
    assert [heard(one) for one in deliveries] == [[("auth", 535)]] * 100
    assert sink.connections == 1
    assert not any(one.committed for one in deliveries)


async def test_a_relay_that_takes_no_more_connections_is_used_through_those_it_took() -> None:
    no_more = Rule(at="connect", skip=2, reply="421 4.7.0 too many connections", disconnect=True)
    async with relay(no_more) as sink, sending(sink, connections_max=10) as smtp:
        deliveries = await all_of([hand_over(smtp, number=n) for n in range(200)])
        assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 200
        assert smtp.connections == 2
    assert sink.connections <= 4, "it is not asked again at once"


async def test_messages_that_wait_fail_together_when_no_connection_can_be_had() -> None:
    async with relay() as sink:
        port = sink.port
    smtp = SmtpTransport("127.0.0.1", port, timeouts=PATIENT)
    await smtp.open()
    deliveries = await all_of([hand_over(smtp, number=n) for n in range(50)])
    await smtp.close()
    assert [heard(one) for one in deliveries] == [[("connect", "refused")]] * 50


async def test_who_gives_up_waiting_leaves_the_line() -> None:
    async with relay() as sink, sending(sink, connections_max=1) as smtp:
        mark = Mark()
        mark.may_end.clear()
        first = asyncio.ensure_future(hand_over(smtp, number=1, mark=mark))
        await mark.begun.wait()
        impatient = [asyncio.ensure_future(hand_over(smtp, number=n)) for n in (2, 3)]
        last = asyncio.ensure_future(hand_over(smtp, number=4))
        await asyncio.sleep(0)
        for one in impatient:
            one.cancel()
        await asyncio.wait(impatient)
        mark.may_end.set()
        await all_of([first, last])
    assert [kept.message_id for kept, _ in sink.messages] == ["<1@shop.example>", "<4@shop.example>"]
    assert sink.violations == []


@pytest.mark.parametrize("who", ["current", "rider"])
async def test_cancelling_before_the_dot_lets_nothing_out_and_harms_nobody_else(who: str) -> None:
    async with relay() as sink, sending(sink, connections_max=1) as smtp:
        marks = [Mark() for _ in range(3)]
        marks[0 if who == "current" else 1].may_end.clear()
        sends = [asyncio.ensure_future(hand_over(smtp, number=n, mark=m)) for n, m in enumerate(marks)]
        cancelled = sends.pop(0 if who == "current" else 1)
        await marks[0 if who == "current" else 1].begun.wait()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        deliveries = await all_of(sends)
    assert cancelled.cancelled()
    assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 2
    assert len(sink.messages) == 2


async def test_cancelling_after_the_dot_leaves_the_rest_of_the_line_in_step() -> None:
    """The answer to the lost one still comes: it must not be taken for the next one's."""
    rule = Rule(at="dot", count=1, delay_ms=100, reply="554 5.0.0 not for the next one")
    async with relay(rule) as sink, sending(sink, connections_max=1) as smtp:
        mark = Mark()
        first = asyncio.ensure_future(hand_over(smtp, number=1, mark=mark))
        await mark.begun.wait()
        await asyncio.sleep(0)
        second = asyncio.ensure_future(hand_over(smtp, number=2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert heard(await second) == [("dot", 250)]
    assert [kept.message_id for kept, _ in sink.messages] == ["<2@shop.example>"]


async def test_a_closed_transport_can_be_opened_again() -> None:
    async with relay() as sink, sending(sink) as smtp:
        await hand_over(smtp)
        await smtp.close()
        await smtp.open()
        assert heard(await hand_over(smtp, number=2)) == [("dot", 250)]


# ------------------------------------------------------------------------------------------------- settings


def test_a_url_says_all_there_is_to_say() -> None:
    smtp = SmtpTransport.from_url(
        "smtp://post%40shop:p%2Fw%3A@relay.example:587?tls=starttls&ehlo=me.example&connections=7"
        "&messages_per_connection=50&messages_per_second=2.5&idle=9#first"
    )
    told = smtp.settings
    assert smtp.name == "first"
    assert told.credentials == Credentials(user="post@shop", password="p/w:")
    assert (told.host, told.port, told.tls, told.implicit_tls) == ("relay.example", 587, "starttls", False)
    assert (told.ehlo_name, told.connections_max, told.messages_per_connection) == ("me.example", 7, 50)
    assert (told.messages_per_second, told.idle_seconds) == (2.5, 9.0)


@pytest.mark.parametrize(
    ("url", "port", "tls", "implicit"),
    [
        ("smtp://relay.example", 25, "opportunistic", False),
        ("smtp://u:p@relay.example", 587, "required", False),
        ("smtps://relay.example", 465, "required", True),
        ("smtps://u:p@relay.example", 465, "required", True),
        ("smtp://relay.example:465?tls=required", 465, "required", True),
        ("smtp://relay.example?tls=none", 25, "none", False),
        ("smtp://u:p@127.0.0.1?tls=none", 587, "none", False),
    ],
)
def test_with_a_password_tls_is_required_unless_it_stays_on_this_machine(
    url: str,
    port: int,
    tls: str,
    implicit: bool,  # a column of the table
) -> None:
    told = SmtpTransport.from_url(url).settings
    assert (told.port, told.tls, told.implicit_tls) == (port, tls, implicit)
    assert default_tls(credentials=None) == "opportunistic"


@pytest.mark.parametrize(
    "url",
    [
        "smtp://u:secret@relay.example?tls=none",
        "smtp://u:secret@relay.example?tls=opportunistic",
        "smtp://u:secret@relay.example?tls=maybe",
        "smtp://u:secret@relay.example:99999",
        "smtp://u:sec/ret@relay.example",
        "smtp://u:secret@relay.example?colour=blue",
        "smtp://u:secret@relay.example?connections=many",
        "smtp://u:secret@relay.example?connections=inf",
        "smtp://u:secret@relay.example?idle=nan",
        "smtp://u:secret@relay.example?connections=0",
        "smtp://u:secret@relay.example?messages_per_second=-1",
        "smtp://u:secret@relay.example?ca=/nowhere/at/all.pem",
        "smtps://u:secret@relay.example?tls=none",
        "http://u:secret@relay.example",
        "smtp://",
        "smtp://[::1",
    ],
)
def test_a_url_that_is_wrong_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        SmtpTransport.from_url(url)
    assert "sec" not in str(refused.value).replace("messages_per_second", "")


def test_nobody_prints_a_password() -> None:
    smtp = SmtpTransport.from_url("smtp://u:hunter2@relay.example")
    shown = f"{smtp!r} {smtp.settings!r} {smtp.settings.credentials} {smtp.name} {vars(smtp)}"
    assert "hunter2" not in shown


@pytest.mark.parametrize("field", msgspec.structs.fields(Timeouts), ids=lambda field: str(field.name))
def test_no_step_may_take_no_time_at_all(field: msgspec.structs.FieldInfo) -> None:
    with pytest.raises(ValueError, match="timeouts"):
        SmtpTransport("relay.example", 25, timeouts=Timeouts(**{field.name: 0.0}))
