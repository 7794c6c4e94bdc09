"""How fast messages go to SES: at most as set, and slower for a while when the account's own rate is met.

An account's rate is shared by all who send for it, so nobody can know it beforehand: a "too fast" halves ours, and
each message that goes well gives a little back. Waiting is no failure. Time is an argument.
"""

from __future__ import annotations

BURST_SECONDS = 0.05
"""How far ahead of its turn a message may go, so that no timer need ring for each."""
SLOWED_SECONDS = 0.05
"""Between two messages, after the first "too fast"."""
SLOWEST_SECONDS = 5.0
PAUSE_SECONDS = 1.0
"""Nothing goes for this long after a "too fast": the account counts by the second. Others meanwhile say nothing new."""
BACK = 0.99


class Pace:
    """The time between two messages."""

    __slots__ = ("_interval", "_least", "_next_at", "_slowed_until")

    def __init__(self, messages_per_second: float = 0.0) -> None:
        self._least = 1 / messages_per_second if messages_per_second else 0.0
        self._interval = self._least
        self._next_at = 0.0
        self._slowed_until = 0.0

    @property
    def interval(self) -> float:
        return self._interval

    def wait(self, now: float) -> float:
        """How many seconds there are to wait for the next turn; asked again after that, for it may have moved."""
        ahead = self._next_at - now
        return ahead if ahead > BURST_SECONDS else 0.0

    def go(self, now: float) -> None:
        """Take the turn."""
        self._next_at = max(now, self._next_at) + self._interval

    def too_fast(self, now: float) -> None:
        if now < self._slowed_until:
            return
        self._slowed_until = now + PAUSE_SECONDS
        self._interval = min(SLOWEST_SECONDS, max(self._interval * 2, SLOWED_SECONDS))
        self._next_at = max(self._next_at, self._slowed_until)

    def went_well(self) -> None:
        if self._interval > self._least:
            faster = self._interval * BACK
            self._interval = max(faster, self._least) if faster > SLOWED_SECONDS / 10 else self._least
