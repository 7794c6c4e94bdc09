"""Headers of the client's own, beside those that are ours to write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from staffetta.mail.headers import control_in
from staffetta.mail.problems import Problems, said, shown

HEADERS_MAX = 100
NAME_MAX = 76
VALUE_MAX = 8_192
"""Characters of one value."""

OURS = frozenset({
    "from", "to", "cc", "bcc", "subject", "date", "message-id", "mime-version", "received", "return-path",
    "dkim-signature",
})  # fmt: skip
"""Written by Staffetta or by servers on the way; `Content-…` too."""

_NAME = re.compile(r"[!-9;-~]+")
"""RFC 5322: printable ASCII without the colon."""


def custom_headers(field: str, value: Any, problems: Problems) -> tuple[tuple[str, str], ...]:
    """The custom headers of one payload, in their order; what is wrong goes to `problems`."""
    if not isinstance(value, Mapping):
        problems.add(field, f"must be an object of texts, not {said(value)}")
        return ()
    if len(value) > HEADERS_MAX:
        problems.add(field, f"has {len(value)} headers, at most {HEADERS_MAX} are taken")
        return ()
    known: set[str] = set()
    for name, text in value.items():
        problem = _name_problem(name) or _value_problem(text)
        if not problem and name.lower() in known:
            problem = "is given twice: header names do not tell capital letters from small ones"
        if problem:
            problems.add(f"{field}.{shown(str(name))}", problem)
        else:
            known.add(name.lower())
    return tuple(value.items()) if len(known) == len(value) else ()


def _name_problem(name: Any) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return "is not a header's name: printable ASCII without colon and space"
    if len(name) > NAME_MAX:
        return f"has a name of {len(name)} characters, at most {NAME_MAX} are taken"
    lower = name.lower()
    if lower in OURS or lower.startswith("content-"):
        return "is not a header that a payload may set"
    return ""


def _value_problem(text: Any) -> str:
    if not isinstance(text, str):
        return f"must be text, not {said(text)}"
    if len(text) > VALUE_MAX:
        return f"has {len(text)} characters, at most {VALUE_MAX} are taken"
    control = control_in(text)
    return f"holds a line break or another control character ({control})" if control else ""
