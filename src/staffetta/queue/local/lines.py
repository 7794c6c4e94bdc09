"""What waits, company by company: each line is the head of the store's, within bounds, and knows where it ends.

It decides who competes for turns. It knows no clock, no leases and nothing of jobs that wait for their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staffetta.mail.fairness import Member, Turns, Weights
from staffetta.mail.limiter import Limit, Window
from staffetta.mail.message import Job, Millis
from staffetta.queue.local.line import Line

HUNGRY_MAX = 100
"""Companies named by one `hungry`."""
COMPANIES_MAX = 100_000
"""Companies remembered, unless more than these have something waiting; the longest idle ones are forgotten."""


class Company(Member):
    """A company's member of the order, with its line and where that ends."""

    __slots__ = (
        "active",
        "blocked",
        "counted",
        "cursor",
        "end",
        "line",
        "low",
        "missed",
        "more",
        "quota",
        "resting",
        "window",
    )

    def __init__(self, company_id: str, weight: float, number: int, *, by_age: bool, low: int) -> None:
        super().__init__(company_id, weight, number)
        self.line = Line(by_age=by_age)
        self.active = 0
        self.counted = False
        """It has something to give, here or in the store: these share the queue's room."""
        self.blocked = False
        self.resting = False
        """Its rate is used up for now."""
        self.window: Window | None = None
        self.more = False
        """The store may hold due jobs behind `end`."""
        self.end: Job | None = None
        """Everything of its line up to here was told to the queue (all of it was, unless `more`)."""
        self.cursor: Job | None = None
        """Behind which the next page begins."""
        self.quota = 0
        """How many may wait here, when last computed."""
        self.low = low
        """With so few waiting it is hungry."""
        self.missed = False
        """Something was refused since the next page was asked for: that page may not know it."""

    def has_room(self, now: Millis) -> bool:
        """Its rate lets one more through now."""
        return self.window is None or self.window.room(now) > 0

    def idle(self) -> bool:
        return not (self.counted or self.active or self.blocked or self.resting)


class Lines:
    """All companies' lines. `known` is the queue's: what leaves a line for lack of room is forgotten there."""

    def __init__(
        self,
        turns: Turns[Company],
        known: dict[str, Job],
        *,
        waiting_max: int,
        per_company_max: int,
        weights: Weights,
        rates: Mapping[str, Limit],
    ) -> None:
        self._turns = turns
        self._known = known
        self._waiting_max = waiting_max
        self._floor = 2 * turns.batch_max
        self._per_company_max = max(per_company_max, self._floor)
        self._weights = weights
        self._rates = rates
        self._weight_sum = 0.0
        self._numbers = 0
        self._hungry: dict[str, Company] = {}
        self.companies: dict[str, Company] = {}
        self.waiting = 0

    def company(self, company_id: str) -> Company:
        company = self.companies.get(company_id)
        return company if company is not None else self._meet(company_id)

    def _meet(self, company_id: str) -> Company:
        if len(self.companies) >= COMPANIES_MAX:
            self._forget_idle()
        self._numbers += 1
        company = Company(
            company_id,
            self._weights.of(company_id),
            self._numbers,
            by_age=not self._turns.fair,
            low=self._turns.batch_max,
        )
        rate = self._rates.get(company_id)
        if rate is not None:
            company.window = Window(rate)
        self.companies[company_id] = company
        return company

    def _forget_idle(self) -> None:
        idle = [one for one in self.companies.values() if one.idle() and one.window is None]
        idle.sort(key=lambda one: one.rank)
        for one in idle[: len(idle) // 2 + 1]:
            del self.companies[one.company_id]

    # --- in and out -------------------------------------------------------------------------------------------

    def put(self, job: Job, *, back: bool = False) -> bool:
        """Into its company's line, unless it stands behind what is known of it, or there is no room.

        `back`: it was taken from there and returns unsent.
        """
        company = self.companies.get(job.company_id) or self._meet(job.company_id)
        line = company.line
        if company.more and (company.end is None or place_of(job) > place_of(company.end)):
            company.missed = True
            return False
        waiting = len(line)
        if (
            waiting >= self._floor
            and (waiting >= company.quota or self.waiting >= self._waiting_max)
            and waiting >= self.allowance(company)
        ):
            last = line.last()
            if place_of(job) > place_of(last) or (not back and place_of(job) == place_of(last)):
                self._end_at(company, last)
                return False
            self._drop(company, line.drop_last())
        if back:
            line.put_back(job)
        else:
            line.put(job)
        self.waiting += 1
        if not company.counted or not self._turns.fair:
            self.compete(company)
        return True

    def _drop(self, company: Company, dropped: Job) -> None:
        """The store still has it: it comes again with a page."""
        del self._known[dropped.id]
        self.waiting -= 1
        # In plain order the last by age need not be the last of the store's line: then ask from the beginning.
        line = company.line
        self._end_at(company, line.last() if self._turns.fair and len(line) else None)

    def _end_at(self, company: Company, end: Job | None) -> None:
        company.more = company.missed = True
        company.end = company.cursor = end
        company.low = self._low(self.allowance(company))
        self.see_hunger(company)

    def stock(self, company: Company, jobs: Sequence[Job], *, after: Job | None, more: bool) -> list[Job]:
        """A page of the company's line. Suspects do not wait in lines: they are returned, with what was new."""
        line, known, fresh = company.line, self._known, []
        allowance = self.allowance(company)
        last = after
        for job in jobs:
            if job.id not in known:
                if len(line) >= allowance:
                    more = True
                    break
                known[job.id] = job
                fresh.append(job)
                if not job.suspect:
                    line.put(job)
                    self.waiting += 1
            last = job
        if more or company.missed:
            company.more = True
            company.cursor = last
            if last is not None and (company.end is None or place_of(company.end) < place_of(last)):
                company.end = last
        else:
            self._all_told(company)
        company.low = self._low(allowance)
        self.compete(company)
        self.see_hunger(company)
        return fresh

    def owe(self, company: Company, *, more: bool) -> None:
        """Whether the store has due jobs of this company that were never told here."""
        if more and not company.more:
            company.more = True
            company.end = max(company.line, key=place_of, default=None)
            company.cursor = None
        elif not more and not company.missed:
            self._all_told(company)
        self.compete(company)
        self.see_hunger(company)

    def _all_told(self, company: Company) -> None:
        company.more = False
        company.end = company.cursor = None

    def take(self, company: Company, count: int, into: list[Job]) -> None:
        company.line.take(count, into)
        company.active += count
        self.waiting -= count

    def remove(self, company: Company, job: Job) -> bool:
        """Cancelled, or settled by another: whether it waited."""
        if not company.line.remove(job):
            return False
        self.waiting -= 1
        self.compete(company)
        self.see_hunger(company)
        return True

    # --- who competes -----------------------------------------------------------------------------------------

    def compete(self, company: Company) -> None:
        """Bring the order in line with what this company has and may do."""
        turns = self._turns
        wants = bool(company.line) or company.more
        if wants is not company.counted:
            company.counted = wants
            self._weight_sum += company.weight if wants else -company.weight
        if company.blocked or company.resting:
            turns.leave(company)
        elif wants:
            if not turns.fair:
                self.age(company)
            turns.join(company)
        elif turns.holder is company:
            turns.finish(waiting=False)
        else:
            turns.leave(company)

    def age(self, company: Company) -> None:
        """In plain order a company stands where its oldest job stands."""
        if company.line:
            age = float(company.line.head().due_at)
        else:
            age = float(company.end.due_at) if company.end is not None else 0.0
        if age != company.tag:
            company.tag = age
            self._turns.moved(company)

    def set_weight(self, company: Company, weight: float) -> None:
        if company.counted:
            self._weight_sum += weight - company.weight
        self._turns.set_weight(company, weight)

    # --- room and hunger --------------------------------------------------------------------------------------

    def allowance(self, company: Company) -> int:
        """How many may wait here of this company: its share of the room by weight."""
        if self.waiting >= self._waiting_max:
            company.quota = self._floor
            return self._floor
        total = self._weight_sum if company.counted else self._weight_sum + company.weight
        share = int(self._waiting_max * company.weight / total) if total > 0 else self._waiting_max
        company.quota = max(self._floor, min(self._per_company_max, share))
        return company.quota

    def room(self, company: Company) -> int:
        return max(0, self.allowance(company) - len(company.line))

    def _low(self, allowance: int) -> int:
        return max(self._turns.batch_max, allowance // 2)

    def see_hunger(self, company: Company) -> bool:
        """Whether this company became hungry just now."""
        if company.more and not company.blocked and len(company.line) <= company.low:
            if company.company_id in self._hungry:
                return False
            self._hungry[company.company_id] = company
            return True
        self._hungry.pop(company.company_id, None)
        return False

    def any_hungry(self) -> bool:
        return bool(self._hungry)

    def hungry(self) -> dict[str, Job | None]:
        neediest = list(self._hungry.values())
        if len(neediest) > 1:
            neediest.sort(key=_need)
        for company in neediest[:HUNGRY_MAX]:
            company.missed = False
        return {company.company_id: company.cursor for company in neediest[:HUNGRY_MAX]}


def place_of(job: Job) -> tuple[int, Millis]:
    """Where a job stands in its company's line in the store."""
    return (job.priority, job.due_at)


def _need(company: Company) -> tuple[int, float]:
    return (len(company.line), company.tag)
