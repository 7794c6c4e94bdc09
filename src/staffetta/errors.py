"""The one tree of exceptions. A docstring is the default message; the next step for the reader stands in it.

StaffettaError
├── SettingsError            a setting is wrong: every wrong value is named at once
├── PayloadError             a payload is wrong: every wrong field is named at once
├── MoveNotAllowed           the life of an e-mail has no such move
├── LockNotAcquired          another worker holds or has moved the e-mail: skip the step, never retry it
├── NotFound                 no such e-mail, dead letter, key …
├── Conflict                 the id or idempotency key is known with another content
│   ├── KeyReused            the same idempotency key came with another body
│   └── StillRunning         the first request with this idempotency key has not been answered yet
├── Unstorable               a value that no store could keep: a text that is not Unicode, a number too large
├── StoreError               the store failed
│   ├── StoreUnavailable     away, busy or full for now: outcomes wait, nothing is claimed
│   ├── StoreOwned           another process owns the file
│   └── StoreUnusable        corrupt, foreign or too new: stop and tell
├── QueueError               the queue failed; the store still has everything
├── TransportError           a broken promise of a transport (a refusal is a Reply, never an exception)
├── NoAnswer                 an HTTP call brought no answer: not reached, lost, too slow, or forbidden
└── ApiError                 what a client of the HTTP API gets for a refusal that none of the above names
"""

from __future__ import annotations


class StaffettaError(Exception):
    """Staffetta could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class FieldProblem(tuple[str, str]):
    """One wrong field or setting: its name and what is wrong with it, remedy included."""

    __slots__ = ()

    def __new__(cls, field: str, problem: str) -> FieldProblem:
        return super().__new__(cls, (field, problem))

    @property
    def field(self) -> str:
        return self[0]

    @property
    def problem(self) -> str:
        return self[1]


class _NamesFields(StaffettaError):
    """Something is wrong with several fields."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{field}: {problem}" for field, problem in problems))


class SettingsError(_NamesFields, ValueError):
    """Settings are wrong."""


class PayloadError(_NamesFields, ValueError):
    """The payload is wrong."""


class MoveNotAllowed(StaffettaError, ValueError):
    """The life of an e-mail has no such move."""


class LockNotAcquired(StaffettaError):
    """failed to acquire processing lock"""


class NotFound(StaffettaError, LookupError):
    """There is no such thing here."""


class Conflict(StaffettaError):
    """This id is already used for another e-mail."""


class KeyReused(Conflict):
    """This idempotency key was used for another request within 24 hours; take a new key for a new request."""


class StillRunning(Conflict):
    """The first request with this idempotency key has not been answered yet; ask again in a moment."""


class Unstorable(StaffettaError, ValueError):
    """This cannot be kept; nothing of it was. Trying again changes nothing."""


class StoreError(StaffettaError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be used for now; nothing is lost, work resumes when it answers again."""


class StoreOwned(StoreError):
    """Another process owns this store."""


class StoreUnusable(StoreError):
    """This is not a store that Staffetta can use."""


class QueueError(StaffettaError):
    """The queue cannot be used for now; the store still has every e-mail."""


class TransportError(StaffettaError):
    """A transport broke its promise."""


class NoAnswer(StaffettaError):
    """No answer came over HTTP."""

    def __init__(self, message: str | None = None, *, kind: str = "lost") -> None:
        self.kind = kind
        """address, forbidden, dns, refused, unreachable, tls, timeout, lost or protocol."""
        super().__init__(message)


class ApiError(StaffettaError):
    """The API refused the request."""

    def __init__(self, message: str | None = None, *, status: int = 0) -> None:
        self.status = status
        super().__init__(message)
