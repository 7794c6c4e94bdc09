"""Takes e-mails in: checked, composed and made READY in the transaction that makes them durable.

    text ─ read ─ compose ─ (large content to the spool) ─ store.add ─ queue.offer ─ Answer

The answer is given after the e-mail is durable. A repeat under the same idempotency key gets the first answer,
also when that one was lost in a crash: the key is kept in the transaction that keeps the e-mails, and their ids
follow from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from staffetta.attachments import Folder
from staffetta.errors import (
    Conflict,
    FieldProblem,
    KeyReused,
    PayloadError,
    QueueError,
    StillRunning,
    StoreUnavailable,
)
from staffetta.flow.composing import LIGHT_BYTES, Composer
from staffetta.mail import handin, payload, strict_json
from staffetta.mail.events import AcceptedEmail, Emit, Troubled
from staffetta.mail.identity import body_fingerprint, keyed_id
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Added, Job, KeptAnswer, Millis, NewEmail, Value
from staffetta.mail.payload import LIMITS, Limits, Payload
from staffetta.mail.rulebook import RuleBook
from staffetta.queue.contract import Queue
from staffetta.spool import Spool
from staffetta.store.contract import Store

BATCH_MAX = 1_000
KEY_KEPT_MS = 86_400_000
_TURN = 32
"""After so many payloads of a batch the loop may do other work."""
_MIXED = ""
"""Stands for the company of a batch that names several."""


class Answer(Value, frozen=True, kw_only=True):
    """What whoever handed an e-mail in is told."""

    id: str
    status: Status
    fresh: bool
    """False: it was known, and this is the first answer again."""


class _Asked(NamedTuple):
    """One request, beside its payloads."""

    at: Millis
    company_id: str | None
    """The company that the caller is bound to."""
    key: str | None
    fingerprint: str
    """Of the whole body, where there is a key."""


def _asked(kind: str, raw: bytes, now: Millis, company_id: str | None, key: str | None) -> _Asked:
    return _Asked(now, company_id, key, "" if key is None else body_fingerprint(kind, raw))


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """One e-mail's part of a kept answer."""

    id: str = ""
    status: str = ""
    problems: list[tuple[str, str]] = []  # msgspec copies it


class Desk:
    """Where e-mails are handed in. One for a process; calls may run side by side."""

    def __init__(
        self,
        *,
        store: Store,
        spool: Spool,
        clock: Callable[[], Millis],
        new_id: Callable[[Millis], str],
        emit: Emit | None = None,
        queue: Queue | None = None,
        attachments: Folder | None = None,
        limits: Limits = LIMITS,
        rulebook: RuleBook | None = None,
        expires_in_ms: int = handin.EXPIRES_IN_MS,
        shared: bool = False,
    ) -> None:
        self._store = store
        self._queue = queue
        self._queue_away = False
        self._spool = spool
        self._clock = clock
        self._new_id = new_id
        self._emit = emit
        self._composer = Composer(limits=limits, expires_in_ms=expires_in_ms, shared=shared)
        if attachments is not None:
            self._composer.attachments = attachments
        if rulebook is not None:
            self._composer.rulebook = rulebook
        self._running: set[tuple[str, str]] = set()

    async def accept(self, raw: bytes, *, company_id: str | None = None, key: str | None = None) -> Answer:
        """Take one payload in. `company_id`: the company that the caller is bound to.

        :raises PayloadError: nothing was kept; every wrong field is named.
        :raises Conflict: the id is known with another content; of its kinds, `KeyReused`: the key came with
            another body before, `StillRunning`: the first request with this key has not ended.
        :raises StoreUnavailable: the store or the spool's disk cannot take it now.
        """
        asked = _asked("one", raw, self._clock(), company_id, key)
        new = await self._prepared(raw, 0, asked)
        if key is None:
            (added,) = await self._kept([new], None, asked.at)
            return _answer(added)
        (one,) = await self._once(key, new.company_id, asked, [new])
        if isinstance(one, Exception):
            raise one
        return one

    async def accept_batch(
        self, raw: bytes, *, company_id: str | None = None, key: str | None = None
    ) -> list[Answer | Exception]:
        """Take an array of payloads in: right ones are kept, wrong ones are named in their place.

        :raises PayloadError: it is no array of at most 1,000.
        :raises Conflict, StoreUnavailable: as for `accept`; then none was kept.
        """
        texts = strict_json.elements(raw, at_most=BATCH_MAX)
        asked = _asked("batch", raw, self._clock(), company_id, key)
        prepared: list[NewEmail | Exception] = []
        try:
            for index, text in enumerate(texts):
                if index % _TURN == _TURN - 1:
                    await asyncio.sleep(0)
                try:
                    prepared.append(await self._prepared(text, index, asked))
                except PayloadError as error:
                    prepared.append(error)
        except BaseException:
            await self._forget([one for one in prepared if isinstance(one, NewEmail)])
            raise
        if key is None:
            return _in_order(prepared, await self._kept(_right(prepared), None, asked.at))
        companies = {one.company_id for one in _right(prepared)}
        company = company_id or (companies.pop() if len(companies) == 1 else _MIXED)
        return await self._once(key, company, asked, prepared)

    # --- one payload -----------------------------------------------------------------------------------

    async def _prepared(self, raw: bytes, index: int, asked: _Asked) -> NewEmail:
        """The e-mail that one payload becomes, its large content in the spool already."""
        if len(raw) > LIGHT_BYTES:
            return await asyncio.to_thread(self._prepare, raw, index, asked)
        read = payload.read(raw, company_id=asked.company_id, limits=self._composer.limits)
        if self._composer.touches_disk(read):
            return await asyncio.to_thread(self._compose, read, raw, index, asked)
        return self._compose(read, raw, index, asked)

    def _prepare(self, raw: bytes, index: int, asked: _Asked) -> NewEmail:
        read = payload.read(raw, company_id=asked.company_id, limits=self._composer.limits)
        return self._compose(read, raw, index, asked)

    def _compose(self, read: Payload, raw: bytes, index: int, asked: _Asked) -> NewEmail:
        if read.id is not None:
            name, fingerprint = read.id, handin.fingerprint(read.company_id, raw)
        elif asked.key is not None:
            name = keyed_id(read.company_id, asked.key, asked.fingerprint, index)
            fingerprint = asked.fingerprint
        else:
            name, fingerprint = self._new_id(asked.at), ""
        intaken = self._composer.compose(read, id=name, accepted_at=asked.at)
        new = handin.new_email(read, intaken, id=name, now=asked.at, raw=raw, fingerprint=fingerprint)
        large = self._composer.is_large(raw) or self._composer.is_large(new.message)
        return self._spooled(new) if large else new

    def _spooled(self, new: NewEmail) -> NewEmail:
        """Large content becomes files, synced before any row names them; never over one that a row may name."""
        stem = f"{new.id}-{self._new_id(new.created_at)[24:]}"
        if new.payload is not None and self._composer.is_large(new.payload):
            path = self._spool.write(f"{stem}.json", new.payload)
            new = msgspec.structs.replace(new, payload=None, payload_file_path=path)
        if new.message is not None and self._composer.is_large(new.message):
            try:
                path = self._spool.write(f"{stem}.eml", new.message)
            except StoreUnavailable:
                self._spool.remove(_files(new))
                raise
            new = msgspec.structs.replace(new, message=None, eml_file_path=path)
        return new

    # --- keeping ---------------------------------------------------------------------------------------------

    async def _kept(
        self, emails: Sequence[NewEmail], keep: KeptAnswer | None, now: Millis
    ) -> list[Added | Exception]:
        """Make e-mails durable, and tell the queue and whoever listens of those that are new."""
        added = await self._store.add(emails, keep=keep) if emails else []
        jobs: list[Job] = []
        unused: list[NewEmail] = []
        for new, one in zip(emails, added, strict=True):
            if isinstance(one, Added) and one.fresh:
                if self._emit is not None:
                    self._emit(AcceptedEmail(at=now, id=new.id, company_id=new.company_id))
                jobs.append(
                    Job(
                        id=new.id,
                        company_id=new.company_id,
                        priority=new.priority,
                        due_at=new.due_at,
                        ref=one.ref,
                    )
                )
            elif _files(new):
                unused.append(new)
        if unused:
            await self._forget(unused)
        if self._queue is not None and jobs:
            await self._offer(self._queue, jobs, now)
        return added

    async def _offer(self, queue: Queue, jobs: Sequence[Job], now: Millis) -> None:
        """Remind the queue. Without it they are found all the same, a little later."""
        try:
            for company_id in {job.company_id for job in await queue.offer(jobs)}:
                await queue.full(company_id, more=True)
            self._queue_away = False
        except QueueError as error:
            again, self._queue_away = self._queue_away, True
            if self._emit is not None and not again:  # once an outage, not once an e-mail
                told = "e-mails were accepted but the queue could not be told; they are found in the store"
                self._emit(Troubled(at=now, part="queue", message=told, error=repr(error)))

    async def _forget(self, emails: Sequence[NewEmail]) -> None:
        """Remove the files of e-mails that no row will name."""
        paths = [path for new in emails for path in _files(new)]
        if paths:
            await asyncio.to_thread(self._spool.remove, paths)

    # --- idempotency keys ------------------------------------------------------------------------------------

    async def _once(
        self, key: str, company_id: str, asked: _Asked, prepared: Sequence[NewEmail | Exception]
    ) -> list[Answer | Exception]:
        """Keep these e-mails and the answer under the key, or give the first answer again."""
        running = (company_id, key)
        emails = _right(prepared)
        if running in self._running:
            await self._forget(emails)
            raise StillRunning
        self._running.add(running)
        try:
            keep = KeptAnswer(
                company_id=company_id,
                key=key,
                fingerprint=asked.fingerprint,
                answer=_kept_answer(prepared),
                at=asked.at,
            )
            added = await self._kept(emails, keep, asked.at)
            if emails and all(isinstance(one, Conflict) for one in added):
                # Either the key is known, or every id that the client chose is taken: the kept answer tells.
                first = await self._store.recall(company_id, key, newer_than=asked.at - KEY_KEPT_MS)
                if first is not None and first.fingerprint != asked.fingerprint:
                    raise KeyReused
                if first is not None:
                    return await self._again(first, asked, prepared)
            return _in_order(prepared, added)
        finally:
            self._running.discard(running)

    async def _again(
        self, first: KeptAnswer, asked: _Asked, prepared: Sequence[NewEmail | Exception]
    ) -> list[Answer | Exception]:
        """The first answer. Ids that the client chose are asked for again: the store knows how they fared."""
        told = [_told(one) for one in msgspec.json.decode(first.answer, type=list[_Kept])]
        chosen = {
            index: new
            for index, new in enumerate(prepared)
            if isinstance(new, NewEmail) and new.fingerprint != asked.fingerprint and not _files(new)
        }
        if chosen:
            added = await self._kept(list(chosen.values()), None, asked.at)
            for index, one in zip(chosen, added, strict=True):
                told[index] = one if isinstance(one, Exception) else _answer(one)
        return told


def _files(new: NewEmail) -> list[str]:
    return [path for path in (new.eml_file_path, new.payload_file_path) if path]


def _right(prepared: Sequence[NewEmail | Exception]) -> list[NewEmail]:
    return [one for one in prepared if isinstance(one, NewEmail)]


def _answer(added: Added | Exception) -> Answer:
    if isinstance(added, Exception):
        raise added
    return Answer(id=added.id, status=added.status, fresh=added.fresh)


def _in_order(
    prepared: Sequence[NewEmail | Exception], added: Sequence[Added | Exception]
) -> list[Answer | Exception]:
    """One result for each payload: those that were kept, and those that never came so far."""
    results = iter(added)
    return [
        one if isinstance(one, Exception) else _answer(one)
        for one in (next(results) if isinstance(new, NewEmail) else new for new in prepared)
    ]


def _kept_answer(prepared: Sequence[NewEmail | Exception]) -> bytes:
    return msgspec.json.encode(
        [
            _Kept(id=one.id, status=one.status)
            if isinstance(one, NewEmail)
            else _Kept(problems=list(one.problems) if isinstance(one, PayloadError) else [])
            for one in prepared
        ]
    )


def _told(kept: _Kept) -> Answer | Exception:
    if kept.problems:
        return PayloadError([FieldProblem(field, problem) for field, problem in kept.problems])
    return Answer(id=kept.id, status=Status(kept.status), fresh=False)
