"""What every transport promises (see `transport/contract.py`), whoever is on the other side."""

from __future__ import annotations

import asyncio

import pytest

from contracts.transports import Arrived, FarSide, Scripted, Ses, signed
from doubles import engines
from doubles.mouth import PATIENT, Mark, all_of, hand_over, message, opened
from doubles.ses import Play, SesServer
from staffetta.mail.attempt import spends_no_attempt
from staffetta.mail.verdict import judge
from staffetta.sink import Rule, Script, SinkServer
from staffetta.transport.contract import Transport
from staffetta.transport.smtp import SmtpTransport


def ids_of(arrived: list[Arrived]) -> list[bytes]:
    """The Message-IDs, in no order: relays have several hands."""
    return sorted(
        line for one in arrived for line in one.content.split(b"\r\n") if line.startswith(b"Message-ID")
    )


async def test_a_message_taken_is_a_yes_for_each_recipient_and_arrives_as_it_is(far: FarSide) -> None:
    """Byte for byte, dots and all, to those named in the envelope; a relay may put lines of its own before it."""
    content = message(text=".dot\r\n..two\r\nGr=C3=BC=C3=9Fe\r\n.\r\nend")
    async with opened(far.transport()) as transport:
        delivery = await hand_over(transport, "a@x.example", "b@x.example", content=content)
        (arrived,) = await far.arrived(1)

    assert [one.address for one in delivery.replies] == ["a@x.example", "b@x.example"]
    assert [judge(one.reply).action for one in delivery.replies] == ["DELIVERED"] * 2
    assert (delivery.committed, delivery.transport) == (True, transport.name)
    assert arrived.content.endswith(content)
    assert {"a@x.example", "b@x.example"} <= set(arrived.recipients)


async def test_the_mark_is_made_once_and_before_anybody_has_the_message(far: FarSide) -> None:
    """Else a crash between the two would send twice and know nothing of it."""
    async with opened(far.transport()) as transport:
        mark = Mark()
        mark.may_end.clear()
        sent = asyncio.ensure_future(hand_over(transport, mark=mark))
        await mark.begun.wait()
        assert await far.arrived() == []
        mark.may_end.set()
        assert (await sent).committed
        assert mark.made == 1
        assert len(await far.arrived(1)) == 1


async def test_a_mark_that_fails_goes_up_and_nothing_goes_out(far: FarSide) -> None:
    """A worker that was overtaken may not send."""
    async with opened(far.transport()) as transport:
        with pytest.raises(LookupError, match="overtaken"):
            await hand_over(transport, mark=Mark(error=LookupError("overtaken")), number=1)
        assert (await hand_over(transport, number=2)).committed
        assert ids_of(await far.arrived(1)) == [b"Message-ID: <2@shop.example>"]


async def test_cancelled_before_the_mark_ends_nothing_goes_out(far: FarSide) -> None:
    """An orderly stop: the e-mail is certainly unsent."""
    async with opened(far.transport()) as transport:
        mark = Mark()
        mark.may_end.clear()
        sent = asyncio.ensure_future(hand_over(transport, mark=mark, number=1))
        await mark.begun.wait()
        sent.cancel()
        await asyncio.wait([sent])
        assert sent.cancelled()
        assert (await hand_over(transport, number=2)).committed
        assert ids_of(await far.arrived(1)) == [b"Message-ID: <2@shop.example>"]


async def test_many_at_once_arrive_once_each(far: FarSide) -> None:
    """More than there are connections, a mark for each."""
    async with opened(far.transport(connections_max=4)) as transport:
        marks = [Mark() for _ in range(40)]
        deliveries = await all_of([hand_over(transport, number=n, mark=mark) for n, mark in enumerate(marks)])
        assert [mark.made for mark in marks] == [1] * 40
        assert all(judge(one.replies[0].reply).action == "DELIVERED" for one in deliveries)
        assert ids_of(await far.arrived(40)) == sorted(
            f"Message-ID: <{n}@shop.example>".encode() for n in range(40)
        )


async def test_a_large_message_arrives_whole(far: FarSide) -> None:
    content = message(text=("x" * 76 + "\r\n") * 6_000)
    async with opened(far.transport()) as transport:
        assert (await hand_over(transport, content=content)).committed
        (arrived,) = await far.arrived(1)
    assert arrived.content.endswith(content)


async def test_a_probe_finds_the_way_open_and_sends_nothing(far: FarSide) -> None:
    async with opened(far.transport()) as transport:
        reply = await transport.probe()
        assert (reply.code, reply.stage in ("ehlo", "auth")) == (250, True)
        assert await far.arrived() == []


async def test_closed_and_opened_again_it_goes_on(far: FarSide) -> None:
    transport = far.transport()
    for number in (1, 2):
        async with opened(transport):
            assert (await hand_over(transport, number=number)).committed
    assert len(await far.arrived(2)) == 2


# ------------------------------------------------------------------------------------------- those that go wrong


@pytest.mark.parametrize("kind", ["smtp", "smtps", "ses"])
async def test_who_cannot_be_reached_is_a_reply_and_nothing_was_marked(kind: str) -> None:
    """Trouble of the way there: the e-mail is certainly unsent, and it costs no attempt."""
    port = engines.free_port()
    transport: Transport = (
        signed(f"http://127.0.0.1:{port}")
        if kind == "ses"
        else SmtpTransport("127.0.0.1", port, implicit_tls=kind == "smtps", timeouts=PATIENT)
    )
    mark = Mark()
    async with opened(transport):
        delivery = await hand_over(transport, "a@x.example", "b@x.example", mark=mark)
        probed = await transport.probe()

    for reply in (*(one.reply for one in delivery.replies), probed):
        verdict = judge(reply)
        assert ("RETRY", "transport", False) == (verdict.action, verdict.reach, verdict.in_doubt)
        assert spends_no_attempt(reply, verdict)
    assert (mark.made, delivery.committed) == (0, False)


@pytest.mark.parametrize("kind", ["smtp", "ses"])
@pytest.mark.parametrize("taken", [True, False])
async def test_a_lost_answer_is_in_doubt_and_nobody_repeats_it(kind: str, *, taken: bool) -> None:
    """Whether the other side has it or not: it looks the same from here."""
    async with (
        SinkServer(Script(rule=(Rule(at="dot", count=1, disconnect=True, accept=taken),)), keep=True) as sink,
        SesServer(Play(does="close", keep=taken)) as ses,
    ):
        far: FarSide = Ses(ses) if kind == "ses" else Scripted(sink)
        async with opened(far.transport()) as transport:
            delivery = await hand_over(transport)
            assert judge(delivery.replies[0].reply).in_doubt
            assert delivery.committed
            assert len(await far.arrived()) == taken
            again = await hand_over(transport)
            assert judge(again.replies[0].reply).action == "DELIVERED"
            assert len({one.content for one in await far.arrived()}) == 1, "the same bytes, Message-ID and Date"
