"""Everything that can go wrong with a request, told as RFC 9457 problem details that name every wrong field.

The words are for the caller who must act. They carry what the caller sent or owns, no other's, and no secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from staffetta.errors import (
    Conflict,
    FieldProblem,
    KeyReused,
    LockNotAcquired,
    MoveNotAllowed,
    NotFound,
    PayloadError,
    StaffettaError,
    StillRunning,
    StoreError,
    StoreUnusable,
)
from staffetta.mail import strict_json

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

MEDIA_TYPE = b"application/problem+json"

TITLES: dict[str, tuple[int, str]] = {
    "malformed": (400, "The request cannot be understood"),
    "wrong-query": (400, "A query parameter is wrong"),
    "no-key": (401, "An API key is needed"),
    "not-allowed": (403, "This key, or this caller, may not do that"),
    "not-found": (404, "There is no such thing here"),
    "wrong-method": (405, "This path knows other methods"),
    "too-slow": (408, "The request came too slowly"),
    "conflict": (409, "The id is already used for another e-mail"),
    "still-running": (409, "The first request with this idempotency key still runs"),
    "wrong-status": (409, "Its status does not allow it"),
    "too-large": (413, "The body is too large"),
    "long-address": (414, "The request's address is too long"),
    "wrong-media-type": (415, "This kind of body is not understood"),
    "wrong-host": (421, "This address is not for that host name"),
    "wrong-fields": (422, "Fields are wrong"),
    "key-reused": (422, "The idempotency key was used for another request"),
    "large-headers": (431, "The headers are too large"),
    "our-fault": (500, "Something of ours failed"),
    "store-away": (503, "The store cannot be used for now"),
    "busy": (503, "There is too much to do for now"),
}
"""Every problem there is: its name, its status, its title. The documents are made from this table."""

RETRY_SOON: Headers = ((b"retry-after", b"1"),)


class Problem(Exception):
    """A request that is answered with problem details."""

    def __init__(
        self, kind: str, detail: str, *, errors: Sequence[FieldProblem] = (), headers: Headers = ()
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = TITLES[kind]
        self.detail = detail
        self.errors = errors
        self.headers = headers

    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "type": f"/docs#{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            shape["errors"] = [{"field": field, "detail": problem} for field, problem in self.errors]
        return shape

    def body(self) -> bytes:
        return msgspec.json.encode(self.shape())


def told(errors: Sequence[FieldProblem]) -> Problem:
    """Wrong fields, or a text that cannot be read at all."""
    if all(field == strict_json.WHOLE for field, _ in errors):
        return Problem("malformed", "; ".join(problem for _, problem in errors), errors=errors)
    return Problem("wrong-fields", _named(errors), errors=errors)


def wrong_query(errors: Sequence[FieldProblem]) -> Problem:
    return Problem("wrong-query", _named(errors), errors=errors)


def no_such_thing() -> Problem:
    """The one answer for what never was, what is gone, and what is another's."""
    return Problem("not-found", "there is nothing under this address for this caller")


_KINDS: tuple[tuple[type[Exception], str, str, Headers], ...] = (
    (MoveNotAllowed, "wrong-status", "", ()),
    (LockNotAcquired, "wrong-status", "it moved while this was decided; look at it again", RETRY_SOON),
    (KeyReused, "key-reused", "", ()),
    (StillRunning, "still-running", "", RETRY_SOON),
    (Conflict, "conflict", "", ()),
    (StoreUnusable, "store-away", "the store cannot be used until it is mended; nothing was kept", ()),
    (StoreError, "store-away", "nothing was kept; try again with the same idempotency key or id", RETRY_SOON),
    (StaffettaError, "wrong-status", "", ()),
)
"""Errors of ours, the narrower first, and how they are told; empty words: the error's own."""


def of(error: Exception) -> Problem | None:
    """The problem that an error stands for; None when it is a fault that nobody foresaw."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, PayloadError):
        return told(error.problems)
    if isinstance(error, NotFound):
        return no_such_thing()
    for known, kind, words, headers in _KINDS:
        if isinstance(error, known):
            return Problem(kind, words or str(error), headers=headers)
    return None


def _named(errors: Sequence[FieldProblem]) -> str:
    names = ", ".join(field for field, _ in errors[:20])
    more = f" and {len(errors) - 20} more" if len(errors) > 20 else ""
    return f"wrong: {names}{more}"
