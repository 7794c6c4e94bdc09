"""A whole engine in a thread of its own: SQLite, local queue, real SMTP to a scripted sink, the API on a free port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from staffetta.app import wiring
from staffetta.app.engine import Engine, engine
from staffetta.app.running import answering
from staffetta.config import Config, sections
from staffetta.logs import Listeners
from staffetta.mail import keys
from staffetta.mail.lifecycle import Status
from staffetta.sink import Rule, Script, SinkServer

T = TypeVar("T")
PATIENCE_SECONDS = 20.0

RULES = (
    Rule(name="greylisting", at="rcpt", recipient="*@greylisting.example",
         reply="451 4.7.1 Greylisted, please try again in 5 minutes"),
    Rule(name="once", at="rcpt", recipient="*@once.example", count=1, per="recipient",
         reply="550 5.1.1 No such user here"),
    Rule(name="refused", at="rcpt", recipient="*@refusing.example", reply="550 5.1.1 No such user here"),
    Rule(name="policy", at="dot", recipient="*@policy.example", reply="554 5.7.1 Message refused by policy"),
    Rule(name="full", at="rcpt", recipient="*@full.example", reply="552 5.2.2 Mailbox is full"),
    Rule(name="lost", at="dot", recipient="*@lost.example", disconnect=True, accept=False),
)  # fmt: skip


class House:
    """What tests do with the engine, from their own thread."""

    def __init__(self, running: Engine, sink: SinkServer, url: str, loop: asyncio.AbstractEventLoop) -> None:
        self.running = running
        self.sink = sink
        self.url = url
        self._loop = loop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the engine's own loop do this, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def send(self, **payload: Any) -> str:
        """Hand one e-mail in; its id."""
        whole = {"company_id": "acme", "from": "Acme Billing <billing@acme.example>", "subject": "Your invoice",
                 "body_text": "Good day,\n\nyour invoice is ready.\n", **payload}  # fmt: skip

        async def accept() -> str:
            return (await self.running.desk.accept(msgspec.json.encode(whole))).id

        return self.do(accept())

    def status(self, email_id: str) -> Status:
        email = self.do(self.running.store.get(email_id))
        assert email is not None
        return email.status

    def until(self, email_id: str, *wanted: Status) -> None:
        """Return when it is there: an e-mail's road is walked by the engine, in its own time."""
        self.until_true(lambda: self.status(email_id) in wanted, f"{email_id} never became {wanted}")

    def until_true(self, holds: Callable[[], bool], why: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < until, why
            time.sleep(0.02)

    def key(self, role: keys.Role, company_id: str | None = None, note: str = "") -> str:
        """A new API key."""
        text, stored = keys.make(
            random=os.urandom(32), role=role, company_id=company_id, now=wiring.clock(), note=note
        )
        self.do(self.running.store.add_key(stored))
        # The door's copy of the keys may be a moment old: a key is given away when the door asks for it.
        self.until_true(lambda: self._asked() == 401 != self._asked(text), "the door never knew the new key")
        return text

    def _asked(self, key: str = "") -> int:
        """The API's answer to somebody with this key, or with none."""
        request = urllib.request.Request(f"{self.url}/v1/dlq")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def revoke(self, text: str) -> None:
        self.do(self.running.store.revoke_key(keys.public_id(text) or "", now=wiring.clock()))


def settings(folder: Path, port: int) -> Config:
    return Config(
        store=sections.Store(url=f"sqlite:///{folder / 'outbox.db'}"),
        transport=sections.Transport(url=(f"smtp://user:hidden-word@127.0.0.1:{port}?tls=none#relay",)),
        delivery=sections.Delivery(in_doubt="hold", concurrency=50),
        spool=sections.Spool(path=str(folder / "spool")),
        api=sections.Api(listen="127.0.0.1:0"),
        log=sections.Log(level="error"),
        sources={
            "store.url": "staffetta.toml",
            "transport.url": "the environment variable STAFFETTA_TRANSPORT",
        },
    )


@contextlib.asynccontextmanager
async def _housed(folder: Path) -> AsyncIterator[tuple[Engine, SinkServer, str]]:
    sink = SinkServer(Script(host_name="relay.example", rule=RULES, credentials={"user": "hidden-word"}).checked(),
                      log=folder / "taken.jsonl")  # fmt: skip
    await sink.start()
    try:
        async with (
            engine(settings(folder, sink.port), listeners=Listeners()) as running,
            answering(running) as served,
        ):
            yield running, sink, served.url
    finally:
        await sink.stop()


@contextlib.contextmanager
def house(folder: Path) -> Iterator[House]:
    """Open from here to the end."""
    ready = threading.Event()
    found: list[House] = []
    troubles: list[BaseException] = []
    leaving: list[Callable[[], Any]] = []

    async def live() -> None:
        leave = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with _housed(folder) as (running, sink, url):
            found.append(House(running, sink, url, loop))
            leaving.append(lambda: loop.call_soon_threadsafe(leave.set))
            ready.set()
            await leave.wait()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            troubles.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="house")
    thread.start()
    ready.wait(PATIENCE_SECONDS)
    try:
        if troubles:
            raise troubles[0]
        yield found[0]
    finally:
        for leave in leaving:
            leave()
        thread.join(PATIENCE_SECONDS)
        if troubles:
            raise troubles[0]
