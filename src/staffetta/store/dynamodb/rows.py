"""One e-mail as its meta record holds it, and back. What changed between two states becomes one UPDATE.

`Attributes` holds what the seed's programs read and what queues and lists need; the index copies it. What only the
e-mail itself needs (envelope, recipients settled, the open attempt) stands beside it, at the record's root.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from staffetta.mail import journal, rescue
from staffetta.mail.lifecycle import IN_WORK, Status
from staffetta.mail.message import (
    NO_OPTIONS,
    Attempt,
    Claim,
    Email,
    IntakeClaim,
    InWork,
    Millis,
    NewEmail,
    Options,
    RecipientState,
    ReportClaim,
)
from staffetta.store.dynamodb import keys, values
from staffetta.store.dynamodb.keys import Entry, Kind
from staffetta.store.dynamodb.values import Item

DEFAULT_COMPANY = "default"
DEFAULT_LIFE_MS = 86_400_000
"""How long after it was last written another program's e-mail is tried: it names no end itself."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Row:
    """One e-mail, without its content."""

    id: str
    status: Status
    company_id: str = DEFAULT_COMPANY
    reason: str = ""
    created_at: Millis = 0
    updated_at: Millis = 0
    due_at: Millis = 0
    expires_at: Millis = 0
    priority: int = 5
    moves: int = 0
    """How often it has moved, as far as we know: 0 for what we never touched."""
    attempts: int = 0
    opened: int = 0
    doubts: int = 0
    crashes: int = 0
    alone_crashes: int = 0
    sequence: int = 0
    reached_at: Millis = 0
    callback_due: bool = False
    callback_exhausted: bool = False
    token: str = ""
    eml_file_path: str | None = None
    payload_file_path: str | None = None
    ours: Status | None = None
    """The status under which we counted it: another one than `status` where another program moved it since."""
    entered: dict[str, int] | None = None
    """How often each status was entered; None: an older record that does not tell."""
    sender: str = ""
    envelope: tuple[str, ...] = ()
    settled: tuple[RecipientState, ...] = ()
    left: tuple[str, ...] | None = None
    options: Options = NO_OPTIONS
    fingerprint: str = ""
    composed: bool = False
    """It is known how to send it: of what another program made READY it is not, until somebody has looked."""
    part: int = 0
    """Of the attempt that the claim holds open; 0: none is open."""
    opened_at: Millis = 0
    marked_at: Millis = 0
    marked_by: str = ""
    alone: bool = False
    late: tuple[str, ...] = ()
    """Items of attempts whose replies came late and were not believed yet."""
    batch: str | None = None
    erased: bool = False
    ttl: int | None = None
    """A Unix time in seconds, at the root of every record."""
    has_content: bool = True
    has_letter: bool = False
    begun: bool = True
    """There is a record of its being ACCEPTED."""
    kept: tuple[Item, Item] = dataclasses.field(default_factory=lambda: ({}, {}))
    """Attributes and root as the record has them now."""
    written: tuple[Item, Item] = dataclasses.field(default_factory=lambda: ({}, {}))
    """And as they are about to be."""

    # --- reading ---------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, new: NewEmail) -> Row:
        entered: dict[str, int] = {}
        for entry in new.history:
            entered[entry.status] = entered.get(entry.status, 0) + 1
        return cls(
            id=new.id, status=new.status, company_id=new.company_id, reason=new.history[-1].reason,
            created_at=new.created_at, updated_at=new.history[-1].at, due_at=new.due_at,
            expires_at=new.expires_at, priority=new.priority, moves=len(new.history), sender=new.sender,
            envelope=new.recipients, options=new.options, fingerprint=new.fingerprint,
            eml_file_path=new.eml_file_path, payload_file_path=new.payload_file_path, entered=entered,
            ours=new.status, composed=new.status is Status.READY or bool(new.recipients),
        )  # fmt: skip

    @classmethod
    def read(cls, item: Item) -> Row:
        """:raises ValueError: a status that is none of ours."""
        told: Item = item.get("Attributes") or {}
        updated_at = values.millis(told.get("UpdatedAt"))
        created_at = told.get("CreatedAt", updated_at)
        left = item.get("LeftTo")
        ours = told.get("Ours")
        row = cls(
            id=item["Id"], status=Status(told.get("Latest", "")), reason=told.get("Reason") or "",
            company_id=told.get("CompanyId", DEFAULT_COMPANY), created_at=created_at, updated_at=updated_at,
            due_at=told.get("DueAt", updated_at), expires_at=told.get("ExpiresAt", created_at + DEFAULT_LIFE_MS),
            priority=told.get("Priority", 5), moves=told.get("Moves", 0), attempts=told.get("Attempts", 0),
            opened=told.get("Opened", 0), doubts=told.get("Doubts", 0), crashes=told.get("Crashes", 0),
            alone_crashes=told.get("AloneCrashes", 0), sequence=told.get("Outcomes", 0),
            reached_at=told.get("ReachedAt", 0), callback_due=told.get("CallbackDue", False),
            callback_exhausted=told.get("CallbackExhausted", False), token=told.get("Claim") or "",
            eml_file_path=told.get("EmlFilePath") or None, payload_file_path=told.get("PayloadFilePath") or None,
            ours=Status(ours) if ours else None, entered=told.get("Entered"), sender=item.get("MailFrom", ""),
            envelope=values.addresses_of(item.get("EnvelopeTo")), settled=values.states_of(item.get("SettledTo")),
            left=values.addresses_of(left) if left is not None else None,
            options=values.options_of(item.get("AskedFor")), fingerprint=item.get("Fingerprint", ""),
            part=item.get("OpenPart", 0), opened_at=item.get("OpenedAt", 0), marked_at=item.get("MarkedAt", 0),
            marked_by=item.get("MarkedBy", ""), alone=item.get("SentAlone", False),
            late=tuple(item.get("LateReplies") or ()), batch=item.get("ToldWith"),
            composed=bool(told.get("Recipients") or told.get("Composed")),
            erased=item.get("Erased", False), ttl=_ttl(item, told), kept=(dict(told), dict(item)),
        )  # fmt: skip
        if row.status is not row.ours and row.ours is not None:
            row.forget_claim()  # what another program moved is held by no claim of ours
        return row

    def forget_claim(self) -> None:
        self.token, self.part, self.opened_at, self.marked_at, self.marked_by = "", 0, 0, 0, ""
        self.alone = False

    # --- writing ---------------------------------------------------------------------------------------------

    def attributes(self) -> Item:
        """What the index copies: only what differs from its default, so that it stays small."""
        told: Item = {
            "Latest": str(self.status), "UpdatedAt": self._moment(),
            "Reason": values.reason(self.reason), "CompanyId": self.company_id, "CreatedAt": self.created_at,
            "DueAt": self.due_at, "ExpiresAt": self.expires_at, "Moves": self.moves,
            "Ours": str(self.ours or self.status), "Entered": dict(self.entered or {}),
            "EmlFilePath": self.eml_file_path or "", "PayloadFilePath": self.payload_file_path or "",
        }  # fmt: skip
        if self.envelope:
            told["Recipients"] = len(self.envelope)
        elif self.composed:
            told["Composed"] = True
        if self.priority != 5:
            told["Priority"] = self.priority
        sparse: Item = {
            "Attempts": self.attempts, "Opened": self.opened, "Doubts": self.doubts, "Crashes": self.crashes,
            "AloneCrashes": self.alone_crashes, "Outcomes": self.sequence, "ReachedAt": self.reached_at,
            "CallbackDue": self.callback_due, "CallbackExhausted": self.callback_exhausted, "Claim": self.token,
        }  # fmt: skip
        told.update((name, value) for name, value in sparse.items() if value)
        return told

    def _moment(self) -> str:
        """As another program wrote it, where it is still the same moment."""
        kept = self.kept[0].get("UpdatedAt")
        same = kept is not None and values.millis(kept) == self.updated_at
        return str(kept) if same else values.moment(self.updated_at)

    def root(self) -> Item:
        """What stands beside `Attributes`, the keys of the sparse indexes among it."""
        told: Item = {
            "MailFrom": self.sender,
            "EnvelopeTo": values.pack_addresses(self.envelope) if self.envelope else b"",
            "SettledTo": values.pack_states(self.settled) if self.settled else b"",
            "AskedFor": values.pack_options(self.options) if self.options != NO_OPTIONS else "",
            "Fingerprint": self.fingerprint, "OpenPart": self.part, "OpenedAt": self.opened_at,
            "MarkedAt": self.marked_at, "MarkedBy": self.marked_by, "SentAlone": self.alone,
            "LateReplies": list(self.late), "ToldWith": self.batch or "", "Erased": self.erased,
        }  # fmt: skip
        told = {name: value for name, value in told.items() if value}
        if self.left is not None:
            told["LeftTo"] = values.pack_addresses(self.left)
        if self.ttl is not None:
            told["TTL"] = self.ttl
        kind = self.kind
        if kind is not None:
            told["Todo"], told["TodoAt"] = keys.todo(kind, self.id), keys.todo_at(self.entry(kind))
        if kind == "READY":
            told["Line"] = keys.line(self.company_id, self.id)
            told["LineAt"] = keys.line_at(
                self.company_id, self.priority, self.due_at, self.id, suspect=self.suspect
            )
        told["Listed"] = keys.listing(keys.status_listing(self.status), self.id)
        told["ListedAt"] = keys.listed_at(self.created_at, self.id)
        return told

    @property
    def kind(self) -> Kind | None:
        if self.status is Status.READY:
            return "READY" if self.composed else "VISITOR"
        if self.status is Status.ACCEPTED:
            return "ACCEPTED"
        if self.over:
            return "ERASED" if self.erased else "ENDED"
        return "WORK" if self.status in IN_WORK else "REPORT"

    @property
    def moment_kept(self) -> bool:
        """Nothing of what a compare-and-set compares is about to change."""
        now, kept = self.written[0], self.kept[0]
        return all(now.get(name) == kept.get(name) for name in ("Latest", "UpdatedAt", "Moves", "Claim"))

    @property
    def suspect(self) -> bool:
        return self.crashes >= rescue.SUSPECT_CRASHES

    def entry(self, kind: Kind) -> Entry:
        if kind in ("READY", "ACCEPTED"):
            return Entry(
                id=self.id, at=self.due_at if kind == "READY" else self.created_at, expires_at=self.expires_at,
                priority=self.priority, suspect=self.suspect, company_id=self.company_id, token=str(self.moves),
            )  # fmt: skip
        return Entry(id=self.id, at=self.updated_at, token=self.token)

    # --- as the contract's values ------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return journal.is_over(
            self.status, callback_due=self.callback_due, callback_exhausted=self.callback_exhausted
        )

    @property
    def to_try(self) -> tuple[str, ...]:
        return journal.to_try(self.envelope, self.settled, self.left)

    def open_attempt(self) -> Attempt | None:
        if not self.part:
            return None
        return Attempt(
            attempt=self.opened, part=self.part, token=self.token, transport=self.marked_by,
            opened_at=self.opened_at, committed_at=self.marked_at,
        )  # fmt: skip

    def file_paths(self) -> list[str]:
        return [path for path in (self.payload_file_path, self.eml_file_path) if path]

    def email(self) -> Email:
        return Email(
            id=self.id, status=self.status, company_id=self.company_id, version=0, reason=self.reason,
            created_at=self.created_at, updated_at=self.updated_at, due_at=self.due_at,
            expires_at=self.expires_at, priority=self.priority, attempts=self.attempts, opened=self.opened,
            doubts=self.doubts, crashes=self.crashes, alone_crashes=self.alone_crashes, sequence=self.sequence,
            reached_at=self.reached_at, sender=self.sender,
            recipients=journal.states(self.envelope, self.settled, self.status, ()), token=self.token or None,
            callback_due=self.callback_due, callback_exhausted=self.callback_exhausted,
            eml_file_path=self.eml_file_path, payload_file_path=self.payload_file_path, ttl=self.ttl,
            options=self.options,
        )  # fmt: skip

    def claim(self, message: bytes = b"", late: Attempt | None = None) -> Claim:
        return Claim(
            id=self.id, ref=0, token=self.token, company_id=self.company_id,
            at=self.opened_at if self.part else self.updated_at, attempt=self.opened if self.part else 0,
            part=self.part or 1, attempts=self.attempts, doubts=self.doubts, crashes=self.crashes,
            alone_crashes=self.alone_crashes, created_at=self.created_at, expires_at=self.expires_at,
            priority=self.priority, sequence=self.sequence, sender=self.sender, recipients=self.to_try,
            settled=self.settled, message=message, eml_file_path=self.eml_file_path, options=self.options,
            late=late,
        )  # fmt: skip

    def in_work(self, late: Attempt | None = None) -> InWork:
        return InWork(
            status=self.status, claim=self.claim(late=late), committed_at=self.marked_at,
            transport=self.marked_by, updated_at=self.updated_at, alone=self.alone,
        )  # fmt: skip

    def intake_claim(self, payload: bytes | None) -> IntakeClaim:
        return IntakeClaim(
            id=self.id, ref=0, token=self.token, company_id=self.company_id, created_at=self.created_at,
            payload=payload, payload_file_path=self.payload_file_path,
        )  # fmt: skip

    def report_claim(self, updated_at: Millis) -> ReportClaim:
        return ReportClaim(
            id=self.id, ref=0, token=self.token, company_id=self.company_id, status=self.status,
            reason=self.reason, reached_at=self.reached_at, sequence=self.sequence,
            refused=journal.without_it(self.settled), options=self.options, batch=self.batch,
            updated_at=updated_at,
        )  # fmt: skip


def _ttl(item: Item, told: Item) -> int | None:
    """At the root first; older records have it in `Attributes`."""
    for place in (item, told):
        value: Any = place.get("TTL")
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
