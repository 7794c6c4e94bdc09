"""One request as the handlers see it, and the answers they give."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from staffetta.mail import strict_json
from staffetta.mail.events import Troubled
from staffetta.mail.message import Value
from staffetta.mail.operators import Filter
from staffetta.web import fields
from staffetta.web.auth import Caller
from staffetta.web.bodies import SMALL_BYTES_MAX, Body
from staffetta.web.cursors import Cursors
from staffetta.web.fields import Field
from staffetta.web.parts import Parts
from staffetta.web.problems import Headers, Problem

JSON: Headers = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_encode = msgspec.json.Encoder().encode


class Answer(Value, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    headers: Headers = JSON
    pieces: AsyncIterator[bytes] | None = None
    """A body that is made while it is sent, for what would be too large to hold."""


def answer(status: int, shape: Any) -> Answer:
    return Answer(status=status, body=_encode(shape))


NOTHING = Answer(status=204, headers=((b"cache-control", b"no-store"),))


class Asked:
    """A request whose route and caller are known. Nothing of its body has been read yet."""

    __slots__ = ("body", "caller", "cursors", "headers", "id", "parts", "query")

    def __init__(
        self,
        *,
        parts: Parts,
        cursors: Cursors,
        caller: Caller,
        id: str,
        query: bytes,
        headers: Mapping[bytes, bytes],
        body: Body,
    ) -> None:
        self.parts = parts
        self.cursors = cursors
        self.caller = caller
        self.id = id
        self.query = query
        self.headers = headers
        self.body = body

    @property
    def company_id(self) -> str | None:
        """The company that the caller's key is bound to."""
        return self.caller.company_id

    def queried(self, known: Sequence[Field] = ()) -> dict[str, Any]:
        return fields.from_query(self.query, known)

    async def said(self, known: Sequence[Field], *, optional: bool = False) -> dict[str, Any]:
        """The fields of a small JSON body; with `optional` no body at all means an empty object."""
        raw = await self.body.json(SMALL_BYTES_MAX)
        return fields.from_body({} if optional and not raw else strict_json.loads(raw), known)

    def our_fault(self, error: Exception) -> Problem:
        """Told to the operator with its place, to the caller without: an error's words may hold anything."""
        return our_fault(self.parts, error)

    def narrowed(self, values: Mapping[str, Any]) -> Filter:
        """The filter that was asked for, within what the caller may see."""
        if self.company_id is None:
            return fields.as_filter(values)
        if values.get("company_id") not in (None, self.company_id):
            raise Problem("not-allowed", f"this key is bound to the company {self.company_id}")
        return fields.as_filter({**values, "company_id": self.company_id})


def our_fault(parts: Parts, error: Exception) -> Problem:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" in {frame.name} ({frame.filename.rpartition('/')[2]}:{frame.lineno})" for frame in last)
    message = f"a request failed by a fault of ours{place}; please report it"
    parts.emit(Troubled(at=parts.clock(), part="http", message=message, error=type(error).__name__))
    return Problem(
        "our-fault", "the request was not served; it is safe to send it again with the same key or id"
    )
