"""JSON as a stranger may send it: everything that two readers could understand differently is refused.

Duplicate keys, NaN and Infinity, invalid UTF-8, endless nesting and endless numbers are named; nothing a
stranger sends ends in another exception than `PayloadError`. Half a surrogate pair (`"\\ud800"`) is left to the
checks of the field that has it, which can name it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from staffetta.errors import FieldProblem, PayloadError

WHOLE = "payload"
"""The name under which trouble with the text as a whole is told."""
_NAMED_MAX = 20


class _Duplicate(Exception):  # a signal between two functions of this module
    """Some object has one key twice."""


def refuse(problem: str, *, cause: Exception | None = None) -> NoReturn:
    raise PayloadError([FieldProblem(WHOLE, problem)]) from cause


def loads(raw: bytes) -> Any:
    """The value that a JSON text stands for.

    :raises PayloadError: it is not JSON, or not JSON of one meaning.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse(f"is not valid UTF-8 (byte {error.start}); send JSON in UTF-8", cause=error)
    try:
        return _DECODER.decode(text)
    except _Duplicate:
        _name_duplicates(text)
    except RecursionError as error:
        refuse("is nested too deeply", cause=error)
    except json.JSONDecodeError as error:
        refuse(f"is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}", cause=error)
    except ValueError as error:
        refuse(f"has a number that JSON does not know: {error}", cause=error)


def elements(raw: bytes, *, at_most: int) -> list[bytes]:
    """The texts of an array's elements, each to be read on its own, so that one wrong one spoils no other."""
    try:
        found = _ARRAY.decode(raw)
    except RecursionError as error:
        refuse("is nested too deeply", cause=error)
    except UnicodeDecodeError as error:
        refuse(f"is not valid UTF-8 (byte {error.start}); send JSON in UTF-8", cause=error)
    except msgspec.DecodeError as error:
        refuse(f"must be a JSON array of payloads: {error}", cause=error)
    if len(found) > at_most:
        refuse(f"has {len(found)} payloads, at most {at_most} are taken at once; send the rest in another call")
    return [bytes(one) for one in found]


def depth_of(value: Any, limit: int) -> int:
    """How deep a value is nested; counting ends at `limit` + 1."""
    level, depth = [value], 0
    while level and depth <= limit:
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        depth += 1
    return depth


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Duplicate
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


def _name_duplicates(text: str) -> NoReturn:
    twice: dict[str, None] = {}

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                twice[key[:80]] = None
            seen.add(key)
        return dict(pairs)

    with suppress(ValueError, RecursionError):  # what else is wrong with it is told when these are mended
        json.JSONDecoder(object_pairs_hook=note, parse_constant=_no_constant).decode(text)
    raise PayloadError(
        [FieldProblem(key, "stands twice in the same object; send it once") for key in list(twice)[:_NAMED_MAX]]
    )


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
