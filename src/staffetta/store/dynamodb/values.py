"""DynamoDB's way of writing values, and ours: text, whole numbers, bytes, yes and no, tables and lists of these."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from staffetta.mail.deadletter import iso
from staffetta.mail.message import Attempt, Millis, Options, RecipientState

Item: TypeAlias = dict[str, Any]
"""One item, its values ours."""

REASON_MAX_BYTES = 64 * 1024
"""An item holds 400 KB, and the reason stands in two of them; what is longer is cut."""
PACKED_MAX_BYTES = 160 * 1024
PLAIN_BYTES = 4 * 1024
"""Up to here packed values are kept as they are; beyond, compressed."""
WORDS_MAX = 1_000
"""To so many characters the words of each reply are cut where all of them together would not fit."""

_pack = msgspec.msgpack.Encoder().encode
_read_attempt = msgspec.msgpack.Decoder(Attempt).decode
_read_states = msgspec.msgpack.Decoder(tuple[RecipientState, ...]).decode
_read_options = msgspec.json.Decoder(Options).decode
_read_addresses = msgspec.msgpack.Decoder(tuple[str, ...]).decode


def written(value: object) -> dict[str, Any]:
    """One value as DynamoDB's JSON has it; bytes become base64 when the request is encoded."""
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is int:
        assert isinstance(value, int), "by its type"
        return _number(value)
    if kind is bytes:
        return {"B": value}
    return _seldom(value)


def _number(value: int) -> dict[str, Any]:
    if not -(2**63) <= value < 2**63:
        raise OverflowError("a number beyond 64 bits")
    return {"N": str(value)}


def _seldom(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {"M": {name: written(one) for name, one in value.items()}}
    if isinstance(value, str):
        return {"S": str(value)}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, bytearray | memoryview):
        return {"B": value}
    if isinstance(value, Sequence):
        return {"L": [written(one) for one in value]}
    raise TypeError(f"DynamoDB keeps no {type(value).__name__}")


def read(value: dict[str, Any]) -> Any:
    """One value of DynamoDB's JSON as ours."""
    ((kind, told),) = value.items()
    reader = _READERS.get(kind)
    return told if reader is None else reader(told)


def _whole(told: str) -> int:
    return int(told) if told.lstrip("-").isdigit() else int(float(told))


_READERS: dict[str, Callable[[Any], Any]] = {
    "N": _whole,
    "M": lambda told: {name: read(one) for name, one in told.items()},
    "B": base64.b64decode,
    "L": lambda told: [read(one) for one in told],
    "NULL": lambda _: None,
}
"""Texts, yes and no, and what we never write stand as they are."""


def read_item(told: dict[str, Any]) -> Item:
    return {name: read(one) for name, one in told.items()}


# ------------------------------------------------------------------------------------------------ times and texts


def millis(text: str | None) -> Millis:
    """A time in RFC 3339, however another program wrote it; 0 where it cannot be read."""
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def moment(at: Millis) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return iso(at)


def reason(text: str) -> str:
    raw = text.encode()
    if len(raw) <= REASON_MAX_BYTES:
        return text
    return raw[:REASON_MAX_BYTES].decode(errors="ignore") + " …"


# ------------------------------------------------------------------------------------------------ what is packed


def _folded(packed: bytes) -> bytes:
    return packed if len(packed) <= PLAIN_BYTES else b"z" + zlib.compress(packed)


def _unfolded(kept: bytes) -> bytes:
    # MessagePack's arrays never begin with this letter (0x7a is the small number 122).
    return zlib.decompress(kept[1:]) if kept[:1] == b"z" else kept


def pack_attempt(attempt: Attempt) -> bytes:
    kept = _folded(_pack(attempt))
    if len(kept) <= PACKED_MAX_BYTES:
        return kept
    replies = tuple(
        msgspec.structs.replace(one, reply=msgspec.structs.replace(one.reply, text=_cut(one.reply.text)))
        for one in attempt.replies
    )
    decision = attempt.decision
    if decision is not None:
        said = msgspec.structs.replace(decision.reply, text=_cut(decision.reply.text))
        decision = msgspec.structs.replace(decision, reply=said)
    return _folded(_pack(msgspec.structs.replace(attempt, replies=replies, decision=decision)))


def attempt_of(kept: bytes) -> Attempt:
    return _read_attempt(_unfolded(kept))


def pack_states(states: Sequence[RecipientState]) -> bytes:
    kept = _folded(_pack(tuple(states)))
    if len(kept) <= PACKED_MAX_BYTES:
        return kept
    return _folded(_pack(tuple(msgspec.structs.replace(one, reply=_cut(one.reply)) for one in states)))


def states_of(kept: bytes | None) -> tuple[RecipientState, ...]:
    return _read_states(_unfolded(kept)) if kept else ()


def pack_addresses(addresses: Sequence[str]) -> bytes:
    return _folded(_pack(tuple(addresses)))


def addresses_of(kept: bytes | None) -> tuple[str, ...]:
    return _read_addresses(_unfolded(kept)) if kept else ()


def pack_options(options: Options) -> str:
    return msgspec.json.encode(options).decode()


def options_of(kept: str | None) -> Options:
    return _read_options(kept) if kept else Options()


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_MAX else text[:WORDS_MAX] + " …"
