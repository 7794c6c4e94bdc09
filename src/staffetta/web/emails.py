"""`/v1/emails`: hand-in, looking, and what an operator does to one e-mail or to all of a filter."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from staffetta.errors import FieldProblem, StoreError
from staffetta.flow.operate import Done
from staffetta.mail import shapes
from staffetta.mail.message import Transition
from staffetta.web import problems
from staffetta.web.asked import JSON, NOTHING, Answer, Asked, answer
from staffetta.web.fields import COMPANY, DRY_RUN, EMAIL_FILTER, MANY, PAGE, PAGING
from staffetta.web.parts import Answered

KEY_HEADER = b"idempotency-key"
_KEY = re.compile(rb"[!-~](?:[ -~]{0,253}[!-~])?")


def _key(asked: Asked) -> str | None:
    key = asked.headers.get(KEY_HEADER)
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        problem = "1 to 255 printable ASCII characters, no blank at either end, once"
        raise problems.wrong_query([FieldProblem("Idempotency-Key", problem)])
    return key.decode("ascii")


async def hand_in(asked: Asked) -> Answer:
    if asked.query:
        asked.queried()
    key = _key(asked)
    raw = await asked.body.json(asked.parts.body_bytes_max)
    kept = await asked.parts.desk.accept(raw, company_id=asked.company_id, key=key)
    # The hot path: ids and statuses need no escaping.
    return Answer(
        status=202, body=b'{"id":"%b","status":"%b"}' % (kept.id.encode(), kept.status.encode()), headers=JSON
    )


async def hand_in_batch(asked: Asked) -> Answer:
    asked.queried()
    key = _key(asked)
    raw = await asked.body.json(asked.parts.body_bytes_max)
    results = await asked.parts.desk.accept_batch(raw, company_id=asked.company_id, key=key)
    lost = [result for result in results if isinstance(result, StoreError)]
    if lost and len(lost) == len(results):
        raise lost[0]
    return answer(202, {"results": [_result(asked, result) for result in results]})


def _result(asked: Asked, result: Answered | Exception) -> dict[str, Any]:
    if not isinstance(result, Exception):
        return {"id": result.id, "status": str(result.status)}
    problem = problems.of(result)
    if problem is None:  # the others are kept: their answers must not be lost with this one
        problem = asked.our_fault(result)
    return {"error": problem.shape()}


async def listing(asked: Asked) -> Answer:
    values = asked.queried((*EMAIL_FILTER, *PAGING))
    wanted = asked.narrowed(values)
    cursor = await asked.cursors.open(values["cursor"], "emails", wanted)
    page = await asked.parts.store.emails(wanted, limit=values["limit"], cursor=cursor)
    return answer(200, {
        "items": [shapes.email(email) for email in page.items],
        "next_cursor": await asked.cursors.seal(page.cursor, "emails", wanted),
    })  # fmt: skip


async def one(asked: Asked) -> Answer:
    asked.queried()
    email = await asked.parts.operator.find(asked.id, asked.company_id)
    history, attempts = await asyncio.gather(
        asked.parts.store.history(asked.id), asked.parts.store.attempts(asked.id)
    )
    return answer(200, shapes.story(email, history, attempts))


async def history(asked: Asked) -> Answer:
    asked.queried()
    await asked.parts.operator.find(asked.id, asked.company_id)
    rows = await asked.parts.store.history(asked.id)
    return answer(200, {"id": asked.id, "history": [shapes.entry(row) for row in rows]})


async def retry(asked: Asked) -> Answer:
    await nothing_said(asked)
    return moved(asked, await asked.parts.operator.retry(asked.id, asked.company_id))


async def retry_many(asked: Asked) -> Answer:
    asked.queried()
    values = await asked.said((*EMAIL_FILTER, MANY, DRY_RUN))
    done = await asked.parts.operator.retry_emails(
        asked.narrowed(values), limit=values["limit"], dry_run=values["dry_run"]
    )
    return many(asked, done)


async def cancel(asked: Asked) -> Answer:
    await nothing_said(asked)
    return moved(asked, await asked.parts.operator.cancel(asked.id, asked.company_id))


async def erase(asked: Asked) -> Answer:
    await nothing_said(asked)
    await asked.parts.operator.erase(asked.id, asked.company_id)
    return NOTHING


async def stale(asked: Asked) -> Answer:
    values = asked.queried((COMPANY, PAGE))
    wanted = asked.narrowed(values)
    found = await asked.parts.operator.stale(wanted.company_id, limit=values["limit"])
    return answer(200, {"items": [shapes.in_work(each) for each in found]})


async def requeue(asked: Asked) -> Answer:
    await nothing_said(asked)
    return moved(asked, await asked.parts.operator.requeue(asked.id, asked.company_id))


# ------------------------------------------------------------------------------- shared with the dead letters


async def nothing_said(asked: Asked) -> None:
    """A call told by its path alone: parameters and fields are mistakes, named before anything is done."""
    asked.queried()
    await asked.said((), optional=True)


def moved(asked: Asked, move: Transition) -> Answer:
    asked.parts.changed()
    return answer(200, {"id": move.id, "status": str(move.target)})


def many(asked: Asked, done: Done) -> Answer:
    if done.changed and not done.dry_run:
        asked.parts.changed()
    return answer(200, {
        "dry_run": done.dry_run,
        "count": len(done.changed),
        "ids": list(done.changed),
        "skipped": [{"id": each.id, "reason": each.why} for each in done.skipped],
        "more": done.more,
    })  # fmt: skip
