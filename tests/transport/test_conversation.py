"""What is said to a relay, in which order and in how many pieces; and what its answers become."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest

from doubles.mouth import (
    PATIENT,
    SENDER,
    Mark,
    all_of,
    bytes_heard,
    client,
    hand_over,
    heard,
    message,
    only,
    opened,
    relay,
    sending,
)
from staffetta.errors import TransportError
from staffetta.mail.message import Reply
from staffetta.sink import Rule, Script
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Credentials


async def test_the_servers_words_come_back_whole() -> None:
    """Operators and owners read them; a code alone explains nothing."""
    async with (
        relay(Rule(at="dot", reply="250 2.6.0 <x> queued as 4F2, thanks")) as sink,
        sending(sink) as smtp,
    ):
        delivery = await hand_over(smtp)

    assert only(delivery) == Reply(
        stage="dot", code=250, enhanced="2.6.0", text="2.6.0 <x> queued as 4F2, thanks", committed=True
    )
    assert delivery.transport == smtp.name
    assert delivery.committed
    assert [kept for _, kept in sink.messages] == [message()]


async def test_a_whole_envelope_is_one_write_where_the_server_pipelines() -> None:
    """MAIL, RCPT… and DATA cost one round trip together (RFC 2920)."""
    async with relay() as sink, sending(sink) as smtp:
        await hand_over(smtp, "a@x.example", "b@x.example")

    greeting, envelope, content, *_ = [data for _, data in sink.seen[1]]
    size = len(message())
    assert greeting == b"EHLO client.example\r\n"
    assert (
        envelope
        == (
            f"MAIL FROM:<{SENDER}> SIZE={size}\r\nRCPT TO:<a@x.example>\r\nRCPT TO:<b@x.example>\r\nDATA\r\n"
        ).encode()
    )
    assert content == message() + b".\r\n"
    assert sink.violations == []


async def test_without_pipelining_each_command_waits_for_its_answer() -> None:
    script = Script(extensions=("8BITMIME",))
    async with relay(script=script) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, "a@x.example", "b@x.example")
        again = await hand_over(smtp, number=2)

    pieces = [data.split(b" ", 1)[0].split(b"\r", 1)[0] for _, data in sink.seen[1]]
    assert pieces[:5] == [b"EHLO", b"MAIL", b"RCPT", b"RCPT", b"DATA"]
    assert heard(delivery) == [("dot", 250)] * 2
    assert heard(again) == [("dot", 250)]
    assert sink.violations == []


async def test_under_load_the_dot_and_the_next_envelope_leave_together() -> None:
    """It halves the round trips of a backlog; each dot still waits for its own mark."""
    async with relay() as sink, sending(sink, connections_max=1) as smtp:
        marks = [Mark() for _ in range(20)]
        deliveries = await all_of([hand_over(smtp, number=n, mark=mark) for n, mark in enumerate(marks)])
        pieces = [data for _, data in sink.seen[1]]

    assert [heard(one) for one in deliveries] == [[("dot", 250)]] * 20
    assert [mark.made for mark in marks] == [1] * 20
    together = [piece for piece in pieces if b"\r\n.\r\nMAIL FROM:" in piece]
    assert len(together) == 19
    assert sink.violations == []


async def test_the_mark_is_awaited_before_a_byte_of_the_dot() -> None:
    """The journal must know before the server can: else a crash could send twice without anybody knowing."""
    async with relay() as sink, sending(sink) as smtp:
        mark = Mark()
        mark.may_end.clear()
        sent = asyncio.ensure_future(hand_over(smtp, mark=mark))
        await mark.begun.wait()
        await asyncio.sleep(0)

        assert sink.commands[-1] == b"DATA"
        assert b"\r\n.\r\n" not in bytes_heard(sink)
        mark.may_end.set()
        assert heard(await sent) == [("dot", 250)]


async def test_a_mark_that_fails_lets_nothing_of_the_dot_out() -> None:
    """A worker that was overtaken may not send: the mark says so, and the connection is closed without the dot."""
    for content in (message(), message(text="long\r\n" * 40_000)):
        async with relay() as sink, sending(sink) as smtp:
            with pytest.raises(LookupError, match="overtaken"):
                await hand_over(smtp, mark=Mark(error=LookupError("overtaken")), content=content)
            after = await hand_over(smtp, number=2)

            assert b"\r\n.\r\n" not in bytes_heard(sink, 1)
            assert [kept.message_id for kept, _ in sink.messages] == ["<2@shop.example>"]
            assert heard(after) == [("dot", 250)]


async def test_each_recipient_has_a_reply_of_its_own() -> None:
    """Only those not yet accepted are tried again later."""
    rules = (
        Rule(at="rcpt", recipient="late@*", reply="450 4.2.1 busy"),
        Rule(at="rcpt", recipient="no@*", reply="550 5.1.1 no such user"),
    )
    async with relay(*rules) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, "a@x.example", "no@x.example", "late@x.example", "b@x.example")

    assert heard(delivery) == [("dot", 250), ("rcpt", 550), ("rcpt", 450), ("dot", 250)]
    assert [one.address[0] for one in delivery.replies] == ["a", "n", "l", "b"]
    assert sink.messages[0][0].recipients == ("a@x.example", "b@x.example")


@pytest.mark.parametrize("pipelining", [True, False])
async def test_when_all_recipients_are_refused_nothing_is_marked(*, pipelining: bool) -> None:
    extensions = ("PIPELINING",) if pipelining else ("8BITMIME",)
    script = Script(extensions=extensions, rule=(Rule(at="rcpt", count=2, reply="550 5.1.1 nobody"),))
    async with relay(script=script) as sink, sending(sink, connections_max=1) as smtp:
        mark = Mark()
        delivery = await hand_over(smtp, "a@x.example", "b@x.example", mark=mark)
        after = await hand_over(smtp)

    assert heard(delivery) == [("rcpt", 550)] * 2
    assert (mark.made, delivery.committed) == (0, False)
    assert heard(after) == [("dot", 250)]
    assert b"RSET" in sink.commands, "the refused transaction is ended before the next one begins"
    assert sink.connections == 1
    assert sink.violations == []


async def test_content_wanted_for_nobody_is_ended_at_once() -> None:
    """Some servers answer 354 although every recipient was refused (RFC 2920 3.1): a lone dot, and no mark."""
    script = Script(data_without_recipients=True, rule=(Rule(at="rcpt", count=1, reply="550 5.1.1 no"),))
    async with relay(script=script) as sink, sending(sink) as smtp:
        mark = Mark()
        delivery = await hand_over(smtp, mark=mark)
        after = await hand_over(smtp, number=2)

    assert (heard(delivery), mark.made, delivery.committed) == ([("rcpt", 550)], 0, False)
    assert heard(after) == [("dot", 250)]
    assert sink.connections == 1
    assert sink.violations == [], "the dot waits for the 354"
    assert [kept.message_id for kept, _ in sink.messages] == ["<2@shop.example>"]


async def test_a_refused_sender_whose_recipients_were_taken_gets_no_dot() -> None:
    """A server that refuses MAIL and goes on all the same would take an empty message from a lone dot."""
    mad = [b"220 mad\r\n", b"250-mad\r\n250 PIPELINING\r\n", b"550 no\r\n250 ok\r\n354 go\r\n"]
    server = _Scripted(mad)
    async with server as port, opened(SmtpTransport("127.0.0.1", port, tls="none", timeouts=PATIENT)) as smtp:
        mark = Mark()
        delivery = await hand_over(smtp, mark=mark)
    assert (heard(delivery), mark.made) == ([("mail", 550)], 0)
    assert b".\r\n" not in server.said.split(b"DATA\r\n")[1]


async def test_a_refused_reset_costs_a_connection_and_no_message() -> None:
    rules = (
        Rule(at="rcpt", count=1, reply="550 5.1.1 no"),
        Rule(at="rset", count=1, reply="500 5.5.1 what?"),
    )
    async with relay(*rules) as sink, sending(sink, connections_max=1) as smtp:
        first, second = await all_of([hand_over(smtp, number=1), hand_over(smtp, number=2)])

    assert (heard(first), heard(second)) == ([("rcpt", 550)], [("dot", 250)])
    assert sink.connections == 2


@pytest.mark.parametrize(
    "farewell",
    [
        Rule(at="quit", reply="500 5.5.1 no"),
        Rule(at="quit", disconnect=True),
        Rule(at="quit", reset=True),
        Rule(at="quit", stall=True),
        Rule(at="quit", raw="\x00\x01 garbage"),
    ],
    ids=["refused", "closed", "reset", "silent", "garbage"],
)
async def test_no_error_while_leaving_takes_a_delivery_back(farewell: Rule) -> None:
    """The 250 to the dot is final: a QUIT that fails is the most common way to count a sent mail as failed."""
    patient_but_brief = client_timeouts(goodbye=0.2)
    async with relay(farewell) as sink, sending(sink, timeouts=patient_but_brief) as smtp:
        delivery = await hand_over(smtp)
    assert only(delivery).delivered
    assert sink.commands[-1] == b"QUIT"


async def test_close_returns_though_the_relay_never_says_goodbye() -> None:
    async with relay(Rule(at="quit", stall=True)) as sink:
        smtp = client(sink, timeouts=client_timeouts(goodbye=0.1))
        await smtp.open()
        await hand_over(smtp)
        async with asyncio.timeout(10):
            await smtp.close()
        assert smtp.connections == 0


async def test_a_send_in_flight_when_the_transport_closes_is_answered() -> None:
    """Nobody may wait for ever on a transport that is gone: neither the one at work nor those behind it."""
    async with relay(Rule(at="dot", stall=True)) as sink:
        smtp = client(sink, connections_max=1)
        await smtp.open()
        mark = Mark()
        sends = [asyncio.ensure_future(hand_over(smtp, number=n, mark=mark)) for n in range(3)]
        await mark.begun.wait()
        await smtp.close()
        first, second, third = await all_of(sends)

    assert [(one.reply.name, one.reply.committed) for one in first.replies] == [("stopped", True)]
    for other in (second, third):
        assert [(one.reply.name, one.reply.committed) for one in other.replies] == [("stopped", False)]


async def test_a_transport_that_is_not_open_is_a_broken_program() -> None:
    smtp = SmtpTransport("127.0.0.1", 25)
    with pytest.raises(TransportError):
        await hand_over(smtp)


# ------------------------------------------------------------------------------------------------- size, 8 bit


async def test_what_is_too_large_is_told_before_a_word_of_it_is_said() -> None:
    async with relay(script=Script(size_max=1_000)) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, content=message(text="x" * 78 + "\r\n" * 500))
        fits = await hand_over(smtp)

    assert heard(delivery) == [("mail", "too-large")]
    assert "1000" in only(delivery).text
    assert heard(fits) == [("dot", 250)]
    assert [line for line in sink.commands if line.startswith(b"MAIL")] == [
        f"MAIL FROM:<{SENDER}> SIZE={len(message())}".encode()
    ]


async def test_the_size_said_is_the_size_that_is_sent() -> None:
    """As RFC 1870 counts: line ends whole, doubled dots once."""
    content = b"Subject: x\n\n.dot\n..two\nend"
    async with relay() as sink, sending(sink) as smtp:
        await hand_over(smtp, content=content)

    kept = sink.messages[0][1]
    assert kept == b"Subject: x\r\n\r\n.dot\r\n..two\r\nend\r\n"
    assert f"SIZE={len(kept)}".encode() in next(line for line in sink.commands if line.startswith(b"MAIL"))


async def test_a_line_that_smtp_cannot_carry_is_refused_here() -> None:
    """Servers cut such lines, or refuse the message for one byte too many: better told than mended in secret."""
    async with relay() as sink, sending(sink) as smtp:
        long = await hand_over(smtp, content=message(text="x" * 999))
        fits = await hand_over(smtp, content=message(text="." + "x" * 997))

    assert heard(long) == [("mail", "too-large")]
    assert "998" in only(long).text
    assert heard(fits) == [("dot", 250)]


async def test_eight_bits_are_declared_or_refused() -> None:
    body = message(text="Grüße")
    async with relay() as sink, sending(sink) as smtp:
        taken = await hand_over(smtp, content=body)
    assert heard(taken) == [("dot", 250)]
    assert any(b" BODY=8BITMIME" in line for line in sink.commands)
    assert not any(b"SMTPUTF8" in line for line in sink.commands)

    async with relay(script=Script(extensions=("PIPELINING",))) as sink, sending(sink) as smtp:
        refused = await hand_over(smtp, content=body)
    assert heard(refused) == [("mail", "utf8-unsupported")]
    assert sink.record.messages == 0


async def test_foreign_addresses_go_as_they_are_where_the_server_takes_them() -> None:
    async with relay() as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, "jörg@bücher.example")
    assert heard(delivery) == [("dot", 250)]
    assert any(line.endswith(b" SMTPUTF8") for line in sink.commands)
    assert sink.messages[0][0].recipients == ("jörg@bücher.example",)


async def test_elsewhere_a_domain_goes_as_its_ascii_name_and_a_local_part_not_at_all() -> None:
    script = Script(extensions=("PIPELINING", "8BITMIME"))
    async with relay(script=script) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp, "post@bücher.example", "jörg@home.example", "post@straße.example")

    assert heard(delivery) == [("dot", 250), ("rcpt", "utf8-unsupported"), ("rcpt", "utf8-unsupported")]
    assert sink.messages[0][0].recipients == ("post@xn--bcher-kva.example",)


# ------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "bad",
    ["a@x.example>\r\nRCPT TO:<b@x.example", "a\n@x.example", "a\x00@x.example", "<a@x.example>", "", "\ud800@x.example",
     "a" * 900 + "@x.example"],
    ids=["command", "line-feed", "nul", "brackets", "empty", "surrogate", "too-long"],
)  # fmt: skip
async def test_no_address_can_say_a_command(bad: str) -> None:
    """Whatever a payload let through: such a recipient is refused here, and its neighbours go on."""
    async with relay() as sink, sending(sink) as smtp:
        beside = await hand_over(smtp, "good@x.example", bad)
        as_sender = await hand_over(smtp, sender=bad or "a\rb@x.example")
        after = await hand_over(smtp)

    assert heard(beside) == [("dot", 250), ("rcpt", "bad-address")]
    assert heard(as_sender) == [("mail", "bad-address")]
    assert heard(after) == [("dot", 250)]
    assert [line.split(b" ")[0] for line in sink.commands if line != b"QUIT"] == [
        b"EHLO", b"MAIL", b"RCPT", b"DATA", b"MAIL", b"RCPT", b"DATA",
    ]  # fmt: skip
    assert sink.violations == []


@pytest.mark.parametrize("name", ["a b", "x\r\nMAIL FROM:<a@b>", "x>", "", "[not an address", "é.example"])
def test_no_ehlo_name_can_say_a_command(name: str) -> None:
    with pytest.raises(ValueError, match="EHLO name"):
        SmtpTransport("127.0.0.1", 25, ehlo_name=name)


async def test_the_null_sender_is_sent_as_such() -> None:
    async with relay() as sink, sending(sink) as smtp:
        assert heard(await hand_over(smtp, sender="")) == [("dot", 250)]
    assert any(line.startswith(b"MAIL FROM:<> ") for line in sink.commands)


# ------------------------------------------------------------------------------------------------- greeting


async def test_old_servers_are_greeted_the_old_way() -> None:
    async with relay(Rule(at="ehlo", count=1, reply="502 5.5.1 what?")) as sink, sending(sink) as smtp:
        delivery = await hand_over(smtp)
    assert heard(delivery) == [("dot", 250)]
    assert [line for line in sink.commands if line[1:] == b"ELO client.example" or line[:4] == b"MAIL"] == [
        b"HELO client.example",
        b"MAIL FROM:<sender@shop.example>",
    ]


async def test_without_a_name_of_its_own_a_client_says_where_it_comes_from(monkeypatch: Any) -> None:
    """A host without a full name greets with its address (RFC 5321 4.1.3); "localhost" is refused by many."""
    monkeypatch.setattr(socket, "gethostname", lambda: "laptop")
    async with relay() as sink, sending(sink, ehlo_name=None) as smtp:
        await hand_over(smtp)
    monkeypatch.setattr(socket, "gethostname", lambda: "mail.shop.example")
    async with relay() as other, sending(other, ehlo_name=None) as smtp:
        await hand_over(smtp)
    assert (sink.commands[0], other.commands[0]) == (b"EHLO [127.0.0.1]", b"EHLO mail.shop.example")


async def test_a_relay_is_reached_by_ipv6() -> None:
    async with relay(host="::1") as sink, sending(sink, host="::1", ehlo_name=None) as smtp:
        assert heard(await hand_over(smtp)) == [("dot", 250)]
    named = SmtpTransport.from_url(f"smtp://[::1]:{sink.port}?tls=none")
    assert (named.settings.host, named.settings.port) == ("::1", sink.port)


def names(monkeypatch: Any, *addresses: str) -> None:
    """A name server of ours: `relay.example` has these addresses."""

    async def look_up(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "relay.example"
        families = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in addresses]
        return [
            (family, socket.SOCK_STREAM, 6, "", (one, port))
            for family, one in zip(families, addresses, strict=True)
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)


async def test_each_address_of_a_name_is_tried(monkeypatch: Any) -> None:
    """One machine of a relay that is down is no outage (RFC 5321 5.1)."""
    async with relay(host="127.0.0.3") as sink:
        names(monkeypatch, "127.0.0.2", "127.0.0.3")
        async with opened(client(sink, host="relay.example")) as smtp:
            assert heard(await hand_over(smtp)) == [("dot", 250)]


@pytest.mark.parametrize(
    "no",
    [
        Rule(at="connect", reply="554 5.3.2 no service here", disconnect=True),
        Rule(at="connect", reply="421 4.3.2 too busy", disconnect=True),
        Rule(at="connect", reset=True),
        Rule(at="ehlo", reply="550 5.7.1 go away"),
    ],
    ids=["554", "421", "reset", "ehlo-550"],
)
async def test_a_machine_that_serves_nobody_leaves_it_to_the_next(no: Rule, monkeypatch: Any) -> None:
    """A hard "no" in the greeting is about that machine, not about the message."""
    async with relay(no, host="127.0.0.2") as first, relay(host="127.0.0.3", port=first.port) as second:
        names(monkeypatch, "127.0.0.2", "127.0.0.3")
        async with opened(client(first, host="relay.example")) as smtp:
            delivery = await hand_over(smtp)
    assert heard(delivery) == [("dot", 250)]
    assert (first.record.messages, second.record.messages) == (0, 1)


async def test_when_no_address_serves_the_first_ones_words_are_kept(monkeypatch: Any) -> None:
    no = Rule(at="connect", reply="421 4.3.2 down until noon", disconnect=True)
    async with relay(no, host="127.0.0.2") as sink:
        names(monkeypatch, "127.0.0.2", "127.0.0.3", "::1")
        async with opened(client(sink, host="relay.example")) as smtp:
            delivery = await hand_over(smtp)
    assert heard(delivery) == [("connect", 421)]
    assert only(delivery).text == "4.3.2 down until noon"


@pytest.mark.parametrize(
    ("errno", "event"),
    [
        (socket.EAI_NONAME, "dns-notfound"),
        (socket.EAI_AGAIN, "dns-temporary"),
        (socket.EAI_FAIL, "dns-temporary"),
    ],
)
async def test_a_name_that_is_not_found_is_told_from_one_not_found_now(
    errno: int, event: str, monkeypatch: Any
) -> None:
    async def look_up(host: str, port: int, **_: Any) -> list[Any]:
        raise socket.gaierror(errno, "as the name server says")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    async with opened(SmtpTransport("relay.example", 25, timeouts=PATIENT)) as smtp:
        assert heard(await hand_over(smtp)) == [("connect", event)]


async def test_nobody_at_home_is_a_reply_too() -> None:
    async with relay() as sink:
        port = sink.port
    async with opened(SmtpTransport("127.0.0.1", port, timeouts=PATIENT)) as smtp:
        delivery = await hand_over(smtp)
    assert heard(delivery) == [("connect", "refused")]
    assert str(port) in only(delivery).text


# ------------------------------------------------------------------------------------------------- probing


async def test_a_probe_says_whether_a_message_could_go_and_sends_none() -> None:
    script = Script(credentials={"shop": "secret"}, auth_required=True)
    async with relay(script=script) as sink:
        good = client(sink, credentials=Credentials(user="shop", password="secret"), tls="none")
        bad = client(sink, credentials=Credentials(user="shop", password="guess"), tls="none")
        plain = client(sink)
        answers = [await transport.probe() for transport in (good, bad, plain)]
    down = await plain.probe()

    assert [(one.stage, one.code or one.name) for one in (*answers, down)] == [
        ("auth", 250),
        ("auth", 535),
        ("ehlo", 250),
        ("connect", "refused"),
    ]
    assert b"MAIL" not in b"".join(sink.commands)
    assert sink.open_connections == 0


# ------------------------------------------------------------------------------------------------- doubles


def client_timeouts(**own: float) -> Any:
    return msgspec.structs.replace(PATIENT, **own)


class _Scripted:
    """A server that says its lines one after the other, whatever it hears."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = list(lines)
        self.said = b""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for line in self.lines:
                writer.write(line)
                await writer.drain()
                heard = await reader.read(65_536)
                self.said += heard
                if not heard:
                    break
        except OSError:
            pass
        writer.close()
