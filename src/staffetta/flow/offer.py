"""Reminds the queue of what is due in the store: at the start, as it comes, and company by company.

Offering is idempotent and never needed for safety: what is missed here is found again by `refill` or `fill`.
"""

from __future__ import annotations

from staffetta.mail.message import Job, Millis
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

PAGE = 500
"""Jobs read from the store in one go for one company."""
NEWS_MAX = 2_000


async def fill(store: Store, queue: Queue, *, now: Millis) -> int:
    """Tell the queue which companies have work, so that none hides behind another's backlog, and bring the head
    of each line that is short here. How many found room."""
    for company_id in await store.waiting_companies(now=now):
        await queue.full(company_id, more=True)
    return await refill(store, queue, now=now)


async def refill(store: Store, queue: Queue, *, now: Millis) -> int:
    """Bring more for the companies whose line here runs low while the store holds more, the neediest first."""
    offered = 0
    for company_id, last in (await queue.hungry()).items():
        offered += await _top_up(store, queue, company_id, last, now=now)
    return offered


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
