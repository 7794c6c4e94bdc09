"""Every misbehaviour at every stage becomes the right reply, marked committed exactly where the dot was out."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from doubles.mouth import (
    PATIENT,
    Mark,
    all_of,
    bytes_heard,
    hand_over,
    heard,
    hurried,
    message,
    only,
    relay,
    sending,
)
from staffetta.mail.message import Reply
from staffetta.sink import Rule, Script
from staffetta.transport import wire
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Credentials, Timeouts

SECRET = Credentials(user="shop", password="secret")
STAGES = ("connect", "ehlo", "auth", "mail", "rcpt", "data", "dot")
USUAL_STEP = {"connect": "greeting"}
"""The timeout of each stage, where it is called otherwise."""

MISBEHAVIOURS: dict[str, tuple[dict[str, Any], int | str, str]] = {
    # what the server does -> code or event, and the words that are kept
    "4xx": ({"reply": "451 4.3.0 not now"}, 451, "4.3.0 not now"),
    "5xx": ({"reply": "550 5.7.1 not you"}, 550, "5.7.1 not you"),
    "421": ({"reply": "421 4.3.2 closing", "disconnect": True}, 421, "4.3.2 closing"),
    "closes": ({"disconnect": True}, "eof", ""),
    "resets": ({"reset": True}, "reset", ""),
    "stalls": ({"stall": True}, "timeout", ""),
    "too-late": ({"reply": "451 4.3.0 here I am", "delay_ms": 600}, "timeout", ""),
    "garbage": ({"raw": "what do you want?\r\n"}, "protocol", "not a reply: what do you want?"),
    "binary": ({"raw": "\x16\x03\x01\x00\x7f\r\n\x00"}, "protocol", ""),
    "no-such-code": ({"raw": "999 9.9.9 beyond\r\n"}, "protocol", "not a reply: 999 9.9.9 beyond"),
    "several-lines": (
        {"reply": ("450 4.2.0 first", "450 4.2.0 second", "450 4.2.0 third")},
        450,
        "4.2.0 first second third",
    ),
    "no-text": ({"raw": "450\r\n"}, 450, ""),
    "in-pieces": ({"reply": "452 4.2.2 full to the brim", "chunk_bytes": 3}, 452, "4.2.2 full to the brim"),
    "half-a-line": ({"raw": "451-4.3.0 and", "disconnect": True}, "eof", ""),
    "line-feed-only": ({"raw": "451 4.0.0 old unix\n"}, 451, "4.0.0 old unix"),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", MISBEHAVIOURS)
async def test_a_misbehaviour_is_one_reply_with_its_stage(stage: str, kind: str) -> None:
    """And the next message goes, on whichever connection."""
    does, what, text = MISBEHAVIOURS[kind]
    rule = Rule(at=stage, count=1, **does)  # type: ignore[arg-type]  # each stage is one
    script = Script(credentials={"shop": "secret"}, rule=(rule,))
    timeouts = hurried(USUAL_STEP.get(stage, stage)) if what == "timeout" else PATIENT
    async with (
        relay(script=script) as sink,
        sending(sink, credentials=SECRET, timeouts=timeouts, connections_max=1) as smtp,
    ):
        mark = Mark()
        delivery = await hand_over(smtp, mark=mark)
        be_patient(smtp)
        after = await hand_over(smtp, number=2)

    committed = stage == "dot"
    assert heard(delivery) == [(stage, what)]
    assert only(delivery).text == text or (not text and kind != "no-text")
    assert (only(delivery).committed, delivery.committed, mark.made) == (committed, committed, committed)
    assert heard(after) == [("dot", 250)]
    assert [kept.message_id for kept, _ in sink.messages] == ["<2@shop.example>"]
    assert sink.violations == []


@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize("kind", ["4xx", "421", "closes", "stalls", "garbage"])
async def test_it_is_the_same_without_pipelining(stage: str, kind: str) -> None:
    does, what, _ = MISBEHAVIOURS[kind]
    script = Script(extensions=(), rule=(Rule(at=stage, count=1, **does),))  # type: ignore[arg-type]  # as above
    timeouts = hurried(stage) if what == "timeout" else PATIENT
    async with relay(script=script) as sink, sending(sink, timeouts=timeouts, connections_max=1) as smtp:
        delivery = await hand_over(smtp)
        be_patient(smtp)
        after = await hand_over(smtp, number=2)

    assert heard(delivery) == [(stage, what)]
    assert (only(delivery).committed, delivery.committed) == (stage == "dot", stage == "dot")
    assert heard(after) == [("dot", 250)]
    assert sink.violations == []


@pytest.mark.parametrize("kept", [True, False], ids=["taken", "dropped"])
@pytest.mark.parametrize("end", ["disconnect", "reset", "stall"])
async def test_an_answer_to_the_dot_that_never_came_is_committed(end: str, *, kept: bool) -> None:
    """Nobody can know whether the server has it: the reply says that the dot left, and no more."""
    rule = Rule(at="dot", accept=kept, **{end: True})  # type: ignore[arg-type]  # one of three switches
    async with relay(rule) as sink, sending(sink, timeouts=hurried("dot")) as smtp:
        delivery = await hand_over(smtp)

    assert heard(delivery) == [("dot", {"disconnect": "eof", "reset": "reset", "stall": "timeout"}[end])]
    assert only(delivery).committed
    assert sink.record.messages == kept


@pytest.mark.parametrize(
    "end", [{"disconnect": True}, {"reset": True}, {"reply": "451 4.3.0 enough", "disconnect": True}]
)
async def test_a_large_message_cut_off_half_way_was_never_committed(end: dict[str, Any]) -> None:
    """It goes ahead in blocks before the mark is made: a server that stops it needs no doubt."""
    content = message(text=("x" * 76 + "\r\n") * 100_000)
    async with relay(Rule(at="content", after_bytes=200_000, **end)) as sink, sending(sink) as smtp:
        mark = Mark()
        delivery = await hand_over(smtp, content=content, mark=mark)

    assert delivery.replies[0].reply.stage == "data"
    assert heard(delivery)[0][1] in ("eof", "reset", 451)
    assert (mark.made, delivery.committed, only(delivery).committed) == (0, False, False)
    assert sink.record.messages == 0


async def test_a_server_that_stops_reading_is_given_up() -> None:
    """Each block of the content has its time (RFC 5321 4.5.3.2.5)."""
    content = message(text=("x" * 76 + "\r\n") * 200_000)
    deaf = _Deaf()
    async with deaf, sending(deaf, timeouts=hurried("block", 0.3)) as smtp:  # type: ignore[arg-type]  # host, port
        mark = Mark()
        delivery = await hand_over(smtp, content=content, mark=mark)
    assert heard(delivery) == [("data", "timeout")]
    assert (mark.made, delivery.committed) == (0, False)


async def test_a_large_message_arrives_whole() -> None:
    content = message(text=("." + "x" * 75 + "\r\n") * 50_000)
    async with relay() as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, content=content)
    assert heard(delivery) == [("dot", 250)]
    assert sink.messages[0][1] == content


async def test_a_farewell_while_the_mark_is_made_stops_the_dot() -> None:
    """The server closes between its 354 and our dot: the mark is made, and yet surely nothing was handed over."""
    async with relay() as sink, sending(sink) as smtp:
        mark = Mark()
        mark.may_end.clear()
        sent = asyncio.ensure_future(hand_over(smtp, mark=mark))
        await mark.begun.wait()
        session = next(iter(sink._sessions))
        assert session.transport is not None
        session.transport.write(b"421 4.3.2 going down\r\n")
        session.transport.close()
        assert smtp._pool is not None
        await next(iter(smtp._pool._ready)).closed()
        mark.may_end.set()
        delivery = await sent

    assert heard(delivery) == [("data", 421)]
    assert (delivery.committed, only(delivery).committed) == (True, False)
    assert b"\r\n.\r\n" not in bytes_heard(sink)


async def test_an_answer_before_the_content_is_no_answer_to_it() -> None:
    """A server that says 250 before the dot was sent is out of its mind: its word is worth nothing."""
    rule = Rule(at="data", raw="354 go on\r\n250 2.0.0 taken already\r\n")
    async with relay(rule) as sink, sending(sink) as smtp:
        mark = Mark()
        delivery = await hand_over(smtp, mark=mark)
    assert heard(delivery) == [("data", "protocol")]
    assert not only(delivery).committed
    assert sink.record.messages == 0


@pytest.mark.parametrize(
    ("at", "raw"), [("mail", "503 5.5.1 sequence\r\n"), ("rcpt", "334 VXNl\r\n"), ("mail", "354 go\r\n")]
)
async def test_a_server_out_of_step_is_asked_once_more_on_a_new_connection(at: str, raw: str) -> None:
    """503 and stray 3yz say that the conversation went wrong, not the message; nothing was handed over."""
    async with relay(Rule(at=at, raw=raw, count=1)) as sink, sending(sink) as smtp:  # type: ignore[arg-type]  # a stage
        once = await hand_over(smtp)
    assert (heard(once), sink.connections) == ([("dot", 250)], 2)

    async with relay(Rule(at=at, raw=raw)) as sink, sending(sink) as smtp:  # type: ignore[arg-type]  # a stage
        always = await hand_over(smtp)
    assert heard(always) == [(at, int(raw[:3]))]
    assert sink.connections == 2


async def test_a_421_to_one_recipient_is_everybodys_answer_but_the_refused_ones() -> None:
    rules = (
        Rule(at="rcpt", recipient="no@*", reply="550 5.1.1 nobody"),
        Rule(at="rcpt", recipient="last@*", reply="421 4.7.0 too many", disconnect=True),
    )
    async with relay(*rules) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, "a@x.example", "no@x.example", "last@x.example", "b@x.example")
    assert heard(delivery) == [("rcpt", 421), ("rcpt", 550), ("rcpt", 421), ("rcpt", 421)]
    assert not delivery.committed


async def test_a_line_lost_in_mid_envelope_is_the_answer_of_those_not_heard() -> None:
    rules = (
        Rule(at="rcpt", recipient="no@*", reply="550 5.1.1 nobody"),
        Rule(at="rcpt", recipient="last@*", disconnect=True),
    )
    async with relay(*rules) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, "a@x.example", "no@x.example", "last@x.example")
    assert heard(delivery) == [("rcpt", "eof"), ("rcpt", 550), ("rcpt", "eof")]


@pytest.mark.parametrize(
    "goes", [{"disconnect": True}, {"reset": True}, {"reply": "421 4.3.2 bye", "disconnect": True}]
)
async def test_the_next_letter_on_a_lost_connection_loses_nothing(goes: dict[str, Any]) -> None:
    """Its envelope had left with the other's dot; it was not committed, so it goes at once on another connection."""
    async with relay(Rule(at="dot", skip=2, count=1, **goes)) as sink, sending(sink, connections_max=1) as smtp:
        marks = [Mark() for _ in range(8)]
        deliveries = await all_of([hand_over(smtp, number=n, mark=mark) for n, mark in enumerate(marks)])

    codes = [heard(one)[0] for one in deliveries]
    assert codes.count(("dot", 250)) == 7
    assert [mark.made for mark in marks] == [1] * 8
    assert len(sink.messages) == 7
    assert len({kept.message_id for kept, _ in sink.messages}) == 7


async def test_a_connection_that_died_while_idle_costs_nothing() -> None:
    """Relays close idle connections when they like, some with a 421: the message takes a new one."""
    for farewell in (b"", b"421 4.4.2 idle too long\r\n"):
        async with relay() as sink, sending(sink) as smtp:
            await hand_over(smtp)
            session = next(iter(sink._sessions))
            assert session.transport is not None
            if farewell:
                session.transport.write(farewell)
            session.transport.close()
            delivery = await hand_over(smtp, number=2)
        assert heard(delivery) == [("dot", 250)]
        assert sink.connections == 2


@pytest.mark.parametrize("says", ["421 4.7.0 that was enough", ""])
async def test_a_relay_that_takes_so_many_a_connection_gets_the_rest_on_others(says: str) -> None:
    """At MAIL, on a connection that carried others, a farewell is about the connection. Once a letter."""
    rule = Rule(at="mail", per="connection", skip=2, reply=says or None, disconnect=True)
    async with relay(rule) as sink, sending(sink, connections_max=1) as smtp:
        deliveries = await all_of([hand_over(smtp, number=n) for n in range(6)])
    assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 6
    assert sink.connections == 3


async def test_a_reply_without_end_is_cut_and_given_up() -> None:
    """4 MiB of words are no reply; nothing that a server says can fill our memory."""
    endless = "".join(f"250-{'x' * 1_000}\r\n" for _ in range(8_000))
    async with relay(Rule(at="rcpt", raw=endless)) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp)
    assert heard(delivery) == [("rcpt", "protocol")]


async def test_a_server_that_lets_in_and_throws_out_is_not_asked_without_end() -> None:
    """It says yes to EHLO and resets: once for each e-mail, not in a circle."""
    rule = Rule(at="ehlo", reply=("250 sink.example", "250 PIPELINING"), reset=True)
    async with relay(rule) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp)
    assert heard(delivery)[0][1] in ("eof", "reset")
    assert not delivery.committed
    assert sink.connections <= 2


# ------------------------------------------------------------------------------------------------- the reader


def test_replies_are_the_same_in_whatever_pieces_they_come() -> None:
    text = b"250 one\r\n451-4.0.0 two\r\n451 4.0.0 three\r\n250\r\nnonsense\r\n354 go\r\n221 bye\n"
    whole = wire.ReplyReader().feed(text)
    assert [code for code, _ in whole] == [250, 451, 250, 0, 354, 221]
    for size in range(1, len(text)):
        reader = wire.ReplyReader()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [one for piece in pieces for one in reader.feed(piece)] == whole
        assert not reader.begun


def test_a_line_without_end_is_read_on_and_dropped() -> None:
    reader = wire.ReplyReader()
    assert reader.feed(b"250 " + b"x" * 100_000) == []
    assert reader.feed(b"y" * 100_000) == []
    found = reader.feed(b"\r\n354 go\r\n")
    assert [code for code, _ in found] == [250, 354]
    assert len(found[0][1][0]) == wire.LINE_MAX_BYTES


def test_control_characters_never_reach_the_log() -> None:
    reply = wire.reply("dot", (550, (b"550 5.7.1 \x1b[31mred\x07\x00 alert\xff",)))
    assert reply == Reply(stage="dot", code=550, enhanced="5.7.1", text=reply.text)
    assert reply.text.isprintable()
    assert "red" in reply.text


def test_the_defaults_are_the_least_that_the_rfc_asks_for() -> None:
    """A short wait at the dot makes duplicates: the server has the message and nobody heard it say so."""
    told = Timeouts()
    least = {"greeting": 300, "mail": 300, "rcpt": 300, "data": 120, "block": 180, "dot": 600}
    assert {name: getattr(told, name) for name in least} == least


# ------------------------------------------------------------------------------------------------- doubles


def be_patient(smtp: SmtpTransport) -> None:
    """The timeout was had: what comes now may take its time on a busy machine."""
    assert smtp._pool is not None
    smtp._pool.settings = msgspec.structs.replace(smtp._pool.settings, timeouts=PATIENT)


class _Deaf:
    """Takes an envelope, says 354, and never reads again."""

    host = "127.0.0.1"
    port = 0

    async def __aenter__(self) -> _Deaf:
        self._done = asyncio.Event()
        self._server = await asyncio.start_server(self._serve, self.host, 0, limit=1_024)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._done.set()
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in (b"220 deaf\r\n", b"250-deaf\r\n250 PIPELINING\r\n"):
            writer.write(line)
            await reader.readline()
        for _ in range(2):
            await reader.readline()
        writer.write(b"250 ok\r\n250 ok\r\n354 go on\r\n")
        await self._done.wait()
        writer.transport.abort()
