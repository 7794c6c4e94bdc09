"""Reminds the queue of what is due in the store: at the start, as it comes, and company by company.

Offering is idempotent and never needed for safety: what is missed here is found again by `refill` or `fill`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from staffetta.mail.message import Job, Millis
from staffetta.mail.operators import Filter
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

PAGE = 500
"""Jobs read from the store in one go for one company."""
NEWS_MAX = 2_000
TOGETHER = 500
"""Companies spoken of at a time: a shared queue hears of them in one round trip."""
READS_TOGETHER = 25

T = TypeVar("T")


async def fill(store: Store, queue: Queue, *, now: Millis) -> int:
    """Tell the queue which companies have work, so that none hides behind another's backlog, and bring the head
    of each line that is short here. How many found room."""
    companies = await store.waiting_companies(now=now)
    await _together([queue.full(company_id, more=True) for company_id in companies], TOGETHER)
    return await refill(store, queue, now=now)


async def refill(store: Store, queue: Queue, *, now: Millis) -> int:
    """Bring more for the companies whose line here runs low while the store holds more, the neediest first."""
    hungry = await queue.hungry()
    topped = [_top_up(store, queue, company_id, last, now=now) for company_id, last in hungry.items()]
    return sum(await _together(topped, READS_TOGETHER))


async def _together(calls: Sequence[Awaitable[T]], most: int) -> list[T]:
    """Some at a time, so that a backend can gather them; the answers in order. The first error is raised."""
    answers: list[T] = []
    try:
        while len(answers) < len(calls):
            answers += await asyncio.gather(*calls[len(answers) : len(answers) + most])
    finally:
        for call in calls[len(answers) + most :]:
            call.close()  # type: ignore[attr-defined]  # coroutines all of them; one that is not awaited says so
    return answers


async def _top_up(store: Store, queue: Queue, company_id: str, last: Job | None, *, now: Millis) -> int:
    limit = min(PAGE, await queue.room(company_id))
    if limit < 1:
        return 0
    jobs = await store.waiting(company_id, now=now, limit=limit, after=last)
    return await queue.stock(company_id, jobs, after=last, more=len(jobs) >= limit)


async def offer_news(store: Store, queue: Queue, *, now: Millis) -> int:
    """Offer what became due without this process: handed in or retried by others, or due by time."""
    jobs = await store.news(now=now, limit=NEWS_MAX)
    if not jobs:
        return 0
    for company_id in {job.company_id for job in await queue.offer(jobs)}:
        await queue.full(company_id, more=True)
    return len(jobs)


async def index_dead(store: Store, queue: Queue, *, now: Millis) -> None:
    """A shared queue shows the dead letters to those who look into it; what its index missed is put right here."""
    indexed = (await queue.health()).dead_letters
    if indexed is None or indexed == (await store.dead_letter_counts()).size:
        return
    ids: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.dead_letters(Filter(), limit=PAGE, cursor=cursor)
        ids += [letter.outbox_id for letter in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    await queue.index_dead(ids, now=now)
