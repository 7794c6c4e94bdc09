"""Hears every event and lets a test wait for what it needs to hear."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from staffetta.mail.events import Event

Kind = TypeVar("Kind", bound=Event)


class Listener:
    """An `Emit` that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, kind: type[Kind], count: int = 1) -> list[Kind]:
        """Wait until so many events of a kind were heard."""
        async with asyncio.timeout(30):
            while len(found := self.of(kind)) < count:
                self._more.clear()
                await self._more.wait()
        return found
