"""One company's waiting jobs in the queue's memory, in order: priority, then due time, then as they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from staffetta.mail.message import Job, Millis

Late: TypeAlias = tuple[int, Millis, int, Job]
"""Priority, due time, when it came; below 0 for those that came back."""
RETURNED = 1 << 60


class Line:
    """A run of jobs that came in order, and beside it a heap of those that came late.

    Most jobs come in order, so that putting in and taking out cost next to nothing. A late job is
    smaller than the run's last one, and while late ones wait no new run is begun: so of two equal ones the one
    in the run came first, unless the other stood here before and came back.
    """

    __slots__ = ("_beyond", "_by_age", "_came", "_late", "_run")

    def __init__(self, *, by_age: bool = False) -> None:
        self._by_age = by_age
        self._run: deque[Job] = deque()
        self._late: list[Late] = []
        self._came = 0
        self._beyond = False
        """One that came back may stand behind the run's last one."""

    def __len__(self) -> int:
        return len(self._run) + len(self._late)

    def __iter__(self) -> Iterator[Job]:
        yield from self._run
        for late in self._late:
            yield late[3]

    def put(self, job: Job) -> None:
        run = self._run
        if run:
            last = run[-1]
            if job.due_at >= last.due_at:
                in_order = self._by_age or job.priority >= last.priority
            else:
                in_order = not self._by_age and job.priority > last.priority
            if in_order:
                run.append(job)
                return
        elif not self._late:
            run.append(job)
            return
        self._came += 1
        self._put_late(job, self._came)

    def put_back(self, job: Job) -> None:
        """One that was taken returns unsent: it stood before all its equals, and does so again."""
        self._beyond = self._beyond or (bool(self._run) and self._rank(self._run[-1]) < self._rank(job))
        self._came += 1
        self._put_late(job, self._came - RETURNED)

    def _put_late(self, job: Job, came: int) -> None:
        heappush(self._late, (*self._rank(job), came, job))

    def head(self) -> Job:
        """The first one; the line is not empty."""
        if not self._late:
            return self._run[0]
        return self._run[0] if self._run_is_next() else self._late[0][3]

    def _run_is_next(self) -> bool:
        """Of two equal ones the run's came first, unless the late one came back. Something late is there."""
        return bool(self._run) and (*self._rank(self._run[0]), 0) <= self._late[0][:3]

    def take(self, count: int, into: list[Job]) -> None:
        """Move the first `count` (no more than there are) to `into`."""
        run, late = self._run, self._late
        if not late:
            for _ in range(count):
                into.append(run.popleft())  # noqa: PERF401  # a deque gives its head away only one by one
            return
        for _ in range(count):
            if not late or self._run_is_next():
                into.append(run.popleft())
            else:
                into.append(heappop(late)[3])

    def last(self) -> Job:
        """The last one; the line is not empty."""
        self._straighten()
        return self._run[-1]

    def drop_last(self) -> Job:
        """Take the last one away; the line is not empty."""
        self._settle()
        return self._run.pop()

    def remove(self, job: Job) -> bool:
        """Take this very job out of the line; whether it was there. It costs a walk: for cancelled ones."""
        for place, late in enumerate(self._late):
            if late[3] is job:
                self._late[place] = self._late[-1]
                self._late.pop()
                heapify(self._late)
                return True
        for place, other in enumerate(self._run):
            if other is job:
                if place == len(self._run) - 1:
                    self._settle()
                    self._run.remove(job)
                    return True
                del self._run[place]
                return True
        return False

    def _straighten(self) -> None:
        """Make one run of everything, where the last one may be among the late."""
        if self._beyond or not self._run:
            self._settle()
        self._beyond = False

    def _settle(self) -> None:
        """Make one run of everything. Whoever takes the run's last one away must: those that came late are
        smaller than that one, and nothing says that they are smaller than the one before it."""
        if self._late:
            ranked = [*((*self._rank(job), 0, job) for job in self._run), *self._late]
            self._run = deque(one[3] for one in sorted(ranked, key=_order))
            self._late.clear()
            self._beyond = False

    def _rank(self, job: Job) -> tuple[int, Millis]:
        return (0 if self._by_age else job.priority, job.due_at)


def _order(late: Late) -> tuple[int, Millis, int]:
    return late[:3]
