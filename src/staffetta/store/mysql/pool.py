"""A bounded number of connections. No caller ever stands on one: whoever asks waits for a task that uses it, so that
a cancelled caller leaves nothing half read behind, and nobody is handed another one's rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from asyncmy import errors as driver

from staffetta import failpoints
from staffetta.errors import StoreUnavailable
from staffetta.store.insisting import insist
from staffetta.store.mysql import faults
from staffetta.store.mysql.address import Address
from staffetta.store.mysql.session import SILENT_SECONDS, Session, connect

T = TypeVar("T")
Work = Callable[[Session], Awaitable[T]]

READ_SECONDS = 30.0
"""A server that says nothing for so long counts as lost."""
ROLLBACK_SECONDS = 5.0


def _never(_: Exception) -> bool:
    return False


class Pool:
    """Opened once, closed once. Every transaction is run again after errors that pass by themselves."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[Session] = []
        self._room = asyncio.Semaphore(address.connections)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open = False
        self.retries = 0
        """Transactions that were begun anew after an error."""

    async def open(self) -> None:
        self._open = True
        self._idle.append(await self._connect())

    async def _connect(self) -> Session:
        return await connect(self.address, read_seconds=READ_SECONDS)

    async def close(self) -> None:
        """Every wait ends, every connection is let go of."""
        self._open = False
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        idle, self._idle = self._idle, []
        for session in idle:
            await session.close()

    # --- for callers that may be cancelled ------------------------------------------------------------

    async def read(self, work: Work[T]) -> T:
        """Look beside everybody: each statement sees what is committed when it begins."""
        return await self.apart(self._insisting(work, self._looked))

    async def write(self, work: Work[T]) -> T:
        """One transaction, durable when this returns. `work` may run more than once."""
        return await self.apart(self.transaction(work))

    async def apart(self, work: Coroutine[Any, Any, T]) -> T:
        """In a task of its own, which goes on where this wait for it is cancelled."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: a cancelled caller does not hear of it any more

    # --- for tasks of our own -------------------------------------------------------------------------

    async def transaction(
        self,
        work: Work[T],
        *,
        also: Callable[[Exception], bool] = _never,
        unsure: Callable[[], None] | None = None,
    ) -> T:
        """`also`: further errors after which it is run again. `unsure` is told when COMMIT brought no answer."""

        async def whole(session: Session) -> T:
            return await self._whole(session, work, unsure)

        return await self._insisting(whole, self._used, also=also)

    async def _insisting(
        self,
        work: Work[T],
        how: Callable[[Work[T]], Awaitable[T]],
        *,
        also: Callable[[Exception], bool] = _never,
    ) -> T:
        def passes(error: Exception) -> bool:
            again = self._open and (faults.passes(error) or also(error))
            self.retries += again
            return again

        try:
            return await insist(lambda: how(work), passes=passes)
        except Exception as error:
            told = faults.translate(error, self.address)
            if told is error:
                raise
            raise told from error

    async def _looked(self, work: Work[T]) -> T:
        if failpoints.armed:
            failpoints.reach("store.before-read")
        found = await self._used(work)
        if failpoints.armed:
            failpoints.reach("store.after-read")
        return found

    async def _used(self, work: Work[T]) -> T:
        """Use one connection. After anything but an answer or a plain refusal it is never used again."""
        if not self._open:
            raise StoreUnavailable(f"{self.address}: the store is not open")
        async with self._room:
            session = await self._fresh() or await self._connect()
            try:
                answer = await work(session)
            except BaseException as error:
                session.broken = session.broken or not isinstance(error, Exception) or not _survived(error)
                await self._put_back(session)
                raise
            await self._put_back(session)
            return answer

    async def _fresh(self) -> Session | None:
        """One that was used lately: the server is about to let go of the others."""
        while self._idle:
            session = self._idle.pop()
            if time.monotonic() - session.used_at < SILENT_SECONDS / 2:
                return session
            await session.close()
        return None

    async def _put_back(self, session: Session) -> None:
        if session.broken or not self._open:
            await session.close()
        else:
            session.used_at = time.monotonic()
            self._idle.append(session)

    async def _whole(self, session: Session, work: Work[T], unsure: Callable[[], None] | None) -> T:
        await session.run("START TRANSACTION")
        try:
            answer = await work(session)
            if failpoints.armed:
                failpoints.reach("store.before-commit")
        except Exception as error:
            if _survived(error):
                await _roll_back(session)
            raise
        try:
            await session.run("COMMIT")
            if failpoints.armed:
                failpoints.reach("store.after-commit")
        except Exception:
            session.broken = True
            if unsure is not None:
                unsure()
            raise
        return answer


def _survived(error: Exception) -> bool:
    """The connection answered: what was refused was the statement."""
    number = faults.number_of(error)
    return (number >= 1000 and not faults.is_lost(error)) or not isinstance(
        error, driver.MySQLError | OSError | EOFError
    )


async def _roll_back(session: Session) -> None:
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            await session.run("ROLLBACK")
    except (driver.MySQLError, OSError, TimeoutError):
        session.broken = True
