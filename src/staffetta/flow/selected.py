"""What an operator does to dead letters that he picked one by one: each is its own small action, and is told apart."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from staffetta.errors import LockNotAcquired, MoveNotAllowed, NotFound
from staffetta.flow.operate import RETRYABLE, Done, Operator, Skipped

SELECTED_MAX = 500


async def retry(
    operator: Operator, ids: Sequence[str], company_id: str | None = None, *, dry_run: bool = False
) -> Done:
    """Their e-mails go again; those that moved or cannot be sent are named and left."""

    async def one(id: str) -> None:
        if not dry_run:
            await operator.retry_dead_letter(id, company_id)
            return
        await operator.find_dead_letter(id, company_id)
        email = await operator.find(id, company_id)
        if email.status not in RETRYABLE:
            raise MoveNotAllowed(f"it is {email.status}: on its way already")

    return await _each(ids, one, dry_run=dry_run)


async def discard(
    operator: Operator, ids: Sequence[str], company_id: str | None = None, *, dry_run: bool = False
) -> Done:
    """These dead letters go; the e-mails' own records stay."""

    async def one(id: str) -> None:
        if dry_run:
            await operator.find_dead_letter(id, company_id)
        else:
            await operator.discard(id, company_id)

    return await _each(ids, one, dry_run=dry_run)


async def _each(ids: Sequence[str], act: Callable[[str], Awaitable[None]], *, dry_run: bool) -> Done:
    changed: list[str] = []
    skipped: list[Skipped] = []
    for each in dict.fromkeys(ids[:SELECTED_MAX]):
        try:
            await act(each)
            changed.append(each)
        except (MoveNotAllowed, LockNotAcquired, NotFound) as error:
            skipped.append(Skipped(id=each, why=str(error)))
    return Done(changed=tuple(changed), skipped=tuple(skipped), more=len(ids) > SELECTED_MAX, dry_run=dry_run)
