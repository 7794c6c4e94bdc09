"""Who is dead, without a clock that all share: a worker counts its heartbeats, and whoever looks has a clock of his
own. A count that stood still for as long as a worker may be silent, by the observer's monotonic clock, is a dead
worker's. No host's wrong time kills another's worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from staffetta.store.dynamodb.values import Item


class Beats:
    """What this process has seen of the others' heartbeats."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[int, float]] = {}
        """The last count of each worker, and since when it has stood."""

    def wrote(self, worker_id: str) -> None:
        """This process wrote a heartbeat itself: it need not wait to see that it changed."""
        self._seen[worker_id] = (-1, self._monotonic())

    def dead(self, workers: Iterable[Item], *, after_ms: int) -> set[str]:
        """The workers whose count has stood still for so long."""
        now = self._monotonic()
        seen: dict[str, tuple[int, float]] = {}
        for item in workers:
            name, count = item["Member"], item["Beats"]
            known, since = self._seen.get(name, (None, now))
            if known == -1:
                seen[name] = (count, since)
            else:
                seen[name] = (count, since if known == count else now)
        self._seen = seen
        return {name for name, (_, since) in seen.items() if now - since >= after_ms / 1_000}
