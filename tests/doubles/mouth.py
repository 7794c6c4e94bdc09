"""What tests of transports share: messages, a mark before the dot, a relay of ours and a client opened on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import uvloop

from staffetta.mail.message import Delivery, Reply
from staffetta.sink import Rule, Script, SinkServer
from staffetta.transport.contract import Transport
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Timeouts

SENDER = "sender@shop.example"
RECIPIENT = "reader@home.example"
DATE = "Thu, 19 Nov 2026 08:00:00 +0000"
PATIENT = Timeouts().each(20.0)
"""Nobody runs into these, however busy the machine is; a test that wants a timeout says which."""

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""The product runs on either; their transports and TLS differ."""


def hurried(stage: str, seconds: float = 0.1) -> Timeouts:
    """Patient everywhere but at one stage."""
    return msgspec.structs.replace(PATIENT, **{stage: seconds})


def message(number: int = 1, *, text: str = "Good news.") -> bytes:
    return (
        f"From: {SENDER}\r\nTo: {RECIPIENT}\r\nSubject: number {number}\r\n"
        f"Date: {DATE}\r\nMessage-ID: <{number}@shop.example>\r\n\r\n{text}\r\n"
    ).encode()


class Mark:
    """The mark before the dot: counts its calls, waits or breaks as told, calls back as it is made."""

    def __init__(self, *, error: BaseException | None = None) -> None:
        self.made = 0
        self.error = error
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self) -> None:
        self.made += 1
        self.begun.set()
        if self.error is not None:
            raise self.error
        await self.may_end.wait()


async def hand_over(
    transport: Transport,
    *recipients: str,
    number: int = 1,
    content: bytes | None = None,
    sender: str = SENDER,
    mark: Mark | None = None,
) -> Delivery:
    """Send one message; by default to one recipient. Ends the test rather than wait for ever."""
    async with asyncio.timeout(30):
        return await transport.send(
            sender,
            recipients or (RECIPIENT,),
            message(number) if content is None else content,
            before_dot=mark or Mark(),
        )


def only(delivery: Delivery) -> Reply:
    """The reply of a delivery to one recipient."""
    assert len(delivery.replies) == 1
    return delivery.replies[0].reply


def heard(delivery: Delivery) -> list[tuple[str, int | str]]:
    """Stage and code (or event) of each reply, in order."""
    return [(one.reply.stage, one.reply.code or one.reply.name) for one in delivery.replies]


@contextlib.asynccontextmanager
async def relay(*rules: Rule, script: Script | None = None, **settings: Any) -> AsyncIterator[SinkServer]:
    """Our scripted sink, which keeps all messages and watches every byte."""
    told = script or Script(rule=rules)
    async with SinkServer(told, **{"keep": True, "watch": True, **settings}) as sink:
        yield sink


@contextlib.asynccontextmanager
async def opened(transport: Transport) -> AsyncIterator[Transport]:
    await transport.open()
    try:
        yield transport
    finally:
        async with asyncio.timeout(30):
            await transport.close()


def client(sink: SinkServer, **settings: Any) -> SmtpTransport:
    told = {"timeouts": PATIENT, "tls": "none", "ehlo_name": "client.example", **settings}
    return SmtpTransport(str(told.pop("host", sink.host)), sink.port, **told)


@contextlib.asynccontextmanager
async def sending(sink: SinkServer, **settings: Any) -> AsyncIterator[SmtpTransport]:
    """A client of that sink, opened."""
    transport = client(sink, **settings)
    async with opened(transport):
        yield transport


async def all_of(sends: Sequence[Any]) -> list[Delivery]:
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*sends))


def bytes_heard(sink: SinkServer, connection: int = 1) -> bytes:
    """All that one client said, as it came."""
    return b"".join(data for _, data in sink.seen.get(connection, ()))
