"""A place in a listing, as a cursor's text: newest first by time, ties by the order in which they came."""

from __future__ import annotations

from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail.message import Millis


def write(at: Millis, number: int) -> str:
    return f"{at}.{number}"


def read(cursor: str) -> tuple[Millis, int]:
    """:raises PayloadError: not a cursor of ours."""
    at, _, number = cursor.partition(".")
    if not (_whole(at) and _whole(number)):
        raise PayloadError([FieldProblem("cursor", "take the cursor of the page before as it stands")])
    return int(at), int(number)


def _whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= 18
