"""What callers may ask with: query parameters and fields of small bodies, checked once, every wrong one named.

One `Field` says both how a value is read and how the document describes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import parse_qsl

from staffetta.errors import FieldProblem
from staffetta.flow.operate import MANY_MAX
from staffetta.mail import strict_json
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Value
from staffetta.mail.operators import Filter
from staffetta.mail.problems import shown
from staffetta.web.cursors import LENGTH_MAX as CURSOR_MAX
from staffetta.web.problems import told, wrong_query

PAGE_DEFAULT = 50
PAGE_MAX = 500
QUERY_FIELDS_MAX = 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)  # fmt: skip
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)


class Field(Value, frozen=True, kw_only=True):
    """`read` takes a JSON value and gives ours, or raises ValueError with what is wrong and how to mend it."""

    name: str
    about: str
    schema: Mapping[str, Any]
    read: Callable[[Any], Any]
    default: Any = None


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest or not value.isprintable():
        raise ValueError(f"a text of 1 to {longest} printable characters")
    return value


def _recipient(value: Any) -> str:
    if not isinstance(value, str) or len(value) < 3 or "@" not in value or not value.isprintable():
        raise ValueError("an e-mail address")
    if len(value.encode()) > 254:
        raise ValueError("an e-mail address, 254 octets at most")
    return value


def _statuses(value: Any) -> tuple[Status, ...]:
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list)
        or not words
        or any(word not in _STATUSES for word in words if _hashable(word))
    ):
        raise ValueError(f"one or more of {', '.join(Status)}")
    if any(not isinstance(word, str) for word in words):
        raise ValueError(f"one or more of {', '.join(Status)}")
    return tuple(dict.fromkeys(Status(word) for word in words))


def _hashable(word: Any) -> bool:
    return isinstance(word, (str, int, float, bool)) or word is None


_STATUSES = frozenset(str(status) for status in Status)


def _moment(value: Any) -> int:
    """Milliseconds of an RFC 3339 time. A `+` that a query turned into a space is taken for what it was."""
    text = value.replace(" ", "+") if isinstance(value, str) else ""
    if not _TIME.fullmatch(text):
        raise ValueError("a time with offset, such as 2026-11-19T06:10:00Z")
    # The standard library reads at most six digits of a second's fraction.
    text = re.sub(r"(\.\d{6})\d+", r"\1", text.upper())
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise ValueError("a time that the calendar has") from None


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return read


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004  # every wrong value is told in one way
    return value


_TIME_SCHEMA = {"type": "string", "format": "date-time"}

STATUS = Field(
    name="status",
    about="One or more statuses.",
    schema={"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Status"}},
    read=_statuses,
    default=(),
)
COMPANY = Field(
    name="company_id",
    about="Only this company's. A key that is bound to a company sees no other.",
    schema={"type": "string", "minLength": 1, "maxLength": 64},
    read=lambda value: _text(value, 64),
)
RECIPIENT = Field(
    name="recipient",
    about="Only those with this envelope recipient.",
    schema={"type": "string", "minLength": 3, "maxLength": 254, "pattern": "@"},
    read=_recipient,
)
CODE = Field(
    name="code",
    about="Only dead letters with this `lastFailureCode`.",
    schema={"type": "string", "minLength": 1, "maxLength": 64},
    read=lambda value: _text(value, 64),
)
SINCE = Field(name="since", about="From this time on (RFC 3339).", schema=_TIME_SCHEMA, read=_moment)
UNTIL = Field(name="until", about="Before this time (RFC 3339).", schema=_TIME_SCHEMA, read=_moment)
CURSOR = Field(
    name="cursor",
    about="`next_cursor` of the page before.",
    schema={"type": "string", "minLength": 1, "maxLength": CURSOR_MAX},
    read=lambda value: _text(value, CURSOR_MAX),
)
PAGE = Field(
    name="limit",
    about="How many at most.",
    schema={"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
    read=_whole(1, PAGE_MAX),
    default=PAGE_DEFAULT,
)
MANY = Field(
    name="limit",
    about="How many at most; `more` tells whether there were more.",
    schema={"type": "integer", "minimum": 1, "maximum": MANY_MAX, "default": MANY_MAX},
    read=_whole(1, MANY_MAX),
    default=MANY_MAX,
)
DRY_RUN = Field(
    name="dry_run",
    about="Only tell what would be done.",
    schema={"type": "boolean", "default": False},
    read=_flag,
    default=False,
)
TRANSPORT = Field(
    name="transport",
    about="The name of a transport.",
    schema={"type": "string", "minLength": 1, "maxLength": 255},
    read=lambda value: _text(value, 255),
)
DELIVERED = Field(
    name="delivered",
    about="Must be true: an operator knows that it was delivered.",
    schema={"const": True},
    read=lambda value: _only_true(value),
)

EMAIL_FILTER = (STATUS, COMPANY, RECIPIENT, SINCE, UNTIL)
DEAD_LETTER_FILTER = (COMPANY, RECIPIENT, CODE, SINCE, UNTIL)
PAGING = (PAGE, CURSOR)


def _only_true(value: Any) -> bool:
    if value is not True:
        raise ValueError("true: a dead letter can only be resolved as delivered")
    return True


def from_query(query: bytes, fields: Sequence[Field]) -> dict[str, Any]:
    """The values of a query string. :raises Problem: naming every wrong parameter."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        problem = f"at most {QUERY_FIELDS_MAX} parameters, percent-encoded UTF-8"
        raise wrong_query([FieldProblem("query", problem)]) from None
    found: dict[str, Any] = {}
    doubled = set()
    for name, text in pairs:
        if name == "status":
            found.setdefault(name, []).extend(text.split(","))
        elif name in found:
            doubled.add(name)
        else:
            found[name] = int(text) if name == "limit" and _WHOLE.fullmatch(text) else text
    values, problems = _read(found, fields)
    problems += [FieldProblem(shown(name), "stands more than once") for name in sorted(doubled)]
    if problems:
        raise wrong_query(problems)
    return values


def from_body(body: Any, fields: Sequence[Field]) -> dict[str, Any]:
    """The values of a JSON body. :raises Problem: naming every wrong field."""
    if not isinstance(body, dict):
        raise told([FieldProblem(strict_json.WHOLE, "must be a JSON object")])
    values, problems = _read(cast("dict[str, Any]", body), fields)
    if problems:
        raise told(problems)
    return values


def _read(found: Mapping[str, Any], fields: Sequence[Field]) -> tuple[dict[str, Any], list[FieldProblem]]:
    known = {field.name: field for field in fields}
    values: dict[str, Any] = {field.name: field.default for field in fields}
    problems = [
        FieldProblem(shown(name), f"is not known here; known are {', '.join(known) or 'none'}")
        for name in found
        if name not in known
    ][:20]
    for name, value in found.items():
        if name in known:
            try:
                values[name] = known[name].read(value)
            except ValueError as error:
                problems.append(FieldProblem(name, f"must be {error}"))
    since, until = values.get("since"), values.get("until")
    if since is not None and until is not None and since > until:
        problems.append(FieldProblem("since", "must not be later than until"))
    return values, problems


def as_filter(values: Mapping[str, Any]) -> Filter:
    return Filter(
        status=values.get("status") or (),
        company_id=values.get("company_id"),
        recipient=values.get("recipient"),
        code=values.get("code"),
        since=values.get("since"),
        until=values.get("until"),
    )
