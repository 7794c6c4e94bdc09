"""Whatever bytes are handed in, what goes over the wire is SMTP: the same commands, lines whole, nothing smuggled."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from doubles.mouth import SENDER, hand_over, opened
from doubles.mouth import client as client_of
from staffetta.errors import PayloadError
from staffetta.mail import payload
from staffetta.mail.compose import compose
from staffetta.mail.message import Reply
from staffetta.sink import Script, SinkServer
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.stuffing import unstuffed, with_line_ends

LINE_ENDS = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\n\n",
    b"\r\r",
    b"\n\r",
    b"\x00\r\n",
    b"\r\x00\n",
    b"\x0b",
    b"\x85",
    b"\xe2\x80\xa8",
)
SMUGGLED = b"MAIL FROM:<evil@x.example>\r\nRCPT TO:<victim@x.example>\r\nDATA\r\nFrom: evil\r\n\r\nboo\r\n.\r\n"
"""A second message, for a server that takes the first one to have ended."""

pieces = st.one_of(
    st.sampled_from(
        [*LINE_ENDS, b".", b"..", b".\r\n", b"\r\n.\r\n", b"\n.\n", b"QUIT\r\n", b"RSET\r\n", SMUGGLED]
    ),
    st.binary(max_size=40),
    st.sampled_from([b"x" * 997, b"x" * 998, b"x" * 999, b"." * 998, b"x" * 65_536]),
)
contents = st.lists(pieces, max_size=12).map(b"".join)
addresses = st.one_of(
    st.sampled_from(["a@x.example", "jörg@bücher.example", "a b@x.example", '"q\\"q"@x.example', "a" * 899]),
    st.text(max_size=40),
    st.sampled_from(["a@x.example>\r\nDATA", "a\n@x.example", "<>", "a@x.example> SIZE=1"]),
)


class Lab:
    """A relay that keeps every byte, and a client of it, in one loop for all examples of a law."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()

    def __enter__(self) -> Lab:
        self.runner.run(self._begin())
        return self

    async def _begin(self) -> None:
        self.sink = await self.stack.enter_async_context(SinkServer(self.script, keep=True, watch=True))
        transport = await self.stack.enter_async_context(
            opened(client_of(self.sink, connections_max=1, messages_per_connection=1))
        )
        assert isinstance(transport, SmtpTransport)
        self.transport = transport

    def __exit__(self, *_: object) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def send(self, sender: str, recipients: list[str], content: bytes) -> tuple[list[Reply], bytes]:
        """What was answered, and every byte of the connection that it took."""
        return self.runner.run(self._send(sender, recipients, content))

    async def _send(self, sender: str, recipients: list[str], content: bytes) -> tuple[list[Reply], bytes]:
        before = set(self.sink.seen)
        delivery = await hand_over(self.transport, *recipients, sender=sender, content=content)
        await self.transport.close()
        await self.transport.open()
        said = b"".join(
            data for number in set(self.sink.seen) - before for _, data in self.sink.seen.pop(number)
        )
        return [one.reply for one in delivery.replies], said


@pytest.fixture(params=["pipelining", "one-by-one"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    extensions = ("8BITMIME", "SMTPUTF8") if request.param == "one-by-one" else Script().extensions
    with Lab(Script(extensions=extensions)) as made:
        yield made


def taken_apart(said: bytes, *, handed_over: bool) -> tuple[list[bytes], list[bytes]]:
    """Commands, and contents between DATA and the lone dot, as a strict server reads them.

    `handed_over`: it answered 354, so that content follows.
    """
    commands, found = [], []
    while said:
        line, end, said = said.partition(b"\r\n")
        assert end, f"a last line without its end: {line[:80]!r}"
        commands.append(line)
        if line == b"DATA" and handed_over:
            if said.startswith(b".\r\n"):
                found.append(b"")
                said = said[3:]
                continue
            content, dot, said = said.partition(b"\r\n.\r\n")
            assert dot, "a content without its end"
            found.append(content + b"\r\n")
    return commands, found


def held_to_the_wire(said: bytes, replies: list[Reply], content: bytes) -> list[bytes]:
    """The contents that went over."""
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", said), "a bare CR or LF"
    for line in said.split(b"\r\n"):
        assert len(line) <= 998 + line.startswith(b"..")
    commands, found = taken_apart(said, handed_over=any(reply.stage == "dot" for reply in replies))
    words = [command.split(b" ")[0].split(b":")[0] for command in commands]
    assert re.fullmatch(b"EHLO( MAIL( RCPT)+( DATA)?)?( RSET)?( QUIT)?", b" ".join(words)), words
    assert words.count(b"RCPT") <= len(replies)
    for command in commands:
        assert not re.search(rb"[\x00-\x1f\x7f]", command)
        assert command.count(b"<") <= 1 >= command.count(b">")
    assert len(found) <= 1
    if found and found != [b""]:
        whole = with_line_ends(content)
        assert unstuffed(found[0]) == (whole if whole.endswith(b"\r\n") else whole + b"\r\n")
    return found


anything = given(
    sender=st.one_of(st.just(SENDER), addresses),
    recipients=st.lists(addresses, min_size=1, max_size=4),
    content=contents,
)
UNHURRIED = settings(
    max_examples=150,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def law(lab: Lab, sender: str, recipients: list[str], content: bytes) -> None:
    replies, said = lab.send(sender, recipients, content)

    held_to_the_wire(said, replies, content)
    assert len(replies) == len(recipients)


@anything
@example(sender="", recipients=["a@x.example"], content=b"")
@example(sender=SENDER, recipients=["a@x.example"], content=b"Subject: x\r\n\r\n.\r\n")
@UNHURRIED
def test_whatever_goes_in_the_wire_has_only_what_smtp_allows(
    lab: Lab, sender: str, recipients: list[str], content: bytes
) -> None:
    """CRLF only, no line over 998 octets, one transaction with our commands in their order, the content itself."""
    law(lab, sender, recipients, content)


@pytest.mark.soak
@anything
@settings(UNHURRIED, max_examples=20_000)
def test_the_same_for_long(lab: Lab, sender: str, recipients: list[str], content: bytes) -> None:
    law(lab, sender, recipients, content)


@pytest.mark.parametrize("line_ends", ["strict", "lenient"])
@pytest.mark.parametrize(
    "end",
    [b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r.\r\n", b"\r\n.\r", b"\r\n\x00.\r\n", b"\n\x00.\n", b"\r\n.\x00\r\n",
     b"\r\n.\r\r\n", b"\n.\r", b"\r.\n", b"\r\n.\r\n"],
    ids=lambda end: end.decode("latin-1").encode("unicode_escape").decode(),
)  # fmt: skip
async def test_no_second_message_is_smuggled_in(end: bytes, line_ends: str) -> None:
    """CVE-2023-51764 and its kin: servers that read other line ends than ours must count one message all the same.

    At the borders of blocks too, where a check of each block alone would see nothing.
    """
    script = Script(line_ends=line_ends)  # type: ignore[arg-type]  # one of two words
    for padding in (10, 65_536 - 200, 65_536 - len(b"Subject: x\r\n\r\n"), 131_072 - 15):
        lines = (b"x" * 70 + b"\r\n") * (padding // 72) + b"x" * (padding % 72)
        content = b"Subject: x\r\n\r\n" + lines + end + SMUGGLED + b"rest"
        async with SinkServer(script, keep=True, watch=True) as sink, opened(client_of(sink)) as transport:
            await hand_over(transport, content=content)
            assert len(sink.messages) <= 1
            assert not any(
                b"victim" in address.encode() for kept, _ in sink.messages for address in kept.recipients
            )
            assert [line for line in sink.commands if line.startswith(b"MAIL FROM:<evil")] == []
            assert sink.violations == []


header_texts = st.text(min_size=1, max_size=200).filter(lambda text: bool(text.strip()))


@given(
    subject=header_texts,
    name=st.text(max_size=60),
    body=st.text(min_size=1, max_size=600),
    custom=st.dictionaries(st.sampled_from(["X-One", "X-Two", "List-Id"]), header_texts, max_size=2),
)
@example(subject="A \U0001f600 subject=?UTF-8?Q?=0A?=Bcc: injected@x.example", name="", body="b", custom={})
@example(subject="x\r\nBcc: injected@x.example", name="", body="b", custom={})
@example(
    subject="x",
    name='"\r\nBcc: a@x.example',
    body="\r\n.\r\nMAIL FROM:<evil@x.example>\r\n",
    custom={"X-One": "a\nBcc: b"},
)
@settings(UNHURRIED, max_examples=100)
def test_no_payload_puts_a_header_or_a_command_on_the_wire(
    lab: Lab, subject: str, name: str, body: str, custom: dict[str, str]
) -> None:
    """From the payload to the relay's own reading: the headers that were meant, and no other."""
    composed = _composed(subject, name, body, custom)
    if composed is None:
        return  # refused at hand-in: nothing of it goes anywhere
    replies, said = lab.send(SENDER, ["a@x.example"], composed)

    (content,) = held_to_the_wire(said, replies, composed)
    assert [reply.code for reply in replies] == [250]
    head = unstuffed(content).partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0].lower() for line in head.split(b"\r\n") if line[:1] not in (b" ", b"\t")]
    meant = {b"from", b"to", b"subject", b"date", b"message-id", b"mime-version", b"content-type",
             b"content-transfer-encoding", *(each.lower().encode() for each in custom)}  # fmt: skip
    assert sorted(names) == sorted(set(names)), "no header stands twice"
    assert set(names) <= meant
    assert b"bcc" not in names


def _composed(subject: str, name: str, body: str, custom: dict[str, str]) -> bytes | None:
    sender = f'"{name}" <{SENDER}>' if name else SENDER
    asked = {
        "from": sender, "to": ["a@x.example"], "bcc": ["hidden@x.example"], "subject": subject, "body_text": body,
        "custom_headers": custom,
    }  # fmt: skip
    try:
        read = payload.read(asked, company_id="acme")
    except PayloadError:
        return None
    return compose(read, (), message_id="<1@shop.example>", date_ms=1_800_000_000_000)
