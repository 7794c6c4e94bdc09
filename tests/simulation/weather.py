"""The store and the queue as a process meets them: away, slow, failing before the effect or after it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulation.process import Process
from staffetta.errors import QueueError, StaffettaError, StoreUnavailable


@dataclass
class Weather:
    """What one part of the world is like now. Calm: it answers at once."""

    chance: random.Random
    error: Callable[[str], StaffettaError]
    away: bool = False
    fails: float = 0.0
    """How often a call fails without any effect."""
    loses: float = 0.0
    """How often a call takes effect and its answer is lost."""
    slow: float = 0.0
    """How often a call takes its time, before or after its effect."""

    def calm(self) -> None:
        self.away, self.fails, self.loses, self.slow = False, 0.0, 0.0, 0.0

    async def before(self, name: str) -> None:
        await self._lag()
        if self.away:
            raise self.error(f"{name}: away")
        if self.fails and self.chance.random() < self.fails:
            raise self.error(f"{name}: failed")

    async def after(self, name: str) -> None:
        await self._lag()
        if self.loses and self.chance.random() < self.loses:
            raise self.error(f"{name}: done, but the answer was lost")

    async def _lag(self) -> None:
        if self.slow and self.chance.random() < self.slow:
            await asyncio.sleep(self.chance.random() * 0.5)


def store_weather(chance: random.Random) -> Weather:
    return Weather(chance, StoreUnavailable)


def queue_weather(chance: random.Random) -> Weather:
    return Weather(chance, QueueError)


class Exposed:
    """A part of the world behind a process's gate and the weather. What is no coroutine is passed on."""

    def __init__(self, inner: Any, process: Process, weather: Weather) -> None:
        self.inner = inner
        self._process = process
        self._weather = weather

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def exposed(*args: Any, **kwargs: Any) -> Any:
            await self._process.gate()
            await self._weather.before(name)
            await self._process.gate()
            # Read again: what lies behind may have been exchanged meanwhile (a queue that was wiped).
            answer = await getattr(self.inner, name)(*args, **kwargs)
            await self._weather.after(name)
            await self._process.gate()
            return answer

        return exposed
