"""How the tables write what the contract's values say: small numbers for names, JSON for what SQL must see into,
MessagePack for what only the journal reads again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, Options, RecipientState

STATUS: dict[Status, int] = {
    Status.READY: 1,
    Status.SENT: 2,
    Status.SENT_ACKNOWLEDGED: 3,
    Status.PROCESSING: 4,
    Status.INTAKING: 5,
    Status.CALLING_SENT_CALLBACK: 6,
    Status.CALLING_FAILED_CALLBACK: 7,
    Status.ACCEPTED: 10,
    Status.INVALID: 11,
    Status.FAILED: 12,
    Status.FAILED_ACKNOWLEDGED: 13,
}
CAUSE: dict[Cause, int] = {cause: number for number, cause in enumerate(Cause, 1)}
STATUS_OF = {number: status for status, number in STATUS.items()}
CAUSE_OF = {number: cause for cause, number in CAUSE.items()}

READY, SENT, PROCESSING, INTAKING = 1, 2, 4, 5
ACCEPTED, FAILED = 10, 12
RESTS_IN = {PROCESSING: READY, INTAKING: ACCEPTED, 6: SENT, 7: FAILED}
"""The status in `mail` of an e-mail that is held in this one."""
FEW = 10
"""From this code on a status has its index."""

NOBODY, DUE, GIVEN_UP, BEING_TOLD = 0, 1, 2, 3
"""`mail.callback`."""

_json = msgspec.json.Encoder()
_pack = msgspec.msgpack.Encoder()
_attempt = msgspec.msgpack.Decoder(Attempt)
_states = msgspec.json.Decoder(tuple[RecipientState, ...])
_addresses = msgspec.json.Decoder(tuple[str, ...])
_options = msgspec.json.Decoder(Options)
_NO_OPTIONS = Options()


def to_json(value: object) -> str:
    return _json.encode(value).decode()


def states_text(settled: Sequence[RecipientState] | None) -> str | None:
    if settled is None:
        return None
    return to_json(settled) if settled else "[]"


def addresses_text(addresses: Sequence[str] | None) -> str | None:
    return None if addresses is None else to_json(addresses)


def options_text(options: Options) -> str | None:
    return None if options == _NO_OPTIONS else to_json(options)


def attempt_bytes(attempt: Attempt) -> bytes:
    return _pack.encode(attempt)


def read_attempt(packed: bytes, marked: int | None) -> Attempt:
    attempt = _attempt.decode(packed)
    return msgspec.structs.replace(attempt, committed_at=marked) if marked else attempt


def read_states(text: str | None) -> tuple[RecipientState, ...]:
    return _states.decode(text) if text else ()


def read_addresses(text: str) -> tuple[str, ...]:
    return _addresses.decode(text)


def read_options(text: str | None) -> Options:
    return _options.decode(text) if text else _NO_OPTIONS
