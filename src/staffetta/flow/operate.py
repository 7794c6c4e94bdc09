"""What an operator may do, by HTTP and by command alike: retry, cancel, resolve, erase, requeue, discard.

Each action reads the record, lets `mail/steering.py` or `mail/rescue.py` decide, and applies that one move by
compare-and-set: an e-mail that moved meanwhile is left alone. A caller bound to a company finds only its own;
foreign ids are as unknown as those that never were.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol, TypeVar

import msgspec

from staffetta.errors import LockNotAcquired, MoveNotAllowed, NotFound, QueueError
from staffetta.flow import believe
from staffetta.mail import handin, lifecycle, rescue, steering
from staffetta.mail.events import Emit, Moved, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import DeadLetter, Email, InWork, Job, Millis, Transition, Value
from staffetta.mail.operators import Filter, Page, Pause
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.store.contract import Store

PAGE = 200
MANY_MAX = 10_000
"""The most that one action by filter touches; `Done.more` says that there was more."""
STALE_MAX = 1_000
READS_AT_ONCE = 16

RETRYABLE = tuple(
    status for status in Status if (status, Status.READY, Cause.RETRIED) in lifecycle.MOVES
)  # fmt: skip
_LOST = (LockNotAcquired, MoveNotAllowed)
T = TypeVar("T")
Thing = TypeVar("Thing", Email, DeadLetter)


class Skipped(Value, frozen=True, kw_only=True):
    id: str
    why: str


class Done(Value, frozen=True, kw_only=True):
    """What an action by filter did or, with `dry_run`, would do."""

    changed: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    more: bool = False
    """The limit ended it: there is more that the filter means."""
    dry_run: bool = False


class Files(Protocol):
    """The part of the spool that operators need: content too large for the store."""

    def read(self, path: str) -> bytes: ...

    def remove(self, paths: Sequence[str]) -> None: ...


class Operator:
    """The operator's hands on one store. A queue is told where this process has one; nothing depends on it."""

    def __init__(
        self,
        *,
        store: Store,
        rulebook: RuleBook,
        clock: Callable[[], Millis],
        draw: Callable[[], float],
        emit: Emit,
        expires_in_ms: int = 86_400_000,
        dead_after_ms: int = 60_000,
        timeout_ms: int = 1_800_000,
        spool: Files | None = None,
        queue: Queue | None = None,
    ) -> None:
        self._store = store
        self._rulebook = rulebook
        self._clock = clock
        self._draw = draw
        self._emit = emit
        self._expires_in_ms = expires_in_ms
        self._dead_after_ms = dead_after_ms
        self._timeout_ms = timeout_ms
        self._spool = spool
        self._queue = queue

    # --- finding ------------------------------------------------------------------------------------------

    async def find(self, id: str, company_id: str | None = None) -> Email:
        """:raises NotFound: unknown, or another company's; nobody can tell which."""
        email = await self._store.get(id)
        if email is None or (company_id is not None and email.company_id != company_id):
            raise NotFound(f"there is no e-mail {id} here")
        return email

    async def find_dead_letter(self, id: str, company_id: str | None = None) -> DeadLetter:
        """:raises NotFound: unknown, or another company's."""
        letter = await self._store.dead_letter(id)
        if letter is None or (company_id is not None and letter.company_id != company_id):
            raise NotFound(f"there is no dead letter {id} here")
        return letter

    async def stale(self, company_id: str | None = None, *, limit: int = STALE_MAX) -> list[InWork]:
        """Stuck in an in-work status: the worker is dead, or nothing moved for `restore.timeout_minutes`."""
        found = await self._store.stuck(
            now=self._clock(), dead_after_ms=self._dead_after_ms, timeout_ms=self._timeout_ms, limit=STALE_MAX
        )
        return [one for one in found if company_id is None or one.claim.company_id == company_id][:limit]

    # --- one e-mail ---------------------------------------------------------------------------------------

    async def retry(self, id: str, company_id: str | None = None, *, dry_run: bool = False) -> Transition:
        """A failed e-mail goes back on its way. `dry_run`: only found out whether it could.

        :raises MoveNotAllowed: its status does not allow it, or there is nothing left that could be sent.
        :raises LockNotAcquired: it moved meanwhile.
        """
        email = await self.find(id, company_id)
        move = self._retry_move(email)
        why = await self._nothing_to_send(email)
        if why:
            raise MoveNotAllowed(f"e-mail {id} cannot be retried: {why}")
        return move if dry_run else await self._apply(email, move)

    async def cancel(self, id: str, company_id: str | None = None) -> Transition:
        """Not sent yet, accepted by nobody: FAILED as CANCELLED, without a dead letter.

        :raises MoveNotAllowed: too late. :raises LockNotAcquired: it moved meanwhile.
        """
        email = await self.find(id, company_id)
        rules = self._rulebook.rules_for(email.company_id, email.options)
        return await self._apply(email, steering.cancel(email, rules, now=self._clock()))

    async def resolve(self, id: str, company_id: str | None = None) -> Transition:
        """One in doubt is known to be delivered: SENT.

        :raises MoveNotAllowed: it is not in doubt. :raises LockNotAcquired: it moved meanwhile.
        """
        email = await self.find(id, company_id)
        rules = self._rulebook.rules_for(email.company_id, email.options)
        return await self._apply(email, steering.resolve(email, rules, now=self._clock()))

    async def erase(self, id: str, company_id: str | None = None) -> None:
        """The content of a finished e-mail goes, its record stays.

        :raises MoveNotAllowed: it is not finished, or has a dead letter (discard that first).
        """
        await self.find(id, company_id)
        paths = await self._store.erase_content(id)
        if paths and self._spool is not None:
            await asyncio.to_thread(self._spool.remove, paths)

    async def requeue(self, id: str, company_id: str | None = None) -> Transition:
        """Stuck in an in-work status: one step back, as restore would, by the rules of the journal.

        :raises MoveNotAllowed: it is in nobody's hands, or in a living worker's.
        :raises LockNotAcquired: it moved meanwhile.
        """
        email = await self.find(id, company_id)
        found = await self._store.held(id)
        if found is None:
            raise MoveNotAllowed(f"e-mail {id} is {email.status}: only those in work can be put back")
        holder = await self._living_holder(found)
        if holder:
            raise MoveNotAllowed(f"e-mail {id} is in the hands of {holder}, which is alive; stop it first")
        rules = self._rulebook.rules_for(found.claim.company_id, found.claim.options)
        now = self._clock()
        if found.status is Status.PROCESSING and found.claim.late is not None:
            move = believe.late_reply(
                found.claim, rules, now=now, draw=self._draw(), committed_at=found.committed_at
            )
        else:
            move = rescue.after_crash(found, rules, now=now)
        return await self._apply(email, move)

    # --- dead letters -------------------------------------------------------------------------------------

    async def retry_dead_letter(
        self, id: str, company_id: str | None = None, *, dry_run: bool = False
    ) -> Transition:
        """As `retry`, for an e-mail that has a dead letter. :raises NotFound: it has none."""
        await self.find_dead_letter(id, company_id)
        return await self.retry(id, company_id, dry_run=dry_run)

    async def resolve_dead_letter(self, id: str, company_id: str | None = None) -> Transition:
        """As `resolve`, for an e-mail that has a dead letter. :raises NotFound: it has none."""
        await self.find_dead_letter(id, company_id)
        return await self.resolve(id, company_id)

    async def discard(self, id: str, company_id: str | None = None) -> None:
        """The dead letter goes, the e-mail's own record stays. :raises NotFound: it has none."""
        await self.find_dead_letter(id, company_id)
        if not await self._store.discard([id]):
            raise NotFound(f"there is no dead letter {id} here")
        await self._revive([id])

    # --- by filter ----------------------------------------------------------------------------------------

    async def retry_emails(self, filter: Filter, *, limit: int = MANY_MAX, dry_run: bool = False) -> Done:
        """Every failed e-mail of a filter, page by page; those that moved or cannot be sent are named and left.

        An error of the store ends it; the pages before it stay done.
        :raises MoveNotAllowed: the filter names a status that is not a failed one.
        """
        wrong = [status for status in filter.status if status not in RETRYABLE]
        if wrong:
            raise MoveNotAllowed(f"only {', '.join(RETRYABLE)} can be retried, not {', '.join(wrong)}")
        failed = msgspec.structs.replace(filter, status=filter.status or RETRYABLE)

        async def step(emails: Sequence[Email]) -> tuple[list[str], list[Skipped]]:
            return await self._retry_page(emails, check_content=True, dry_run=dry_run)

        return await self._walk(self._store.emails, failed, step, limit=limit, dry_run=dry_run)

    async def retry_dead_letters(self, filter: Filter, *, limit: int = MANY_MAX, dry_run: bool = False) -> Done:
        """Every dead letter of a filter whose e-mail is not on its way already."""

        async def step(letters: Sequence[DeadLetter]) -> tuple[list[str], list[Skipped]]:
            read = await _gather(self._store.get(letter.outbox_id) for letter in letters)
            emails = [email for email in read if email is not None and email.status in RETRYABLE]
            return await self._retry_page(
                emails, check_content=False, dry_run=dry_run
            )  # kept while a letter is

        return await self._walk(self._store.dead_letters, filter, step, limit=limit, dry_run=dry_run)

    async def discard_dead_letters(
        self, filter: Filter, *, limit: int = MANY_MAX, dry_run: bool = False
    ) -> Done:
        """Every dead letter of a filter goes; the e-mails' records stay."""

        async def step(letters: Sequence[DeadLetter]) -> tuple[list[str], list[Skipped]]:
            ids = [letter.outbox_id for letter in letters]
            if ids and not dry_run:
                await self._store.discard(ids)
                await self._revive(ids)
            return ids, []

        return await self._walk(self._store.dead_letters, filter, step, limit=limit, dry_run=dry_run)

    async def purge(
        self, *, older_than_ms: int, company_id: str | None = None, limit: int = MANY_MAX, dry_run: bool = False
    ) -> Done:
        """Dead letters older than this go."""
        old = Filter(company_id=company_id, until=self._clock() - older_than_ms)
        return await self.discard_dead_letters(old, limit=limit, dry_run=dry_run)

    async def export(self, filter: Filter) -> AsyncIterator[tuple[DeadLetter, bytes | None]]:
        """Every dead letter of a filter with its payload, newest first, one payload at a time in memory."""
        cursor: str | None = None
        while True:
            page = await self._store.dead_letters(filter, limit=PAGE, cursor=cursor)
            for letter in page.items:
                yield letter, await self.payload(letter.outbox_id)
            cursor = page.cursor
            if cursor is None:
                return

    async def payload(self, id: str) -> bytes | None:
        """An e-mail's payload as it was handed in, from the store or its file; None where it is gone."""
        content = await self._store.content(id)
        if content is None or content.payload is not None or content.payload_file_path is None:
            return content.payload if content else None
        return await self._read(content.payload_file_path)

    async def message(self, id: str) -> bytes | None:
        """An e-mail's composed message, from the store or its file; None where it is gone or not yet composed."""
        content = await self._store.content(id)
        if content is None or content.message is not None or content.eml_file_path is None:
            return content.message if content else None
        return await self._read(content.eml_file_path)

    async def _read(self, path: str) -> bytes | None:
        if self._spool is None:
            return None
        try:
            return await asyncio.to_thread(self._spool.read, path)
        except NotFound:
            return None

    # --- pausing ------------------------------------------------------------------------------------------

    async def pause(self, scope: str, name: str = "") -> Pause:
        """Stop sending: `all`, one `transport`, one `company`. Survives restarts; twice is as once."""
        pause = _pause(scope, name, self._clock())
        await self._store.pause(pause)
        return pause

    async def resume(self, scope: str, name: str = "") -> Pause:
        pause = _pause(scope, name, self._clock())
        await self._store.resume(pause)
        return pause

    # --- beneath ------------------------------------------------------------------------------------------

    def _retry_move(self, email: Email) -> Transition:
        options, expires_in_ms = email.options, self._expires_in_ms
        if options.expires_in_seconds is not None:
            expires_in_ms = options.expires_in_seconds * 1000
        elif options.limits is not None:
            policy = self._rulebook.rules_for(email.company_id, options).policy
            expires_in_ms = max(expires_in_ms, handin.least_life_ms(policy))
        return steering.retry(email, now=self._clock(), expires_in_ms=expires_in_ms)

    async def _nothing_to_send(self, email: Email) -> str:
        """Why this e-mail could not be sent again; empty when it could."""
        content = await self._store.content(email.id)
        if content is None:
            return "its content was erased; hand it in again"
        if content.message is None and not (content.eml_file_path or email.eml_file_path):
            return "its message was never composed; hand it in again"
        return ""

    async def _living_holder(self, found: InWork) -> str:
        """Who holds this e-mail and still lives; empty when nobody does."""
        worker_id = rescue.worker_of(found.claim.token)
        now = self._clock()
        for worker in await self._store.workers():
            if worker.id == worker_id and now - worker.seen_at < self._dead_after_ms:
                return f"worker {worker.id} (process {worker.pid} on {worker.host})"
        return ""

    async def _apply(self, email: Email, move: Transition) -> Transition:
        await self._store.apply(move)
        await self._tell([(email, move)])
        return move

    async def _retry_page(
        self, emails: Sequence[Email], *, check_content: bool, dry_run: bool
    ) -> tuple[list[str], list[Skipped]]:
        skipped: list[Skipped] = []
        if check_content:
            reasons = await _gather(self._nothing_to_send(email) for email in emails)
            skipped = [Skipped(id=e.id, why=why) for e, why in zip(emails, reasons, strict=True) if why]
            emails = [email for email, why in zip(emails, reasons, strict=True) if not why]
        if dry_run or not emails:
            return [email.id for email in emails], skipped
        pairs = [(email, self._retry_move(email)) for email in emails]
        results = await self._store.apply_all([move for _, move in pairs])
        applied = []
        for pair, result in zip(pairs, results, strict=True):
            if result is None:
                applied.append(pair)
            elif isinstance(result, _LOST):
                skipped.append(Skipped(id=pair[0].id, why="it moved meanwhile"))
        await self._tell(applied)
        for result in results:
            if result is not None and not isinstance(result, _LOST):
                raise result
        return [email.id for email, _ in applied], skipped

    async def _walk(
        self,
        listing: _Listing,
        filter: Filter,
        step: Callable[[Sequence[Thing]], Awaitable[tuple[list[str], list[Skipped]]]],
        *,
        limit: int,
        dry_run: bool,
    ) -> Done:
        """Page by page to the limit: a cursor minds neither what leaves the listing nor what joins its head."""
        changed: list[str] = []
        skipped: list[Skipped] = []
        cursor: str | None = None
        limit = min(limit, MANY_MAX)
        while True:
            page = await listing(filter, limit=max(1, min(PAGE, limit - len(changed))), cursor=cursor)
            done, left = await step(page.items)
            changed += done
            skipped += left[: MANY_MAX - len(skipped)]
            cursor = page.cursor
            if cursor is None or len(changed) >= limit or len(skipped) >= MANY_MAX:
                return Done(
                    changed=tuple(changed), skipped=tuple(skipped), more=cursor is not None, dry_run=dry_run
                )

    async def _tell(self, moves: Sequence[tuple[Email, Transition]]) -> None:
        for email, move in moves:
            self._emit(
                Moved(
                    at=move.at, id=move.id, company_id=email.company_id, source=move.source, target=move.target,
                    cause=move.cause, reason=move.reason,
                )
            )  # fmt: skip
        if self._queue is None or not moves:
            return
        jobs = [_job(email, move) for email, move in moves if move.target is Status.READY]
        try:
            # One that is tried again keeps its dead letter until it is sent; the index follows the store then.
            await self._queue.revive([move.id for _, move in moves if move.target is not Status.READY])
            if jobs:
                await self._queue.offer(jobs)
        except QueueError as error:
            self._queue_away(error)

    async def _revive(self, ids: Sequence[str]) -> None:
        if self._queue is not None:
            try:
                await self._queue.revive(ids)
            except QueueError as error:
                self._queue_away(error)

    def _queue_away(self, error: QueueError) -> None:
        message = "the queue was not told of an operator's action; it hears of it from the store"
        self._emit(Troubled(at=self._clock(), part="queue", message=message, error=str(error)))


class _Listing(Protocol):
    """`Store.emails` or `Store.dead_letters`."""

    async def __call__(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page: ...


async def _gather(reads: Iterable[Awaitable[T]]) -> list[T]:
    """Reads, some at a time, answers in order."""
    waiting, answers = iter(reads), list[T]()
    while some := list(islice(waiting, READS_AT_ONCE)):
        answers += await asyncio.gather(*some)
    return answers


def _pause(scope: str, name: str, now: Millis) -> Pause:
    assert scope in ("all", "transport", "company"), "checked where the words came in"
    assert bool(name) == (scope != "all"), "a transport or a company has a name, `all` has none"
    return Pause(scope=scope, name=name, since=now)  # type: ignore[arg-type]  # one of the three literals, see above


def _job(email: Email, move: Transition) -> Job:
    return Job(
        id=email.id,
        company_id=email.company_id,
        priority=email.priority,
        due_at=move.due_at if move.due_at is not None else move.at,
        suspect=(email.crashes if move.crashes is None else move.crashes) >= rescue.SUSPECT_CRASHES,
    )
