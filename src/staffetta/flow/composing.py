"""Turns a payload that was found right into what is sent: attachments read, message composed.

Hand-in and intake share it, so that the same payload becomes the same message whichever way it came.
"""

from __future__ import annotations

import dataclasses

from staffetta.attachments import FileRefused, FileUnreadable, Folder
from staffetta.errors import FieldProblem, PayloadError, StoreUnavailable
from staffetta.mail import backoff, handin
from staffetta.mail.attached import Attached, AttachedFile, too_large, type_of
from staffetta.mail.compose import compose, message_id
from staffetta.mail.message import Intaken, Millis
from staffetta.mail.payload import LIMITS, Limits, Payload
from staffetta.mail.problems import Problems
from staffetta.mail.rulebook import RuleBook
from staffetta.spool import LARGE_BYTES

LIGHT_BYTES = 64 * 1024
"""Payloads up to this size are read and composed in the loop (some 30 µs); larger ones in a thread."""

_NO_FOLDER = Folder(None, setting="attachments.base_path")


@dataclasses.dataclass(slots=True, kw_only=True)
class Composer:
    """What composing is handed. Every method blocks; those that touch the disk say so."""

    attachments: Folder = _NO_FOLDER
    limits: Limits = LIMITS
    rulebook: RuleBook = dataclasses.field(default_factory=lambda: RuleBook(policy=backoff.GATEWAY))
    expires_in_ms: int = handin.EXPIRES_IN_MS
    shared: bool = False
    """Other programs send from the same tables: content goes to files, and only what they can send is taken."""

    def touches_disk(self, payload: Payload) -> bool:
        return self.shared or any(isinstance(one, AttachedFile) for one in payload.attachments)

    def compose(self, payload: Payload, *, id: str, accepted_at: Millis) -> Intaken:
        """The message and its envelope. Reads attachments from the disk where some are named by path.

        :raises PayloadError: an attachment cannot be read, or a shared store cannot take this payload.
        :raises StoreUnavailable: the disk with the attachments failed; later it may not.
        """
        if self.shared:
            refuse_unshared(payload)
        sender = payload.sender.address
        due_at = handin.due_at(payload, accepted_at=accepted_at)
        policy = self.rulebook.rules_for(payload.company_id, payload.options).policy
        return Intaken(
            sender=sender,
            recipients=payload.recipients,
            message=compose(payload, self._read(payload), message_id=message_id(id, sender), date_ms=due_at),
            eml_file_path=None,
            due_at=due_at,
            expires_at=handin.expires_at(
                payload, policy, accepted_at=accepted_at, expires_in_ms=self.expires_in_ms
            ),
            priority=payload.priority,
            options=payload.options,
        )

    def is_large(self, content: bytes | None) -> bool:
        return content is not None and (self.shared or len(content) > LARGE_BYTES)

    def _read(self, payload: Payload) -> list[Attached]:
        """All attachments with their content, in the order given."""
        problems = Problems()
        left = self.limits.message_bytes
        found: list[Attached] = []
        for index, one in enumerate(payload.attachments):
            if isinstance(one, AttachedFile):
                try:
                    content = self.attachments.read(one.path, most_bytes=self.limits.message_bytes)
                except FileRefused as error:
                    problems.add(f"attachments[{index}]", str(error))
                    continue
                except FileUnreadable as error:
                    raise StoreUnavailable(f"an attachment cannot be read now: {error}") from error
                found.append(Attached(name=one.name, content=content, type=type_of(one.name)))
            else:
                found.append(one)
            left -= len(found[-1].content)
            if left < 0:
                most = self.limits.message_bytes
                problems.add("attachments", too_large(most - left, most))
                break
        if problems:
            raise problems.error()
        return found


def refuse_unshared(payload: Payload) -> None:
    """A program that knows only path and status sends to the headers' recipient, at once."""
    wrong: list[FieldProblem] = []
    why = "cannot be kept on a shared store (store.shared): the other programs on it could not honour it"
    if len(payload.recipients) > 1:
        wrong.append(FieldProblem("to", f"more than one recipient {why}"))
    if payload.bcc:
        wrong.append(FieldProblem("bcc", why))
    if payload.send_at:
        wrong.append(FieldProblem("send_at", why))
    if wrong:
        raise PayloadError(wrong)
