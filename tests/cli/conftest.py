"""Commands in a folder of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from doubles.shell import Shell
from doubles.stocked import Clock, Stock
from staffetta.store.sqlite import SqliteStore

T = TypeVar("T")
Stocked = Callable[[Callable[[Stock], Awaitable[T]]], T]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty folder and nothing set: what a newcomer has."""
    return Shell(tmp_path)


@pytest.fixture
def stocked(shell: Shell) -> Callable[[Callable[[Stock], Coroutine[Any, Any, T]]], T]:
    """Puts e-mails into the folder's store as if an engine had worked there, now."""
    import time

    def fill(work: Callable[[Stock], Coroutine[Any, Any, T]]) -> T:
        async def filled() -> T:
            store = SqliteStore(shell.folder / "staffetta.db", owner=False)
            await store.open()
            try:
                return await work(Stock(store, Clock(time.time_ns() // 1_000_000)))
            finally:
                await store.close()

        return asyncio.run(filled())

    return fill
