"""Reads a message file (.eml) as the payload that says the same: addresses, subject, bodies, attachments."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any

from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail.attached import OCTETS

_OURS = frozenset(
    {"from", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to", "mime-version", "received"}
    | {"return-path", "dkim-signature", "sender"}
)


def payload_of(raw: bytes) -> dict[str, Any]:
    """The payload of one message. Date and Message-ID are made anew at hand-in: it is a new e-mail.

    :raises PayloadError: it cannot be read as a message.
    """
    try:
        message = BytesParser(policy=policy.default).parsebytes(raw)
        payload = _fields(message)
    except RecursionError as error:
        raise PayloadError([FieldProblem("message", "has parts nested too deeply")]) from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise PayloadError([FieldProblem("message", f"cannot be read as an e-mail: {error}")]) from error
    if "from" not in payload:
        raise PayloadError([FieldProblem("message", "has no From header: is this an e-mail?")])
    return payload


def _fields(message: EmailMessage) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for name, field in (("From", "from"), ("Reply-To", "reply_to"), ("Subject", "subject")):
        if message[name] is not None:
            payload[field] = str(message[name])
    for name, field in (("To", "to"), ("Cc", "cc"), ("Bcc", "bcc")):
        addresses = [str(one) for header in message.get_all(name, []) for one in header.addresses]
        if addresses:
            payload[field] = addresses
    bodies = []
    for kind, field in (("plain", "body_text"), ("html", "body_html")):
        part = message.get_body(preferencelist=(kind,))
        if part is not None:
            payload[field] = part.get_content()
            bodies.append(part)
    attachments = [_attachment(part) for part in _leaves(message) if all(part is not body for body in bodies)]
    if attachments:
        payload["attachments"] = attachments
    own = {
        name: str(value)
        for name, value in message.items()
        if name.lower() not in _OURS and not name.lower().startswith("content-")
    }
    if own:
        payload["custom_headers"] = own
    return payload


def _leaves(part: Any) -> Iterator[Any]:
    """Everything that is not a container. A message inside the message is one thing, and stays whole."""
    if part.get_content_maintype() == "multipart":
        for inner in part.iter_parts():
            yield from _leaves(inner)
    else:
        yield part


def _attachment(part: Any) -> dict[str, str]:
    """Whatever is no body: pictures that the HTML shows and further forms of the text come along as files, too."""
    if part.get_content_maintype() == "message":
        inner = part.get_payload()
        content = b"".join(one.as_bytes() for one in inner) if isinstance(inner, list) else str(inner).encode()
        return _file(part.get_filename() or "message.eml", OCTETS, content)
    guessed = mimetypes.guess_extension(part.get_content_type()) or ""
    return _file(
        part.get_filename() or f"attachment{guessed}",
        part.get_content_type(),
        part.get_payload(decode=True) or b"",
    )


def _file(name: str, type: str, content: bytes) -> dict[str, str]:
    return {"name": name, "type": type, "content": base64.b64encode(content).decode()}
