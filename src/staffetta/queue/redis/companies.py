"""The companies' figures, read page by page and kept where nothing has changed: an idle worker asks once, not twice."""

from __future__ import annotations

import struct

from staffetta.mail.fairness import Priorities, company_priority
from staffetta.mail.message import Millis
from staffetta.queue.contract import CompanyFigures
from staffetta.queue.redis import wire
from staffetta.queue.redis.link import Link, Move

PAGE = 64
"""Buckets of so many companies in one call:"""
PER_BUCKET = 16
MANY = 4_096
"""With more companies than this, figures are asked for anew only so often:"""
FRESH_MS = 10_000

_FIGURES = struct.Struct(">ddddddd")


class Companies:
    def __init__(self, link: Link, move: Move, priorities: Priorities) -> None:
        self._link = link
        self._move = move
        self._priorities = priorities
        self.seen: tuple[object, ...] = ()
        """What the last `depth` said, should figures be asked for next; empty once something was done."""
        self._kept: list[CompanyFigures] = []
        self._kept_for: tuple[object, ...] = ()
        self._kept_at: Millis = 0
        self._count = 0

    async def figures(self, now: Millis) -> list[CompanyFigures]:
        seen, self.seen = self.seen, ()
        same = bool(seen) and seen == self._kept_for
        if (same or self._count > MANY) and 0 <= now - self._kept_at < FRESH_MS:
            return self._kept
        found: list[CompanyFigures] = []
        bucket, last = 0, 0
        while bucket <= last:
            page = await self._link.call(self._move, [struct.pack(">dd", bucket, PAGE)])
            self._count = int(page[0])
            last = self._count // PER_BUCKET
            found += [
                self._shown(wire.decode_name(page[place]), page[place + 1]) for place in range(1, len(page), 2)
            ]
            bucket += PAGE
        self._kept, self._kept_for, self._kept_at = found, seen, now
        return found

    def _shown(self, company_id: str, packed: bytes) -> CompanyFigures:
        waiting, active, weight, rounds, row, given, given_at = _FIGURES.unpack(packed)
        return CompanyFigures(
            company_id=company_id,
            waiting=int(waiting),
            active=int(active),
            weight=weight,
            rounds_without_processing=int(rounds),
            current_priority=company_priority(int(rounds), self._priorities),
            consecutive_batch_count=int(row),
            total_processed=int(given),
            last_processed_at=int(given_at) if given_at else None,
        )
