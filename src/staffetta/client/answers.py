"""What the API answers, as values; refusals, as errors that say what is wrong. Unknown fields are skipped."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import msgspec

from staffetta.errors import (
    ApiError,
    Conflict,
    FieldProblem,
    KeyReused,
    MoveNotAllowed,
    NotFound,
    PayloadError,
    StaffettaError,
    StillRunning,
)

Shape = TypeVar("Shape")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer, whichever client heard it."""

    status: int
    body: bytes
    retry_after: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """An e-mail that is durable."""

    id: str
    status: str


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    state: str
    """waiting, accepted, refused, given-up or in-doubt."""
    reply: str = ""


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    cause: str
    reason: str
    at: dt.datetime


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    part: int = 1
    transport: str = ""
    committed: bool = False
    counted: bool = False
    code: str | None = None
    enhanced: str | None = None
    category: str | None = None
    action: str | None = None
    rule: str | None = None
    delay_ms: int | None = None
    next_at: dt.datetime | None = None


class Email(msgspec.Struct, frozen=True, kw_only=True):
    """One e-mail and its story."""

    id: str
    status: str
    company_id: str
    reason: str = ""
    version: int = 0
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    next_attempt_at: dt.datetime | None = None
    reached_at: dt.datetime | None = None
    attempts: tuple[Attempt, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    recipients: tuple[Recipient, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class _Field(msgspec.Struct, frozen=True):
    field: str = ""
    detail: str = ""


class _Problem(msgspec.Struct, frozen=True):
    """RFC 9457, with the wrong fields by name."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    errors: tuple[_Field, ...] = ()


class _Result(msgspec.Struct, frozen=True):
    id: str = ""
    status: str = ""
    error: _Problem | None = None


class _Results(msgspec.Struct, frozen=True):
    results: tuple[_Result, ...]


def receipt(answer: Answer) -> Receipt:
    return _decoded(answer, Receipt)


def email(answer: Answer) -> Email:
    return _decoded(answer, Email)


def results(answer: Answer) -> list[Receipt | StaffettaError]:
    """One for each message of a batch, in order: kept, or why not."""
    return [
        Receipt(id=one.id, status=one.status) if one.error is None else _error(one.error)
        for one in _decoded(answer, _Results).results
    ]


def _decoded(answer: Answer, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except msgspec.DecodeError as error:
        raise ApiError(
            f"the answer (HTTP {answer.status}) is not one of Staffetta's: {error}; is this its address?",
            status=answer.status,
        ) from error


_ERRORS: dict[str, type[StaffettaError]] = {
    "not-found": NotFound,
    "conflict": Conflict,
    "still-running": StillRunning,
    "wrong-status": MoveNotAllowed,
    "key-reused": KeyReused,
}
"""By the last part of a problem's type."""


def kind(answer: Answer) -> str:
    """The name of the problem that an answer tells of; empty: none that we know."""
    return _problem(answer).type.rpartition("#")[2] if answer.status >= 400 else ""


def refusal(answer: Answer) -> StaffettaError:
    """The error for an answer that is not a success."""
    return _error(_problem(answer))


def _problem(answer: Answer) -> _Problem:
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(detail="no words of Staffetta's came with it; is this its address?")
    return problem if problem.status else msgspec.structs.replace(problem, status=answer.status)


def _error(problem: _Problem) -> StaffettaError:
    if problem.errors:
        return PayloadError([FieldProblem(one.field, one.detail) for one in problem.errors])
    words = problem.detail or problem.title
    known = _ERRORS.get(problem.type.rpartition("#")[2])
    if known is not None:
        return known(words)
    return ApiError(f"HTTP {problem.status}: {words}", status=problem.status)
