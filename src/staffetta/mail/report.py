"""What an owner is told, and when he counts as told: bodies, batches, signatures, and what an answer means.

One call tells of one e-mail, or of several of one company, receiver, code and reason. A call is repeated word
for word: the same `webhook-id` and the same body, so that a receiver can leave out what it has read already.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from staffetta.mail.deadletter import iso
from staffetta.mail.lifecycle import Cause, Status, restored_to
from staffetta.mail.message import Millis, ReportClaim, Transition, Value

SENT_CODE = "TRAVELING"
FAILED_CODE = "DISPATCH-ERROR"
BODY_KEPT_BYTES = 2_048
"""So much of a receiver's answer is told when it did not acknowledge."""

Outcome: TypeAlias = Literal["acknowledged", "conflict", "refused", "failed"]


class ReportRules(Value, frozen=True, kw_only=True):
    """What the settings say of calls (section `callback`)."""

    batch: int = 1
    max_retries: int = 3
    """Further tries after a 409."""
    retry_interval_ms: int = 5_000
    window_ms: int = 72 * 3_600_000
    """Past this an e-mail's report is marked exhausted."""
    sent_reason: str = "Delivered to the mail server"


class Receiver(Value, frozen=True, kw_only=True):
    """Who is told: one line of calls, with its own places and its own breaker."""

    url: str
    secret: str | None = None
    of_payload: bool = False
    """A payload named it, not the operator: it shares the places of its company."""
    guarded: bool = False
    """It may not lie in a private network."""


class Receivers:
    """Finds who is told of an e-mail: the payload's own URL, else its company's, else the settings'."""

    def __init__(
        self,
        *,
        url: str | None = None,
        secret: str | None = None,
        companies: Mapping[str, tuple[str | None, str | None]] | None = None,
        allow_private: bool = False,
    ) -> None:
        """`companies`: by company its own URL and secret, either of which may be None."""
        self._url = url
        self._secret = secret
        self._companies = dict(companies or {})
        self._allow_private = allow_private
        self._made: dict[str, Receiver | None] = {}

    def of(self, claim: ReportClaim) -> Receiver | None:
        """None: nobody is to be told any more (the URL was taken out of the settings)."""
        named = claim.options.callback_url
        if named is not None:
            _, secret = self._companies.get(claim.company_id, (None, None))
            return Receiver(
                url=named, secret=secret or self._secret, of_payload=True, guarded=not self._allow_private
            )
        return self.of_company(claim.company_id)

    def of_company(self, company_id: str) -> Receiver | None:
        """Whom the operator named for a company, for what is told of the company itself."""
        own = self._companies.get(company_id)
        if own is None:
            company_id = ""  # no company is called so: this is everybody else
        if company_id not in self._made:
            url, secret = own or (None, None)
            url, secret = url or self._url, secret or self._secret
            self._made[company_id] = Receiver(url=url, secret=secret) if url else None
        return self._made[company_id]


# ------------------------------------------------------------------------------------------ what is told


class _Refused(msgspec.Struct, frozen=True):
    address: str
    state: str
    reply: str


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    reached_at: str
    message_ids: Sequence[str]
    reason: str
    refused: tuple[_Refused, ...] = ()
    sequence: int = 0


_encode = msgspec.json.Encoder().encode


def code_of(claim: ReportClaim) -> str:
    return SENT_CODE if claim.status is Status.CALLING_SENT_CALLBACK else FAILED_CODE


def reason_of(claim: ReportClaim, rules: ReportRules) -> str:
    return rules.sent_reason if claim.status is Status.CALLING_SENT_CALLBACK else claim.reason


def single(claim: ReportClaim, rules: ReportRules) -> tuple[str, bytes]:
    """The `webhook-id` and the body of a call that tells of one e-mail."""
    body = _Body(
        code=code_of(claim),
        reached_at=iso(claim.reached_at),
        message_ids=(claim.id,),
        reason=reason_of(claim, rules),
        refused=tuple(_Refused(state.address, state.state, state.reply) for state in claim.refused),
        sequence=claim.sequence,
    )
    return f"msg_{claim.id}_{claim.sequence}", _encode(body)


def batched(batch: str, members: Sequence[str], one: ReportClaim, rules: ReportRules) -> tuple[str, bytes]:
    """The `webhook-id` and the body of a call that tells of several: `one` of them stands for all.

    Only what all members share, and what the batch's own name keeps, goes into the body: a repeat by another
    worker, that holds other members of it, is the same byte for byte.
    """
    body = _Body(
        code=code_of(one),
        reached_at=iso(_time_of(batch)),
        message_ids=members,
        reason=reason_of(one, rules),
        sequence=one.sequence,
    )
    return f"msg_{batch}", _encode(body)


def kept_batch(claim: ReportClaim) -> str | None:
    """The batch with which this very outcome was told before."""
    return claim.batch if claim.sequence == 1 else None


def group(claim: ReportClaim) -> Hashable:
    """Those that may go into one call: what was told together before, or says the same to the same owner.

    A fresh batch takes only first outcomes, with nothing refused, never told before: a repeat keeps its own id.
    Any other claim goes alone, not even with a second one of the same e-mail: that may be of another outcome.
    """
    batch = kept_batch(claim)
    if batch is not None:
        return batch
    if claim.sequence == 1 and not claim.refused and claim.updated_at <= claim.reached_at:
        reason = "" if claim.status is Status.CALLING_SENT_CALLBACK else claim.reason
        return claim.company_id, claim.status, reason
    return claim.token


def batch_reached_at(claims: Sequence[ReportClaim]) -> Millis:
    """The one time told for a batch: when the last of its first members had reached its outcome.

    The batch's name, a UUIDv7, is made of this time, so that it is kept wherever the name is.
    """
    return max(claim.reached_at for claim in claims)


def _time_of(batch: str) -> Millis:
    return int(batch.replace("-", "")[:12], 16)


# ------------------------------------------------------------------------------------------ signing


def signing_key(secret: str) -> bytes:
    """The bytes behind a `whsec_…` text."""
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)


def signature(key: bytes, webhook_id: str, timestamp_seconds: int, body: bytes) -> str:
    """As Standard Webhooks 1.0.0 has it: over the id, the time of this very try, and the exact bytes sent."""
    signed = b"%s.%d.%s" % (webhook_id.encode(), timestamp_seconds, body)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


# ------------------------------------------------------------------------------------------ what follows


class Told(Value, frozen=True, kw_only=True):
    """What came of one call."""

    status: int
    """0: no answer."""
    body: str = ""
    """The beginning of the answer; where there was none, why."""
    retry_after_ms: int = 0
    of_receiver: bool = True
    """Where there was no answer: the receiver's fault, not the URL's. Only such failures open its breaker."""


def outcome(told: Told, tries: int, rules: ReportRules) -> Outcome:
    """What one answer means, after so many tries in this claim."""
    if 200 <= told.status < 300:
        return "acknowledged"
    if told.status == 409 and tries <= rules.max_retries:
        return "conflict"
    return "refused" if told.status else "failed"


def is_down(told: Told) -> bool:
    """Whether the receiver itself is in trouble: then its other calls wait, and nobody else's."""
    return told.of_receiver and (told.status in (0, 429) or told.status >= 500)


def place(url: str) -> str:
    """A URL as it may be shown: without its path, in which a secret may stand."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")


def exhausted(claim: ReportClaim, rules: ReportRules, *, now: Millis) -> bool:
    """Whether its window is over: tried once more, and not acknowledged."""
    return now - claim.reached_at >= rules.window_ms


def acknowledged(claim: ReportClaim, *, now: Millis) -> Transition:
    sent = claim.status is Status.CALLING_SENT_CALLBACK
    target = Status.SENT_ACKNOWLEDGED if sent else Status.FAILED_ACKNOWLEDGED
    return Transition(
        id=claim.id, ref=claim.ref, token=claim.token, source=claim.status, target=target,
        cause=Cause.ACKNOWLEDGED, at=now,
    )  # fmt: skip


def given_back(claim: ReportClaim, why: str, *, now: Millis) -> Transition:
    """Nobody was told, or nobody knows: back to where it was, to be told by whoever comes next."""
    return Transition(
        id=claim.id, ref=claim.ref, token=claim.token, source=claim.status, target=restored_to(claim.status),
        cause=Cause.RESTORED, at=now, reason=why,
    )  # fmt: skip
