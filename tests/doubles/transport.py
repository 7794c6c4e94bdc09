"""A transport that answers by script, and remembers what arrived on the other side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from staffetta.mail.message import Delivery, RecipientReply, Reply

ACCEPTED = Reply(stage="dot", code=250, enhanced="2.0.0", text="2.0.0 Ok: queued", committed=True)


@dataclass
class Call:
    """One e-mail on its way: what a script may do with it."""

    transport: ScriptedTransport
    sender: str
    recipients: tuple[str, ...]
    message: bytes
    before_dot: Callable[[], Awaitable[None]]
    tags: tuple[str, ...] = ()

    async def arrive(self, recipients: Sequence[str] | None = None) -> None:
        """The dot: from here on the other side has it."""
        await self.before_dot()
        to = self.recipients if recipients is None else tuple(recipients)
        self.transport.arrived.append((self.message, to))

    def delivery(self, *replies: Reply, committed: bool = False) -> Delivery:
        """One reply for all recipients, or one for each."""
        each = replies * len(self.recipients) if len(replies) == 1 else replies
        pairs = zip(self.recipients, each, strict=True)
        return Delivery(
            transport=self.transport.name,
            replies=tuple(RecipientReply(address=address, reply=reply) for address, reply in pairs),
            committed=committed,
        )


Answer: TypeAlias = Callable[[Call], Awaitable[Delivery]]


async def accepts(call: Call) -> Delivery:
    await call.arrive()
    return call.delivery(ACCEPTED, committed=True)


def refuses(stage: str, code: int = 0, text: str = "", name: str = "") -> Answer:
    """The same "no" for all, before anything was committed (or at the dot, after it)."""

    async def answer(call: Call) -> Delivery:
        committed = stage == "dot"
        if committed:
            await call.before_dot()
        enhanced = text.split(" ", 1)[0] if text[:2] in ("2.", "4.", "5.") else ""
        reply = Reply(stage=stage, code=code, enhanced=enhanced, text=text, name=name, committed=committed)
        return call.delivery(reply, committed=committed)

    return answer


def answers_each(*replies: Reply) -> Answer:
    """A reply for each recipient; those at the dot mean that it arrived for them."""

    async def answer(call: Call) -> Delivery:
        good = [a for a, r in zip(call.recipients, replies, strict=True) if r.delivered]
        if good:
            await call.arrive(good)
        return call.delivery(*replies, committed=bool(good))

    return answer


async def loses_reply(call: Call) -> Delivery:
    """It arrives, and the line is lost before anybody hears of it."""
    await call.arrive()
    return call.delivery(Reply(stage="dot", name="eof", text="connection lost", committed=True), committed=True)


async def hangs(call: Call) -> Delivery:
    """Nobody ever answers, and nothing was committed."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("never reached")


async def hangs_after_dot(call: Call) -> Delivery:
    await call.arrive()
    await asyncio.get_running_loop().create_future()
    raise AssertionError("never reached")


def breaks(error: Exception, *, after_dot: bool = False) -> Answer:
    async def answer(call: Call) -> Delivery:
        if after_dot:
            await call.arrive()
        raise error

    return answer


def after(seconds: float, then: Answer) -> Answer:
    async def answer(call: Call) -> Delivery:
        await asyncio.sleep(seconds)
        return await then(call)

    return answer


@dataclass
class ScriptedTransport:
    """Answers by `script`, one entry an e-mail, then by `always`."""

    name: str = "relay"
    always: Answer = accepts
    script: deque[Answer] = field(default_factory=deque)
    probes: deque[Reply] = field(default_factory=deque)
    arrived: list[tuple[bytes, tuple[str, ...]]] = field(default_factory=list)
    calls: int = 0
    probed: int = 0
    at_once: int = 0
    at_once_most: int = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(
        self,
        sender: str,
        recipients: Sequence[str],
        message: bytes | memoryview,
        *,
        before_dot: Callable[[], Awaitable[None]],
        tags: Sequence[str] = (),
    ) -> Delivery:
        self.calls += 1
        self.at_once += 1
        self.at_once_most = max(self.at_once_most, self.at_once)
        answer = self.script.popleft() if self.script else self.always
        try:
            await asyncio.sleep(0)
            return await answer(Call(self, sender, tuple(recipients), bytes(message), before_dot, tuple(tags)))
        finally:
            self.at_once -= 1

    async def probe(self) -> Reply:
        self.probed += 1
        return self.probes.popleft() if self.probes else Reply(stage="ehlo", code=250, text="ready")
