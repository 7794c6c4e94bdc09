"""Lets go of what is over: old content, dropped dead letters, old records, files that no row names any more."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import PurePath

from staffetta.mail.events import DeadLetterDropped, Emit
from staffetta.mail.message import Millis
from staffetta.spool import Spool, SpooledFile
from staffetta.store.contract import Store

PAGE = 500
STRAYS_PAGE = 200
"""Old files looked at in one step; the next step goes on behind them."""


@dataclasses.dataclass(slots=True, kw_only=True)
class RetireMeans:
    """What the stage is handed."""

    store: Store
    spool: Spool
    clock: Callable[[], Millis]
    emit: Emit
    content_ms: int = 30 * 86_400_000
    """Content of a finished e-mail is erased this long after its end."""
    record_ms: int | None = None
    """Records go after this; None: never."""
    dead_letter_max: int = 10_000


class Retirement:
    """The stage: one `step` is bounded, and says whether there may be more."""

    def __init__(self, means: RetireMeans) -> None:
        self._means = means
        self._behind = ""
        """The last file looked at: the spool is gone through in pages, round and round."""

    async def step(self) -> int:
        """Retire a page; how many contents, dead letters, records and files went."""
        means = self._means
        now = means.clock()
        count = await means.store.retire(
            now=now,
            content_ms=means.content_ms,
            record_ms=means.record_ms,
            dead_letter_max=means.dead_letter_max,
            limit=PAGE,
        )
        for dropped in count.dropped:
            means.emit(DeadLetterDropped(at=now, id=dropped.id, company_id=dropped.company_id, why=dropped.why))
        if count.files:
            await asyncio.to_thread(means.spool.remove, count.files)
        swept = await self._sweep(now)
        return count.contents + count.dead_letters + count.records + swept

    async def _sweep(self, now: Millis) -> int:
        """Remove old files that no row names: a crash came between the file and its row."""
        means = self._means
        found = await asyncio.to_thread(means.spool.strays, now=now, limit=STRAYS_PAGE, after=self._behind)
        self._behind = found[-1].path if len(found) == STRAYS_PAGE else ""
        unnamed = [file.path for file in found if not await self._is_named(file)]
        if unnamed:
            await asyncio.to_thread(means.spool.remove, unnamed)
        return len(unnamed)

    async def _is_named(self, file: SpooledFile) -> bool:
        if not file.id:
            return False
        email = await self._means.store.get(file.id)
        if email is None:
            return False
        # Names are used once; the folder may be known under another path on another host.
        name = PurePath(file.path).name
        return any(
            path and PurePath(path).name == name for path in (email.eml_file_path, email.payload_file_path)
        )
