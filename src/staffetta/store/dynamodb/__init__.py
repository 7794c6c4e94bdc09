"""The store in DynamoDB: one table of e-mails as the seed lays it out, one of ours beside it, all by PartiQL.

No clock of its own, no connection to hold, no transaction over two e-mails. What a page asks of an index is only
ever a hint; each e-mail's own record decides, by compare-and-set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from staffetta.mail.message import Email, IntakeClaim, Job, Millis, ReportClaim
from staffetta.store.contract import Advice, Visitor
from staffetta.store.dynamodb import examination, schema
from staffetta.store.dynamodb.adoption import Adoption, Owners
from staffetta.store.dynamodb.answers import Answers
from staffetta.store.dynamodb.beats import Beats
from staffetta.store.dynamodb.counting import Counting
from staffetta.store.dynamodb.handin import HandIn
from staffetta.store.dynamodb.keys import Kind
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.letters import Letters
from staffetta.store.dynamodb.listings import Listings
from staffetta.store.dynamodb.moves import Moves, Turn
from staffetta.store.dynamodb.moving import Moving
from staffetta.store.dynamodb.parts import Parts
from staffetta.store.dynamodb.place import Place, read
from staffetta.store.dynamodb.reminders import Reminders, Told
from staffetta.store.dynamodb.retirement import Retirement
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.stages import Stages
from staffetta.store.dynamodb.steering import EngineTable, Steering
from staffetta.store.dynamodb.visitors import Visitors
from staffetta.store.dynamodb.wire import Traffic, Wire
from staffetta.store.dynamodb.work import Seeds, Sparse, Work

T = TypeVar("T")

EXPIRED_RESTS = 10
"""Expiry is looked for so much less often than work."""
LOOK_SECONDS = 0.5
"""How often a page of the table is looked through for what other programs did, where it is shared with some."""


class DynamoStore(HandIn, Moves, Stages, Visitors, Reminders, Retirement, Listings, Steering, Moving):
    """One table's e-mails. Many processes may have it open at once."""

    resolution_ms = 1
    has_clock = False
    owned = False
    keeps_version = False

    def __init__(
        self,
        place: Place,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        parted_after_ms: Millis | None = None,
        idle_seconds: float = 0.0,
        owners: Owners | None = None,
    ) -> None:
        """`parted_after_ms`: every worker has a queue of its own, and one that is silent for so long has no part of
        the work any more; None: they share one queue.
        `owners`: who is told of e-mails that other programs ended. `idle_seconds`: for so long nobody is asked again
        where there was nothing to do; what this process does itself is known at once. `pause`: waits before a
        request is run again; tests give one that does not."""
        self.place = place
        self.wire = Wire(place, pause=pause)
        self.ledger = Ledger(place, self.wire, Counting(place, self.wire))
        self.work: Work = Sparse(place, self.wire)
        self.sparse = True
        self.answers = Answers(place, self.wire)
        self.letters = Letters(place, self.wire)
        self.engine = EngineTable(place, self.wire)
        self.beats = Beats(monotonic)
        self.adoption = Adoption(self.ledger, owners)
        self.living: dict[str, Row] = {}
        self.told: dict[str, Told] = {}
        self.turns: dict[str, Turn] = {}
        self.told_until: Millis | None = None
        self.parts = Parts(self.engine, self.beats, monotonic, parted_after_ms)
        self.turn = 0
        self.walk: str | None = None
        self.expired_behind: str | None = None
        self.ledger.stirred = self._stirred
        self._idle_seconds = idle_seconds
        self._empty: dict[str, float] = {}
        """By kind: when there was nothing of it."""
        self._opened = False
        self._monotonic = monotonic
        self._looked_at = float("-inf")

    @property
    def traffic(self) -> Traffic:
        """What went over the wire so far."""
        return self.wire.traffic

    async def open(self) -> None:
        try:
            shape = await schema.shape(self.place, self.wire)
            await schema.make_engine_table(self.place, self.wire)
        except BaseException:
            await self.wire.close()
            raise
        self._opened = True
        self.sparse = shape.sparse
        if not shape.sparse:
            self.work = Seeds(self.place, self.wire, projects_ttl=shape.projects_ttl)

    async def migrate(self) -> list[str]:
        try:
            done = await schema.migrate(self.place, self.wire)
            adopted = await self.adoption.all()
        finally:
            if not self._opened:
                await self.wire.close()  # whoever only migrates has nothing to close
        if adopted:
            done.append(f"adopted {adopted} e-mails of other programs")
        return done

    async def examine(self) -> list[Advice]:
        return await examination.examine(self.place, self.wire)

    async def close(self) -> None:
        self._opened = False
        await self.wire.close()

    # --- beside other programs -----------------------------------------------------------------------------------

    async def _look_at_others(self) -> None:
        if not (self.place.shared and self.sparse):
            return
        now = self._monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            await self.adoption.look()

    # --- while there is nothing to do ------------------------------------------------------------------------------

    def _stirred(self, kind: Kind | None) -> None:
        if kind is not None:
            self._empty.pop(kind, None)

    def _rests(self, kind: Kind, times: int = 1) -> bool:
        """There was nothing of this kind a moment ago, and nothing came by way of this process since."""
        return time.monotonic() - self._empty.get(kind, float("-inf")) < times * self._idle_seconds

    def _found(self, kind: Kind, found: Sequence[T]) -> Sequence[T]:
        if not found:
            self._empty[kind] = time.monotonic()
        return found

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        if self._rests("READY"):
            return []
        await self._look_at_others()
        return list(self._found("READY", await super().news(now=now, limit=limit)))

    async def visitors(self, *, limit: int) -> list[Visitor]:
        if self._rests("VISITOR"):
            return []
        await self._look_at_others()
        return list(self._found("VISITOR", await super().visitors(limit=limit)))

    async def claim_intake(self, *, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
        if self._rests("ACCEPTED"):
            return []
        await self._look_at_others()
        return list(self._found("ACCEPTED", await super().claim_intake(tokens=tokens, now=now)))

    async def claim_reports(self, *, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
        if self._rests("REPORT"):
            return []
        return list(self._found("REPORT", await super().claim_reports(tokens=tokens, now=now)))

    async def expired(self, *, now: Millis, limit: int) -> list[Email]:
        if self._rests("WORK", EXPIRED_RESTS):
            return []
        return list(self._found("WORK", await super().expired(now=now, limit=limit)))


__all__ = ["DynamoStore", "Owners", "Place", "read"]
