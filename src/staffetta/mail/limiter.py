"""At most `max` jobs in any `duration_ms`: a window that slides in small steps. Time is an argument.

Never more than `max` within any stretch of `duration_ms`; under load at least 99 % of it: a step is forgotten
only when its youngest moment has left the window, and a step is at most 1/200 of it.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction

from staffetta.mail.message import Millis, Value

STEPS = 200


class Limit(Value, frozen=True, kw_only=True):
    """`max` jobs per `duration_ms`."""

    max: int
    duration_ms: int

    def __post_init__(self) -> None:
        if self.max < 1 or self.duration_ms < 1:
            raise ValueError(f"a limit needs at least 1 job and 1 ms, not {self.max} per {self.duration_ms} ms")

    @property
    def step_ms(self) -> int:
        return max(1, self.duration_ms // STEPS)


def per_second(rate: float) -> Limit:
    """A company's `rate`, so many e-mails a second, in whole jobs: 0.5 is 1 job per 2 s, never 0 per 1 s."""
    exact = Fraction(rate).limit_denominator(1_000)
    return Limit(max=max(1, exact.numerator), duration_ms=exact.denominator * 1_000)


class Window:
    """What was given lately under one limit."""

    __slots__ = ("_given", "_step_ms", "_steps", "limit")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self._step_ms = limit.step_ms
        self._steps: deque[list[int]] = deque()
        """[step, jobs], oldest first."""
        self._given = 0

    def room(self, now: Millis) -> int:
        """How many may be given now."""
        self._forget(now)
        return max(0, self.limit.max - self._given)

    def spend(self, count: int, now: Millis) -> None:
        """`count` are given now."""
        self._forget(now)
        step = now // self._step_ms
        if self._steps and self._steps[-1][0] >= step:
            self._steps[-1][1] += count
        else:
            self._steps.append([step, count])
        self._given += count

    def next_at(self, now: Millis) -> Millis:
        """When there will be room again: `now` where there is."""
        return now if self.room(now) else self._leaves_at(self._steps[0][0])

    def _leaves_at(self, step: int) -> Millis:
        return (step + 1) * self._step_ms - 1 + self.limit.duration_ms

    def _forget(self, now: Millis) -> None:
        steps = self._steps
        if steps and now < steps[-1][0] * self._step_ms - self.limit.duration_ms:
            # The clock was put back by more than the window: waiting for the old time to return would stop all.
            steps.clear()
            self._given = 0
        while steps and self._leaves_at(steps[0][0]) <= now:
            self._given -= steps.popleft()[1]
