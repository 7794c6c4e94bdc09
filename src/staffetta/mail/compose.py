"""A payload as the bytes of a message: composed once, so that every attempt sends the same.

By hand, because these few shapes are all there is, because it is some fifty times faster than the standard
library, and because some releases of that let a subject write headers of its own. Its parser is the judge in
the tests; the final bytes are looked at here as well, every time.

    text | html | alternative(text, html) | mixed(one of these, attachment …)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from staffetta.mail import encodings, headers
from staffetta.mail.attached import Attached, with_charset
from staffetta.mail.message import Millis
from staffetta.mail.payload import Payload

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_PRINTABLE = bytes([0x09, *range(0x20, 0x7F)])


def message_id(id: str, sender: str) -> str:
    """The Message-ID of an e-mail: its own id, at the sender's domain. The same on every attempt."""
    return f"<{id}@{sender.rpartition('@')[2]}>"


def compose(payload: Payload, attachments: Sequence[Attached], *, message_id: str, date_ms: Millis) -> bytes:
    """The message that a payload asks for. `attachments` are all of them, those read from files included.

    Everything in it is ASCII, except where an address needs RFC 6532: such a message needs SMTPUTF8.
    """
    names, head = _headers(payload, message_id, date_ms)
    body = _body(payload, attachments, message_id)
    _look_at(names, head, body)
    return head.encode("utf-8") + body


def _headers(payload: Payload, message_id: str, date_ms: Millis) -> tuple[list[str], str]:
    """The headers that this message shall have, by name, and their text. Bcc is never one of them."""
    names = ["Date", "Message-ID", "From", "To"]
    text = (
        f"Date: {date(date_ms // 1000)}\r\nMessage-ID: {message_id}\r\n"
        f"{headers.mailboxes('From', (payload.sender,))}{headers.mailboxes('To', payload.to)}"
    )
    if payload.cc:
        names.append("Cc")
        text += headers.mailboxes("Cc", payload.cc)
    if payload.reply_to:
        names.append("Reply-To")
        text += headers.mailboxes("Reply-To", payload.reply_to)
    names.append("Subject")
    text += headers.unstructured("Subject", payload.subject)
    for name, value in payload.headers:
        names.append(name)
        text += headers.unstructured(name, value)
    names.append("MIME-Version")
    return names, f"{text}MIME-Version: 1.0\r\n"


def _body(payload: Payload, attachments: Sequence[Attached], message_id: str) -> bytes:
    """The outermost part: its Content headers, the empty line and what follows."""
    # No quoted-printable or base64 text can hold "=_": a boundary that begins so ends no part too early.
    stem = "=_" + hashlib.blake2s(message_id.encode("utf-8"), digest_size=12).hexdigest()
    if not attachments:
        return _texts(payload, stem, last=True)
    parts = [_texts(payload, stem, last=False), *map(_attachment, attachments)]
    return _multipart("mixed", f"{stem}m", parts)


def _texts(payload: Payload, stem: str, *, last: bool) -> bytes:
    text, html = payload.body_text, payload.body_html
    if text is None or html is None:
        return _text("html", html, last=last) if text is None else _text("plain", text, last=last)
    return _multipart(
        "alternative", f"{stem}a", [_text("plain", text, last=False), _text("html", html, last=False)]
    )


def _text(subtype: str, text: str | None, *, last: bool) -> bytes:
    assert text is not None, "a payload has at least one body"
    encoding, lines = encodings.text_body(text, last=last)
    head = f"Content-Type: text/{subtype}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    return head.encode("ascii") + lines


def _multipart(subtype: str, boundary: str, parts: Sequence[bytes]) -> bytes:
    head = f'Content-Type: multipart/{subtype};\r\n boundary="{boundary}"\r\n\r\n'.encode("ascii")
    rule = f"--{boundary}".encode("ascii")
    return b"".join([head, *[piece for part in parts for piece in (rule, b"\r\n", part)], rule, b"--\r\n"])


def _attachment(attached: Attached) -> bytes:
    head = (
        f"Content-Type: {with_charset(attached.type, attached.content)}\r\n"
        f"Content-Disposition: attachment{headers.file_name(attached.name)}\r\n"
        "Content-Transfer-Encoding: base64\r\n\r\n"
    )
    return head.encode("ascii") + encodings.base64_lines(attached.content)


@lru_cache(maxsize=64)
def date(seconds: int) -> str:
    """A Date as RFC 5322 writes it, in UTC, whatever the host's language."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{_DAYS[at.weekday()]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year:04} {at:%H:%M:%S} +0000"


def _look_at(names: Sequence[str], head: str, body: bytes) -> None:
    """What must hold of every message whatever came in: exactly these headers, whole lines, none too long.

    A failure here is a defect of ours: nothing is sent that looks otherwise.
    """
    ends = head.count("\r\n")
    assert ends == head.count("\n") == head.count("\r"), "a bare line end in the headers"
    rows = head.split("\r\n")
    assert max(map(len, rows)) <= headers.LINE_MAX, "a header line is too long"
    begun = [line.partition(":")[0] for line in rows if line[:1] != " "]
    assert begun == [*names, ""], "the headers are not those that were meant"
    others = body.translate(None, _PRINTABLE)
    assert others == b"\r\n" * (len(others) // 2), (
        "something else than printable ASCII and whole lines in the body"
    )
