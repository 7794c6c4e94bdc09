"""Reads beside the writer: on connections and threads of their own, so that no listing ever holds a move up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from staffetta import failpoints
from staffetta.errors import StoreUnavailable
from staffetta.store.sqlite import faults
from staffetta.store.sqlite.connection import connect
from staffetta.store.sqlite.rows import Db

T = TypeVar("T")


class Reader:
    """One connection and the thread that reads with it."""

    def __init__(self, path: Path, *, busy_ms: int) -> None:
        self._path = path
        self._busy_ms = busy_ms
        self._connection: apsw.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    def start(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="staffetta-read")

    async def read(self, look: Callable[[Db], T]) -> T:
        """What `look` finds, in one snapshot of the store."""
        if self._thread is None:
            raise StoreUnavailable(f"{self._path}: the store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._look, look)

    def _look(self, look: Callable[[Db], T]) -> T:
        try:
            if self._connection is None:
                self._connection = connect(self._path, busy_ms=self._busy_ms, query_only=True)
            self._connection.execute("BEGIN")
            try:
                if failpoints.armed:
                    failpoints.reach("store.before-read", apsw.IOError)
                found = look(self._connection)
                if failpoints.armed:
                    failpoints.reach("store.after-read", apsw.IOError)
                return found
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            if faults.needs_new_connection(error):
                self._let_go()
            raise faults.translate(error, self._path) from error

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def stop(self) -> None:
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
            self._thread.shutdown()
            self._thread = None
