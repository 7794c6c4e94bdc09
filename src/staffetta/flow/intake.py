"""Takes in what came another way: rows that are ACCEPTED with a payload, or with the path of one.

    ACCEPTED ─ claim ─ read ─ check ─ compose ─► READY
                                └ wrong ───────► INVALID, the reason names the fields

A disk that fails for now is no wrong payload: the claim is kept and tried again, and given back at an orderly
stop. An outcome waits for its store in the same way.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from staffetta.attachments import FileRefused, FileUnreadable, Folder
from staffetta.errors import (
    FieldProblem,
    LockNotAcquired,
    NotFound,
    PayloadError,
    QueueError,
    StoreError,
    StoreUnavailable,
)
from staffetta.flow.composing import LIGHT_BYTES, Composer
from staffetta.mail import payload
from staffetta.mail.events import Emit, LockLost, Moved, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import IntakeClaim, Intaken, Job, Millis, Transition
from staffetta.mail.payload import DEFAULT_COMPANY, Limits
from staffetta.queue.contract import Queue
from staffetta.spool import Spool
from staffetta.store.contract import Store

PAGE = 200
"""E-mails claimed at once."""
BREATH = 20
"""So many are composed before everybody else in the loop has a turn."""
REASON_MAX = 2_000
AGAIN_MS = 5_000
"""How long an e-mail waits whose disk failed."""
WAITING_MAX = 500
"""So many may wait for a disk; then no more are claimed."""

_NO_FILES = Folder(None, setting="intake.payload_base_path")


@dataclasses.dataclass(slots=True, kw_only=True)
class IntakeMeans:
    """What the stage is handed."""

    store: Store
    spool: Spool
    composer: Composer
    new_token: Callable[[], str]
    clock: Callable[[], Millis]
    emit: Emit
    queue: Queue | None = None
    payload_files: Folder = _NO_FILES


class _Ended(NamedTuple):
    """What became of one claim."""

    claim: IntakeClaim
    company_id: str
    move: Transition | None
    """None: its disk failed; it is tried again."""
    trouble: str = ""


class Intake:
    """The stage: one `step` takes in one page."""

    def __init__(self, means: IntakeMeans) -> None:
        self._means = means
        self._waiting: dict[str, tuple[Millis, IntakeClaim]] = {}
        self._passing: asyncio.Task[int] | None = None
        self._stopping = False

    async def step(self) -> int:
        """Take in a page; how many e-mails left INTAKING.

        Cancelled, it leaves the page to be finished, for which `stop` waits: no claim may be left behind.
        """
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._pass(), name="intake")
        return await asyncio.shield(self._passing)

    async def stop(self, grace_seconds: float) -> None:
        """Finish what is being taken in, give back what waits for a disk."""
        self._stopping = True
        if self._passing is not None:
            await asyncio.wait({self._passing}, timeout=grace_seconds)
            if self._passing.done():
                self._passing.exception()  # told by the step that began it; here it only has to have ended
        left = [claim for _, claim in self._waiting.values()]
        self._waiting.clear()
        if left:
            now = self._means.clock()
            reason = "given back: the worker was stopped while a disk could not be read"
            try:
                await self._apply(
                    [_Ended(claim, claim.company_id, _back(claim, reason, now)) for claim in left]
                )
            except StoreError as error:
                told = (
                    f"{len(left)} e-mails could not be given back; they are restored once this worker is dead"
                )
                self._means.emit(Troubled(at=now, part="intake", message=told, error=repr(error)))

    async def _pass(self) -> int:
        means = self._means
        now = means.clock()
        claims = [claim for at, claim in self._waiting.values() if at <= now][:PAGE]
        room = min(PAGE - len(claims), WAITING_MAX - len(self._waiting))
        if room > 0 and not self._stopping:
            tokens = [means.new_token() for _ in range(room)]
            claims += await means.store.claim_intake(tokens=tokens, now=now)
        if not claims:
            return 0
        ended: list[_Ended] = []
        for place, claim in enumerate(claims, 1):
            if place % BREATH == 0:
                await asyncio.sleep(0)
            light = self._is_light(claim)
            one = self._one(claim, now) if light else await asyncio.to_thread(self._one, claim, now)
            ended.append(one)
            if one.move is None:
                self._waiting[one.claim.token] = (now + AGAIN_MS, one.claim)
            else:
                self._waiting.pop(one.claim.token, None)
        troubles = {one.trouble for one in ended if one.move is None}
        for trouble in troubles:
            means.emit(Troubled(at=now, part="intake", message=trouble))
        try:
            return await self._apply([one for one in ended if one.move is not None])
        except StoreError:
            self._waiting.update((one.claim.token, (now + AGAIN_MS, one.claim)) for one in ended)
            raise

    # --- one payload -------------------------------------------------------------------------------------

    def _is_light(self, claim: IntakeClaim) -> bool:
        """Small, and touching no disk: read and composed in the loop, others in a thread."""
        text = claim.payload
        return (
            text is not None
            and len(text) <= LIGHT_BYTES
            and not self._means.composer.shared
            and b'"attachments"' not in text
            and b"\\u00" not in text
        )

    def _one(self, claim: IntakeClaim, now: Millis) -> _Ended:
        try:
            intaken = self._composed(claim)
        except PayloadError as error:
            return _Ended(claim, claim.company_id, _invalid(claim, str(error), now))
        except StoreUnavailable as error:
            told = f"e-mail {claim.id} of {claim.company_id} cannot be taken in now and is tried again: {error}"
            return _Ended(claim, claim.company_id, None, told)
        except Exception as error:  # noqa: BLE001  # a defect of ours ends one e-mail, visibly, and stops no other
            return _Ended(claim, claim.company_id, _invalid(claim, f"could not be composed: {error!r}", now))
        move = msgspec.structs.replace(_move(claim, Status.READY, Cause.COMPOSED, now), intaken=intaken)
        return _Ended(claim, intaken.company_id or claim.company_id, move)

    def _composed(self, claim: IntakeClaim) -> Intaken:
        means = self._means
        raw = self._raw(claim)
        bound = None if claim.company_id == DEFAULT_COMPANY else claim.company_id
        read = payload.read(raw, company_id=bound, limits=means.composer.limits)
        if read.id is not None and read.id != claim.id:
            raise PayloadError(
                [FieldProblem("id", f"is {read.id}, but the e-mail was handed in as {claim.id}")]
            )
        intaken = means.composer.compose(read, id=claim.id, accepted_at=claim.created_at)
        if means.composer.is_large(intaken.message):
            assert intaken.message is not None, "just composed"
            path = means.spool.write(f"{claim.id}-{claim.token}.eml", intaken.message)
            intaken = msgspec.structs.replace(intaken, message=None, eml_file_path=path)
        if read.company_id != claim.company_id:
            intaken = msgspec.structs.replace(intaken, company_id=read.company_id)
        return intaken

    def _raw(self, claim: IntakeClaim) -> bytes:
        """The payload's text, from the row, the spool, or the folder for payload files."""
        means = self._means
        if claim.payload is not None:
            return claim.payload
        path = claim.payload_file_path
        if not path:
            raise PayloadError([FieldProblem("payload", "is missing: the e-mail has neither payload nor path")])
        try:
            if means.spool.holds(path):
                return means.spool.read(path)
            return means.payload_files.read(path, most_bytes=text_bytes(means.composer.limits))
        except FileUnreadable as error:
            raise StoreUnavailable(str(error)) from error
        except (FileRefused, NotFound) as error:
            raise PayloadError([FieldProblem("payload_file_path", str(error))]) from error

    # --- what came of it ---------------------------------------------------------------------------------

    async def _apply(self, ended: Sequence[_Ended]) -> int:
        """Make the moves; how many were made."""
        means = self._means
        moves = [one.move for one in ended if one.move is not None]
        if not moves:
            return 0
        results = await means.store.apply_all(moves)
        jobs: list[Job] = []
        unused: list[str] = []
        made = 0
        for one, move, result in zip(ended, moves, results, strict=True):
            if result is None:
                made += 1
                self._tell(one, move)
                if move.intaken is not None:
                    jobs.append(_job(one, move.intaken))
                continue
            if move.intaken is not None and move.intaken.eml_file_path:
                unused.append(move.intaken.eml_file_path)
            self._tell_lost(one, move, result)
        if unused:
            await asyncio.to_thread(means.spool.remove, unused)
        if jobs and means.queue is not None:
            await self._offer(means.queue, jobs)
        return made

    def _tell(self, one: _Ended, move: Transition) -> None:
        self._means.emit(
            Moved(
                at=move.at, id=move.id, company_id=one.company_id, source=move.source, target=move.target,
                cause=move.cause, reason=move.reason,
            )
        )  # fmt: skip

    def _tell_lost(self, one: _Ended, move: Transition, result: Exception) -> None:
        if isinstance(result, LockNotAcquired):
            self._means.emit(LockLost(at=move.at, id=move.id, company_id=one.company_id, step="intake"))
            return
        told = f"e-mail {move.id} of {one.company_id} was read but could not be kept; it is restored later"
        self._means.emit(Troubled(at=move.at, part="intake", message=told, error=repr(result)))

    async def _offer(self, queue: Queue, jobs: Sequence[Job]) -> None:
        try:
            for company_id in {job.company_id for job in await queue.offer(jobs)}:
                await queue.full(company_id, more=True)
        except QueueError as error:
            told = "e-mails were taken in but the queue could not be told; they are found in the store"
            self._means.emit(Troubled(at=self._means.clock(), part="queue", message=told, error=repr(error)))


def text_bytes(limits: Limits) -> int:
    """The largest text that a right payload can be: escapes may make six bytes of one, base64 four of three."""
    return 6 * limits.body_bytes + 2 * limits.message_bytes + 1024 * 1024


def _move(claim: IntakeClaim, target: Status, cause: Cause, now: Millis, reason: str = "") -> Transition:
    return Transition(
        id=claim.id,
        ref=claim.ref,
        token=claim.token,
        source=Status.INTAKING,
        target=target,
        cause=cause,
        at=now,
        reason=reason if len(reason) <= REASON_MAX else reason[: REASON_MAX - 1] + "…",
    )


def _invalid(claim: IntakeClaim, reason: str, now: Millis) -> Transition:
    return _move(claim, Status.INVALID, Cause.INVALID, now, reason)


def _back(claim: IntakeClaim, reason: str, now: Millis) -> Transition:
    return _move(claim, Status.ACCEPTED, Cause.RESTORED, now, reason)


def _job(one: _Ended, intaken: Intaken) -> Job:
    return Job(
        id=one.claim.id,
        company_id=one.company_id,
        priority=intaken.priority,
        due_at=intaken.due_at,
        ref=one.claim.ref,
    )
