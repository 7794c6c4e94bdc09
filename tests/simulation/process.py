"""A process that can be killed and frozen at any moment, though it is only a set of tasks in the test's one loop.

Whatever it does to the world goes through its gate. Frozen, it stands there until it is woken, while everybody
else's time goes on. Dead, it never comes through: its tasks are ended, and what they clean up on the way reaches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

_CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


def watch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From here on every task belongs to the process whose task made it."""

    def made(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        context = options.get("context")
        process = context.get(_CURRENT) if context is not None else _CURRENT.get()
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(process.ended)
        return task

    loop.set_task_factory(made)


class Process:
    """Runs coroutines until it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """A dictionary, for it keeps its order: the same seed plays the same."""
        self.faults: list[BaseException] = []
        self._awake = asyncio.Event()
        self._awake.set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(_CURRENT.set, self)
        return asyncio.get_running_loop().create_task(work, name=f"{self.name} {name}", context=context)

    def ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.faults.append(error)

    async def gate(self) -> None:
        """Every effect on the world, and every answer from it, waits here."""
        await self._awake.wait()
        if self.dead:
            await asyncio.get_running_loop().create_future()

    @property
    def frozen(self) -> bool:
        return not self._awake.is_set()

    def freeze(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    async def kill(self) -> None:
        """From this moment on nothing of it reaches the world."""
        self.dead = True
        self._awake.set()
        for _ in range(1_000):
            if not self.tasks:
                return
            for task in list(self.tasks):
                task.cancel()
            await asyncio.sleep(0)
        raise AssertionError(f"{self.name} does not die: {list(self.tasks)}")
