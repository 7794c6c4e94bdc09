"""The world outside: servers that take e-mails or do not, and owners who hear of them or do not."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simulation.process import Process
from staffetta.mail.message import Delivery, RecipientReply, Reply
from staffetta.mail.report import Receiver, Told

_ID = re.compile(rb"Message-ID: <([0-9a-f-]{36})@")

POISON = b"X-Poison"
"""Whoever sends an e-mail with this header dies of it."""

ACCEPTED = Reply(stage="dot", code=250, enhanced="2.0.0", text="2.0.0 Ok: queued", committed=True)
GREETED = Reply(stage="ehlo", code=250, text="ready")
LOST = tuple(
    Reply(stage="dot", name=name, text="nobody knows what became of it", committed=True)
    for name in ("eof", "timeout", "reset")
)
BEFORE_MAIL = (
    Reply(stage="connect", name="refused", text="connection refused"),
    Reply(stage="connect", name="connect-timeout", text="no answer"),
    Reply(stage="connect", name="dns-temporary", text="SERVFAIL"),
    Reply(stage="connect", code=421, enhanced="4.3.2", text="4.3.2 shutting down"),
    Reply(stage="ehlo", name="eof", text="the line was closed"),
    Reply(stage="starttls", name="tls-certificate", text="certificate has expired"),
    Reply(stage="auth", code=535, enhanced="5.7.8", text="5.7.8 authentication failed"),
    Reply(stage="auth", code=454, enhanced="4.7.0", text="4.7.0 temporary authentication failure"),
)
FOR_ALL = (
    Reply(stage="mail", code=451, enhanced="4.3.0", text="4.3.0 local error"),
    Reply(stage="mail", code=452, enhanced="4.3.1", text="4.3.1 insufficient storage"),
    Reply(stage="mail", code=552, enhanced="5.3.4", text="5.3.4 message too big"),
    Reply(stage="mail", name="timeout", text="no answer to MAIL"),
    Reply(stage="data", code=421, enhanced="4.4.2", text="4.4.2 timed out"),
    Reply(stage="data", code=503, text="bad sequence"),
    Reply(stage="data", name="reset", text="reset by peer"),
    Reply(
        stage="dot",
        code=451,
        enhanced="4.7.1",
        text="4.7.1 greylisted, try again in 120 seconds",
        committed=True,
    ),
    Reply(stage="dot", code=550, enhanced="5.7.1", text="5.7.1 message refused", committed=True),
    Reply(stage="dot", code=554, enhanced="5.6.0", text="5.6.0 message refused", committed=True),
    Reply(stage="dot", code=452, text="Throttling", committed=True),
)
FOR_ONE = (
    Reply(stage="rcpt", code=450, enhanced="4.2.0", text="4.2.0 mailbox busy"),
    Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no such user"),
    Reply(stage="rcpt", code=552, enhanced="5.2.2", text="5.2.2 mailbox full"),
    Reply(stage="rcpt", code=452, enhanced="4.5.3", text="4.5.3 too many recipients"),
    Reply(stage="rcpt", code=451, enhanced="4.7.1", text="4.7.1 greylisted"),
    Reply(stage="rcpt", code=421, text="closing"),
)


class Copy(NamedTuple):
    """One message that a server has taken."""

    id: str
    recipients: tuple[str, ...]
    message: bytes


@dataclass
class World:
    """What is true outside, whatever anybody believes."""

    chance: random.Random
    copies: list[Copy] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any], bytes, int]] = field(default_factory=list)
    """What owners were told: webhook-id, body read, body, and the answer they gave."""
    trouble: dict[str, Reply] = field(default_factory=dict)
    """By transport: what everybody meets there now."""
    nasty: float = 0.3
    """How often an e-mail meets something else than 250."""
    deaf: float = 0.4
    """How often an owner does not acknowledge."""
    dies: Callable[[Process], None] = lambda _: None
    """What a poisonous e-mail does to the process that sends it."""

    def calm(self) -> None:
        self.trouble.clear()
        self.nasty = self.deaf = 0.0


class Server:
    """One transport of one process."""

    def __init__(self, name: str, world: World, process: Process) -> None:
        self.name = name
        self._world = world
        self._process = process

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def probe(self) -> Reply:
        await self._process.gate()
        return self._world.trouble.get(self.name, GREETED)

    async def send(
        self,
        sender: str,
        recipients: Sequence[str],
        message: bytes | memoryview,
        *,
        before_dot: Callable[[], Awaitable[None]],
        tags: Sequence[str] = (),
    ) -> Delivery:
        await self._process.gate()
        if POISON in bytes(message):
            self._world.dies(self._process)
            await asyncio.get_running_loop().create_future()
        replies = await self._conversation(tuple(recipients), bytes(message), before_dot)
        await self._process.gate()
        return Delivery(
            transport=self.name,
            replies=tuple(RecipientReply(address=a, reply=r) for a, r in zip(recipients, replies, strict=True)),
            committed=any(reply.committed for reply in replies),
        )

    async def _conversation(
        self, recipients: tuple[str, ...], message: bytes, before_dot: Callable[[], Awaitable[None]]
    ) -> list[Reply]:
        world, chance = self._world, self._world.chance
        await asyncio.sleep(chance.random() * 0.05)
        if self.name in world.trouble:
            return [world.trouble[self.name]] * len(recipients)
        if chance.random() >= world.nasty:
            return await self._dot(recipients, [None] * len(recipients), message, before_dot)
        kind = chance.choice(("before", "all", "each", "each", "lost", "lost", "hangs", "breaks", "slow"))
        if kind == "before":
            return [chance.choice(BEFORE_MAIL)] * len(recipients)
        if kind == "all":
            reply = chance.choice(FOR_ALL)
            if reply.committed:
                await before_dot()
                await self._process.gate()
            return [reply] * len(recipients)
        if kind == "hangs":
            await asyncio.get_running_loop().create_future()
        if kind == "breaks":
            return await self._breaks(recipients, message, before_dot)
        if kind == "slow":
            await asyncio.sleep(chance.random() * 100)
        answers = [chance.choice((None, *FOR_ONE)) if kind == "each" else None for _ in recipients]
        return await self._dot(recipients, answers, message, before_dot, lost=kind == "lost")

    async def _breaks(
        self, recipients: tuple[str, ...], message: bytes, before_dot: Callable[[], Awaitable[None]]
    ) -> list[Reply]:
        """A fault of our own in the transport: before the dot, after it, or after it has arrived."""
        how = self._world.chance.randrange(3)
        if how:
            await before_dot()
            await self._process.gate()
        if how == 2:
            self._arrive(recipients, message)
        raise RuntimeError("this transport is broken")

    async def _dot(
        self,
        recipients: tuple[str, ...],
        answers: Sequence[Reply | None],
        message: bytes,
        before_dot: Callable[[], Awaitable[None]],
        *,
        lost: bool = False,
    ) -> list[Reply]:
        """The dot for those whose RCPT was taken. Between the mark and the dot a process may die or be stopped."""
        taken = tuple(a for a, answer in zip(recipients, answers, strict=True) if answer is None)
        if not taken:
            return [answer for answer in answers if answer is not None]
        await before_dot()
        await self._process.gate()
        chance = self._world.chance
        if not lost or chance.random() < 0.6:
            self._arrive(taken, message)
        await asyncio.sleep(chance.random() * (40 if lost else 0.05))
        reply = chance.choice(LOST) if lost else ACCEPTED
        return [answer or reply for answer in answers]

    def _arrive(self, recipients: tuple[str, ...], message: bytes) -> None:
        found = _ID.search(message)
        assert found is not None, message
        self._world.copies.append(Copy(found[1].decode(), recipients, message))


class Owners:
    """Makes the calls of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def call(self, receiver: Receiver, webhook_id: str, body: bytes) -> Told:
        await self._process.gate()
        world, chance = self._world, self._world.chance
        await asyncio.sleep(chance.random() * 0.1)
        await self._process.gate()
        status = 200 if chance.random() >= world.deaf else chance.choice((409, 409, 500, 503, 404, 0, 0))
        world.calls.append((webhook_id, json.loads(body), body, status))
        if status == 200 and chance.random() < world.deaf / 4:
            status = 0  # he was told, and the answer was lost
        if not status:
            await asyncio.sleep(10)
        await self._process.gate()
        return Told(status=status, body="" if status else "no answer")
