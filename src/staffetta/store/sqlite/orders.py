"""What coroutines ask of the writer: one order a call, gathered into groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from staffetta.mail.message import KeptAnswer, Millis, NewEmail, Transition

if TYPE_CHECKING:
    from staffetta.store.sqlite.group import Group


class Take(msgspec.Struct, gc=False):
    """Claim a READY e-mail for sending."""

    id: str
    ref: int
    token: str
    now: Millis
    alone: bool


class Mark(msgspec.Struct, gc=False):
    """Mark the open attempt committed."""

    id: str
    ref: int
    token: str
    part: int
    transport: str
    now: Millis


class Move(msgspec.Struct):
    """Apply a transition."""

    move: Transition
    ref: int = 0
    """Its row, when it has been looked up."""

    @property
    def id(self) -> str:
        return self.move.id


class Add(msgspec.Struct):
    """Make e-mails durable."""

    emails: Sequence[NewEmail]
    keep: KeptAnswer | None


class Work(msgspec.Struct):
    """Anything else: a function of its own, one at a time."""

    do: Callable[[Group], Any]


Order: TypeAlias = Take | Mark | Move | Add | Work


class Asked(msgspec.Struct):
    """An order and who waits for its result."""

    order: Order
    answer: asyncio.Future[Any]
