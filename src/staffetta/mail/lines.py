"""The lines in which calls wait, one a receiver's URL: whose turn it is, how many at a time, when to hold back.

Pure: a line counts and decides, `flow/report.py` makes the calls. Nothing here is kept; the store has it all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from staffetta.mail import report
from staffetta.mail.message import Millis, ReportClaim
from staffetta.mail.report import Receiver, Told

FAILURES_TO_OPEN = 5
"""So many calls in a row that the receiver could not take, and it is left in peace for a while."""
FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 60_000
UNPROVEN_CALLS = 2
"""At a time, while a receiver has not answered well yet: unknown ones cannot take every place."""


class Line:
    """E-mails whose owner is told by calls to one URL."""

    def __init__(self, receiver: Receiver, *, calls_max: int) -> None:
        self.receiver = receiver
        self.calls = 0
        """Calls that are being made, or whose turn to be made has come."""
        self.waiting = 0
        self._calls_max = calls_max
        self._groups: dict[Hashable, deque[tuple[Millis, ReportClaim]]] = {}
        self._proven = False
        self._failures = 0
        self._pause_ms = FIRST_PAUSE_MS
        self._held_until: Millis = 0
        self._open = False

    # ------------------------------------------------------------------------------------------ who waits

    def add(self, claim: ReportClaim, *, now: Millis) -> None:
        self._groups.setdefault(report.group(claim), deque()).append((now, claim))
        self.waiting += 1

    def take(self, batch_max: int) -> list[ReportClaim]:
        """The e-mails of the next call: of the group whose turn it is, oldest first. The others move up."""
        if not self._groups:
            return []
        key = next(iter(self._groups))
        group = self._groups.pop(key)
        kept = report.kept_batch(group[0][1]) is not None
        taken = [group.popleft()[1] for _ in range(len(group) if kept else min(batch_max, len(group)))]
        if group:
            self._groups[key] = group  # at the end: companies that share a receiver take turns
        self.waiting -= len(taken)
        return taken

    def take_older(self, than: Millis) -> list[ReportClaim]:
        """Those that have waited since before then: their claims are not held for ever."""
        old = []
        for key, group in list(self._groups.items()):
            while group and group[0][0] < than:
                old.append(group.popleft()[1])
            if not group:
                del self._groups[key]
        self.waiting -= len(old)
        return old

    # ------------------------------------------------------------------------------------------ how many, when

    def may_call(self, *, now: Millis) -> bool:
        """Whether one more call may begin: somebody waits, there is a place, and the line is not held back."""
        return self.waiting > 0 and self.calls < self.places and self.pause_ms(now=now) == 0

    @property
    def places(self) -> int:
        """Calls at a time: one while the breaker is open, to ask; few until the receiver has answered well."""
        if self._open:
            return 1
        return self._calls_max if self._proven else min(UNPROVEN_CALLS, self._calls_max)

    def pause_ms(self, *, now: Millis) -> int:
        """How long this line is still held back."""
        return max(0, self._held_until - now)

    def learn(self, told: Told, *, now: Millis) -> bool | None:
        """What one answer says of the receiver. True: its breaker opened; False: it closed; None: as before."""
        if not report.is_down(told):
            was_open, self._open = self._open, False
            self._failures, self._pause_ms, self._held_until, self._proven = 0, FIRST_PAUSE_MS, 0, True
            return False if was_open else None
        self._failures += 1
        self._proven = False
        under_way = now < self._held_until  # begun before the line was held back: tells nothing new
        if told.retry_after_ms:
            self._held_until = max(self._held_until, now + told.retry_after_ms)
        if self._failures < FAILURES_TO_OPEN or under_way:
            return None
        self._held_until = max(self._held_until, now + self._pause_ms)
        self._pause_ms = min(self._pause_ms * 2, LONGEST_PAUSE_MS)
        was_open, self._open = self._open, True
        return None if was_open else True
