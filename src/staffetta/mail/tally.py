"""What one process has counted: numbers that only grow, so that anybody may lay several processes' together.

A tally travels as JSON with its process's figures. Whoever reads adds what it grew since his last look: whoever
ends takes nothing back, and one that began before the reader is not counted from its beginning.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import msgspec

from staffetta.mail.message import Millis

BOUNDS_MS = (
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000,
    3_600_000, 14_400_000, 86_400_000,
)  # fmt: skip
"""Upper bounds of every spread's buckets. 250 ms and 300 s are limits that somebody asked for."""
MINUTE_MS = 60_000
MINUTES = 60
"""How much of the past the minutes cover: the last hour."""
KEYS_MAX = 200
"""Keys of one count; the rest is `other`. What servers say must not fill a process's memory."""
OTHER = "other"
SEPARATOR = "\t"
"""Between the labels of a key; stands in none of them."""


class Spread(msgspec.Struct, array_like=True):
    """How durations are spread over `BOUNDS_MS`, one bucket each and one beyond."""

    total_ms: int = 0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    def add(self, milliseconds: int) -> None:
        self.total_ms += milliseconds
        self.buckets[bisect_left(BOUNDS_MS, milliseconds)] += 1

    def grow(self, by: Spread, since: Spread | None) -> None:
        """Take over what `by` has more than `since`."""
        if since is None:
            self.total_ms += by.total_ms
            self.buckets = [a + b for a, b in zip(self.buckets, by.buckets, strict=True)]
        else:
            self.total_ms += by.total_ms - since.total_ms
            rows = zip(self.buckets, by.buckets, since.buckets, strict=True)
            self.buckets = [a + b - c for a, b, c in rows]

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def above(self, milliseconds: int) -> int:
        """How many were longer than one of the bounds."""
        return sum(self.buckets[bisect_left(BOUNDS_MS, milliseconds) + 1 :])


class Tally(msgspec.Struct):
    """Counts by name and key, spreads by name and key, and each minute's attempts by their number."""

    counts: dict[str, dict[str, int]] = {}
    spreads: dict[str, dict[str, Spread]] = {}
    minutes: dict[int, dict[int, list[int]]] = {}
    """Minute → number of the attempt → [went well, all]; the last hour only."""

    def count(self, name: str, key: str = "", by: int = 1) -> None:
        row = self.counts.get(name)
        if row is None:
            row = self.counts[name] = {}
        if key not in row and len(row) >= KEYS_MAX:
            key = OTHER
        row[key] = row.get(key, 0) + by

    def spread(self, name: str, key: str = "") -> Spread:
        row = self.spreads.get(name)
        if row is None:
            row = self.spreads[name] = {}
        found = row.get(key)
        if found is None:
            if len(row) >= KEYS_MAX:
                key = OTHER
            found = row.setdefault(key, Spread())
        return found

    def minute(self, minute: int) -> dict[int, list[int]]:
        """This minute's row; those out of the hour go."""
        row = self.minutes.get(minute)
        if row is None:
            for old in [one for one in self.minutes if one <= minute - MINUTES]:
                del self.minutes[old]
            row = self.minutes[minute] = {}
        return row

    def total(self, name: str) -> int:
        return sum(self.counts.get(name, {}).values())

    def success_rates(self, *, now: Millis) -> dict[int, float]:
        """By number of the attempt: the share of attempts of the last hour that went well."""
        since = now // MINUTE_MS - MINUTES
        found: dict[int, list[int]] = {}
        for minute, row in self.minutes.items():
            if minute > since:
                for attempt, (good, tried) in row.items():
                    both = found.setdefault(attempt, [0, 0])
                    both[0] += good
                    both[1] += tried
        return {attempt: good / tried for attempt, (good, tried) in sorted(found.items()) if tried}

    def grow(self, by: Tally, since: Tally | None = None) -> None:
        """Take over what `by` counted more than `since`, an earlier state of the same tally."""
        since = since or Tally()
        for name, row in by.counts.items():
            before = since.counts.get(name, {})
            for key, value in row.items():
                if value != before.get(key, 0):
                    self.count(name, key, value - before.get(key, 0))
        for name, spreads in by.spreads.items():
            earlier = since.spreads.get(name, {})
            for key, spread in spreads.items():
                self.spread(name, key).grow(spread, earlier.get(key))
        for minute, attempts in by.minutes.items():
            self._grow_minute(minute, attempts, since.minutes.get(minute, {}))

    def _grow_minute(
        self, minute: int, attempts: Mapping[int, list[int]], before: Mapping[int, list[int]]
    ) -> None:
        row = self.minute(minute)
        for attempt, (good, tried) in attempts.items():
            known = before.get(attempt, (0, 0))
            both = row.setdefault(attempt, [0, 0])
            both[0] += good - known[0]
            both[1] += tried - known[1]

    def copy(self) -> Tally:
        made = Tally()
        made.grow(self)
        return made
