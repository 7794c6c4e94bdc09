"""Runs a transaction again after errors that pass by themselves. The decision is `mail/insistence.py`'s."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from staffetta.mail import insistence

T = TypeVar("T")


async def insist(
    transaction: Callable[[], Awaitable[T]],
    *,
    passes: Callable[[Exception], bool],
    draw: Callable[[], float] = random.random,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """The transaction's answer. Each call of it begins anew; it has rolled back whatever it had done.

    `passes`: whether this error passes by itself. The last error is raised as it is; so is a cancellation, at once.
    `LockNotAcquired` never passes: another worker has the e-mail.
    """
    attempt = 0
    while True:
        try:
            return await transaction()
        except Exception as error:
            wait = insistence.wait_ms(attempt, draw()) if passes(error) else None
            if wait is None:
                raise
        await pause(wait / 1_000)
        attempt += 1
