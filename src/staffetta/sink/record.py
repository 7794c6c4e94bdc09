"""What the sink took: one JSON line for each message, in the file before the sender hears of it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from staffetta.mail.message import Value


class Accepted(Value, frozen=True, kw_only=True):
    """One message taken, as it stands in the log."""

    recipients: tuple[str, ...]
    size: int
    message_id: str
    sha256: str
    """Of the message's bytes, as they were before dot-stuffing."""
    sender: str
    at_us: int
    """Microseconds since 1970 UTC, when its final dot was read."""
    connection: int
    tls: bool = False
    user: str = ""


_MESSAGE_ID = re.compile(rb"^message-id:[ \t\r\n]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_HEADER_BYTES = 65_536
_encode = msgspec.json.Encoder().encode


class Record:
    """Counts, and writes the log. Lines gather until `write`, which comes before the replies."""

    def __init__(self, log: Path | None, *, clock_us: Callable[[], int], sync: bool = False) -> None:
        self.messages = 0
        self.recipients = 0
        self.bytes = 0
        self._clock_us = clock_us
        self._sync = sync
        self._lines: list[bytes] = []
        self._log = log
        self._file = -1

    def open(self) -> None:
        """Go on at the log's end: a sink that was away and is back knows what it took before."""
        if self._log is not None and self._file < 0:
            self._file = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def take(
        self, sender: str, recipients: tuple[str, ...], message: bytes, *, connection: int, tls: bool, user: str
    ) -> Accepted:
        accepted = Accepted(
            recipients=recipients,
            size=len(message),
            message_id=message_id(message),
            sha256=hashlib.sha256(message).hexdigest(),
            sender=sender,
            at_us=self._clock_us(),
            connection=connection,
            tls=tls,
            user=user,
        )
        self.messages += 1
        self.recipients += len(recipients)
        self.bytes += len(message)
        if self._file >= 0:
            self._lines.append(_encode(accepted))
        return accepted

    def write(self) -> None:
        """Into the file: what dies with this process dies unanswered."""
        if not self._lines:
            return
        data = b"\n".join(self._lines) + b"\n"
        self._lines.clear()
        while data:
            data = data[os.write(self._file, data) :]
        if self._sync:
            os.fdatasync(self._file)

    def close(self) -> None:
        self.write()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def message_id(message: bytes) -> str:
    """The Message-ID header's value, empty where there is none."""
    end = message.find(b"\r\n\r\n")
    at = message.find(b"\r\nMessage-ID: ", 0, end if end >= 0 else _HEADER_BYTES)
    if at >= 0 and message[(stop := message.find(b"\r\n", at + 14)) + 2 : stop + 3] not in (b" ", b"\t"):
        return message[at + 14 : stop].decode("utf-8", "replace")
    header = message[: min(end, _HEADER_BYTES) if end >= 0 else _HEADER_BYTES]
    found = _MESSAGE_ID.search(header)
    return found[1].strip().decode("utf-8", "replace") if found else ""
