"""Group commit: while one group is being written, the orders of all coroutines gather; whichever lane is free first
takes them all. No linger and no timer. A lane is a task of the store's own: nobody's cancellation reaches it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

from staffetta.errors import StoreUnavailable
from staffetta.store.mysql import faults, group
from staffetta.store.mysql.orders import Add, Asked, Order
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

LANES = 2
"""Groups written at a time: while one waits for its commit, the other has the server's attention."""
GROUP_MAX = 300


class Lanes:
    """A few groups at a time, each on a connection of its own for as long as it takes."""

    def __init__(self, pool: Pool, *, lanes: int = LANES) -> None:
        self._pool = pool
        self._count = lanes
        self._waiting: deque[Asked] = deque()
        self._came = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self) -> None:
        self._stopping = False
        self._tasks = [asyncio.create_task(self._run(), name=f"lane {n}") for n in range(self._count)]

    def ask(self, order: Order) -> asyncio.Future[Any]:
        """The result, once it is durable."""
        if not self._tasks or self._stopping:
            raise StoreUnavailable(f"{self._pool.address}: the store is not open")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(Asked(order, answer))
        self._came.set()
        return answer

    async def stop(self) -> None:
        """Finish what was handed over."""
        self._stopping = True
        self._came.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                if self._stopping:
                    return
                self._came.clear()
                await self._came.wait()
            asked = [self._waiting.popleft() for _ in range(min(len(self._waiting), GROUP_MAX))]
            results = await self._write([one.order for one in asked])
            for one, result in zip(asked, results, strict=True):
                if not one.answer.done():
                    if isinstance(result, Exception):
                        one.answer.set_exception(result)
                    else:
                        one.answer.set_result(result)

    async def _write(self, orders: Sequence[Order]) -> list[Any]:
        """One result or exception for each order; one bad row fails alone."""
        try:
            return await self._together(orders)
        except Exception as error:  # noqa: BLE001  # whatever happened, everyone who waits must hear of it
            told = error
        if not faults.is_bad_row(told.__cause__ or told):
            return [told for _ in orders]
        if len(orders) > 1:
            return [(await self._write([order]))[0] for order in orders]
        (order,) = orders
        if isinstance(order, Add) and order.keep is None and not order.one_by_one:
            order.one_by_one = True
            return await self._write(orders)
        if isinstance(order, Add):
            return [[told for _ in order.emails]]
        return [told]

    async def _together(self, orders: Sequence[Order]) -> list[Any]:
        def unsure() -> None:
            for order in orders:
                if isinstance(order, Add):
                    order.unsure = True

        runs = itertools.count()

        async def work(session: Session) -> list[Any]:
            return await group.run(session, orders, self._pool.address, again=next(runs) > 0)

        return await self._pool.transaction(work, also=_came_at_once, unsure=unsure)


def _came_at_once(error: Exception) -> bool:
    """Somebody else inserted the same id between our look and our insert: the next run will know it."""
    return faults.number_of(error) == faults.DUPLICATE
