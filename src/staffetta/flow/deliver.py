"""Sends one e-mail once, and records what came of it: claim, hand over, judge, move, tell the queue.

From the committed mark on the mail may be out: nothing below it may cause a second send. Whatever dies on the
way, restore finds the claim and the journal, and goes on from there.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from staffetta import failpoints
from staffetta.errors import LockNotAcquired, NotFound, QueueError, StaffettaError, StoreError
from staffetta.flow import believe
from staffetta.flow.expire import end_expired
from staffetta.flow.presence import Presence
from staffetta.flow.routes import Route, Routes
from staffetta.mail import parts
from staffetta.mail.attempt import Rules, after_attempt, after_hold, after_stop
from staffetta.mail.events import Attempted, Emit, LockLost, Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import (
    Claim,
    Delivery,
    Job,
    Millis,
    RecipientReply,
    Reply,
    Transition,
    Verdict,
)
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

Stage = Literal["idle", "claiming", "sending", "recording"]
STOPPED = "stopped"
FILE_WAIT_MS = 30_000
"""A message file that cannot be read now is read again after this."""


class TooLate(StaffettaError):
    """The final dot was not sent: it would have been too long after the claim."""


def _nobody(job: Job, token: str, why: str) -> None:
    """Replaced by the worker that these means are for."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Means:
    """What all riders of one worker share."""

    store: Store
    queue: Queue
    routes: Routes
    rulebook: RuleBook
    presence: Presence
    judge: Callable[[Reply], Verdict]
    read_message: Callable[[str], Awaitable[bytes]]
    """Reads a message that lies in a file."""
    new_token: Callable[[], str]
    clock: Callable[[], Millis]
    monotonic: Callable[[], float]
    draw: Callable[[], float]
    emit: Emit
    heard: Callable[[], bool]
    """Whether anybody wants to hear of good attempts: they are the bulk, and not made for nobody."""
    unsure: Callable[[Job, str, str], None] = _nobody
    """Told of a claim that may exist without a rider: (job, token, why). Somebody looks at it later."""
    deadline_seconds: float = 900.0
    mark_seconds: float = 30.0
    """A mark whose answer took longer than this is not trusted: others may have taken the e-mail over."""


class Rider:
    """One of a worker's riders: carries one e-mail at a time, and knows how far it has come."""

    __slots__ = (
        "alone", "claim", "committed_at", "interrupted", "job", "means", "since", "stage", "task", "token",
        "transport",
    )  # fmt: skip

    def __init__(self, means: Means) -> None:
        self.means = means
        self.task: asyncio.Task[None] | None = None
        self.job: Job | None = None
        self.claim: Claim | None = None
        self.token = ""
        self.transport = ""
        self.committed_at: Millis = 0
        self.since = 0.0
        self.alone = False
        self.stage: Stage = "idle"
        self.interrupted = ""

    def reset(self) -> None:
        self.job, self.claim, self.token, self.committed_at = None, None, "", 0
        self.stage, self.interrupted = "idle", ""

    def carried(self) -> Claim:
        claim = self.claim
        assert claim is not None, "a rider hands over only what it has claimed"
        return claim

    async def before_dot(self) -> None:
        """The mark that makes a second send impossible without an operator's or the in-doubt rule's word."""
        means, claim = self.means, self.carried()
        asked = means.monotonic()
        if asked - self.since > means.deadline_seconds:
            raise TooLate
        now = means.clock()
        await means.store.commit(claim, transport=self.transport, now=now)
        # A process that was stopped while the mark was written may have been restored and overtaken meanwhile.
        if means.monotonic() - asked > means.mark_seconds:
            raise TooLate
        self.committed_at = now
        if failpoints.armed:
            failpoints.reach("flow.marked")

    def interrupt(self, why: str) -> None:
        """End the wait for the other side now, or do not begin it: an orderly stop, or a claim grown too old.

        What was heard is recorded all the same: only waiting for a transport is cut short.
        """
        if self.stage != "idle" and not self.interrupted:
            self.interrupted = why
            if self.stage == "sending" and self.task is not None:
                self.task.cancel()


async def deliver(job: Job, rider: Rider, means: Means) -> None:
    """Send one e-mail once, and record what came of it."""
    claim = await _claim(job, rider, means)
    if claim is None:
        return
    if failpoints.armed:
        failpoints.reach("flow.claimed")
    rules = means.rulebook.rules_for(claim.company_id, claim.options)
    if claim.late is not None:
        # This reply came too late for its own claim: believe it, never send again.
        move: Transition | None = believe.late_reply(claim, rules, now=means.clock(), draw=means.draw())
    elif claim.expires_at <= claim.at:
        move = after_hold(claim, reason="its time is over", due_at=claim.at, now=claim.at, rules=rules)
    elif not claim.recipients and not claim.settled:
        move = _without_envelope(claim, rules, means)
    else:
        move = await _send(claim, rules, rider, means)
    rider.stage = "recording"
    if failpoints.armed:
        failpoints.reach("flow.answered")
    if move is None or not await _record(move, claim, rules, job, means):
        await _settle(job, means)
        return
    if move.target is Status.READY and claim.expires_at > move.at:
        await _postpone(job, move, means)
        return
    await _settle(job, means)
    if move.dead_letter is not None:
        await _bury(job, move, means)
    if move.target is Status.READY:
        await end_expired(claim.id, store=means.store, rulebook=means.rulebook, now=move.at, emit=means.emit)


# ------------------------------------------------------------------------------------------------ claim, record


async def _claim(job: Job, rider: Rider, means: Means) -> Claim | None:
    """The claim, or None: not due, finished, or in another worker's hands; or the store is away."""
    rider.stage = "claiming"
    rider.since = means.monotonic()
    token = rider.token = means.new_token()
    try:
        claim = await means.store.claim(job, token=token, now=means.clock(), alone=rider.alone)
    except StoreError as error:
        means.presence.lost(error)
        means.unsure(job, token, "claim")
        await _settle(job, means)
        return None
    if claim is None:
        await _settle(job, means)
    rider.claim = claim
    return claim


async def _record(move: Transition, claim: Claim, rules: Rules, job: Job, means: Means) -> bool:
    """Apply the move, however long the store is away; False when another worker has the e-mail."""
    try:
        if means.presence.here:
            try:
                await means.store.apply(move)
            except StoreError as error:
                means.presence.lost(error)
                await means.presence.insist(lambda: means.store.apply(move))
        else:
            await means.presence.insist(lambda: means.store.apply(move))
    except LockNotAcquired:
        means.emit(LockLost(at=move.at, id=claim.id, company_id=claim.company_id, step="deliver"))
        return False
    if move.attempt is not None and (move.target is not Status.SENT or means.heard()):
        means.emit(_attempted(move, claim, rules, job))
    return True


def _attempted(move: Transition, claim: Claim, rules: Rules, job: Job) -> Attempted:
    attempt = move.attempt
    assert attempt is not None, "every move out of PROCESSING closes an attempt"
    return Attempted(
        at=move.at,
        id=claim.id,
        company_id=claim.company_id,
        attempt=attempt.attempt,
        attempts=claim.attempts if move.attempts is None else move.attempts,
        max_attempts=rules.policy.max_attempts,
        counted=attempt.counted,
        transport=attempt.transport,
        committed=attempt.committed_at > 0,
        target=move.target,
        cause=move.cause,
        decision=attempt.decision,
        opened_at=claim.at,
        accepted_at=claim.created_at,
        due_at=job.due_at,
        reason=move.reason,
    )


async def _settle(job: Job, means: Means) -> None:
    try:
        await means.queue.settle((job.id,))
    except QueueError as error:
        _queue_away(error, means)


async def _bury(job: Job, move: Transition, means: Means) -> None:
    try:
        await means.queue.bury((job.id,), now=move.at)
    except QueueError as error:
        _queue_away(error, means)


async def _postpone(job: Job, move: Transition, means: Means) -> None:
    due_at = move.at if move.due_at is None else move.due_at
    try:
        await means.queue.postpone((msgspec.structs.replace(job, due_at=due_at),))
    except QueueError as error:
        _queue_away(error, means)


def _queue_away(error: QueueError, means: Means) -> None:
    message = "the queue was not told how an attempt ended; it hears of it from the store"
    means.emit(Troubled(at=means.clock(), part="queue", message=message, error=str(error)))


# ------------------------------------------------------------------------------------------------------ sending


async def _send(claim: Claim, rules: Rules, rider: Rider, means: Means) -> Transition | None:
    """One attempt, and the move that follows from it. None: the claim is another worker's now."""
    rider.stage = "sending"
    try:
        message = claim.message or await _message(claim, means)
        ended = await _hand_over_in_parts(message, rules, rider, means)
    except LockNotAcquired:
        means.emit(LockLost(at=means.clock(), id=claim.id, company_id=claim.company_id, step="commit"))
        return None
    except StoreError as error:
        # The mark could not be written, so the dot was not sent.
        means.presence.lost(error)
        return _held("the store did not answer before the final dot", rules, rider, means)
    except OSError as error:
        told = f"the message file of e-mail {claim.id} of {claim.company_id} cannot be read: {error}"
        means.emit(Troubled(at=means.clock(), part="spool", message=told, error=repr(error)))
        return _held(told, rules, rider, means, wait_ms=FILE_WAIT_MS)
    except asyncio.CancelledError:
        if not rider.interrupted:
            raise
        if rider.task is not None:
            rider.task.uncancel()
        return _interrupted(rules, rider, means)
    if isinstance(ended, Transition):
        return ended
    delivery, verdicts = ended
    claim = rider.carried()
    now = means.clock()
    if not means.routes.open_for(claim.company_id):
        again_at = means.routes.open_again_at(claim.company_id, now=now)
        rules, verdicts = msgspec.structs.replace(rules, held_until=again_at), parts.held(verdicts)
    return after_attempt(
        claim, delivery, verdicts, rules, now=now, draw=means.draw(), committed_at=rider.committed_at
    )


async def _hand_over_in_parts(
    message: bytes | memoryview, rules: Rules, rider: Rider, means: Means
) -> tuple[Delivery, list[Verdict]] | Transition:
    """Hand over by the first open transport; the rest, or by the next transport, in further parts."""
    routes = means.routes
    tried: tuple[str, ...] = ()
    while not rider.interrupted:
        claim = rider.carried()
        route = routes.pick(claim.company_id, tried)
        limited = route is not None and route.limit is not None
        if limited:
            route = await routes.admit(claim.company_id, tried)
        if route is None:
            return _no_way(rules, rider, means)
        rider.transport, rider.committed_at = route.name, 0
        try:
            delivery = await _hand_over(claim, message, route, rider, means)
            verdicts = [means.judge(answer.reply) for answer in delivery.replies]
            routes.learn(route, delivery, verdicts)
        finally:
            if limited:
                routes.leave(route)
        if len(verdicts) == 1 and verdicts[0].action == "DELIVERED":
            return delivery, verdicts
        another = routes.pick(claim.company_id, (*tried, route.name)) is not None
        following = parts.next_part(delivery, verdicts, another=another)
        if not following:
            return delivery, verdicts
        if following == "fallback":
            tried = (*tried, route.name)
        await _open_next_part(claim, delivery, verdicts, rider, means)
    return _interrupted(rules, rider, means)


def _without_envelope(claim: Claim, rules: Rules, means: Means) -> Transition:
    """Another program made it READY, and neither a payload nor the message's headers say whom it goes to."""
    text = "it names no sender or no recipient: neither its payload nor its message's headers could be read for them"
    reply = Reply(stage="mail", name="bad-address", text=text)
    delivery = Delivery(transport="", replies=(RecipientReply(address="", reply=reply),), committed=False)
    now = means.clock()
    return after_attempt(claim, delivery, [means.judge(reply)], rules, now=now, draw=0.0, committed_at=0)


def _no_way(rules: Rules, rider: Rider, means: Means) -> Transition:
    """No transport that this e-mail may use is open: kept as READY, nothing counted."""
    claim, now = rider.carried(), means.clock()
    due_at = means.routes.open_again_at(claim.company_id, now=now)
    reason = means.routes.why_closed(claim.company_id)
    return after_hold(claim, reason=reason, due_at=due_at, now=now, rules=rules)


def _held(reason: str, rules: Rules, rider: Rider, means: Means, *, wait_ms: int = 0) -> Transition:
    now = means.clock()
    return after_hold(rider.carried(), reason=reason, due_at=now + wait_ms, now=now, rules=rules)


async def _hand_over(
    claim: Claim, message: bytes | memoryview, route: Route, rider: Rider, means: Means
) -> Delivery:
    """Hand the message to one transport. What breaks there becomes a reply: the e-mail's life goes on."""
    try:
        return await route.transport.send(
            claim.sender, claim.recipients, message, before_dot=rider.before_dot, tags=claim.options.tags
        )
    except (LockNotAcquired, StoreError):
        raise
    except TooLate as error:
        reply = Reply(stage="data", name="timeout", text=str(error))
    except Exception as error:  # noqa: BLE001  # whatever broke, the journal must say how far the e-mail had come
        told = f"transport {route.name} broke while it sent e-mail {claim.id} of {claim.company_id}"
        means.emit(Troubled(at=means.clock(), part="transport", message=told, error=repr(error)))
        reply = Reply(
            stage="dot" if rider.committed_at else "data",
            name="unexpected",
            text=f"{type(error).__name__}: {error}",
            committed=rider.committed_at > 0,
        )
    return _same_for_all(claim, route.name, reply)


def _same_for_all(claim: Claim, transport: str, reply: Reply) -> Delivery:
    return Delivery(
        transport=transport,
        replies=tuple(RecipientReply(address=address, reply=reply) for address in claim.recipients),
        committed=reply.committed,
    )


def _interrupted(rules: Rules, rider: Rider, means: Means) -> Transition:
    """The wait was ended from here: before the mark nothing was delivered, after it the e-mail is in doubt."""
    claim, now = rider.carried(), means.clock()
    if rider.committed_at:
        text = "the wait for the reply was ended by a stop of the worker"
        reply = Reply(stage="dot", name="stopped", text=text, committed=True)
        delivery = _same_for_all(claim, rider.transport, reply)
        verdicts = [means.judge(answer.reply) for answer in delivery.replies]
        return after_attempt(
            claim, delivery, verdicts, rules, now=now, draw=means.draw(), committed_at=rider.committed_at
        )
    if rider.interrupted == STOPPED:
        return after_stop(claim, transport=rider.transport, now=now, rules=rules)
    return _held(rider.interrupted, rules, rider, means)


async def _open_next_part(
    claim: Claim, delivery: Delivery, verdicts: Sequence[Verdict], rider: Rider, means: Means
) -> None:
    """The same claim goes on; what this part brought is kept first, however long the store is away."""
    closed = parts.close_part(claim, delivery, verdicts, now=means.clock(), committed_at=rider.committed_at)
    rider.stage = "recording"
    rider.claim = await means.presence.insist(lambda: means.store.next_part(claim, closed))
    rider.stage, rider.committed_at = "sending", 0


async def _message(claim: Claim, means: Means) -> bytes:
    if claim.eml_file_path is None:
        raise FileNotFoundError("it has none, and its content is not in the store")
    try:
        return await means.read_message(claim.eml_file_path)
    except (NotFound, StoreError) as error:
        # A share that is not mounted looks like files that are gone: the e-mail waits, and somebody is told.
        raise OSError(str(error)) from error
