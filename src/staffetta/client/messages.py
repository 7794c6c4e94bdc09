"""What an application writes: the fields of a payload as Python has them. Only the server checks them."""

from __future__ import annotations

import datetime as dt
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Required, TypedDict
from uuid import UUID

import msgspec


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that goes with a message: its bytes, or the path of one below the server's attachments folder."""

    name: str | None = None
    content: bytes | None = None
    type: str | None = None
    path: str | None = None

    @classmethod
    def read(cls, path: str | Path, *, name: str | None = None, type: str | None = None) -> Attachment:
        """The content of a file of this machine."""
        path = Path(path)
        guessed, _ = mimetypes.guess_type(path.name)
        return cls(name=name or path.name, content=path.read_bytes(), type=type or guessed)


class Message(TypedDict, total=False):
    """One e-mail. Times carry an offset; `retry_delay` and `max_retry_delay` are milliseconds."""

    from_: Required[str]
    to: Required[str | Sequence[str]]
    subject: Required[str]
    body_text: str
    body_html: str
    reply_to: str | Sequence[str]
    cc: str | Sequence[str]
    bcc: str | Sequence[str]
    attachments: Sequence[Attachment | str]
    """A text is a path below the server's `attachments.base_path`."""
    custom_headers: Mapping[str, str]
    priority: int
    send_at: dt.datetime | str
    expires_in: dt.timedelta | int
    max_attempts: int
    retry_delay: int
    max_retry_delay: int
    callback_url: str
    tags: Sequence[str]
    metadata: Mapping[str, Any]
    in_doubt: Literal["resend", "hold"]
    id: UUID | str
    company_id: str


def payload(message: Message | Mapping[str, Any]) -> dict[str, Any]:
    """The payload as the API has it. `from` cannot be a Python keyword argument; `from_` stands for it."""
    fields = dict(message)
    if "from_" in fields:
        fields["from"] = fields.pop("from_")
    expires_in = fields.get("expires_in")
    if isinstance(expires_in, dt.timedelta):
        fields["expires_in"] = round(expires_in.total_seconds())
    return {name: value for name, value in fields.items() if value is not None}


encode = msgspec.json.Encoder().encode
"""Times become RFC 3339, bytes base64, UUIDs their text."""
