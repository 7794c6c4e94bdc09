"""The values that travel through the rooms: frozen, parsed once at the border, trusted inside.

Every time is an integer of milliseconds since 1970 UTC (`Millis`); every duration says its unit in its name.

The values that a journal keeps are written as arrays (`array_like`): a new field of theirs goes to the end and
has a default, so that what an older release wrote can still be read.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from staffetta.mail.lifecycle import Cause, Status

Millis: TypeAlias = int
InDoubtPolicy: TypeAlias = Literal["resend", "hold"]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A fact. Made once, never changed."""


# ------------------------------------------------------------------------------------------------ replies


class Reply(Value, frozen=True, kw_only=True, array_like=True):
    """What the other side (or the road to it) answered at one stage of one attempt.

    `code` 0 means that no reply code was read: then `name` tells the event (see `replies.toml`, "events").
    `stage`: connect, ehlo, starttls, auth, mail, rcpt, data, dot, rset, quit; for SES: request.
    """

    stage: str
    code: int = 0
    enhanced: str = ""
    text: str = ""
    """The server's own words after the code, whole, the enhanced code included where it was said."""
    name: str = ""
    """SES error code, or the event: refused, unreachable, connect-timeout, timeout, reset, eof, dns-notfound,
    dns-temporary, tls-absent, tls-handshake, tls-certificate, tls-reset, auth-absent, utf8-unsupported,
    bad-address, too-large, protocol, unexpected, stopped."""
    committed: bool = False
    """True when the final dot (or the SES request) may have left before this reply was needed."""

    @property
    def delivered(self) -> bool:
        return 200 <= self.code < 300 and self.stage in ("dot", "request")


class RecipientReply(Value, frozen=True, kw_only=True, array_like=True):
    """The reply that settles one recipient of one attempt."""

    address: str
    reply: Reply


class Delivery(Value, frozen=True, kw_only=True):
    """All that one call of a transport brought: a reply for each recipient that was handed in, in order."""

    transport: str
    replies: tuple[RecipientReply, ...]
    committed: bool
    """The dot was allowed to leave: `before_dot` had returned."""


class RecipientState(Value, frozen=True, kw_only=True, array_like=True):
    """What is known of one recipient over all attempts."""

    address: str
    state: Literal["waiting", "accepted", "refused", "given-up", "in-doubt"]
    reply: str = ""


# ------------------------------------------------------------------------------------------------ verdicts


class Verdict(Value, frozen=True, kw_only=True, array_like=True):
    """What a reply means. `action`: DELIVERED, RETRY, RETRY_SLOW, SPLIT, HOLD, FAIL."""

    category: str
    action: str
    reach: str
    """recipient, message, destination or transport."""
    rule: str
    code: str = ""
    enhanced: str = ""
    min_delay_ms: int = 0
    """The least delay that the rule or the server's own hint asks for."""
    max_attempts: int = 0
    """A rule's own limit of attempts; 0: the policy's."""
    in_doubt: bool = False
    label: str = ""

    @property
    def retry(self) -> bool:
        return self.action in ("RETRY", "RETRY_SLOW", "SPLIT")


class Decision(Value, frozen=True, kw_only=True, array_like=True):
    """Why an attempt ended as it did: enough to take the same decision again."""

    reply: Reply
    verdict: Verdict
    policy: str = ""
    attempt: int = 0
    """The number the policy was asked with."""
    draw: float = 0.0
    delay_ms: int = 0
    next_at: Millis = 0
    figures: tuple[int, int, int] | None = None
    """The policy's first delay, cap and attempts, as they held for this e-mail; None: it was not asked."""
    at: Millis = 0
    not_before: Millis = 0
    """When an open breaker or an attempt in doubt let it go again, whatever the policy said; 0: nothing did."""


# ------------------------------------------------------------------------------------------------ e-mails


class RetryLimits(Value, frozen=True, kw_only=True):
    """An e-mail's own retry limits (seed 003): what is given replaces the policy's."""

    max_attempts: int | None = None
    retry_delay_ms: int | None = None
    max_retry_delay_ms: int | None = None


class Options(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What a payload may ask for beyond the message. Stored with the e-mail only where something is set."""

    limits: RetryLimits | None = None
    in_doubt: InDoubtPolicy | None = None
    callback_url: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    expires_in_seconds: int | None = None


NO_OPTIONS = Options()


class HistoryEntry(Value, frozen=True, kw_only=True):
    status: Status
    cause: Cause
    reason: str
    at: Millis


class NewEmail(Value, frozen=True, kw_only=True):
    """An e-mail to be made durable, with every status it has passed already (ACCEPTED, or on to READY)."""

    id: str
    company_id: str
    history: tuple[HistoryEntry, ...]
    """Oldest first; the first is ACCEPTED, the last one's status is the e-mail's."""
    created_at: Millis
    due_at: Millis
    expires_at: Millis
    priority: int = 5
    sender: str = ""
    recipients: tuple[str, ...] = ()
    """Envelope addresses; empty while the payload has not been read (ACCEPTED from a payload file)."""
    payload: bytes | None = None
    message: bytes | None = None
    payload_file_path: str | None = None
    eml_file_path: str | None = None
    options: Options = NO_OPTIONS
    fingerprint: str = ""
    """Of company and payload: a known id with the same one gives the first answer again."""

    @property
    def status(self) -> Status:
        return self.history[-1].status


class Added(Value, frozen=True, kw_only=True):
    """The answer to one hand-in. `fresh` is False when the id was known with the same fingerprint."""

    id: str
    status: Status
    fresh: bool
    ref: int = 0
    """The store's own handle of the row, where it has one."""


class KeptAnswer(Value, frozen=True, kw_only=True):
    """The answer to a request that carried an idempotency key: given again for the same key and body."""

    company_id: str
    key: str
    fingerprint: str
    """Of the request's body: the same key with another one is refused."""
    answer: bytes
    at: Millis


class Email(Value, frozen=True, kw_only=True):
    """The record of one e-mail, as lists and `show` see it (seed 001's type, and ours beside it)."""

    id: str
    status: Status
    company_id: str
    version: int
    reason: str
    created_at: Millis
    updated_at: Millis
    due_at: Millis
    """next_attempt_at"""
    expires_at: Millis
    priority: int = 5
    attempts: int = 0
    """Attempts that counted."""
    opened: int = 0
    """Attempts ever opened (counted or not): the ordinal of the last one."""
    doubts: int = 0
    crashes: int = 0
    alone_crashes: int = 0
    sequence: int = 0
    """Outcomes so far: grows by one on entering SENT or FAILED."""
    reached_at: Millis = 0
    sender: str = ""
    recipients: tuple[RecipientState, ...] = ()
    token: str | None = None
    """The claim's token while in work."""
    callback_due: bool = False
    callback_exhausted: bool = False
    """Its owner could not be told within the window: it stays CALLING-…, and nobody tries again."""
    eml_file_path: str | None = None
    payload_file_path: str | None = None
    ttl: int | None = None
    options: Options = NO_OPTIONS


class Attempt(Value, frozen=True, kw_only=True, array_like=True):
    """One entry of the journal, by (id, attempt, part)."""

    attempt: int
    part: int = 1
    token: str = ""
    transport: str = ""
    opened_at: Millis = 0
    committed_at: Millis = 0
    """0: the dot never left."""
    closed_at: Millis = 0
    counted: bool = False
    replies: tuple[RecipientReply, ...] = ()
    """Empty: no reply was read (yet)."""
    decision: Decision | None = None


class Claim(Value, frozen=True, kw_only=True):
    """A worker's hold on a READY e-mail that is now PROCESSING, with all that sending needs."""

    id: str
    ref: int
    """The store's own handle of the row; 0 where the store has none. Only the store reads it."""
    token: str
    company_id: str
    at: Millis
    attempt: int
    part: int = 1
    attempts: int = 0
    """Attempts that counted so far."""
    doubts: int = 0
    """Attempts that ended in doubt so far."""
    crashes: int = 0
    alone_crashes: int = 0
    created_at: Millis
    expires_at: Millis
    priority: int = 5
    sequence: int = 0
    sender: str
    recipients: tuple[str, ...]
    """Those still to try."""
    settled: tuple[RecipientState, ...] = ()
    """Those finished by earlier attempts."""
    message: bytes = b""
    eml_file_path: str | None = None
    options: Options = NO_OPTIONS
    late: Attempt | None = None
    """A reply that came too late for its own claim: believe it, never send again."""


class InWork(Value, frozen=True, kw_only=True):
    """An e-mail found in an in-work status whose worker is gone or silent: what restore decides on."""

    status: Status
    claim: Claim
    committed_at: Millis = 0
    transport: str = ""
    updated_at: Millis = 0
    alone: bool = False
    """It was the only one in flight when its worker died."""


class IntakeClaim(Value, frozen=True, kw_only=True):
    """A worker's hold on an ACCEPTED e-mail that is now INTAKING."""

    id: str
    ref: int
    token: str
    company_id: str
    created_at: Millis
    payload: bytes | None
    payload_file_path: str | None


class Intaken(Value, frozen=True, kw_only=True):
    """What intake made of a payload: goes with the move INTAKING -> READY."""

    sender: str
    recipients: tuple[str, ...]
    message: bytes | None
    eml_file_path: str | None
    due_at: Millis
    expires_at: Millis
    priority: int
    options: Options
    company_id: str | None = None
    """Where the row came without a company and the payload names one: the store writes it. None: as it is."""


class ReportClaim(Value, frozen=True, kw_only=True):
    """A worker's hold on a SENT or FAILED e-mail whose owner is being told."""

    id: str
    ref: int
    token: str
    company_id: str
    status: Status
    """CALLING-SENT-CALLBACK or CALLING-FAILED-CALLBACK."""
    reason: str
    reached_at: Millis
    sequence: int
    refused: tuple[RecipientState, ...] = ()
    """The recipients that did not get it: refused, given up, in doubt."""
    options: Options = NO_OPTIONS
    batch: str | None = None
    """The batch this e-mail was first reported with; a repeat carries the same members."""
    updated_at: Millis = 0
    """When it last moved before this claim: later than `reached_at` where it was claimed before."""


class DeadLetter(Value, frozen=True, kw_only=True):
    """An e-mail given up (section 8), under the names that the runbook's queries use."""

    outbox_id: str
    company_id: str
    failed_attempts: int
    last_failure_reason: str
    last_failure_code: str | None
    last_failure_at: Millis
    enqueued_at: Millis
    moved_at: Millis
    ttl_ms: int
    retrying_since: Millis = 0


class Transition(Value, frozen=True, kw_only=True):
    """One move of one e-mail, as a value: a store applies it by compare-and-set or not at all.

    `None` in a field means: leave as it is.
    """

    id: str
    source: Status
    target: Status
    cause: Cause
    at: Millis
    reason: str = ""
    ref: int = 0
    token: str | None = None
    """Required to match when `source` is an in-work status."""
    version: int | None = None
    """Where an operator decided on what he read: the version must still be this one."""
    due_at: Millis | None = None
    expires_at: Millis | None = None
    attempts: int | None = None
    doubts: int | None = None
    crashes: int | None = None
    alone_crashes: int | None = None
    settled: tuple[RecipientState, ...] | None = None
    recipients: tuple[str, ...] | None = None
    """Those still to try, where they became fewer (or all again, on an operator's retry)."""
    attempt: Attempt | None = None
    """Closes the open attempt. Its replies are kept even when the move itself loses."""
    believed: Attempt | None = None
    """The late reply that this move takes at its word: no later claim is given it again."""
    dead_letter: DeadLetter | None = None
    callback_due: bool | None = None
    """Fixed on entering SENT or FAILED: whether an owner waits to hear of it."""
    intaken: Intaken | None = None


class Job(Value, frozen=True, kw_only=True):
    """The queue's reminder that an e-mail is due. Never the content."""

    id: str
    company_id: str
    priority: int
    due_at: Millis
    suspect: bool = False
    """Found open in three crashes: sent alone, after the others."""
    ref: int = 0
    """The store's own handle of the row, where it has one and the queue kept it; 0: found by id."""
