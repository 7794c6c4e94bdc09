"""What coroutines ask of the lanes: one order a call, gathered into groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from staffetta.mail.message import KeptAnswer, Millis, NewEmail, Transition


class Take(msgspec.Struct, gc=False):
    """Claim a READY e-mail for sending."""

    id: str
    token: str
    now: Millis
    alone: bool


class Mark(msgspec.Struct, gc=False):
    """Mark the open attempt committed."""

    id: str
    token: str
    part: int
    transport: str
    now: Millis


class Move(msgspec.Struct):
    """Apply a transition."""

    move: Transition

    @property
    def id(self) -> str:
        return self.move.id


class Add(msgspec.Struct):
    """Make e-mails durable."""

    emails: Sequence[NewEmail]
    keep: KeptAnswer | None
    unsure: bool = False
    """An earlier run of it may have been committed without a word."""
    one_by_one: bool = False
    """One of its rows is bad: the others are kept."""


Order: TypeAlias = Take | Mark | Move | Add


class Asked(msgspec.Struct):
    """An order and who waits for its result."""

    order: Order
    answer: asyncio.Future[Any]
