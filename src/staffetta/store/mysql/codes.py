"""How the tables write what the contract's values say: names as they are, JSON for what people may read, MessagePack
for what only the journal reads again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from staffetta.mail.lifecycle import MOVES, Cause, Status
from staffetta.mail.message import NO_OPTIONS, Attempt, Options, RecipientState

NOBODY, DUE, GIVEN_UP, BEING_TOLD = 0, 1, 2, 3
"""`emails.callback`; none where nothing was decided yet."""

NOW_MS = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
"""The server's own time."""
SERVER_MS = f"SELECT {NOW_MS}"

_json = msgspec.json.Encoder()
_pack = msgspec.msgpack.Encoder()
_attempt = msgspec.msgpack.Decoder(Attempt)
_states = msgspec.json.Decoder(tuple[RecipientState, ...])
_addresses = msgspec.json.Decoder(tuple[str, ...])
_options = msgspec.json.Decoder(Options)


def to_json(value: object) -> str:
    return _json.encode(value).decode()


def states_text(settled: Sequence[RecipientState] | None) -> str | None:
    return None if settled is None else to_json(settled)


def addresses_text(addresses: Sequence[str] | None) -> str | None:
    return None if addresses is None else to_json(addresses)


def options_text(options: Options) -> str | None:
    return None if options == NO_OPTIONS else to_json(options)


def attempt_bytes(attempt: Attempt) -> bytes:
    return _pack.encode(attempt)


def read_attempt(packed: bytes) -> Attempt:
    return _attempt.decode(packed)


def read_states(text: str | None) -> tuple[RecipientState, ...]:
    return _states.decode(text) if text else ()


def read_addresses(text: str | None) -> tuple[str, ...]:
    return _addresses.decode(text) if text else ()


def read_left(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else _addresses.decode(text)


def read_options(text: str | None) -> Options:
    return _options.decode(text) if text else NO_OPTIONS


# ------------------------------------------------------------------------------------------------ sets of rows


def table(name: str, columns: str) -> str:
    """A JSON array of arrays (one parameter) as a table, its columns named with their types and parted by commas.
    Texts compare byte for byte, as the tables' own do.
    """
    named = [one.split() for one in columns.split(",")]
    told = ", ".join(f"{column} {_typed(kind)} PATH '$[{place}]'" for place, (column, kind) in enumerate(named))
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({told})) {name}"


def _typed(kind: str) -> str:
    return f"{kind} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if "CHAR" in kind else kind


IDS = table("w", "id CHAR(36)")
"""Ids, one a row; the parameter is made by `ids`."""


def ids(wanted: Sequence[str]) -> str:
    return to_json([(one,) for one in wanted])


# ------------------------------------------------------------------------------------------------ other programs


_BY_MOVE = {(source, target): cause for source, target, cause in sorted(MOVES, key=str)}
_LIKELY = {
    (Status.PROCESSING, Status.READY): Cause.RESTORED,
    (Status.PROCESSING, Status.FAILED): Cause.REFUSED,
    (Status.PROCESSING, Status.SENT): Cause.DELIVERED,
    (Status.FAILED, Status.READY): Cause.RETRIED,
    (Status.FAILED_ACKNOWLEDGED, Status.READY): Cause.RETRIED,
    (Status.CALLING_FAILED_CALLBACK, Status.READY): Cause.RETRIED,
    (Status.READY, Status.FAILED): Cause.CANCELLED,
    (Status.ACCEPTED, Status.FAILED): Cause.CANCELLED,
}
_BY_TARGET = {
    Status.ACCEPTED: Cause.ACCEPTED, Status.INTAKING: Cause.CLAIMED, Status.READY: Cause.COMPOSED,
    Status.PROCESSING: Cause.CLAIMED, Status.SENT: Cause.DELIVERED, Status.FAILED: Cause.REFUSED,
    Status.INVALID: Cause.INVALID, Status.CALLING_SENT_CALLBACK: Cause.REPORTING,
    Status.CALLING_FAILED_CALLBACK: Cause.REPORTING, Status.SENT_ACKNOWLEDGED: Cause.ACKNOWLEDGED,
    Status.FAILED_ACKNOWLEDGED: Cause.ACKNOWLEDGED,
}  # fmt: skip


def cause_of(before: Status | None, status: Status) -> Cause:
    """Why another program, which tells no causes, most likely made this move."""
    move: tuple[Any, Any] = (before, status)
    return _LIKELY.get(move) or _BY_MOVE.get(move) or _BY_TARGET[status]
