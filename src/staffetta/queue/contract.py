"""What every queue promises: it reminds, in a fair order, that e-mails are due. Losing all of it loses no mail.

The order is the one of `mail/fairness.py`; every implementation gives the same one for the same calls.
Every operation takes a batch. A job is known by its e-mail's id: offering a known id again changes nothing.
Within a company: priority (1 first), then due time, then as they came.

**A bounded window on an unbounded store.** The queue holds the head of each company's line, in its order, and
remembers where it ends: what the store has behind that end comes by `stock`, page after page, and is refused
when `offer` brings it earlier. A company whose line here is empty while the store holds more is *owed* its
turn: nobody is served past it until it was stocked. So the order is fair among what is due in the store.

    full(company, more=True)      the store has due jobs of this company   ->  hungry names it
    hungry() -> {company: last}   whoever feeds reads the store behind `last`, at most `room(company)` jobs
    stock(company, page, …)       brings what was read; more=False: that was all
    until_hungry()                waits until there is something to feed

Errors: `QueueError` when the queue cannot be used for now. A call that raises may have had its effect or not;
every call may be made again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from staffetta.mail.message import Job, Millis, Value


class Depth(Value, frozen=True, kw_only=True):
    waiting: int
    delayed: int
    active: int


class Health(Value, frozen=True, kw_only=True):
    """How the queue is, for people and gauges; known without asking anybody."""

    trouble: str = ""
    """Why it is not wholly well, and what follows; empty when it is."""
    shared: str = ""
    """Names the one queue that several workers share: its figures are everybody's, not to be added up."""
    memory_used_ratio: float | None = None
    """Used of the memory that it may use, where it lives in a server of its own that has a bound."""
    rejected_connections: int | None = None
    dead_letters: int | None = None
    """How many the index of dead letters holds, where there is one."""


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

        Returns those that found no room, or that stand behind the end of a line that the store has more of:
        they stay in the store and come by `stock`, for their company will be hungry (delayed ones: when the
        store tells that they are due). A known id changes nothing.
        """

    async def take(self, limit: int, *, now: Millis, lease_ms: int) -> list[Job]:
        """Up to `limit` jobs whose turn it is, leased. An empty list when nothing may be taken now.

        Suspects are given alone: a list of one, only when nothing else may be taken and nothing is active here;
        and while one is active, nothing else is given.
        """

    async def wait(self, timeout_seconds: float) -> None:
        """Return when something may have become takeable (offered, stocked, due, its lease over, room again
        under its limit), or after the timeout. Never polls."""

    async def extend(self, ids: Sequence[str], *, now: Millis, lease_ms: int) -> Sequence[str]:
        """Prolong leases; the ids whose lease was lost are returned."""

    async def settle(self, ids: Sequence[str]) -> None:
        """These are done with, here: forget them, wherever they stand. An unknown id is no error."""

    async def postpone(self, jobs: Sequence[Job]) -> None:
        """Give leased jobs back, due at their `due_at` (now or later). One that is not leased (any more) is
        offered as if it were new."""

    async def bury(self, ids: Sequence[str], *, now: Millis) -> None:
        """Enter ids in the index of dead letters."""

    async def revive(self, ids: Sequence[str]) -> None:
        """Remove ids from the index of dead letters."""

    async def index_dead(self, ids: Sequence[str], *, now: Millis) -> None:
        """These are all the dead letters there are: the index becomes so."""

    async def health(self) -> Health:
        """Never fails, and waits for nobody."""

    async def depth(self) -> Depth: ...

    async def hungry(self) -> Mapping[str, Job | None]:
        """Companies whose waiting jobs here run low while the store may hold more, the neediest first, each
        with the last job it was given (None: ask from the beginning). Not all at once where they are many."""

    async def until_hungry(self, timeout_seconds: float) -> None:
        """Return when `hungry` may have something to name, or after the timeout."""

    async def room(self, company_id: str) -> int:
        """How many more waiting jobs of this company the queue would take now."""

    async def stock(self, company_id: str, jobs: Sequence[Job], *, after: Job | None, more: bool) -> int:
        """The next page of this company's line: its due jobs in the store behind `after` (None: from the
        beginning), in the line's order. `more`: there may be further ones behind this page.

        The page was asked for after `hungry` named the company. Returns how many of its jobs were new here.
        """

    async def full(self, company_id: str, *, more: bool) -> None:
        """Tell whether the store holds more due jobs of this company than were offered."""

    async def block(self, company_id: str) -> None:
        """Jobs of this company are not given out (paused, held) until `unblock`. They keep their place."""

    async def unblock(self, company_id: str) -> None: ...

    async def set_weight(self, company_id: str, weight: float) -> None:
        """Acts on the waiting jobs at once."""

    async def figures(self) -> list[CompanyFigures]: ...
