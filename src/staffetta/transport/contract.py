"""What every transport promises: a "no", a timeout, a lost line are replies; only a broken program raises.

No transport repeats a send by itself, and none falls back to another: the flow decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from staffetta.mail.message import Delivery, Reply


class Transport(Protocol):
    name: str
    """For people: `#name` of the URL, else host:port. No secrets."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """End idle connections politely (QUIT), others at once."""

    async def send(
        self,
        sender: str,
        recipients: Sequence[str],
        message: bytes | memoryview,
        *,
        before_dot: Callable[[], Awaitable[None]],
        tags: Sequence[str] = (),
    ) -> Delivery:
        """Try once to hand the message over; one reply for each recipient, in order.

        `tags`: the e-mail's own, for a provider that counts by them; where there is no place for them they go.

        `before_dot` is awaited once, after every recipient has its RCPT reply and at least one was accepted,
        just before the final dot is written (SES: before the request). What it raises goes up to the caller,
        and the dot is not sent: the connection is closed without it. Waiting for a free connection or for the
        rate limit is no failure and has no timeout of its own beyond the caller's cancellation.

        Cancelled before the dot: the connection is closed, nothing was delivered. Cancelled after it: the
        cancellation is raised; the journal's committed mark tells.
        """

    async def probe(self) -> Reply:
        """Connect, greet, secure and sign in, without an e-mail. Open: 250 at stage `ehlo` or `auth`."""
