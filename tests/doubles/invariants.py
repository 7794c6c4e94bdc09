"""What must be true after any crash (I1 to I11), checked over what each side wrote down for itself.

The sink's log is written before its replies, the callers keep what they were answered, the receiver keeps what it
was told, and the store is read once everything has ended. Nothing here asks the engine what it believes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from staffetta.mail import lifecycle
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry

SENT = {Status.SENT, Status.CALLING_SENT_CALLBACK, Status.SENT_ACKNOWLEDGED}
FAILED = {Status.FAILED, Status.CALLING_FAILED_CALLBACK, Status.FAILED_ACKNOWLEDGED}
DONE = {Status.SENT_ACKNOWLEDGED, Status.FAILED_ACKNOWLEDGED, Status.INVALID}
DONE_UNTOLD = {Status.SENT, Status.FAILED, Status.INVALID}


@dataclasses.dataclass(frozen=True)
class Told:
    """One callback that came in, and what it was answered."""

    webhook_id: str
    body: Mapping[str, Any]
    status: int


@dataclasses.dataclass(frozen=True)
class Record:
    """One e-mail as the store has it."""

    email: Email
    history: Sequence[HistoryEntry]
    attempts: Sequence[Attempt]
    dead_letter: DeadLetter | None


@dataclasses.dataclass(frozen=True)
class Facts:
    """Everything that was written down."""

    submitted: Mapping[str, Sequence[str]]
    """Each hand-in by its key: the recipients, each named in no other."""
    answered: Mapping[str, frozenset[str]]
    """By key: every id that its callers were ever answered."""
    taken: Sequence[Mapping[str, Any]]
    """The sink's log."""
    records: Mapping[str, Record]
    told: Sequence[Told] | None = None
    """None: nobody was to be told."""
    max_attempts: int = 5
    left: Sequence[str] = ()
    """What is left of owners who are gone: workers, claims, temporary files."""

    @property
    def delivered(self) -> Counter[tuple[str, str]]:
        """(id, recipient) → how often the sink took it."""
        return Counter((id_of(one), to) for one in self.taken for to in one["recipients"])


def id_of(taken: Mapping[str, Any]) -> str:
    return str(taken["message_id"]).strip("<>").partition("@")[0]


def check(facts: Facts) -> None:
    """Every invariant; all that is broken is named."""
    broken = list(violations(facts))
    assert not broken, f"{len(broken)} broken:\n" + "\n".join(broken[:20])


def violations(facts: Facts) -> Iterator[str]:
    for invariant in (
        _accepted_is_kept_and_ends, _nothing_else_is_sent, _doubled_only_in_doubt, _sent_was_taken,
        _failed_was_not_taken, _history_is_legal, _attempts_are_bounded, _owners_are_told,
        _nothing_outlives_its_owner, _one_key_one_email, _dead_letters_fit,
    ):  # fmt: skip
        name = (invariant.__doc__ or "").partition(":")[0]
        yield from (f"{name}: {words}" for words in invariant(facts))


def _accepted_is_kept_and_ends(facts: Facts) -> Iterator[str]:
    """I1: what was answered is in the store and has come to its end."""
    ends = DONE if facts.told is not None else DONE_UNTOLD
    for key, ids in facts.answered.items():
        for email in ids - facts.records.keys():
            yield f"{email} ({key}) was answered and is lost"
    for email, record in facts.records.items():
        if record.email.status not in ends:
            yield f"{email} has stopped in {record.email.status}: {record.email.reason}"


def _nothing_else_is_sent(facts: Facts) -> Iterator[str]:
    """I2: the sink took nothing that nobody handed in, and each at its own recipients."""
    known = {email: {state.address for state in one.email.recipients} for email, one in facts.records.items()}
    for email, to in facts.delivered:
        if to not in known.get(email, ()):
            yield f"{email} to {to} was never handed in"


def _doubled_only_in_doubt(facts: Facts) -> Iterator[str]:
    """I3: one copy more for an attempt in doubt, never two, the same bytes; none where doubts are held."""
    copies: dict[str, set[str]] = defaultdict(set)
    for one in facts.taken:
        copies[id_of(one)].add(one["sha256"])
    for email, hashes in copies.items():
        if len(hashes) > 1:
            yield f"{email} was sent in {len(hashes)} versions"
    for (email, to), count in facts.delivered.items():
        record = facts.records.get(email)
        resent = _resends(record) if record is not None else 0
        if count - 1 > min(1, resent):
            yield f"{email} was taken {count} times at {to}, with {resent} resends in doubt"


def _resends(record: Record) -> int:
    """How often it went back to READY because an attempt was in doubt. An attempt that lost its line is too."""
    return sum(
        1
        for entry in record.history
        if entry.status is Status.READY and entry.cause is Cause.IN_DOUBT
    )  # fmt: skip


def _sent_was_taken(facts: Facts) -> Iterator[str]:
    """I4: SENT means that the sink has it, at every recipient said to have accepted."""
    for email, record in facts.records.items():
        if record.email.status in SENT:
            accepted = [one.address for one in record.email.recipients if one.state == "accepted"]
            if not accepted:
                yield f"{email} is {record.email.status} and nobody accepted it"
            yield from (
                f"{email} is said to be accepted at {to}" for to in accepted if not facts.delivered[email, to]
            )


def _failed_was_not_taken(facts: Facts) -> Iterator[str]:
    """I5: FAILED means that the sink has it not, unless an attempt was in doubt."""
    for email, record in facts.records.items():
        if record.email.status in FAILED and not record.email.doubts:
            taken = [to for one, to in facts.delivered if one == email]
            if taken:
                yield f"{email} is {record.email.status} ({record.email.reason}) and was taken at {taken}"


def _history_is_legal(facts: Facts) -> Iterator[str]:
    """I6: only moves of the table, a version for each, each with its line."""
    for email, record in facts.records.items():
        before: Status | None = None
        for entry in record.history:
            if (before, entry.status, entry.cause) not in lifecycle.MOVES:
                yield f"{email} went from {before} to {entry.status} because it was {entry.cause}"
            before = entry.status
        if before is not record.email.status:
            yield f"{email} is {record.email.status}, its history ends in {before}"
        if record.email.version != len(record.history):
            yield f"{email} has version {record.email.version} after {len(record.history)} moves"


def _attempts_are_bounded(facts: Facts) -> Iterator[str]:
    """I7: no more counted attempts than allowed and those in doubt; no attempt is left open."""
    for email, record in facts.records.items():
        if record.email.attempts > facts.max_attempts + record.email.doubts:
            yield f"{email} had {record.email.attempts} attempts"
        if any(not attempt.closed_at for attempt in record.attempts):
            yield f"{email} is {record.email.status} with an attempt open"
        numbers = [(attempt.attempt, attempt.part) for attempt in record.attempts]
        if numbers != sorted(set(numbers)):
            yield f"{email} has attempts {numbers}"


def _owners_are_told(facts: Facts) -> Iterator[str]:
    """I8: each outcome was acknowledged under one webhook-id, and tells what is recorded."""
    if facts.told is None:
        return
    acknowledged: dict[str, set[str]] = defaultdict(set)
    for call in facts.told:
        for email in call.body["message_ids"]:
            record = facts.records.get(email)
            sent = record is not None and record.email.status in SENT
            if (call.body["code"] == "TRAVELING") is not sent:
                yield f"the owner of {email} was told {call.body['code']}"
            if 200 <= call.status < 300:
                acknowledged[email].add(call.webhook_id)
    for email, record in facts.records.items():
        if record.email.status in DONE - {Status.INVALID} and len(acknowledged[email]) != 1:
            yield f"{email} was told under {sorted(acknowledged[email])}"


def _nothing_outlives_its_owner(facts: Facts) -> Iterator[str]:
    """I10: no worker, claim or temporary file is left when all have stopped in order."""
    yield from facts.left


def _one_key_one_email(facts: Facts) -> Iterator[str]:
    """I11: a call repeated under its key had one answer, and made one e-mail."""
    found: dict[str, list[str]] = defaultdict(list)
    for email, record in facts.records.items():
        found[record.email.recipients[0].address].append(email)
    for key, recipients in facts.submitted.items():
        ids = found[recipients[0]]
        answered = facts.answered.get(key, frozenset())
        if len(answered) > 1 or len(ids) > 1:
            yield f"{key} was answered {sorted(answered)} and made {ids}"


def _dead_letters_fit(facts: Facts) -> Iterator[str]:
    """Dead letters: one for each FAILED e-mail, none for any other."""
    for email, record in facts.records.items():
        if (record.dead_letter is not None) is not (record.email.status in FAILED):
            yield f"{email} is {record.email.status}, dead letter: {record.dead_letter is not None}"
