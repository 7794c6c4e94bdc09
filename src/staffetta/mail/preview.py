"""Reads a composed message back for people who look at it: headers, text, HTML, what is attached. Pure.

The message may be hostile: whatever is wrong with it is told, nothing is believed, and what is too large or too
deep is left to the raw download.
"""

from __future__ import annotations

import base64
from email import policy
from email.errors import MessageError
from email.message import EmailMessage
from email.parser import BytesHeaderParser, BytesParser
from typing import Any

from staffetta.mail.message import Value

BYTES_MAX = 8 * 2**20
"""Larger messages are shown by their headers alone."""
TEXT_MAX = 200_000
HTML_MAX = 1_000_000
IMAGE_BYTES_MAX = 512 * 1024
IMAGES_BYTES_MAX = 4 * 2**20
PARTS_MAX = 200
VALUE_MAX = 2_000
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds of inline images that are shown. SVG is a document, not a picture."""

_POLICY = policy.default.clone(max_line_length=None)


class Attached(Value, frozen=True, kw_only=True):
    name: str
    kind: str
    size: int
    inline: bool


class Preview(Value, frozen=True, kw_only=True):
    """What a message says."""

    size: int
    headers: tuple[tuple[str, str], ...] = ()
    subject: str = ""
    text: str | None = None
    html: str | None = None
    attached: tuple[Attached, ...] = ()
    images: dict[str, str] = {}
    """Content-ID → a `data:` address of the picture."""
    problem: str = ""
    """Why there is less to see than there should be."""


def read(raw: bytes) -> Preview:
    """What can be shown of this message; never raises for what stands in it."""
    if len(raw) > BYTES_MAX:
        headers, subject = _headers(raw[: 64 * 1024])
        problem = "too large to be shown here; download it to look at it"
        return Preview(size=len(raw), headers=headers, subject=subject, problem=problem)
    headers, subject = _headers(raw)
    try:
        message = BytesParser(policy=_POLICY).parsebytes(raw)
        return _of(message, len(raw), headers, subject)
    except (MessageError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        problem = "cannot be read as a message; download it to look at it"
        return Preview(size=len(raw), headers=headers, subject=subject, problem=problem)


def _headers(raw: bytes) -> tuple[tuple[tuple[str, str], ...], str]:
    """As they stand, unfolded; decoded where that works."""
    try:
        plain = BytesHeaderParser(policy=policy.compat32).parsebytes(raw)
        pairs = tuple((name[:VALUE_MAX], _one_line(str(value))) for name, value in plain.items()[:PARTS_MAX])
    except (MessageError, ValueError, RecursionError):
        return (), ""
    try:
        subject = str(BytesHeaderParser(policy=_POLICY).parsebytes(raw)["Subject"] or "")
    except (MessageError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        subject = next((value for name, value in pairs if name.lower() == "subject"), "")
    return pairs, _one_line(subject)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:VALUE_MAX].strip()


def _of(message: EmailMessage, size: int, headers: tuple[tuple[str, str], ...], subject: str) -> Preview:
    text: str | None = None
    html: str | None = None
    attached: list[Attached] = []
    images: dict[str, str] = {}
    room = IMAGES_BYTES_MAX
    problem = ""
    for number, part in enumerate(message.walk()):
        if number >= PARTS_MAX:
            problem = f"it has more than {PARTS_MAX} parts; the rest is not shown"
            break
        if part.is_multipart():
            continue
        kind = part.get_content_type()
        if part.get_content_disposition() != "attachment" and kind == "text/plain" and text is None:
            text = _words(part)[:TEXT_MAX]
        elif part.get_content_disposition() != "attachment" and kind == "text/html" and html is None:
            html = _words(part)
            if len(html) > HTML_MAX:
                html, problem = None, "its HTML is too large to be shown here; download it to look at it"
        else:
            content = part.get_payload(decode=True)
            content = content if isinstance(content, bytes) else b""
            name = _one_line(part.get_filename() or "") or "(no name)"
            attached.append(Attached(name=name, kind=_one_line(kind), size=len(content),
                                     inline=part.get_content_disposition() == "inline"))  # fmt: skip
            cid = str(part["Content-ID"] or "").strip().strip("<>")
            if cid and kind in IMAGES and len(content) <= min(IMAGE_BYTES_MAX, room):
                room -= len(content)
                images[cid] = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return Preview(
        size=size, headers=headers, subject=subject, text=text, html=html, attached=tuple(attached),
        images=images, problem=problem,
    )  # fmt: skip


def _words(part: Any) -> str:
    """The text of a part in whatever charset it names; what cannot be decoded is marked, not fatal."""
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    charset = part.get_content_charset("utf-8")
    try:
        return content.decode(charset, errors="replace")
    except (LookupError, ValueError):
        return content.decode("utf-8", errors="replace")
