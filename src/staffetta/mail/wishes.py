"""What a payload may ask for beyond the message itself: when, how often, who is told, and notes of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from staffetta.mail.message import NO_OPTIONS, Millis, Options, RetryLimits
from staffetta.mail.problems import Problems, said, shown
from staffetta.mail.strict_json import depth_of

FIELDS = frozenset(
    {
        "send_at",
        "expires_in",
        "max_attempts",
        "retry_delay",
        "max_retry_delay",
        "callback_url",
        "tags",
        "metadata",
        "in_doubt",
    }
)

NUMBER_MAX = 2**31 - 1
"""The longest delay (24 days) and expiry (68 years): what every store's columns and all our sums can hold."""
URL_MAX = 2_000
TAGS_MAX = 5
TAG_MAX = 128
METADATA_BYTES = 4 * 1024
METADATA_DEPTH = 16

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_URL = re.compile(r"[!-~]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(fields: Mapping[str, Any], problems: Problems) -> tuple[Millis, Options]:
    """`send_at` (0: at once) and the options of one payload."""
    send_at = _moment(fields["send_at"], problems) if "send_at" in fields else 0
    attempts, delay, longest = (
        _count(name, fields, problems) for name in ("max_attempts", "retry_delay", "max_retry_delay")
    )
    limits = None
    if attempts is not None or delay is not None or longest is not None:
        limits = RetryLimits(max_attempts=attempts, retry_delay_ms=delay, max_retry_delay_ms=longest)
    options = Options(
        limits=limits,
        in_doubt=_in_doubt(fields["in_doubt"], problems) if "in_doubt" in fields else None,
        callback_url=_url(fields["callback_url"], problems) if "callback_url" in fields else None,
        tags=_tags(fields["tags"], problems) if "tags" in fields else (),
        metadata=_metadata(fields["metadata"], problems) if "metadata" in fields else None,
        expires_in_seconds=_count("expires_in", fields, problems),
    )
    return send_at, (options if options != NO_OPTIONS else NO_OPTIONS)


def _moment(value: Any, problems: Problems) -> Millis:
    wanted = "must be a time with its offset, such as 2026-11-18T09:30:00+01:00"
    if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
        problems.add("send_at", wanted)
        return 0
    try:
        moment = datetime.fromisoformat(value.upper())
        return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError) as error:
        problems.add("send_at", f"{wanted} ({error})")
        return 0


def _count(name: str, fields: Mapping[str, Any], problems: Problems) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if type(value) is int and 1 <= value <= NUMBER_MAX:
        return value
    unit = {"expires_in": " of seconds", "max_attempts": ""}.get(name, " of milliseconds")
    problems.add(name, f"must be a whole number{unit} from 1 to {NUMBER_MAX}")
    return None


def _in_doubt(value: Any, problems: Problems) -> Any:
    if value in ("resend", "hold"):
        return value
    problems.add("in_doubt", 'must be "resend" or "hold"')
    return None


def _url(value: Any, problems: Problems) -> str | None:
    if not isinstance(value, str):
        problems.add("callback_url", f"must be text, not {said(value)}")
        return None
    problem = url_problem(value)
    if problem:
        problems.add("callback_url", problem)
    return value


def url_problem(url: str) -> str:
    """What is wrong with a callback's URL; empty: nothing. Where it leads is looked at when it is called."""
    if len(url) > URL_MAX:
        return f"is longer than {URL_MAX} characters"
    if _URL.fullmatch(url) is None or "\\" in url:
        return "has characters that a URL cannot have; percent-encode them (and write the host in ASCII)"
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        return f"is not a URL: {error}"
    if parts.scheme not in ("http", "https") or not usable:
        return "must be http:// or https:// with a host"
    return "must not carry a user name or password" if "@" in parts.netloc else ""


def _tags(value: Any, problems: Problems) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        problems.add("tags", f"must be a list of texts, not {said(value)}")
        return ()
    if len(value) > TAGS_MAX:
        problems.add("tags", f"has {len(value)} tags, at most {TAGS_MAX} are taken")
        return ()
    for index, tag in enumerate(value):
        if not isinstance(tag, str) or not 1 <= len(tag) <= TAG_MAX or not tag.isprintable():
            problems.add(f"tags[{index}]", f"must be text of 1 to {TAG_MAX} printable characters")
    return tuple(value)


def _metadata(value: Any, problems: Problems) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        problems.add("metadata", f"must be an object, not {said(value)}")
        return None
    if depth_of(value, METADATA_DEPTH) > METADATA_DEPTH:
        problems.add("metadata", f"is nested deeper than {METADATA_DEPTH} levels")
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode("utf-8"))
    except (TypeError, ValueError) as error:
        problems.add("metadata", f"is not JSON: {shown(str(error))}")
        return None
    if size > METADATA_BYTES:
        problems.add("metadata", f"has {size} bytes as JSON, at most {METADATA_BYTES} are taken")
    return dict(value)
