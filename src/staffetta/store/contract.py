"""What every store promises. A stranger should be able to write a backend from this page; the suite in
`tests/contracts/` holds each of them to it.

Rules that hold for every call:

* A call returns only when its effect is durable. A call that raises has had no effect, unless its docstring says so.
* Calls of many concurrent steps may be gathered into one transaction (group commit). Each call still has its own
  result, each e-mail's calls keep their order, a loser writes no history, and one bad row fails alone.
* Times are arguments (`now`, milliseconds since 1970). A store that has a clock of its own (`has_clock`) uses it for
  heartbeats, due times and what is dead, and ignores the argument there.
* A move is a compare-and-set on the status expected before; out of an in-work status on the claim's token too.
* The answer to a COMMIT may be lost. `claim`, `commit`, `next_part` and `apply` under a claim may therefore be asked
  again with the same arguments: finding that it was done under one's own token means success, and changes nothing.
* A value that no database could keep (a text that is not Unicode, a number beyond 64 bits) is `Unstorable`; its row
  fails alone, among the calls gathered with it and in the list it came in.
* A driver's errors are translated where the driver is called: `StoreUnavailable` when trying again later may work,
  `StoreUnusable` when someone must mend something first. `__cause__` keeps the driver's own.
* Cancelling the caller ends its wait at once; what was already handed to the database may still take effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import (
    Added,
    Attempt,
    Claim,
    DeadLetter,
    Email,
    HistoryEntry,
    IntakeClaim,
    Intaken,
    InWork,
    Job,
    KeptAnswer,
    Millis,
    NewEmail,
    ReportClaim,
    Transition,
    Value,
)
from staffetta.mail.operators import ApiKey, Filter, Page, Pause, Worker


class Content(Value, frozen=True, kw_only=True):
    """An e-mail's content as stored. Paths where it lies in files."""

    payload: bytes | None
    message: bytes | None
    payload_file_path: str | None = None
    eml_file_path: str | None = None


class Dropped(Value, frozen=True, kw_only=True):
    """A dead letter that `retire` dropped: each gets its log line."""

    id: str
    company_id: str
    why: str
    """`age` or `cap`."""


class RetireCount(Value, frozen=True, kw_only=True):
    contents: int = 0
    dead_letters: int = 0
    records: int = 0
    dropped: tuple[Dropped, ...] = ()
    """The dead letters dropped by this call."""
    files: tuple[str, ...] = ()
    """Paths of content files that no row names any more: whoever owns the spool removes them."""


class DeadLetterCounts(Value, frozen=True, kw_only=True):
    size: int
    by_code: dict[str, int]
    by_company: dict[str, int]
    oldest_at: Millis | None = None


@runtime_checkable
class Parted(Protocol):
    """A store that several workers share, each with a queue of its own: the e-mails are parted among them."""

    def mine(self, id: str) -> bool:
        """Whether this process is the one to send this e-mail, of all that live now. `waiting` and `news` tell it of
        no others; for as long as a change of who lives goes round, the claim decides."""


class Visitor(Value, frozen=True, kw_only=True):
    """An e-mail that another program made READY: nothing of what sending needs is known of it but files."""

    id: str
    version: int
    due_at: Millis
    payload_file_path: str | None
    eml_file_path: str | None
    payload: bytes | None = None


@runtime_checkable
class Visited(Protocol):
    """A store on whose tables other programs work, which know only the tables' first columns."""

    async def visitors(self, *, limit: int) -> list[Visitor]:
        """E-mails that such a program made READY and nobody here has looked at. Nobody is given them to send yet.

        Costs next to nothing when there are none.
        """

    async def welcome(self, visitor: Visitor, made: Intaken) -> None:
        """Keep what sending needs beside the row. Not a move: no history, the same version and `updated_at`.

        :raises LockNotAcquired: it moved meanwhile, or somebody else has welcomed it.
        """


class Advice(Value, frozen=True, kw_only=True):
    """How one part of a store is set up. A remedy beside what is well is advice."""

    ok: bool
    words: str
    remedy: str = ""


@runtime_checkable
class Examined(Protocol):
    """A store that can tell whether it is set up to keep its promises."""

    async def examine(self) -> list[Advice]:
        """Nothing is changed."""


class Unlisted(Value, frozen=True, kw_only=True):
    """What a store keeps of an e-mail beside what its reading calls tell."""

    fingerprint: str = ""
    late: tuple[Attempt, ...] = ()
    """Replies that came too late for their claim and were not believed yet."""
    batch: str | None = None


class Whole(Value, frozen=True, kw_only=True):
    """One e-mail with everything that a store keeps of it, on its way into another store."""

    email: Email
    history: tuple[HistoryEntry, ...]
    attempts: tuple[Attempt, ...]
    content: Content | None
    dead_letter: DeadLetter | None
    unlisted: Unlisted

    @property
    def open(self) -> Attempt | None:
        """The attempt that a claim holds open."""
        last = self.attempts[-1] if self.attempts else None
        return last if last and self.email.status is Status.PROCESSING and not last.closed_at else None

    @property
    def closed(self) -> tuple[Attempt, ...]:
        return self.attempts if self.open is None else self.attempts[:-1]


@runtime_checkable
class Source(Protocol):
    """A store whose e-mails can move to another one."""

    async def unlisted(self, ids: Sequence[str]) -> list[Unlisted]:
        """One for each of these e-mails, in order."""

    async def settings(self) -> dict[str, bytes]:
        """Every setting, by name."""


@runtime_checkable
class Target(Protocol):
    """A store that takes e-mails of another one over."""

    async def take_over(self, whole: Whole) -> bool:
        """Keep this e-mail as it stands, whole or not at all: status, times, history and all.

        False: its id is known here, and nothing was changed."""


class Store(Protocol):
    # --- what backends declare, so that nobody asks which one they are -------------------------------------------
    resolution_ms: int
    """Smallest difference of time that the store keeps (1 for most)."""
    has_clock: bool
    """The store's own clock decides what is due and who is dead."""
    owned: bool
    """One process owns this store: every claim found at start belongs to a dead worker."""
    keeps_version: bool
    """`version` grows with each move (DynamoDB: always 0)."""

    # --- opening and closing ---------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, check that this is a store of ours and of this release.

        :raises StoreOwned: another process owns it (its process id is named).
        :raises StoreUnusable: corrupt, foreign, or `migrate` is needed.
        """

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date; name what was done. Safe to repeat, safe against a second one at once."""

    async def close(self) -> None:
        """Finish what was handed over, release everything."""

    # --- hand-in ---------------------------------------------------------------------------------------------------
    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        """Make e-mails durable with their history; one result each, in order.

        A known id of the same company with the same fingerprint answers `fresh=False` and the present status;
        with another, a `Conflict` stands in its place in the list, and the others are kept.
        `keep` is made durable in the same transaction: where its company and key are known already, nothing of
        this call is kept and a `Conflict` stands in every place. With `keep` the e-mails of a call stand and fall
        together where one of them is `Unstorable`, for the answer tells of them all.
        """

    async def recall(self, company_id: str, key: str, *, newer_than: Millis) -> KeptAnswer | None:
        """The answer kept under this key, unless it is older. Older ones go with `retire`."""

    # --- sending: one e-mail a call; the store gathers ------------------------------------------------------------
    async def claim(self, job: Job, *, token: str, now: Millis, alone: bool = False) -> Claim | None:
        """READY -> PROCESSING (claimed), and open an attempt, in one transaction.

        Found by `job.id` (a store may use `job.ref`, its own handle, where it is set; the id must still match).
        Only when READY and `due_at` <= now. None when it is not (finished, not due, or in another worker's hands).
        Of N concurrent claims exactly one wins. The claim carries the message, the recipients still to try, and
        a late reply where the journal has one. `alone` is kept: nothing else was in flight in this worker.
        Asked again with the token that holds it, the same claim is given again, until its attempt is committed.
        """

    async def commit(self, claim: Claim, *, transport: str, now: Millis) -> None:
        """Mark the open attempt *committed*, durably, just before the final dot.

        :raises LockNotAcquired: the claim's token is no longer the e-mail's: the dot must not be sent.
        """

    async def next_part(self, claim: Claim, closed: Attempt) -> Claim:
        """Close part n of the open attempt (its replies are kept) and open part n+1, uncommitted, same claim.

        The returned claim has the next part and only the recipients that `closed` left without a final reply
        (those whose reply was not delivered and not refused by code 5yz are still to try).
        :raises LockNotAcquired: the claim is gone; the replies of `closed` are kept all the same.
        """

    async def apply(self, move: Transition) -> None:
        """Apply one move: compare-and-set, history row, closed attempt, dead letter, all in one transaction.

        Entering SENT or FAILED sets `reached_at` to the move's time and raises `sequence` by one, except when
        RESTORED; entering SENT marks no dead letter present any more; RETRIED marks it as being retried.
        The e-mail's `reason` becomes the move's, except for moves into and out of CALLING-… that are REPORTING,
        ACKNOWLEDGED or RESTORED: there it goes on telling how the e-mail ended, and the move's own reason
        stands in its history row only.
        :raises LockNotAcquired: the status (or token, or version) is not the expected one. Nothing changed, no
            history was written; but the replies of `move.attempt`, when it has any, are kept with that attempt
            (found by id, attempt, part and token), so that restore or the next claim will read them. Replies that
            the attempt has already are not replaced.
        """

    # --- the other stages: lists, for these are taken in batches ----------------------------------------------------
    async def claim_intake(self, *, tokens: Sequence[str], now: Millis) -> list[IntakeClaim]:
        """ACCEPTED -> INTAKING for up to len(tokens) e-mails, oldest first, each under its own token."""

    async def claim_reports(self, *, tokens: Sequence[str], now: Millis) -> list[ReportClaim]:
        """SENT or FAILED with `callback_due` -> CALLING-… for up to len(tokens) e-mails, oldest first."""

    async def release_reports(
        self, claims: Sequence[ReportClaim], *, now: Millis, exhausted: bool = False
    ) -> list[Exception | None]:
        """Let go of e-mails whose owner could not be told: the status stays CALLING-…, the token goes.

        Not a move: no history row, the same version. `updated_at` becomes `now`: `stuck` names the e-mail (with
        an empty token) once `timeout_ms` have passed from here and never before, at a start neither. With
        `exhausted` it is marked (`Email.callback_exhausted`) and `stuck` leaves it alone for good; RETRIED and
        RESOLVED clear the mark. One result each: None, or `LockNotAcquired` when the claim is gone (nothing
        changed then).
        """

    async def bind_batch(self, batch: str, claims: Sequence[ReportClaim]) -> None:
        """Keep, durably and before the call is made, that these e-mails are reported together under this name.

        Binding the same again changes nothing."""

    async def batch_members(self, batch: str) -> list[str]:
        """Ids of the e-mails bound to a batch, in the order in which they were bound."""

    async def apply_all(self, moves: Sequence[Transition]) -> list[Exception | None]:
        """`apply` for several e-mails at once; one result each (None: applied).

        :raises StoreError: the store is away. Some may have been applied; made again, these lose.
        """

    # --- reminding the queue ---------------------------------------------------------------------------------------
    async def waiting_companies(self, *, now: Millis) -> list[str]:
        """Companies that have at least one READY e-mail due at `now`."""

    async def waiting(self, company_id: str, *, now: Millis, limit: int, after: Job | None = None) -> list[Job]:
        """Due READY e-mails of one company in its order (priority, due time, then as they came), behind `after`.

        Costs the same however many e-mails are finished.
        """

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        """What became due without this process having a hand in it: handed in or retried by others, or due by time.

        Each is told once to the process that owns the store (a job told and then lost is found by `waiting`).
        Costs next to nothing when there is nothing.
        """

    async def next_due(self, *, now: Millis) -> Millis | None:
        """When the next delayed READY e-mail will be due, if there is one."""

    # --- who is dead, what is stuck, what is over ------------------------------------------------------------------
    async def heartbeat(self, worker: Worker) -> None:
        """Write that this worker lives. Its id is the part of its tokens before the first dot."""

    async def workers(self) -> list[Worker]: ...

    async def forget_worker(self, worker_id: str) -> None:
        """An orderly stop: this worker holds nothing any more."""

    async def stuck(
        self,
        *,
        now: Millis,
        dead_after_ms: int | None,
        timeout_ms: int,
        workers: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[InWork]:
        """E-mails in an in-work status whose worker is named in `workers`, is silent for `dead_after_ms`, or that
        have not moved for `timeout_ms`. With `dead_after_ms` None every claim is taken for a dead worker's
        (an owned store at start). CALLING-… e-mails without a worker go by age alone. The claims come without
        their messages: whoever decides here does not send."""

    async def expired(self, *, now: Millis, limit: int) -> list[Email]:
        """ACCEPTED or READY e-mails whose `expires_at` <= now, at most `limit`.

        A call may look at a bounded share of what is unfinished and go on from there at the next call: in a small
        store one call finds all, in a large one everything is seen within some minutes.
        """

    async def held(self, id: str) -> InWork | None:
        """The claim on this e-mail, whoever has it, without its message; None when it is in no in-work status."""

    async def retire(
        self, *, now: Millis, content_ms: int, record_ms: int | None, dead_letter_max: int, limit: int
    ) -> RetireCount:
        """Erase old content, drop dead letters past their ttl or beyond the cap (oldest first), delete old records.
        At most `limit` rows of each kind; never anything of an unfinished e-mail."""

    # --- reading ---------------------------------------------------------------------------------------------------
    async def get(self, id: str) -> Email | None: ...

    async def history(self, id: str) -> list[HistoryEntry]:
        """Oldest first."""

    async def attempts(self, id: str) -> list[Attempt]:
        """The journal, oldest first, the open attempt included."""

    async def content(self, id: str) -> Content | None:
        """Payload and message as stored; None when the e-mail is unknown or its content erased."""

    async def emails(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """E-mails, newest first, stable while others are added. Cursors, never offsets."""

    async def counts(self) -> dict[Status, int]:
        """E-mails by status: kept, never scanned."""

    async def queue_counts(self, *, now: Millis) -> tuple[int, int, int]:
        """(waiting, delayed, active) by the store: READY and due, READY and not yet due, PROCESSING."""

    # --- dead letters ----------------------------------------------------------------------------------------------
    async def dead_letter(self, id: str) -> DeadLetter | None: ...

    async def dead_letters(self, filter: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """Newest first. `filter.code` is compared with `last_failure_code`."""

    async def dead_letter_counts(self) -> DeadLetterCounts: ...

    async def discard(self, ids: Sequence[str]) -> int:
        """Remove dead letters; the e-mails' own records stay. How many were there."""

    # --- operators -------------------------------------------------------------------------------------------------
    async def erase_content(self, id: str) -> tuple[str, ...]:
        """Erase payload and message of a finished e-mail, keep its record. Paths of files that nobody names now.

        :raises NotFound: no such e-mail. :raises MoveNotAllowed: it is not finished, or has a dead letter.
        """

    async def pause(self, pause: Pause) -> None: ...

    async def resume(self, pause: Pause) -> None: ...

    async def pauses(self) -> list[Pause]: ...

    async def publish(self, worker_id: str, figures: bytes, now: Millis) -> None:
        """What lives in a process (queue, companies, breakers), as JSON, so that any command can show it."""

    async def figures(self, *, newer_than: Millis) -> dict[str, bytes]: ...

    async def add_key(self, key: ApiKey) -> None:
        """:raises Conflict: this id is taken."""

    async def keys(self) -> list[ApiKey]:
        """All of them, revoked ones included, oldest first."""

    async def revoke_key(self, id: str, *, now: Millis) -> None:
        """:raises NotFound: no such key. Revoking twice changes nothing."""

    async def setting(self, name: str) -> bytes | None:
        """A small durable value of ours (weights changed while running, epochs …)."""

    async def put_setting(self, name: str, value: bytes | None) -> None: ...
