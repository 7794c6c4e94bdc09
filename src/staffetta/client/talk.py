"""What is said to the API and when it is said again, without a network: both clients walk these talks.

A talk yields a `Request` and is sent the `Answer` or the `NoAnswer` that came of it; or it yields a `Wait`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from staffetta.client import answers, messages
from staffetta.client.answers import Answer, Email, Receipt
from staffetta.client.messages import Message
from staffetta.errors import FieldProblem, MoveNotAllowed, NoAnswer, PayloadError, StaffettaError
from staffetta.mail.retry_after import retry_after_ms

BATCH_MAX = 1_000
"""Messages in one call; more of them are sent in several."""
FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 10.0

_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_HOPELESS = frozenset({"address", "forbidden", "tls", "protocol"})
"""Kinds of `NoAnswer` that the next try would meet again."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    body: bytes | None = None
    key: str = ""
    """The idempotency key: the same over all tries."""

    @property
    def repeatable(self) -> bool:
        """A second one changes nothing."""
        return self.method == "GET" or bool(self.key)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How often a call is made, the first time included, and the longest wait that a server may ask for."""

    tries: int = 5
    longest_wait_seconds: float = 30.0


Result = TypeVar("Result")
Talk: TypeAlias = Generator[Request | Wait, Answer | NoAnswer | None, Result]


class Draw:
    """Chance, as the clients have it: a number in [0, 1) and the time, in milliseconds."""

    def number(self) -> float:
        raise NotImplementedError

    def now_ms(self) -> int:
        raise NotImplementedError


def ask(request: Request, patience: Patience, chance: Draw) -> Talk[Answer]:
    """A request, until it is answered for good.

    :raises NoAnswer: nobody answered. :raises StaffettaError: the answer is a refusal.
    """
    tried = 0
    while True:
        came = yield request
        assert came is not None, "a request is answered, or it is known why not"
        tried += 1
        if isinstance(came, Answer) and came.status < 300:
            return came
        if tried >= patience.tries or not _worth_another(came):
            raise came if isinstance(came, NoAnswer) else answers.refusal(came)
        yield Wait(seconds=_pause(came, tried, patience, chance))


def _worth_another(came: Answer | NoAnswer) -> bool:
    if isinstance(came, NoAnswer):
        return came.kind not in _HOPELESS
    return came.status in _TRY_AGAIN or answers.kind(came) == "still-running"


def _pause(came: Answer | NoAnswer, tried: int, patience: Patience, chance: Draw) -> float:
    """Half of it is chance: the many clients of a server that comes back do not all come at once."""
    longest = min(FIRST_WAIT_SECONDS * float(2 ** (tried - 1)), LONGEST_WAIT_SECONDS)
    pause = longest * (0.5 + chance.number() / 2)
    if isinstance(came, Answer):
        asked = retry_after_ms(came.retry_after, now=chance.now_ms()) / 1_000
        pause = max(pause, min(asked, patience.longest_wait_seconds))
    return pause


# ------------------------------------------------------------------------------------------ the calls


def send(message: Message | Mapping[str, Any], key: str, patience: Patience, chance: Draw) -> Talk[Receipt]:
    body = messages.encode(messages.payload(message))
    answer = yield from ask(Request(method="POST", path="/v1/emails", body=body, key=key), patience, chance)
    return answers.receipt(answer)


def send_batch(
    batch: Sequence[Message | Mapping[str, Any]], key: str, patience: Patience, chance: Draw
) -> Talk[list[Receipt | StaffettaError]]:
    """In calls of `BATCH_MAX`, each with a key of its own that follows from the one given."""
    kept: list[Receipt | StaffettaError] = []
    for start in range(0, len(batch), BATCH_MAX):
        part = [messages.payload(message) for message in batch[start : start + BATCH_MAX]]
        request = Request(
            method="POST",
            path="/v1/emails/batch",
            body=messages.encode(part),
            key=key if len(batch) <= BATCH_MAX else f"{key}.{start // BATCH_MAX}",
        )
        answer = yield from ask(request, patience, chance)
        kept += answers.results(answer)
    return kept


def get(id: str, patience: Patience, chance: Draw) -> Talk[Email]:
    answer = yield from ask(Request(method="GET", path=_path(id)), patience, chance)
    return answers.email(answer)


def cancel(id: str, patience: Patience, chance: Draw) -> Talk[Receipt]:
    """Cancelling has no idempotency key: where a try was lost and the next is refused, its status tells."""
    lost = False
    request = Request(method="POST", path=f"{_path(id)}/cancel")
    talk = ask(request, patience, chance)
    step = next(talk)
    while True:
        came = yield step
        lost = lost or isinstance(came, NoAnswer) or (isinstance(came, Answer) and came.status >= 500)
        try:
            step = talk.send(came)
        except StopIteration as done:
            return answers.receipt(done.value)
        except MoveNotAllowed:
            if not lost:
                raise
            email = yield from get(id, patience, chance)
            if not (email.status.startswith("FAILED") and email.reason.startswith("CANCELLED")):
                raise
            return Receipt(id=email.id, status=email.status)


def _path(id: str) -> str:
    if not id:
        raise PayloadError([FieldProblem("id", "is empty")])
    return f"/v1/emails/{quote(id, safe='')}"
