"""Collects what is wrong with a payload, field by field, in words for whoever wrote it."""

from __future__ import annotations

from typing import Any

from staffetta.errors import FieldProblem, PayloadError

NAMED_MAX = 100
"""Wrong fields named at once; a payload with more of them hears how many more."""
_NAME_MAX = 80


class Problems:
    """The wrong fields found so far."""

    __slots__ = ("_more", "_named")

    def __init__(self) -> None:
        self._named: list[FieldProblem] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._named)

    def add(self, field: str, problem: str) -> None:
        if len(self._named) < NAMED_MAX:
            self._named.append(FieldProblem(shown(field), problem))
        else:
            self._more += 1

    def error(self) -> PayloadError:
        more = [FieldProblem("payload", f"has {self._more} more wrong fields")] if self._more else []
        return PayloadError([*self._named, *more])


def shown(name: str) -> str:
    """A field's name as it may stand in an answer: a stranger may have chosen it."""
    if len(name) <= _NAME_MAX and name.isprintable():
        return name or '""'
    cut = name if len(name) <= _NAME_MAX else name[:_NAME_MAX] + "…"
    return "".join(c if c.isprintable() else "\ufffd" for c in cut)


def said(value: Any) -> str:
    """What kind of value this is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    words = {
        str: "text",
        int: "a number",
        float: "a number",
        list: "a list",
        tuple: "a list",
        dict: "an object",
    }
    return words.get(type(value), f"a {type(value).__name__}")
