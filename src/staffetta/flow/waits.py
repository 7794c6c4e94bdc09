"""Waiting for what comes first, and ending tasks: nothing is left behind that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

Wait = Callable[[], Coroutine[Any, Any, object]]


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def unless(work: Coroutine[Any, Any, object], *ends: Wait) -> bool:
    """Whether the work came to its end before one of these; else it is cut short."""
    working = asyncio.create_task(work)
    others = [asyncio.create_task(end()) for end in ends]
    try:
        await asyncio.wait((working, *others), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
        return working.done()
    finally:
        await cancel([one for one in (working, *others) if not one.done()])
