"""What the suite for transports shares: the other sides, each with what arrived there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiosmtpd.smtp
import msgspec

from doubles import engines
from doubles.mouth import PATIENT, SENDER
from doubles.postfix import PASSWORD, USER, Postfix
from doubles.ses import KEY, REGION, SECRET, SesServer
from staffetta.http import Http
from staffetta.mail.message import Value
from staffetta.sink import SinkServer
from staffetta.transport.contract import Transport
from staffetta.transport.ses import SesSettings, SesTransport
from staffetta.transport.sink import SinkTransport
from staffetta.transport.smtp import SmtpTransport
from staffetta.transport.smtp_settings import Credentials

WAIT_SECONDS = 30.0


class Arrived(Value, frozen=True, kw_only=True):
    """One message as the other side has it. A relay may have put lines of its own before it."""

    recipients: tuple[str, ...]
    content: bytes


class FarSide(Protocol):
    """One kind of other side. `wants`: what the transport is given beside its address."""

    def transport(self, **limits: Any) -> Transport: ...

    async def arrived(self, count: int = 0) -> list[Arrived]:
        """All that arrived in this test, once there are so many."""


@dataclass
class Scripted:
    """Our own sink, which can say no."""

    sink: SinkServer

    def transport(self, **limits: Any) -> Transport:
        return SmtpTransport("127.0.0.1", self.sink.port, tls="none", timeouts=PATIENT, **limits)

    async def arrived(self, count: int = 0) -> list[Arrived]:
        del count
        return [Arrived(recipients=kept.recipients, content=content) for kept, content in self.sink.messages]


@dataclass
class Dumped:
    """A relay of others whose messages end as files of `smtp-sink`."""

    make: Callable[..., Transport]
    folder: Path
    seen: frozenset[str]
    """What lay there before this test."""

    def transport(self, **limits: Any) -> Transport:
        return self.make(**limits)

    async def arrived(self, count: int = 0) -> list[Arrived]:
        return await asyncio.to_thread(self._await, count)

    def _await(self, count: int) -> list[Arrived]:
        until = time.monotonic() + WAIT_SECONDS
        while True:
            found = dumped(self.folder, self.seen)
            if len(found) >= count:
                return found
            assert time.monotonic() < until, f"only {len(found)} of {count} messages arrived"
            time.sleep(0.01)


def dumped(folder: Path, seen: frozenset[str] = frozenset()) -> list[Arrived]:
    """The messages that `smtp-sink -d` has written whole."""
    found = []
    for path in sorted(folder.iterdir()):
        text = path.read_bytes()
        if path.name in seen or not text.endswith(b"\n\n"):
            continue
        recipients = tuple(one.decode() for one in re.findall(rb"^X-Rcpt-Args: <(.*?)>", text, re.MULTILINE))
        own = re.sub(rb"\A.*?^Received: [^\n]*\n(?:\s[^\n]*\n)*", b"", text, flags=re.MULTILINE | re.DOTALL)
        found.append(Arrived(recipients=recipients, content=own[:-1].replace(b"\n", b"\r\n")))
    return found


@contextlib.contextmanager
def smtp_sink(*options: str) -> Iterator[tuple[int, Path]]:
    """Postfix's test server, with the folder of what it takes. `options`: its own, to misbehave by."""
    program = engines.program("smtp-sink", package="postfix")
    with tempfile.TemporaryDirectory(prefix="staffetta-dump-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        port = engines.free_port()
        where = ("-d", f"{name}/m.", f"127.0.0.1:{port}", "1000")
        with engines.running(program, *user, *options, *where, port=port):
            yield port, folder


def at_smtp_sink(port: int) -> Callable[..., Transport]:
    def make(**limits: Any) -> Transport:
        return SmtpTransport("127.0.0.1", port, tls="none", timeouts=PATIENT, **limits)

    return make


@dataclass
class Oracle:
    """aiosmtpd: somebody else's reading of SMTP, without pipelining."""

    port: int
    taken: list[Arrived]

    def transport(self, **limits: Any) -> Transport:
        return SmtpTransport("127.0.0.1", self.port, tls="none", timeouts=PATIENT, **limits)

    async def arrived(self, count: int = 0) -> list[Arrived]:
        del count
        return list(self.taken)


@contextlib.asynccontextmanager
async def oracle() -> AsyncIterator[Oracle]:
    taken: list[Arrived] = []

    class Handler:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802  # its name there
            taken.append(Arrived(recipients=tuple(envelope.rcpt_tos), content=envelope.original_content))
            return "250 taken"

    loop = asyncio.get_running_loop()
    made: list[Any] = []

    def session() -> Any:
        made.append(aiosmtpd.smtp.SMTP(Handler(), enable_SMTPUTF8=True, loop=loop))
        return made[-1]

    server = await loop.create_server(session, "127.0.0.1", 0)
    try:
        yield Oracle(server.sockets[0].getsockname()[1], taken)
    finally:
        server.close()
        handlers = [one._handler_coroutine for one in made if one._handler_coroutine is not None]
        if handlers:
            await asyncio.wait(handlers, timeout=10)


def at_postfix(server: Postfix, *, implicit: bool) -> Callable[..., Transport]:
    """Signed in, under TLS that is verified."""

    def make(**limits: Any) -> Transport:
        return SmtpTransport(
            "127.0.0.1",
            server.tls_port if implicit else server.port,
            implicit_tls=implicit,
            tls="required" if implicit else "starttls",
            credentials=Credentials(user=USER, password=PASSWORD),
            ssl_context=server.trust,
            timeouts=PATIENT,
            **limits,
        )

    return make


def signed(endpoint: str, **settings: Any) -> SesTransport:
    told = {"region": REGION, "endpoint": endpoint, "access_key": KEY, "secret_key": SECRET, **settings}
    return SesTransport(SesSettings(**told))


@dataclass
class Ses:
    """Our scripted SES."""

    server: SesServer

    def transport(self, **limits: Any) -> Transport:
        return signed(self.server.url, **limits)

    async def arrived(self, count: int = 0) -> list[Arrived]:
        del count
        return [Arrived(recipients=to, content=content) for to, content in self.server.messages]


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """Somebody else's idea of SES, as a process of its own."""
    port = engines.free_port()
    with engines.running(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port), port=port):
        yield f"http://127.0.0.1:{port}"


@dataclass
class Moto:
    url: str
    http: Http

    def transport(self, **limits: Any) -> Transport:
        return signed(self.url, **limits)

    async def arrived(self, count: int = 0) -> list[Arrived]:
        del count
        answer = await self.http.request("GET", f"{self.url}/moto-api/data.json")
        rows = msgspec.json.decode(answer.body)["ses"]["RawMessage"]
        # It counts the header's recipients beside those it was given.
        return [
            Arrived(recipients=tuple(row["destinations"]), content=row["raw_data"].encode()) for row in rows
        ]


@contextlib.asynccontextmanager
async def at_moto(url: str) -> AsyncIterator[Moto]:
    """Emptied, and with our sender known to it."""
    http = Http(answer_bytes=16 * 2**20)
    await http.request("POST", f"{url}/moto-api/reset")
    transport = signed(url)
    await transport.open()
    known = await transport._ask("POST", "/v2/email/identities", msgspec.json.encode({"EmailIdentity": SENDER}))
    assert known.status == 200
    await transport.close()
    yield Moto(url, http)
    await http.close()


@dataclass
class Nowhere:
    """`sink://`: what it takes is counted, and read here on the way in."""

    taken: list[Arrived]

    def transport(self, **limits: Any) -> Transport:
        taken = self.taken
        del limits

        class Watched(SinkTransport):
            async def send(self, sender: str, recipients: Any, message: Any, **more: Any) -> Any:
                delivery = await super().send(sender, recipients, message, **more)
                taken.append(Arrived(recipients=tuple(recipients), content=bytes(message)))
                return delivery

        return Watched()

    async def arrived(self, count: int = 0) -> list[Arrived]:
        del count
        return list(self.taken)
