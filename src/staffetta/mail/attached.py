"""Attachments as a payload names them: by a path, read when the e-mail is taken in, or with their content."""

from __future__ import annotations

import binascii
import mimetypes
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from staffetta.mail.headers import control_in, is_token
from staffetta.mail.message import Value
from staffetta.mail.problems import Problems, said

ATTACHMENTS_MAX = 100
NAME_MAX = 255
PATH_MAX = 4_096
TYPE_MAX = 255
OCTETS = "application/octet-stream"

_PARAMETERS = re.compile(r'(?:; ?[A-Za-z0-9!#$&+.^_-]+=(?:[A-Za-z0-9!#$&+.^_-]+|"[ !#-\[\]-~]*"))*')
_TYPES = mimetypes.MimeTypes(filenames=())
"""The table that comes with Python, without the host's own files: the same type everywhere."""


class AttachedFile(Value, frozen=True, kw_only=True):
    """A file under `attachments.base_path`, not read yet."""

    path: str
    name: str


class Attached(Value, frozen=True, kw_only=True):
    """An attachment with its content."""

    name: str
    content: bytes
    type: str


Attachment: TypeAlias = AttachedFile | Attached


def type_of(name: str) -> str:
    """The media type that a name tells. A message inside a message may not be base64: it goes as octets."""
    guessed, packing = _TYPES.guess_type(name, strict=True)
    if guessed is None or packing is not None or guessed.startswith(("message/", "multipart/")):
        return OCTETS
    return guessed


def read_attachments(value: Any, most_bytes: int, problems: Problems) -> tuple[Attachment, ...]:
    """The attachments of one payload; what is wrong goes to `problems`."""
    if not isinstance(value, list | tuple):
        problems.add("attachments", f"must be a list, not {said(value)}")
        return ()
    if len(value) > ATTACHMENTS_MAX:
        problems.add("attachments", f"has {len(value)} attachments, at most {ATTACHMENTS_MAX} are taken")
        return ()
    found = [_one(f"attachments[{index}]", one, most_bytes, problems) for index, one in enumerate(value)]
    kept = tuple(one for one in found if one is not None)
    size = sum(len(one.content) for one in kept if isinstance(one, Attached))
    if size > most_bytes:
        problems.add("attachments", too_large(size, most_bytes))
    return kept


def too_large(size: int, most_bytes: int) -> str:
    return f"have {size} bytes together, at most {most_bytes} are taken (limits.message_bytes)"


def _one(field: str, value: Any, most_bytes: int, problems: Problems) -> Attachment | None:
    if isinstance(value, str):
        return _file(field, value, value.rpartition("/")[2], problems)
    if not isinstance(value, Mapping):
        problems.add(field, f"must be a path or an object, not {said(value)}")
        return None
    by_path = "path" in value
    for name in sorted(value.keys() - ({"path", "name"} if by_path else {"name", "content", "type"}), key=str):
        problems.add(f"{field}.{name}", "is not a field of an attachment" if name not in ("content", "type")
                     else "cannot stand beside path")  # fmt: skip
    if by_path:
        path = value["path"]
        if not isinstance(path, str):
            problems.add(f"{field}.path", f"must be text, not {said(path)}")
            return None
        return _file(
            f"{field}.path", path, value.get("name", path.rpartition("/")[2]), problems, f"{field}.name"
        )
    return _inline(field, value, most_bytes, problems)


def _file(field: str, path: str, name: Any, problems: Problems, name_field: str = "") -> AttachedFile | None:
    if not 1 <= len(path) <= PATH_MAX:
        problems.add(field, f"must have 1 to {PATH_MAX} characters, has {len(path)}")
        return None
    if control := control_in(path):
        problems.add(field, f"holds a control character ({control})")
    named = _name(name_field or field, name, problems)
    return AttachedFile(path=path, name=named)


def _name(field: str, name: Any, problems: Problems) -> str:
    if not isinstance(name, str):
        problems.add(field, "must be text")
        return ""
    if control := control_in(name):
        problems.add(field, f"has a name with a control character ({control})")
        return ""
    named: str = name.strip()  # readers take white space off its ends, so there is none to be kept
    if not 1 <= len(named) <= NAME_MAX:
        problems.add(field, f"must name a file in 1 to {NAME_MAX} characters")
    elif "/" in named or "\\" in named or named in (".", ".."):
        problems.add(field, "must be a file name without folders")
    return named


def _inline(field: str, value: Mapping[str, Any], most_bytes: int, problems: Problems) -> Attached | None:
    if "content" not in value:
        problems.add(f"{field}.content", "is required, or else path")
    if "name" not in value:
        problems.add(f"{field}.name", "is required beside content")
    if "content" not in value or "name" not in value:
        return None
    name = _name(f"{field}.name", value["name"], problems)
    content = _decoded(f"{field}.content", value["content"], most_bytes, problems)
    type_ = _type(f"{field}.type", value["type"], problems) if "type" in value else type_of(name)
    return Attached(name=name, content=content, type=type_)


def _decoded(field: str, text: Any, most_bytes: int, problems: Problems) -> bytes:
    if not isinstance(text, str):
        problems.add(field, f"must be base64 text, not {said(text)}")
        return b""
    if len(text) > most_bytes * 2 + 4:
        problems.add(field, too_large(len(text) * 3 // 4, most_bytes))
        return b""
    try:
        data = text.encode("ascii")
        if b"\n" in data:
            # Many tools break base64 into lines; nothing else that is not base64 is forgiven.
            data = data.replace(b"\r\n", b"").replace(b"\n", b"")
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        problems.add(field, f"is not base64: {error}" if isinstance(error, binascii.Error) else "is not base64")
        return b""


def _type(field: str, value: Any, problems: Problems) -> str:
    if not isinstance(value, str):
        problems.add(field, f"must be text, not {said(value)}")
        return OCTETS
    head, _semicolon, _ = value.partition(";")
    major, slash, minor = head.strip(" ").partition("/")
    if (
        len(value) > TYPE_MAX or not slash or not is_token(major) or not is_token(minor)
        or _PARAMETERS.fullmatch(value, len(head)) is None
    ):  # fmt: skip
        problems.add(field, "must be a media type such as application/pdf")
    elif major.lower() in ("multipart", "message"):
        problems.add(field, f"cannot be {major.lower()}/…; send it as {OCTETS}")
    return value


def with_charset(type_: str, content: bytes) -> str:
    """Text says in which letters it is written, where that can be told."""
    if not type_.startswith("text/") or ";" in type_:
        return type_
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return type_
    return f"{type_}; charset=utf-8"
