"""Whose turn it is: the specification of the queue's order, which every queue must give for the same calls.

Start-time fair queueing over companies. Each has a *tag*: the virtual time at which its next turn starts.

    turn starts    the lowest tag (then: served least recently, then: known longest); virtual time = its tag
    turn costs     its tag grows by batch_max / weight
    turn ends      after batch_max jobs, or when nothing waits; cut short for another reason, it is refunded
    joins          tag = max(virtual time, its own tag): it comes first when it was away, and banks no credit

At any moment every competing company's tag lies in [virtual time, virtual time + batch_max / weight]; the law
of fairness follows from that alone, whatever the order of arrivals. With equal weights the order is "served
least recently first". No clock, no chance, no jobs: only turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from heapq import heapify, heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from staffetta.mail.message import Millis, Value

BATCH_MAX = 3
"""Jobs in a row of one company (`fairness.max_jobs_per_batch`)."""
NEWCOMER_TURNS = 1_000
"""A company never served counts as served this many turns ago: it wins ties, but a flood of invented companies
passes nobody for longer than that."""
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1_000.0


class Priorities(Value, frozen=True, kw_only=True):
    """The seed's figures from which a company's shown priority is computed."""

    base: int = 5
    increment: int = 1
    highest: int = 1
    """1 is the most urgent: the figure never goes below."""


DEFAULT_PRIORITIES = Priorities()


def company_priority(rounds: int, priorities: Priorities = DEFAULT_PRIORITIES) -> int:
    """`calculateRoundRobinPriority` of the seed: the longer a company waits, the more urgent (smaller)."""
    return max(priorities.highest, priorities.base - max(0, rounds) * priorities.increment)


class Weights(Value, frozen=True, kw_only=True):
    """Shares by company id or pattern (`*`, `?`, `[…]`): an exact id wins, then the first pattern that fits."""

    named: Mapping[str, float] = {}
    default: float = 1.0

    def __post_init__(self) -> None:
        for name, weight in (*self.named.items(), ("default", self.default)):
            check_weight(name, weight)

    def of(self, company_id: str) -> float:
        exact = self.named.get(company_id)
        if exact is not None:
            return exact
        for pattern, weight in self.named.items():
            if fnmatchcase(company_id, pattern):
                return weight
        return self.default


def check_weight(company_id: str, weight: float) -> None:
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ValueError(
            f"weight of company {company_id} is {weight}: give a number from {WEIGHT_MIN} to {WEIGHT_MAX:.0f}"
        )


class Member:
    """What the order knows of one company."""

    __slots__ = ("company_id", "given", "last_given_at", "number", "place", "rank", "since", "tag", "weight")

    def __init__(self, company_id: str, weight: float, number: int) -> None:
        self.company_id = company_id
        self.weight = weight
        self.number = number
        """Grows with each company that becomes known: the last tie-break."""
        self.tag = 0.0
        """Where its next turn starts (in plain order: the due time of its first job)."""
        self.rank = 0
        """Number of its last turn; of a newcomer see NEWCOMER_TURNS."""
        self.since = 0
        """Number of turns there had been when it joined."""
        self.given = 0
        self.last_given_at: Millis | None = None
        self.place: tuple[float, int, int, Member] | None = None
        """Its entry in the order while it waits there."""


M = TypeVar("M", bound=Member)
Place: TypeAlias = tuple[float, int, int, M]


class Turns(Generic[M]):
    """The order itself: companies join, have their turns, and leave.

    A member competes from `join` to `leave` or a `finish` that says it has nothing left.
    With `fair=False` it is plain order by age: whoever keeps the jobs sets `member.tag` to the due time of the
    first one before `join` and `finish`, and each turn is one job.
    """

    def __init__(self, *, batch_max: int = BATCH_MAX, fair: bool = True) -> None:
        self.batch_max = batch_max if fair else 1
        self.fair = fair
        self.virtual_time = 0.0
        self.turn = 0
        """Turns started so far."""
        self.holder: M | None = None
        self.left = 0
        """Jobs that the present turn may still give."""
        self._order: list[Place[M]] = []
        self._stale = 0

    def __len__(self) -> int:
        """How many compete."""
        return len(self._order) - self._stale + (self.holder is not None)

    def competes(self, member: M) -> bool:
        return member.place is not None or member is self.holder

    def join(self, member: M) -> None:
        """It has something to give. Joining twice changes nothing."""
        if member.place is not None or member is self.holder:
            return
        member.since = self.turn
        if not member.given:
            member.rank = self.turn - NEWCOMER_TURNS
        if self.fair and member.tag < self.virtual_time:
            member.tag = self.virtual_time
        self._push(member)

    def whose(self) -> M | None:
        """Who has the turn; where the last turn is over, the next begins. None: nobody competes."""
        if self.holder is not None:
            return self.holder
        member = self.peek()
        if member is None:
            return None
        heappop(self._order)
        member.place = None
        self.turn += 1
        self.holder = member
        self.left = self.batch_max
        member.rank = self.turn
        if self.fair:
            self.virtual_time = member.tag
            member.tag += self.batch_max / member.weight
        return member

    def peek(self) -> M | None:
        """Who has the turn or would have the next one; nothing changes."""
        if self.holder is not None:
            return self.holder
        order = self._order
        while order and order[0][3].place is not order[0]:
            heappop(order)
            self._stale -= 1
        return order[0][3] if order else None

    def serve(self, count: int, *, at: Millis) -> None:
        """The holder was given `count` jobs (not more than `left`)."""
        member = self.holder
        assert member is not None, "nobody has the turn"
        assert count <= self.left, "more than a turn gives"
        member.given += count
        member.last_given_at = at
        self.left -= count

    def finish(self, *, waiting: bool) -> None:
        """The turn is over: nothing left to give, or `left` is 0. `waiting`: it goes on competing."""
        member = self.holder
        assert member is not None, "nobody has the turn"
        self.holder = None
        self.left = 0
        if waiting:
            self._push(member)

    def leave(self, member: M) -> None:
        """It may not be served now (paused, held, rate-limited): what its turn did not give is refunded."""
        if member is self.holder:
            if self.fair:
                member.tag -= self.left / member.weight
            self.holder = None
            self.left = 0
        self._unplace(member)

    def set_weight(self, member: M, weight: float) -> None:
        """Acts at once: what it still owes for turns already had is counted by the new weight."""
        check_weight(member.company_id, weight)
        ahead = member.tag - self.virtual_time
        if self.fair and ahead > 0:
            member.tag = self.virtual_time + ahead * (member.weight / weight)
        member.weight = weight
        self.moved(member)

    def moved(self, member: M) -> None:
        """In plain order: its first job is another one now; `member.tag` says how old."""
        if member.place is not None:
            self._unplace(member)
            self._push(member)

    def _push(self, member: M) -> None:
        place = (member.tag, member.rank, member.number, member)
        member.place = place
        heappush(self._order, place)

    def _unplace(self, member: M) -> None:
        """Its entry is skipped when it comes up; where too many such ones gather, they are swept out."""
        if member.place is None:
            return
        member.place = None
        self._stale += 1
        if self._stale > 64 and self._stale * 2 > len(self._order):
            self._order = [place for place in self._order if place[3].place is place]
            heapify(self._order)
            self._stale = 0

    def rounds_without_processing(self, member: M) -> int:
        """Turns given to others since its last one, while it was competing."""
        if member.place is None:
            return 0
        return self.turn - max(member.since, member.rank)

    def consecutive(self, member: M) -> int:
        """Jobs in a row in its present turn; 0 when it is not its turn."""
        return self.batch_max - self.left if member is self.holder else 0
