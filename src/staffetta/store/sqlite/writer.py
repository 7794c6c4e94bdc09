"""The one thread that writes. While it commits, the orders of all coroutines gather; then it takes them all.

No linger and no timer: a group is what came while the one before it was written. One transaction, one sync, one
hand-over of the results to the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from staffetta import failpoints
from staffetta.errors import StaffettaError, StoreUnavailable
from staffetta.store.sqlite import faults
from staffetta.store.sqlite.connection import connect
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.orders import Add, Asked, Order, Work
from staffetta.store.sqlite.ownership import Ownership
from staffetta.store.sqlite.rows import Db

T = TypeVar("T")

GROUP_MAX = 2_000
DOOR_SECONDS = 0.1
"""How long a group waits for somebody who knocks."""
DOOR_PAUSE_SECONDS = 0.001


class Writer:
    """Owns the connection that writes, and the thread that owns it."""

    def __init__(self, path: Path, *, owner: bool, ownership: Ownership, busy_ms: int) -> None:
        self._path = path
        self._owner = owner
        self._ownership = ownership
        self._busy_ms = busy_ms
        self._inbox: queue.SimpleQueue[Asked | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._group: Group | None = None

    # --- from the loop ----------------------------------------------------------------------------

    def start(self) -> None:
        self._group = self._connect()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="staffetta-store", daemon=True)
        self._thread.start()

    def ask(self, order: Order) -> asyncio.Future[Any]:
        """The result, once it is durable."""
        if self._loop is None:
            raise StoreUnavailable(f"{self._path}: the store is not open")
        answer = self._loop.create_future()
        self._inbox.put(Asked(order, answer))
        return answer

    def do(self, work: Callable[[Group], T]) -> asyncio.Future[T]:
        return self.ask(Work(work))

    async def stop(self) -> None:
        """Finish what was handed over, then let go."""
        if self._thread is not None and self._loop is not None:
            self._inbox.put(None)
            await self._loop.run_in_executor(None, self._thread.join)
        self._thread = self._loop = None

    # --- in the thread ----------------------------------------------------------------------------

    def _connect(self) -> Group:
        with faults.translated(self._path):
            return Group(connect(self._path, busy_ms=self._busy_ms), owner=self._owner)

    def _run(self) -> None:
        assert self._loop is not None, "started by `start`"
        open_ = True
        while open_:
            asked = [self._inbox.get()]
            asked += [self._inbox.get_nowait() for _ in range(min(self._inbox.qsize(), GROUP_MAX))]
            open_ = None not in asked
            waiting = [one for one in asked if one is not None]
            if waiting:
                results = self._write([one.order for one in waiting])
                try:
                    self._loop.call_soon_threadsafe(_hand_over, waiting, results)
                except RuntimeError:
                    break  # the loop was closed under us: nobody waits any more
                self._let_in()
        self._disconnect()

    def _let_in(self) -> None:
        """Somebody wants to write beside us: the lock is free until he has it, for a moment at most."""
        if self._ownership.somebody_knocks():
            until = time.monotonic() + DOOR_SECONDS
            while self._ownership.somebody_knocks() and time.monotonic() < until:
                time.sleep(DOOR_PAUSE_SECONDS)

    def _disconnect(self) -> None:
        if self._group is not None:
            self._group.connection.close()
            self._group = None

    def _write(self, orders: Sequence[Order]) -> list[Any]:
        """One result or exception for each order."""
        try:
            try:
                return self._transaction(lambda group: group.run(orders))
            except faults.BAD_ROW:
                return self._transaction(lambda group: [self._alone(group, order) for order in orders])
        except Exception as error:  # noqa: BLE001  # whatever happened, everyone who waits must hear of it
            if faults.needs_new_connection(error):
                self._disconnect()
            return [self._told(error) for _ in orders]

    def _transaction(self, work: Callable[[Group], list[Any]]) -> list[Any]:
        if self._group is None:
            self._group = self._connect()
        group = self._group
        connection = group.connection
        self._begin(connection)
        try:
            results = work(group)
            if failpoints.armed:
                failpoints.reach("store.before-commit", apsw.IOError)
            connection.execute("COMMIT")
            if failpoints.armed:
                failpoints.reach("store.after-commit", apsw.IOError)
        except BaseException:
            group.forget()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results

    def _begin(self, connection: Db) -> None:
        if self._owner:
            connection.execute("BEGIN IMMEDIATE")
            return
        self._ownership.knock()
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            self._ownership.go_in()

    def _alone(self, group: Group, order: Order) -> Any:
        """One order for itself: a bad row takes nobody with it, not even those of its own call.

        Where an answer is kept for a key, it tells of all of them: then they stand and fall together.
        """
        if isinstance(order, Add) and len(order.emails) > 1 and order.keep is None:
            return [self._alone(group, Add([new], None))[0] for new in order.emails]
        group.connection.execute("SAVEPOINT alone")
        try:
            (result,) = group.run([order])
        except (*faults.BAD_ROW, StaffettaError) as error:
            group.forget()
            group.connection.execute("ROLLBACK TO alone")
            result = self._told(error)
            if isinstance(order, Add):
                result = [result for _ in order.emails]
        group.connection.execute("RELEASE alone")
        return result

    def _told(self, error: Exception) -> Exception:
        told = faults.translate(error, self._path)
        if told is not error:
            told.__cause__ = error
        return told


def _hand_over(waiting: Sequence[Asked], results: Sequence[Any]) -> None:
    """In the loop: everyone gets his own result."""
    for asked, result in zip(waiting, results, strict=True):
        answer = asked.answer
        if not answer.done():
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
