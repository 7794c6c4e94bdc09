"""Ends tasks that may be inside the driver: on Python 3.11 a connection being made can swallow a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

AGAIN_SECONDS = 0.05


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel, again and again, until all have ended."""
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=AGAIN_SECONDS)
