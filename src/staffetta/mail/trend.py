"""The last hour of what was sent, in small steps: rates for a picture, waits for percentiles. Pure.

A sample is what the counts were at one moment. The counts only grow, so a stretch of time is the difference of
two samples, whoever began or ended meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from staffetta.mail.message import Millis, Value
from staffetta.mail.tally import BOUNDS_MS, Tally

EVERY_MS = 2_000
"""How often a sample is taken."""
KEPT_MS = 3_600_000

_NOTHING = (0,) * (len(BOUNDS_MS) + 1)


class Sample(Value, frozen=True, kw_only=True):
    """The counts at one moment."""

    at: Millis
    accepted: int = 0
    sent: int = 0
    deferred: int = 0
    failed: int = 0
    waits: tuple[int, ...] = _NOTHING
    """From acceptance to SENT: how many fell into each bucket of `tally.BOUNDS_MS`, and beyond."""


class Step(Value, frozen=True, kw_only=True):
    """What happened from `since` on, for the length of one step."""

    since: Millis
    sent: int = 0
    deferred: int = 0
    failed: int = 0


class Waits(Value, frozen=True, kw_only=True):
    """How long e-mails took from acceptance to SENT."""

    buckets: tuple[int, ...] = _NOTHING

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def percentile(self, share: float) -> Millis | None:
        """The wait that this share of them did not pass, put between its bucket's bounds by its place there.

        None where nothing was sent. What is beyond the last bound is told as that bound.
        """
        count = self.count
        if not count:
            return None
        wanted, reached = share * count, 0
        for number, size in enumerate(self.buckets):
            if size and reached + size >= wanted:
                if number == len(BOUNDS_MS):
                    return BOUNDS_MS[-1]
                below = BOUNDS_MS[number - 1] if number else 0
                return round(below + (BOUNDS_MS[number] - below) * (wanted - reached) / size)
            reached += size
        return BOUNDS_MS[-1]


class Trend:
    """Samples of the last hour, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def note(self, tally: Tally, *, at: Millis) -> None:
        """Keep how the counts stand now; forget what is older than an hour."""
        ended = tally.counts.get("ended", {})
        spread = tally.spreads.get("to_sent", {}).get("")
        self._samples.append(
            Sample(
                at=at,
                accepted=tally.total("accepted"),
                sent=ended.get("SENT", 0),
                deferred=tally.total("retries"),
                failed=ended.get("FAILED", 0),
                waits=tuple(spread.buckets) if spread is not None else _NOTHING,
            )
        )
        while self._samples[0].at < at - KEPT_MS:
            self._samples.popleft()

    @property
    def since(self) -> Millis | None:
        """When the first sample was taken; None: there is none yet."""
        return self._samples[0].at if self._samples else None

    def steps(self, *, now: Millis, step_ms: Millis, count: int) -> list[Step]:
        """The last `count` whole steps, oldest first. What was counted between two samples is taken to have come
        evenly, so that steps and samples need not keep time with each other; nothing is told twice or lost."""
        first = (now // step_ms - count) * step_ms
        bounds = [first + number * step_ms for number in range(count + 1)]
        stood = self._stood_at(bounds)
        return [
            Step(since=since, sent=b[0] - a[0], deferred=b[1] - a[1], failed=b[2] - a[2])
            for since, a, b in zip(bounds, stood, stood[1:], strict=False)
        ]

    def _stood_at(self, times: list[Millis]) -> list[tuple[int, int, int]]:
        """Sent, deferred and failed in all, at each of these times, which ascend."""
        samples = list(self._samples)
        if not samples:
            return [(0, 0, 0)] * len(times)
        found, place = [], 0
        for at in times:
            while place + 1 < len(samples) and samples[place + 1].at <= at:
                place += 1
            before = samples[place]
            after = samples[min(place + 1, len(samples) - 1)]
            apart = after.at - before.at
            share = min(1.0, max(0.0, (at - before.at) / apart)) if apart > 0 else 0.0
            pairs = (
                (before.sent, after.sent),
                (before.deferred, after.deferred),
                (before.failed, after.failed),
            )
            sent, deferred, failed = (a + round((b - a) * share) for a, b in pairs)
            found.append((sent, deferred, failed))
        return found

    def over(self, *, now: Millis, span_ms: Millis) -> tuple[Step, Waits]:
        """All that happened in the last `span_ms`, as one step, and how long it took."""
        if not self._samples:
            return Step(since=now - span_ms), Waits()
        times = [sample.at for sample in self._samples]
        start = self._samples[max(0, bisect_left(times, now - span_ms) - 1)]
        end = self._samples[-1]
        step = Step(
            since=max(start.at, now - span_ms),
            sent=max(0, end.sent - start.sent),
            deferred=max(0, end.deferred - start.deferred),
            failed=max(0, end.failed - start.failed),
        )
        waits = tuple(max(0, b - a) for a, b in zip(start.waits, end.waits, strict=True))
        return step, Waits(buckets=waits)
