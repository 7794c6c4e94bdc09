"""The lines in which calls wait, one a receiver's URL: whose turn it is, how many at a time, when to hold back.

Pure: a line counts and decides, `flow/report.py` makes the calls. Nothing here is kept; the store has it all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from staffetta.mail import report
from staffetta.mail.message import Millis, ReportClaim
from staffetta.mail.report import Receiver, Told

FAILURES_TO_OPEN = 5
"""So many calls in a row that the receiver could not take, and it is left in peace for a while."""
FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 60_000
PACE_MS = 1_000
SOON_SECONDS = 30
UNPROVEN_CALLS = 2
"""At a time, while a receiver has not answered well yet: unknown ones cannot take every place."""

Repeat = TypeVar("Repeat")


class Line(Generic[Repeat]):
    """What is to be told by calls to one URL: e-mails, and calls that are to be made once more (`Repeat`)."""

    def __init__(self, *, company_id: str, of_payload: bool, calls_max: int) -> None:
        self.company_id = company_id
        """Of its first e-mail: whose places its calls take, where a payload named the URL."""
        self.of_payload = of_payload
        self.callers = 0
        """Callers at work; whoever counts one in counts it out."""
        self.size = 0
        """E-mails that wait here."""
        self.repeats: deque[Repeat] = deque()
        self._calls_max = calls_max
        self._groups: dict[Hashable, deque[tuple[Millis, ReportClaim, Receiver]]] = {}
        self._proven = False
        self._failures = 0
        self._open = False
        self._pause_ms = FIRST_PAUSE_MS
        self._held_until: Millis = 0
        self._told = 0
        """E-mails told well since `_told_since`."""
        self._told_since: Millis = 0
        self._pace = 0.0
        """E-mails told well a second, as last measured."""

    # ------------------------------------------------------------------------------------------ who waits

    def add(self, claim: ReportClaim, receiver: Receiver, *, now: Millis) -> None:
        self._groups.setdefault(report.group(claim), deque()).append((now, claim, receiver))
        self.size += 1

    @property
    def waiting(self) -> int:
        """Calls that could be made now, at most."""
        return self.size + len(self.repeats)

    def take(self, batch_max: int) -> tuple[Sequence[ReportClaim], Receiver]:
        """The e-mails of the next call: of the group whose turn it is, oldest first. The others move up."""
        key = next(iter(self._groups))
        group = self._groups.pop(key)
        _, first, receiver = group[0]
        count = len(group) if report.kept_batch(first) is not None else min(batch_max, len(group))
        taken = [group.popleft()[1] for _ in range(count)]
        if group:
            self._groups[key] = group  # at the end: companies that share a receiver take turns
        self.size -= count
        return taken, receiver

    def take_older(self, than: Millis) -> list[ReportClaim]:
        """Those that have waited since before then: their claims are not held for ever."""
        old = []
        for key, group in list(self._groups.items()):
            while group and group[0][0] < than:
                old.append(group.popleft()[1])
            if not group:
                del self._groups[key]
        self.size -= len(old)
        return old

    # ------------------------------------------------------------------------------------------ how many, when

    def places(self, *, now: Millis) -> int:
        """Callers at a time: one while it is held back or its breaker open, few until it has answered well."""
        if self._open or now < self._held_until:
            return 1
        return self._calls_max if self._proven else min(UNPROVEN_CALLS, self._calls_max)

    def pause_ms(self, *, now: Millis) -> int:
        """How long this line is still held back."""
        return max(0, self._held_until - now)

    def moved(self, count: int, *, now: Millis) -> None:
        """So many e-mails were told well."""
        past = now - self._told_since
        if past >= PACE_MS:
            self._pace = self._told * 1_000 / past if past < 2 * PACE_MS else 0.0
            self._told, self._told_since = 0, now
        self._told += count

    def empties_soon(self, *, now: Millis) -> bool:
        """It moves, and at its pace nobody in it waits long: it is busy, not slow."""
        past = now - self._told_since
        if self._open or not self._proven or past >= 2 * PACE_MS:
            return False
        pace = max(self._pace, self._told * 1_000 / max(past, PACE_MS))
        return self.size <= pace * SOON_SECONDS

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
