"""How many e-mails stand in each status: kept in the transaction of every move, never counted by looking at all.

One number that every move writes would make every move wait for another. So there are many, and a process never
has two transactions in flight on one of them; the sum of all is the count.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from staffetta.mail.lifecycle import Status
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.wire import Refused, Statement, Wire

ROWS = 8
"""Processes share so many rows of numbers; two in one row meet now and then, and one of them tries again."""
_NAMES = {status: f"N{number}" for number, status in enumerate(Status)}
FAMILY = "COUNT"


class Counting:
    """The numbers, and which of them this process is not using now."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self._wire = wire
        self._table = f'"{place.engine_table}"'
        self._row = os.urandom(1)[0] % ROWS
        self._free: list[int] = []
        self._made: set[int] = set()
        self._next = 0
        self._places = asyncio.Semaphore(place.connections)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """A number that no other transaction of this process uses meanwhile."""
        async with self._places:
            if self._free:
                number = heapq.heappop(self._free)
            else:
                number, self._next = self._next, self._next + 1
            try:
                if number not in self._made:
                    await self._make(number)
                yield number
            finally:
                heapq.heappush(self._free, number)

    def statement(self, slot: int, before: Status | None, after: Status | None, times: int = 1) -> Statement:
        """One e-mail less here, one more there."""
        changes: list[str] = []
        parameters: list[object] = []
        for status, by in ((before, -times), (after, times)):
            if status is not None:
                changes.append(f"{_NAMES[status]}={_NAMES[status]}+?")
                parameters.append(by)
        text = f"UPDATE {self._table} SET {', '.join(changes)} WHERE Family='{FAMILY}' AND Member=?"
        return text, (*parameters, self._name(slot))

    def _name(self, slot: int) -> str:
        return f"{self._row}.{slot}"

    async def _make(self, number: int) -> None:
        fields = ", ".join(f"'{name}': 0" for name in _NAMES.values())
        text = f"INSERT INTO {self._table} VALUE {{'Family': ?, 'Member': ?, {fields}}}"
        try:
            await self._wire.execute(text, FAMILY, self._name(number))
        except Refused as refused:
            if not refused.duplicate:
                raise
        self._made.add(number)

    async def counts(self) -> dict[Status, int]:
        found = dict.fromkeys(Status, 0)
        text = f"SELECT * FROM {self._table} WHERE Family='{FAMILY}'"
        for item in await self._wire.execute(text, consistent=True):
            for status, name in _NAMES.items():
                found[status] += item.get(name, 0)
        return found
