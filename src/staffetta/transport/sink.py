"""`sink://`: takes every message, sends nothing, counts. For trying things out without a relay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from staffetta.mail.message import Delivery, RecipientReply, Reply

_TAKEN = Reply(stage="dot", code=250, enhanced="2.0.0", text="2.0.0 Ok: taken by the sink", committed=True)


class SinkTransport:
    """Accepts everything. `messages` and `recipients` tell how much."""

    def __init__(self, *, name: str = "sink") -> None:
        self.name = name
        self.messages = 0
        self.recipients = 0
        self.bytes = 0

    def __repr__(self) -> str:
        return f"SinkTransport({self.name!r})"

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def send(
        self,
        sender: str,
        recipients: Sequence[str],
        message: bytes | memoryview,
        *,
        before_dot: Callable[[], Awaitable[None]],
        tags: Sequence[str] = (),
    ) -> Delivery:
        del sender, tags
        await before_dot()
        self.messages += 1
        self.recipients += len(recipients)
        self.bytes += len(message)
        replies = tuple([RecipientReply(address=address, reply=_TAKEN) for address in recipients])
        return Delivery(transport=self.name, replies=replies, committed=True)

    async def probe(self) -> Reply:
        return Reply(stage="ehlo", code=250, text="the sink is always open")
