"""Reads a message file (.eml) as the payload that says the same: addresses, subject, bodies, attachments."""

from __future__ import annotations

import base64
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any

from staffetta.errors import FieldProblem, PayloadError

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
    for kind, field in (("plain", "body_text"), ("html", "body_html")):
        part = message.get_body(preferencelist=(kind,))
        if part is not None:
            payload[field] = part.get_content()
    attachments = [_attachment(part) for part in message.iter_attachments()]
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


def _attachment(part: Any) -> dict[str, str]:
    content = part.get_payload(decode=True)
    return {
        "name": part.get_filename() or "attachment",
        "type": part.get_content_type(),
        "content": base64.b64encode(content if content is not None else part.as_bytes()).decode(),
    }
