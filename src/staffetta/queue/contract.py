"""What every queue promises: it reminds, in a fair order, that e-mails are due. Losing all of it loses no mail.

The order is the one of `mail/fairness.py`; every implementation gives the same one for the same calls.
Every operation takes a batch. A job is known by its e-mail's id: offering a known id again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from staffetta.mail.message import Job, Millis, Value


class Depth(Value, frozen=True, kw_only=True):
    waiting: int
    delayed: int
    active: int


class CompanyFigures(Value, frozen=True, kw_only=True):
    """The seed's figures of one company, computed when asked for."""

    company_id: str
    waiting: int
    active: int
    weight: float
    rounds_without_processing: int
    current_priority: int
    consecutive_batch_count: int
    total_processed: int
    last_processed_at: Millis | None


class Queue(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def offer(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Make jobs known: due ones wait for their company's turn, later ones until their time.

        Returns those that found no room (the queue is bounded): they stay in the store and are offered again when
        `hungry` names their company. A known id changes nothing.
        """

    async def take(self, limit: int, *, now: Millis, lease_ms: int) -> list[Job]:
        """Up to `limit` jobs whose turn it is, leased. An empty list when nothing may be taken now.

        Suspects are given alone: a list of one, only when nothing else is waiting or active here.
        """

    async def wait(self, timeout_seconds: float) -> None:
        """Return when something may have become takeable, or after the timeout."""

    async def extend(self, ids: Sequence[str], *, now: Millis, lease_ms: int) -> Sequence[str]:
        """Prolong leases; the ids whose lease was lost are returned."""

    async def settle(self, ids: Sequence[str]) -> None:
        """These are done with, here: forget them. An unknown id is no error."""

    async def postpone(self, jobs: Sequence[Job]) -> None:
        """Give leased jobs back, due at their `due_at` (now or later)."""

    async def bury(self, ids: Sequence[str], *, now: Millis) -> None:
        """Enter ids in the index of dead letters."""

    async def revive(self, ids: Sequence[str]) -> None:
        """Remove ids from the index of dead letters."""

    async def depth(self) -> Depth: ...

    async def hungry(self) -> Mapping[str, Job | None]:
        """Companies whose waiting jobs here run low while the store may hold more, each with the last job it was
        given (None: ask from the beginning)."""

    async def full(self, company_id: str, more: bool) -> None:
        """Tell whether the store holds more due jobs of this company than were offered."""

    async def block(self, company_id: str) -> None:
        """Jobs of this company are not given out (paused, held) until `unblock`. They keep their place."""

    async def unblock(self, company_id: str) -> None: ...

    async def set_weight(self, company_id: str, weight: float) -> None:
        """Acts on the waiting jobs at once."""

    async def figures(self) -> list[CompanyFigures]: ...
