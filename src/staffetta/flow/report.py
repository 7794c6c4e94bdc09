"""Tells owners how their e-mails ended: claims, puts in line, calls, acknowledges or lets go.

What is not acknowledged stays CALLING-…-CALLBACK without a claim, and restore brings it round again. Each
receiver has a line of its own, so that a dead or slow one delays nobody else, and no line may fill the stage.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Protocol, TypeAlias

from staffetta.errors import LockNotAcquired, StoreError
from staffetta.flow.presence import Presence
from staffetta.mail import report
from staffetta.mail.events import Emit, LockLost, Reported, Troubled
from staffetta.mail.lines import FAILURES_TO_OPEN, Line
from staffetta.mail.message import Millis, ReportClaim
from staffetta.mail.report import Receiver, Receivers, ReportRules, Told
from staffetta.store.contract import Store

HELD_MAX = 20_000
"""E-mails held in this process at most: waiting for their call, or being told."""
CLAIM_MIN, CLAIM_MAX = 50, 1_000
CALLS_MAX = 256
"""Calls at a time to all receivers that operators named; and as many again to all that payloads named."""
COMPANY_CALLS_MAX = 32
"""Of the latter, so many of one company: nobody takes every place by naming many dead URLs."""


class Calls(Protocol):
    """Makes one call (`callback.Caller`)."""

    async def call(self, receiver: Receiver, webhook_id: str, body: bytes) -> Told: ...


@dataclasses.dataclass(slots=True, kw_only=True)
class ReportMeans:
    """What the stage is handed."""

    store: Store
    presence: Presence
    calls: Calls
    receivers: Receivers
    rules: ReportRules
    new_token: Callable[[], str]
    new_batch: Callable[[Millis], str]
    """A name for a batch: a UUIDv7 of the time it is given."""
    clock: Callable[[], Millis]
    ticks: Callable[[], Millis]
    """Counts on whatever the clock does: by it waits are measured."""
    emit: Emit
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    concurrency: int = 32
    """Calls at a time to one URL."""
    hold_ms: int = 15 * 60_000
    """A claim that waited this long is let go: half of what restore waits, so that nobody takes it from us."""
    held_max: int = HELD_MAX


@dataclasses.dataclass(slots=True, eq=False)
class _Call:
    """One call; after a conflict it is made again, word for word."""

    claims: Sequence[ReportClaim]
    receiver: Receiver
    webhook_id: str = ""
    body: bytes = b""
    tries: int = 0


_Line: TypeAlias = Line[_Call]


class Reporter:
    """The report stage of one worker."""

    def __init__(self, means: ReportMeans) -> None:
        self.means = means
        self.held = 0
        """E-mails whose claims this stage has now."""
        self._lines: dict[tuple[str, bool], _Line] = {}
        self._calls: set[_Call] = set()
        """Taken out of their line and not ended: under way, or waiting to be repeated."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: set[asyncio.Task[None]] = set()
        """Those that only wait for time to pass."""
        self._claiming: asyncio.Future[list[ReportClaim]] | None = None
        self._ask = CLAIM_MIN
        self._swept_at: Millis = 0
        self._stopping = False
        self._places = asyncio.Semaphore(CALLS_MAX)
        self._payloads_places = asyncio.Semaphore(CALLS_MAX)
        self._companies_places: dict[str, asyncio.Semaphore] = {}

    # ------------------------------------------------------------------------------------------ claiming

    async def step(self) -> int:
        """Claim what there is, and see to it that somebody calls. More than 0: there is probably more."""
        means = self.means
        now = means.clock()
        self._sweep(means.ticks())
        ask = min(self._ask, self._room())
        if ask <= 0 or self._stopping:
            return 0
        tokens = [means.new_token() for _ in range(ask)]
        self._claiming = asyncio.ensure_future(means.store.claim_reports(tokens=tokens, now=now))
        try:
            # Shielded: a stop in the middle must still learn what was claimed, to give it back.
            claims = await asyncio.shield(self._claiming)
        except StoreError:
            self._claiming = None
            raise
        self._claiming = None
        self._ask = min(CLAIM_MAX, ask * 2) if len(claims) == ask else max(CLAIM_MIN, len(claims) * 2)
        self._line_up(claims)
        return len(claims) if len(claims) == ask else 0

    def _room(self) -> int:
        """How many more to claim. While a line is long only because its owner is called as fast as he answers,
        not more than it can take: who is let go waits for restore, who is left in the store for a moment.
        """
        means = self.means
        room = means.held_max - self.held
        busy = max(
            (line.size for line in self._lines.values() if line.empties_soon(now=means.ticks())), default=None
        )
        return room if busy is None else max(0, room - busy) // 2

    def _line_up(self, claims: Sequence[ReportClaim]) -> None:
        """Put claims into their receivers' lines; those that find no room are let go for a while.

        A line may grow while as much is free as it holds itself: with n dead receivers, a part of n + 1 of the
        stage stays free for the others.
        """
        means = self.means
        nobody: list[ReportClaim] = []
        full: list[ReportClaim] = []
        grown: set[_Line] = set()
        for claim in claims:
            receiver = means.receivers.of(claim)
            if receiver is None:
                nobody.append(claim)
                continue
            line = self._line(receiver, claim.company_id)
            if line.size < means.held_max - self.held:
                line.add(claim, receiver, now=means.ticks())
                self.held += 1
                grown.add(line)
            else:
                full.append(claim)
        for line in grown:
            self._staff(line)
        if nobody:
            why = "no callback URL is set for it any more: set callback.url again, or leave it as it is"
            self._spawn(self._not_told(nobody, Told(status=0, body=why), "failed"))
        self._postpone(full, "the lines of their receivers are full")

    def _line(self, receiver: Receiver, company_id: str) -> _Line:
        key = (receiver.url, receiver.of_payload)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(
                company_id=company_id, of_payload=receiver.of_payload, calls_max=self.means.concurrency
            )
        return line

    def _sweep(self, now: Millis) -> None:
        """Let go of claims that have waited too long, and forget lines in which nothing happens."""
        if now - self._swept_at < self.means.hold_ms // 10:
            return
        self._swept_at = now
        for key, line in list(self._lines.items()):
            old = line.take_older(now - self.means.hold_ms)
            self.held -= len(old)
            self._postpone(old, "their receivers take no calls, or too few")
            if not line.waiting and not line.callers and not line.pause_ms(now=now):
                del self._lines[key]
        companies = {line.company_id for line in self._lines.values()}
        for company_id in self._companies_places.keys() - companies:
            del self._companies_places[company_id]

    # ------------------------------------------------------------------------------------------ calling

    def _staff(self, line: _Line) -> None:
        """As many callers as the line may have, and has work for."""
        places = line.places(now=self.means.ticks())
        while not self._stopping and line.callers < min(places, line.waiting):
            line.callers += 1
            self._spawn(self._work(line))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _rest(self, milliseconds: int) -> None:
        """Wait for time to pass; a stop ends this at once."""
        task = asyncio.current_task()
        assert task is not None, "whoever rests here was spawned"
        self._resting.add(task)
        try:
            await self.means.sleep(milliseconds / 1_000)
        finally:
            self._resting.discard(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            message = (
                "telling an owner was broken off by a fault of ours; restore brings his e-mails round again"
            )
            self.means.emit(Troubled(at=self.means.clock(), part="report", message=message, error=repr(error)))

    async def _work(self, line: _Line) -> None:
        """One caller: calls as long as there is something to tell, and waits where the line is held back."""
        means = self.means
        try:
            while line.waiting and not self._stopping and line.callers <= line.places(now=means.ticks()):
                pause = line.pause_ms(now=means.ticks())
                if pause:
                    await self._rest(pause)
                elif line.of_payload:
                    async with self._company_places(line.company_id), self._payloads_places:
                        call, told = await self._call_next(line)
                    await self._heard(line, call, told)
                else:
                    async with self._places:
                        call, told = await self._call_next(line)
                    await self._heard(line, call, told)
        finally:
            line.callers -= 1
            self._staff(line)

    def _company_places(self, company_id: str) -> asyncio.Semaphore:
        return self._companies_places.setdefault(company_id, asyncio.Semaphore(COMPANY_CALLS_MAX))

    async def _call_next(self, line: _Line) -> tuple[_Call | None, Told]:
        """Make the call whose turn it is, if there is one left now that there is a place."""
        if not line.waiting or self._stopping:
            return None, Told(status=0)
        call = line.repeats.popleft() if line.repeats else await self._new_call(line)
        call.tries += 1
        return call, await self.means.calls.call(call.receiver, call.webhook_id, call.body)

    async def _new_call(self, line: _Line) -> _Call:
        """Put into words what the next e-mails of the line are told by; a batch is kept before it is called."""
        means = self.means
        claims, receiver = line.take(means.rules.batch)
        call = _Call(claims=claims, receiver=receiver)
        self._calls.add(call)
        kept = report.kept_batch(claims[0])
        if kept is not None:
            members = await means.presence.insist(lambda: means.store.batch_members(kept))
            call.webhook_id, call.body = report.batched(kept, members, claims[0], means.rules)
        elif len(claims) > 1:
            batch = means.new_batch(report.batch_reached_at(claims))
            await means.presence.insist(lambda: means.store.bind_batch(batch, claims))
            call.webhook_id, call.body = report.batched(
                batch, [one.id for one in claims], claims[0], means.rules
            )
        else:
            call.webhook_id, call.body = report.single(claims[0], means.rules)
        return call

    # ------------------------------------------------------------------------------------------ what came of it

    async def _heard(self, line: _Line, call: _Call | None, told: Told) -> None:
        if call is None:
            return
        means = self.means
        now = means.clock()
        opened = line.learn(told, now=means.ticks())
        if opened is not None:
            self._breaker_moved(call.receiver, now=now, opened=opened)
        self._staff(line)
        outcome = report.outcome(told, call.tries, means.rules)
        if outcome == "conflict":
            self._tell(call.claims, outcome, told, now=now)
            self._spawn(self._repeat(line, call))
            return
        if outcome == "acknowledged":
            moves = [report.acknowledged(claim, now=now) for claim in call.claims]
            # The owner was told: that must not be forgotten, however long the store is away.
            results = await means.presence.insist(lambda: means.store.apply_all(moves))
            line.moved(len(call.claims), now=means.ticks())
            self._lost(call.claims, results, now=now)
            self._tell(call.claims, outcome, told, now=now)
        else:
            await self._not_told(call.claims, told, outcome)
        self._calls.discard(call)
        self.held -= len(call.claims)

    async def _repeat(self, line: _Line, call: _Call) -> None:
        await self._rest(self.means.rules.retry_interval_ms)
        line.repeats.append(call)
        self._staff(line)

    async def _not_told(self, claims: Sequence[ReportClaim], told: Told, outcome: report.Outcome) -> None:
        """The status stays, the claim goes: restore brings it round, unless its window is over."""
        means = self.means
        now = means.clock()
        over = [claim for claim in claims if report.exhausted(claim, means.rules, now=now)]
        rest = [claim for claim in claims if not report.exhausted(claim, means.rules, now=now)]
        if rest:
            await self._release(rest, now=now)
            self._tell(rest, outcome, told, now=now)
        if over:
            await self._release(over, now=now, exhausted=True)
            self._tell(over, "exhausted", told, now=now)

    def _postpone(self, claims: Sequence[ReportClaim], why: str) -> None:
        """Let go of e-mails that were not even called for."""
        if not claims:
            return
        now = self.means.clock()
        self._spawn(self._release(claims, now=now))
        message = (
            f"{len(claims)} outcomes wait for the next round of restore: {why}; see that the receivers answer"
        )
        self.means.emit(Troubled(at=now, part="report", message=message))

    async def _release(self, claims: Sequence[ReportClaim], *, now: Millis, exhausted: bool = False) -> None:
        means = self.means
        results = await means.presence.insist(
            lambda: means.store.release_reports(claims, now=now, exhausted=exhausted)
        )
        self._lost(claims, results, now=now)

    # ------------------------------------------------------------------------------------------ what is said

    def _tell(self, claims: Sequence[ReportClaim], outcome: str, told: Told, *, now: Millis) -> None:
        self.means.emit(
            Reported(
                at=now,
                ids=tuple(claim.id for claim in claims),
                company_id=claims[0].company_id,
                outcome=outcome,
                status=told.status,
                body=told.body,
            )
        )

    def _lost(self, claims: Sequence[ReportClaim], results: Sequence[Exception | None], *, now: Millis) -> None:
        """Others have taken some of these over meanwhile; what else went wrong is a fault to be told."""
        for claim, result in zip(claims, results, strict=True):
            if isinstance(result, LockNotAcquired):
                self.means.emit(LockLost(at=now, id=claim.id, company_id=claim.company_id, step="report"))
            elif result is not None:
                message = (
                    f"what came of the report of e-mail {claim.id} ({claim.company_id}) was not written down"
                )
                self.means.emit(Troubled(at=now, part="store", message=message, error=repr(result)))

    def _breaker_moved(self, receiver: Receiver, *, now: Millis, opened: bool) -> None:
        place = report.place(receiver.url)
        message = f"{place} takes callbacks again"
        if opened:
            message = f"{place} has not taken {FAILURES_TO_OPEN} callbacks in a row: it is asked one at a time"
        self.means.emit(Troubled(at=now, part="callback", message=message))

    # ------------------------------------------------------------------------------------------ stopping

    async def stop(self, grace_seconds: float) -> None:
        """No new calls; those under way may end; all else goes back to where it was, to be told later."""
        means = self.means
        self._stopping = True
        left: list[ReportClaim] = []
        if self._claiming is not None:
            with contextlib.suppress(StoreError):
                left += await self._claiming
        for task in self._resting.copy():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.copy(), timeout=grace_seconds)
        unfinished = self._tasks.copy()
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        now = means.clock()
        left += [claim for call in self._calls for claim in call.claims]
        for line in self._lines.values():
            left += line.take_older(means.ticks() + 1)
        why = "the worker stopped before its owner was told"
        moves = [report.given_back(claim, why, now=now) for claim in left]
        try:
            results = await means.store.apply_all(moves) if moves else []
        except StoreError as error:
            means.presence.lost(error)
        else:
            self._lost(left, results, now=now)
