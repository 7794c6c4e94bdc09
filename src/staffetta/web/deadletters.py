"""`/v1/dlq`: e-mails given up, one by one, counted, or by filter."""

from __future__ import annotations

from collections import Counter
from typing import Any

from staffetta.flow.operate import PAGE
from staffetta.mail import shapes
from staffetta.mail.operators import Filter
from staffetta.store.contract import Store
from staffetta.web.asked import NOTHING, Answer, Asked, answer
from staffetta.web.emails import many, moved, nothing_said
from staffetta.web.fields import DEAD_LETTER_FILTER, DELIVERED, DRY_RUN, MANY, PAGING

COUNTED_MAX = 10_000


async def listing(asked: Asked) -> Answer:
    values = asked.queried((*DEAD_LETTER_FILTER, *PAGING))
    wanted = asked.narrowed(values)
    cursor = await asked.cursors.open(values["cursor"], "dlq", wanted)
    page = await asked.parts.store.dead_letters(wanted, limit=values["limit"], cursor=cursor)
    return answer(200, {
        "items": [shapes.dead_letter(letter) for letter in page.items],
        "next_cursor": await asked.cursors.seal(page.cursor, "dlq", wanted),
    })  # fmt: skip


async def stats(asked: Asked) -> Answer:
    asked.queried()
    if asked.company_id is not None:
        return answer(200, await _of_company(asked.parts.store, asked.company_id))
    counts = await asked.parts.store.dead_letter_counts()
    return answer(200, {
        "size": counts.size,
        "by_code": counts.by_code,
        "by_company": counts.by_company,
        "oldest_at": shapes.moment(counts.oldest_at),
    })  # fmt: skip


async def _of_company(store: Store, company_id: str) -> dict[str, Any]:
    """The same figures of one company alone. The list is bounded, so it can be walked."""
    codes: Counter[str] = Counter()
    oldest: int | None = None
    cursor: str | None = None
    while codes.total() < COUNTED_MAX:
        page = await store.dead_letters(Filter(company_id=company_id), limit=PAGE, cursor=cursor)
        codes.update(letter.last_failure_code or "" for letter in page.items)
        if page.items:
            oldest = min(oldest or page.items[-1].moved_at, *(letter.moved_at for letter in page.items))
        cursor = page.cursor
        if cursor is None:
            break
    size = codes.total()
    return {
        "size": size,
        "by_code": dict(codes),
        "by_company": {company_id: size} if size else {},
        "oldest_at": shapes.moment(oldest),
    }


async def one(asked: Asked) -> Answer:
    asked.queried()
    letter = await asked.parts.operator.find_dead_letter(asked.id, asked.company_id)
    payload = await asked.parts.operator.payload(letter.outbox_id)
    return answer(200, shapes.whole_dead_letter(letter, payload))


async def retry(asked: Asked) -> Answer:
    await nothing_said(asked)
    return moved(asked, await asked.parts.operator.retry_dead_letter(asked.id, asked.company_id))


async def resolve(asked: Asked) -> Answer:
    asked.queried()
    await asked.said((DELIVERED,), optional=True)
    return moved(asked, await asked.parts.operator.resolve_dead_letter(asked.id, asked.company_id))


async def retry_many(asked: Asked) -> Answer:
    asked.queried()
    values = await asked.said((*DEAD_LETTER_FILTER, MANY, DRY_RUN))
    done = await asked.parts.operator.retry_dead_letters(
        asked.narrowed(values), limit=values["limit"], dry_run=values["dry_run"]
    )
    return many(asked, done)


async def discard(asked: Asked) -> Answer:
    await nothing_said(asked)
    await asked.parts.operator.discard(asked.id, asked.company_id)
    return NOTHING
