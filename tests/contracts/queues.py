"""What the suite for queues shares: the present, jobs, and how a test opens the queue it looks at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from staffetta.mail.message import Job, Millis
from staffetta.queue.contract import Queue

NOW: Millis = 1_800_000_000_000
LEASE_MS = 30_000

Open: TypeAlias = Callable[..., Awaitable[Queue]]


def job(
    number: int, company_id: str = "acme", *, priority: int = 5, due_at: Millis = NOW, suspect: bool = False
) -> Job:
    """One job; its id tells its number."""
    return Job(
        id=f"{number:08x}-0000-7000-8000-{number:012x}",
        company_id=company_id,
        priority=priority,
        due_at=due_at,
        suspect=suspect,
    )


def jobs(numbers: range, company_id: str = "acme", *, due_at: Millis = NOW) -> list[Job]:
    return [job(number, company_id, due_at=due_at) for number in numbers]


async def take(queue: Queue, limit: int = 1_000, *, now: Millis = NOW, lease_ms: int = LEASE_MS) -> list[Job]:
    return await queue.take(limit, now=now, lease_ms=lease_ms)


def numbers(taken: list[Job]) -> list[int]:
    return [int(one.id[:8], 16) for one in taken]


def companies(taken: list[Job]) -> str:
    """The companies in the order in which they were served, one letter each."""
    return "".join(one.company_id[0] for one in taken)
