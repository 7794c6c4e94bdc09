"""Looks at e-mails that another program made READY, and keeps beside them what sending needs.

    READY without our columns ─ read its files ─► envelope, company, times kept: from here on one like all others
                                └ no way ──────► given to the rider without an envelope, who refuses it in words

The envelope is the payload's, else that of the message's headers; Bcc is taken out. Its time counts from here.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import msgspec

from staffetta.attachments import FileRefused, FileUnreadable, Folder
from staffetta.errors import FieldProblem, LockNotAcquired, NotFound, PayloadError, QueueError, StoreUnavailable
from staffetta.flow.composing import Composer
from staffetta.flow.intake import text_bytes
from staffetta.mail import payload, visitor
from staffetta.mail.events import Emit, LockLost, Troubled
from staffetta.mail.message import NO_OPTIONS, Intaken, Job, Millis
from staffetta.mail.payload import DEFAULT_COMPANY
from staffetta.queue.contract import Queue
from staffetta.spool import LARGE_BYTES, Spool
from staffetta.store.contract import Visited, Visitor

PAGE = 50
AGAIN_MS = 2_000
"""One whose disk failed is looked at again after this."""
NO_ENVELOPE = ""
"""The sender of an e-mail that nobody can send: whoever carries it refuses it in words."""


@dataclasses.dataclass(slots=True, kw_only=True)
class VisitorMeans:
    """What the stage is handed."""

    store: Visited
    queue: Queue
    spool: Spool
    composer: Composer
    payload_files: Folder
    clock: Callable[[], Millis]
    emit: Emit
    expires_in_ms: int


class Welcome:
    """The stage of one worker."""

    def __init__(self, means: VisitorMeans) -> None:
        self._means = means
        self._resting: dict[str, Millis] = {}

    async def step(self) -> int:
        """Look at a page; how many were given what they lacked."""
        means = self._means
        now = means.clock()
        self._resting = {name: at for name, at in self._resting.items() if at > now}
        found = [one for one in await means.store.visitors(limit=PAGE) if one.id not in self._resting]
        return sum([await self._one(one, now) for one in found])

    async def _one(self, one: Visitor, now: Millis) -> int:
        means = self._means
        try:
            made = await asyncio.to_thread(self._made, one, now)
        except (OSError, StoreUnavailable) as error:
            self._resting[one.id] = now + AGAIN_MS
            told = f"e-mail {one.id}, which another program made READY, cannot be read now: {error}"
            means.emit(Troubled(at=now, part="visitors", message=told))
            return 0
        try:
            await means.store.welcome(one, made)
        except LockNotAcquired:
            means.emit(
                LockLost(at=now, id=one.id, company_id=made.company_id or DEFAULT_COMPANY, step="visitors")
            )
            return 0
        try:
            await means.queue.offer([_job(one, made)])
        except QueueError as error:
            told = "an e-mail of another program is found in the store later"
            means.emit(Troubled(at=now, part="queue", message=told, error=str(error)))
        return 1

    def _made(self, one: Visitor, now: Millis) -> Intaken:
        try:
            return self._read(one, now)
        except (PayloadError, FileRefused, NotFound) as error:
            words = f"made READY by another program, but nobody can send it: {error}"
            told = Troubled(at=now, part="visitors", message=f"e-mail {one.id}: {words}")
            self._means.emit(told)
            return self._bare(one, now, sender=NO_ENVELOPE, recipients=(), message=None)

    def _read(self, one: Visitor, now: Millis) -> Intaken:
        text = one.payload
        if text is None and one.payload_file_path:
            text = self._file(one.payload_file_path)
        message = self._file(one.eml_file_path) if one.eml_file_path else None
        if text is not None:
            return self._by_payload(one, text, message, now)
        if message is None:
            raise PayloadError(
                [FieldProblem("payload", "is missing: the e-mail has neither payload nor message")]
            )
        sender, recipients = visitor.envelope_of(message)
        return self._bare(one, now, sender=sender, recipients=recipients, message=visitor.without_bcc(message))

    def _by_payload(self, one: Visitor, text: bytes, message: bytes | None, now: Millis) -> Intaken:
        read = payload.read(text, limits=self._means.composer.limits)
        if message is None:
            made = self._means.composer.compose(read, id=one.id, accepted_at=now)
            message = made.message
        else:
            made = self._bare(one, now, sender=read.sender.address, recipients=read.recipients, message=None)
            made = msgspec.structs.replace(made, priority=read.priority, options=read.options)
            message = visitor.without_bcc(message)
        assert message is not None, "composed, or read from its file"
        kept = self._kept(one, message, msgspec.structs.replace(made, company_id=read.company_id))
        return msgspec.structs.replace(kept, due_at=max(kept.due_at, one.due_at))

    def _bare(
        self, one: Visitor, now: Millis, *, sender: str, recipients: tuple[str, ...], message: bytes | None
    ) -> Intaken:
        made = Intaken(
            sender=sender, recipients=recipients, message=None, eml_file_path=None, due_at=max(one.due_at, now),
            expires_at=now + self._means.expires_in_ms, priority=5, options=NO_OPTIONS,
        )  # fmt: skip
        return made if message is None else self._kept(one, message, made)

    def _kept(self, one: Visitor, message: bytes, made: Intaken) -> Intaken:
        """Our own copy: what other programs do with their files changes nothing of what we send."""
        if len(message) <= LARGE_BYTES:
            return msgspec.structs.replace(made, message=message, eml_file_path=None)
        path = self._means.spool.write(f"{one.id}-v{one.version}.eml", message)
        return msgspec.structs.replace(made, message=None, eml_file_path=path)

    def _file(self, path: str) -> bytes:
        means = self._means
        if means.spool.holds(path):
            return means.spool.read(path)
        try:
            return means.payload_files.read(path, most_bytes=text_bytes(means.composer.limits))
        except FileUnreadable as error:
            raise StoreUnavailable(str(error)) from error


def _job(one: Visitor, made: Intaken) -> Job:
    return Job(
        id=one.id, company_id=made.company_id or DEFAULT_COMPANY, priority=made.priority, due_at=made.due_at
    )
