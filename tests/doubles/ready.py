"""A store reduced to its READY e-mails: what the queue is refilled from, small enough to be searched by hypothesis.

The refilling itself is the flow's own (`flow/offer.py`); only the table behind it is modelled here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from staffetta.mail.message import Job, Millis
from staffetta.store.contract import Store


class Ready:
    """READY e-mails by company, each line in the store's order: priority, due time, then as they came."""

    def __init__(self) -> None:
        self._refs = 0
        self._rows: dict[str, tuple[int, Job]] = {}
        self._news: list[str] = []
        self.reads = 0

    def as_store(self) -> Store:
        """The flow's offering asks for nothing else of a store."""
        return cast("Store", self)

    def add(self, job: Job, *, news: bool = False) -> None:
        """Handed in; with `news`, by somebody else: the queue hears of it only when the store is asked."""
        self._rows[job.id] = (job.ref, job)
        if news:
            self._news.append(job.id)

    def claim(self, job: Job, *, now: Millis) -> bool:
        """READY -> PROCESSING: whether it was there and due."""
        row = self._rows.get(job.id)
        if row is None or row[1].due_at > now:
            return False
        del self._rows[job.id]
        return True

    def due(self, company_id: str, *, now: Millis) -> int:
        return sum(
            1
            for _, job in self._rows.values()
            if job.company_id == company_id and job.due_at <= now and not job.suspect
        )

    def ready(self) -> list[Job]:
        return [job for _, job in self._rows.values()]

    async def waiting_companies(self, *, now: Millis) -> list[str]:
        return sorted({job.company_id for _, job in self._rows.values() if job.due_at <= now})

    async def waiting(self, company_id: str, *, now: Millis, limit: int, after: Job | None = None) -> list[Job]:
        self.reads += 1
        line = sorted(
            (job.priority, job.due_at, came, job)
            for came, job in self._rows.values()
            if job.company_id == company_id and job.due_at <= now
        )
        if after is not None:
            line = [row for row in line if row[:3] > (after.priority, after.due_at, after.ref)]
        return [row[3] for row in line[:limit]]

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        rows = [self._rows[name] for name in self._news if name in self._rows]
        told = [job for _, job in rows if job.due_at <= now][:limit]
        gone = {job.id for job in told}
        self._news = [job.id for _, job in rows if job.id not in gone]
        return told

    def make(
        self, number: int, company_id: str, *, priority: int = 5, due_at: Millis, suspect: bool = False
    ) -> Job:
        return Job(
            id=f"{number:08x}-0000-7000-8000-000000000000",
            company_id=company_id,
            priority=priority,
            due_at=due_at,
            suspect=suspect,
            ref=self.next_ref(),
        )

    def next_ref(self) -> int:
        """The handle that the next one added will have: in which order it came."""
        self._refs += 1
        return self._refs


class Law:
    """Counts what each company was served while two of them had due e-mails throughout, and holds it to the law.

    `|served_a / weight_a - served_b / weight_b| <= batch_max / weight_a + batch_max / weight_b` for every stretch in
    which both have something due in the store and neither is paused, held or rate-limited.
    """

    def __init__(self, batch_max: int) -> None:
        self._batch_max = batch_max
        self._pairs: dict[tuple[str, str], tuple[float, float, float]] = {}

    def look(self, eligible: Sequence[str]) -> None:
        """Whoever is not named now is not due, or may not be served: its stretches end here."""
        names = sorted(eligible)
        wanted = {(a, b) for i, a in enumerate(names) for b in names[i + 1 :]}
        self._pairs = {pair: self._pairs.get(pair, (0.0, 0.0, 0.0)) for pair in wanted}

    def forget(self, company_id: str) -> None:
        """Its weight changed: stretches begin anew."""
        self._pairs = {pair: kept for pair, kept in self._pairs.items() if company_id not in pair}

    def served(self, company_id: str, weights: dict[str, float]) -> None:
        for pair, (now, low, high) in self._pairs.items():
            if company_id not in pair:
                continue
            a, b = pair
            now += 1 / weights[a] if company_id == a else -1 / weights[b]  # noqa: PLW2901
            low, high = min(low, now), max(high, now)  # noqa: PLW2901
            self._pairs[pair] = (now, low, high)
            bound = self._batch_max / weights[a] + self._batch_max / weights[b]
            assert high - low <= bound * (1 + 1e-9), (
                f"between {a} (weight {weights[a]}) and {b} (weight {weights[b]}): {high - low} > {bound}"
            )
