"""What the memory store holds: plain rows in dictionaries, which outlive the store that works on them.

A simulated crash drops the `MemoryStore` and opens another on the same `State`;
`copy.deepcopy` makes a snapshot.
"""

from __future__ import annotations

import dataclasses
import heapq

import msgspec

from staffetta.mail import journal, rescue
from staffetta.mail.lifecycle import IN_WORK, Cause, Status
from staffetta.mail.message import (
    Attempt,
    Claim,
    DeadLetter,
    Email,
    HistoryEntry,
    InWork,
    Job,
    KeptAnswer,
    Millis,
    NewEmail,
    Options,
    RecipientState,
)
from staffetta.mail.operators import ApiKey, Pause, Worker


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """One e-mail, whole."""

    number: int
    id: str
    company_id: str
    status: Status
    created_at: Millis
    updated_at: Millis
    due_at: Millis
    expires_at: Millis
    priority: int
    sender: str
    envelope: tuple[str, ...]
    payload: bytes | None
    message: bytes | None
    payload_file_path: str | None
    eml_file_path: str | None
    options: Options
    fingerprint: str
    history: list[tuple[HistoryEntry, str]]
    """Each with the token under which it was entered, where there was one."""
    reason: str = ""
    version: int = 1
    attempts: int = 0
    doubts: int = 0
    crashes: int = 0
    alone_crashes: int = 0
    sequence: int = 0
    reached_at: Millis = 0
    settled: tuple[RecipientState, ...] = ()
    left: tuple[str, ...] | None = None
    callback_due: bool = False
    callback_exhausted: bool = False
    token: str = ""
    alone: bool = False
    opened: int = 0
    open: Attempt | None = None
    """The attempt that the claim holds open."""
    closed: list[Attempt] = dataclasses.field(default_factory=list)
    late: list[Attempt] = dataclasses.field(default_factory=list)
    batch: str | None = None
    erased: bool = False

    @classmethod
    def of(cls, new: NewEmail, number: int) -> Row:
        return cls(
            number=number, id=new.id, company_id=new.company_id, status=new.status, created_at=new.created_at,
            updated_at=new.history[-1].at, due_at=new.due_at, expires_at=new.expires_at, priority=new.priority,
            sender=new.sender, envelope=new.recipients, payload=new.payload, message=new.message,
            payload_file_path=new.payload_file_path, eml_file_path=new.eml_file_path, options=new.options,
            fingerprint=new.fingerprint, history=[(entry, "") for entry in new.history],
            reason=new.history[-1].reason, version=len(new.history),
        )  # fmt: skip

    # --- as the contract's values ----------------------------------------

    def email(self) -> Email:
        replies = self.closed[-1].replies if self.closed else ()
        return Email(
            id=self.id, status=self.status, company_id=self.company_id, version=self.version,
            reason=self.reason, created_at=self.created_at, updated_at=self.updated_at, due_at=self.due_at,
            expires_at=self.expires_at, priority=self.priority, attempts=self.attempts, opened=self.opened,
            doubts=self.doubts, crashes=self.crashes, alone_crashes=self.alone_crashes, sequence=self.sequence,
            reached_at=self.reached_at, sender=self.sender,
            recipients=journal.states(self.envelope, self.settled, self.status, replies),
            token=self.token or None, callback_due=self.callback_due,
            callback_exhausted=self.callback_exhausted, eml_file_path=self.eml_file_path,
            payload_file_path=self.payload_file_path, options=self.options,
        )  # fmt: skip

    def claim(self) -> Claim:
        held = self.open
        waiting = journal.to_try(self.envelope, self.settled, self.left)
        return Claim(
            id=self.id, ref=self.number, token=self.token, company_id=self.company_id,
            at=held.opened_at if held else self.updated_at, attempt=held.attempt if held else 0,
            part=held.part if held else 1, attempts=self.attempts, doubts=self.doubts, crashes=self.crashes,
            alone_crashes=self.alone_crashes, created_at=self.created_at, expires_at=self.expires_at,
            priority=self.priority, sequence=self.sequence, sender=self.sender,
            recipients=waiting, settled=self.settled,
            message=self.message or b"", eml_file_path=self.eml_file_path, options=self.options,
            late=journal.choose_late(self.late, waiting),
        )  # fmt: skip

    def in_work(self) -> InWork:
        bare = msgspec.structs.replace(self.claim(), message=b"")
        return InWork(
            status=self.status, claim=bare, committed_at=self.open.committed_at if self.open else 0,
            transport=self.open.transport if self.open else "", updated_at=self.updated_at, alone=self.alone,
        )  # fmt: skip

    def job(self) -> Job:
        return Job(id=self.id, company_id=self.company_id, priority=self.priority, due_at=self.due_at,
                   suspect=self.crashes >= rescue.SUSPECT_CRASHES, ref=self.number)  # fmt: skip

    @property
    def place(self) -> tuple[int, Millis, int]:
        """Its place in its company's line."""
        return (self.priority, self.due_at, self.number)

    @property
    def over(self) -> bool:
        return journal.is_over(
            self.status, callback_due=self.callback_due, callback_exhausted=self.callback_exhausted
        )

    # --- changing ------------------------------------------------------------

    def enter(self, status: Status, cause: Cause, *, at: Millis, reason: str = "", token: str = "") -> None:
        """One move: status, version, history. `token` is the claim under which it happened."""
        self.status = status
        self.version += 1
        self.updated_at = at
        self.history.append((HistoryEntry(status=status, cause=cause, reason=reason, at=at), token))
        if status not in IN_WORK:
            self.token, self.open = "", None

    def file_paths(self) -> list[str]:
        return [path for path in (self.payload_file_path, self.eml_file_path) if path]

    def erase(self) -> list[str]:
        paths = self.file_paths()
        self.payload = self.message = self.payload_file_path = self.eml_file_path = None
        self.erased = True
        return paths


@dataclasses.dataclass(slots=True)
class State:
    """Everything that is durable."""

    rows: dict[str, Row] = dataclasses.field(default_factory=dict)
    numbers: int = 0
    ready: dict[str, dict[str, Row]] = dataclasses.field(default_factory=dict)
    """By company: what is READY."""
    accepted: dict[str, Row] = dataclasses.field(default_factory=dict)
    in_work: dict[str, Row] = dataclasses.field(default_factory=dict)
    agenda: list[tuple[Millis, int, str]] = dataclasses.field(default_factory=list)
    """A heap of what becomes due by time: (due, number, id). Entries may be out of date."""
    tidings: list[str] = dataclasses.field(default_factory=list)
    """Ids that became due by an operator's hand."""
    dead: dict[str, DeadLetter] = dataclasses.field(default_factory=dict)
    answers: dict[tuple[str, str], KeptAnswer] = dataclasses.field(default_factory=dict)
    batches: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    workers: dict[str, Worker] = dataclasses.field(default_factory=dict)
    pauses: dict[tuple[str, str], Pause] = dataclasses.field(default_factory=dict)
    figures: dict[str, tuple[Millis, bytes]] = dataclasses.field(default_factory=dict)
    keys: dict[str, ApiKey] = dataclasses.field(default_factory=dict)
    settings: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def place(self, row: Row, *, now: Millis) -> None:
        """Keep the lists of what is to do in step with a row that has just moved."""
        line = self.ready.setdefault(row.company_id, {})
        line.pop(row.id, None)
        self.accepted.pop(row.id, None)
        self.in_work.pop(row.id, None)
        if row.status is Status.READY:
            line[row.id] = row
            if row.due_at > now:
                heapq.heappush(self.agenda, (row.due_at, row.number, row.id))
        elif row.status is Status.ACCEPTED:
            self.accepted[row.id] = row
        elif row.status in IN_WORK:
            self.in_work[row.id] = row
        if not line:
            del self.ready[row.company_id]

    def remove(self, row: Row) -> None:
        del self.rows[row.id]
        if row.batch and row.id in self.batches.get(row.batch, []):
            self.batches[row.batch].remove(row.id)
