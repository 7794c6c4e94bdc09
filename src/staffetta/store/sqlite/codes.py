"""How the tables write what the contract's values say: small numbers for names, JSON for what SQL must see into,
MessagePack for what only the journal reads again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, Decision, Options, RecipientReply, RecipientState, Reply, Value

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


class _Packed(Value, frozen=True, array_like=True):
    """An attempt as its row keeps it: times as what passed until it was closed, a reply once. Half the bytes."""

    attempt: int
    part: int
    token: str
    transport: str
    closed_at: int
    open_ms: int | None
    committed_ms: int | None
    counted: bool
    replies: tuple[tuple[str, Reply | None], ...]
    """None: the decision's own."""
    decision: Decision | None


_packed = msgspec.msgpack.Decoder(_Packed)


def attempt_bytes(attempt: Attempt) -> bytes:
    closed_at, decision = attempt.closed_at, attempt.decision
    told = decision.reply if decision is not None else None
    kept: object = decision
    if decision is not None and decision == Decision(
        reply=decision.reply, verdict=decision.verdict, attempt=decision.attempt
    ):
        kept = (decision.reply, decision.verdict, "", decision.attempt)  # no policy was asked
    return _pack.encode(
        (
            attempt.attempt,
            attempt.part,
            attempt.token,
            attempt.transport,
            closed_at,
            closed_at - attempt.opened_at if attempt.opened_at else None,
            closed_at - attempt.committed_at if attempt.committed_at else None,
            attempt.counted,
            [(one.address, None if one.reply == told else one.reply) for one in attempt.replies],
            kept,
        )
    )


def read_attempt(packed: bytes, marked: int | None) -> Attempt:
    kept = _packed.decode(packed)
    told = kept.decision.reply if kept.decision is not None else None
    committed_at = 0 if kept.committed_ms is None else kept.closed_at - kept.committed_ms
    replies = []
    for address, own in kept.replies:
        reply = own or told
        assert reply is not None, "only what the decision has too was left out"
        replies.append(RecipientReply(address=address, reply=reply))
    return Attempt(
        attempt=kept.attempt,
        part=kept.part,
        token=kept.token,
        transport=kept.transport,
        opened_at=0 if kept.open_ms is None else kept.closed_at - kept.open_ms,
        committed_at=marked or committed_at,
        closed_at=kept.closed_at,
        counted=kept.counted,
        replies=tuple(replies),
        decision=kept.decision,
    )


def read_states(text: str | None) -> tuple[RecipientState, ...]:
    return _states.decode(text) if text else ()


def read_addresses(text: str) -> tuple[str, ...]:
    return _addresses.decode(text)


def read_options(text: str | None) -> Options:
    return _options.decode(text) if text else _NO_OPTIONS
