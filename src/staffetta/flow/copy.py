"""Moves every e-mail of one store into another, each whole or not at all. May be run again, and goes on then.

Nothing of the source changes. What is in the target already stays as it is there, and is told where it differs.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

from staffetta.errors import Conflict
from staffetta.mail.message import Email, ReportClaim
from staffetta.mail.operators import Filter
from staffetta.mail.rescue import worker_of
from staffetta.store.contract import Source, Store, Target, Unlisted, Whole

PAGE = 200


@dataclasses.dataclass(slots=True)
class Copied:
    """What came of it."""

    total: int = 0
    """E-mails in the source."""
    moved: int = 0
    known: int = 0
    """Those that were in the target already."""
    differing: list[str] = dataclasses.field(default_factory=list)
    """Known ones that stand otherwise in the target than in the source."""
    missing: list[str] = dataclasses.field(default_factory=list)
    """Verified at the end: in the source, and not in the target. Must be empty."""
    letters: int = 0
    keys: int = 0
    settings: int = 0

    @property
    def whole(self) -> bool:
        return not self.differing and not self.missing and self.moved + self.known == self.total


async def copy(source: Store, target: Store, tell: Callable[[int, int], None], *, at_once: int = 16) -> Copied:
    """`tell(done, total)` hears of the progress. `at_once`: e-mails on their way at the same time."""
    leaves: object = source
    takes: object = target
    if not isinstance(leaves, Source) or not isinstance(takes, Target):
        raise Conflict("e-mails move from SQLite or DynamoDB to MySQL or DynamoDB; nothing was copied")
    told = Copied(total=sum((await source.counts()).values()))
    workers: set[str] = set()
    batches: set[str] = set()
    cursor: str | None = None
    while True:
        page = await source.emails(Filter(), limit=PAGE, cursor=cursor)
        emails: Sequence[Email] = page.items
        unlisted = await leaves.unlisted([email.id for email in emails])
        batches.update(one.batch for one in unlisted if one.batch)
        workers.update(worker_of(email.token) for email in emails if email.token)
        for start in range(0, len(emails), at_once):
            some = zip(emails[start : start + at_once], unlisted[start : start + at_once], strict=True)
            await asyncio.gather(*(_move(source, takes, email, more, told) for email, more in some))
            tell(told.moved + told.known, told.total)
        cursor = page.cursor
        if cursor is None:
            break
    for batch in sorted(batches):
        await _bind(source, target, batch)
    # Who held an e-mail is silent from here on: restore takes it back once he has been so for long enough.
    for worker in await source.workers():
        if worker.id in workers:
            await target.heartbeat(worker)
    await _steer(source, target, leaves, told)
    await _verify(source, target, told, at_once)
    return told


async def _move(source: Store, takes: Target, email: Email, unlisted: Unlisted, told: Copied) -> None:
    history, attempts, content, letter = await asyncio.gather(
        source.history(email.id),
        source.attempts(email.id),
        source.content(email.id),
        source.dead_letter(email.id),
    )
    whole = Whole(
        email=email, history=tuple(history), attempts=tuple(attempts), content=content, dead_letter=letter,
        unlisted=unlisted,
    )  # fmt: skip
    if await takes.take_over(whole):
        told.moved += 1
    else:
        told.known += 1
    told.letters += letter is not None


async def _bind(source: Store, target: Store, batch: str) -> None:
    members = [await source.get(member) for member in await source.batch_members(batch)]
    claims = [
        ReportClaim(id=one.id, ref=0, token="", company_id=one.company_id, status=one.status, reason=one.reason,
                    reached_at=one.reached_at, sequence=one.sequence)
        for one in members
        if one is not None
    ]  # fmt: skip
    if await target.batch_members(batch) != [claim.id for claim in claims]:
        await target.bind_batch(batch, claims)


async def _steer(source: Store, target: Store, leaves: Source, told: Copied) -> None:
    """Keys, pauses and settings. What the target has already holds."""
    known = {key.id for key in await target.keys()}
    for key in await source.keys():
        if key.id not in known:
            await target.add_key(key)
        told.keys += 1
    for pause in await source.pauses():
        await target.pause(pause)
    for name, value in sorted((await leaves.settings()).items()):
        if await target.setting(name) is None:
            await target.put_setting(name, value)
        told.settings += 1


async def _verify(source: Store, target: Store, told: Copied, at_once: int) -> None:
    """Every e-mail of the source is in the target, as it stands there."""
    cursor: str | None = None
    while True:
        page = await source.emails(Filter(), limit=PAGE, cursor=cursor)
        for start in range(0, len(page.items), at_once):
            some: Sequence[Email] = page.items[start : start + at_once]
            for one, there in zip(
                some, await asyncio.gather(*(target.get(one.id) for one in some)), strict=True
            ):
                if there is None:
                    told.missing.append(one.id)
                elif (there.status, there.sequence) != (one.status, one.sequence):
                    told.differing.append(one.id)
        cursor = page.cursor
        if cursor is None:
            return
