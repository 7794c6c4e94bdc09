"""Writes e-mails into a store and leads them through their lives by the contract's own calls and values.

Times are told relative to the store's present: `now`, so long ago, in so long.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from contracts.stores import Ground
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import (
    NO_OPTIONS,
    Attempt,
    Claim,
    DeadLetter,
    Email,
    HistoryEntry,
    IntakeClaim,
    Job,
    Millis,
    NewEmail,
    Options,
    RecipientReply,
    Reply,
    ReportClaim,
    Transition,
)
from staffetta.mail.operators import Worker
from staffetta.store.contract import Content, Store

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

OK = Reply(stage="dot", code=250, enhanced="2.0.0", text="2.0.0 Ok: queued", committed=True)
LATER = Reply(stage="rcpt", code=450, enhanced="4.2.0", text="4.2.0 try again later")
NEVER = Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no such user")

S, C = Status, Cause
_STEPS = {
    S.ACCEPTED: ((S.ACCEPTED, C.ACCEPTED),),
    S.READY: ((S.ACCEPTED, C.ACCEPTED), (S.INTAKING, C.CLAIMED), (S.READY, C.COMPOSED)),
}


def email_id(number: int) -> str:
    return f"{number:08x}-0000-7000-8000-{number:012x}"


def job_of(id: str, *, company_id: str = "acme", ref: int = 0) -> Job:
    return Job(id=id, company_id=company_id, priority=5, due_at=0, ref=ref)


class Story(msgspec.Struct):
    """All that a store tells of one e-mail."""

    email: Email | None
    history: list[HistoryEntry]
    attempts: list[Attempt]
    content: Content | None
    dead_letter: DeadLetter | None


class Letters:
    """One store, its clock, and whatever is written into it."""

    def __init__(self, store: Store, ground: Ground) -> None:
        self.store = store
        self.ground = ground
        self.clock = ground.clock
        self._numbers = itertools.count(1)
        self._tokens = itertools.count(1)

    @property
    def now(self) -> Millis:
        return self.clock()

    def beside(self, store: Store) -> Letters:
        """The same hands at another store on the same ground."""
        other = Letters(store, self.ground)
        other._numbers, other._tokens = self._numbers, self._tokens
        return other

    def token(self, worker: str = "w1") -> str:
        return f"{worker}.{next(self._tokens)}"

    def tokens(self, count: int, worker: str = "w1") -> list[str]:
        return [self.token(worker) for _ in range(count)]

    def version(self, moves: int) -> int:
        """The version after so many moves, of stores that keep one."""
        return moves if self.store.keeps_version else 0

    # --- hand-in ----------------------------------------------------------------------------------

    def new(
        self,
        status: Status = S.READY,
        *,
        number: int | None = None,
        company_id: str = "acme",
        recipients: Sequence[str] = ("ada@example.com",),
        due_in: Millis = 0,
        expires_in: Millis = DAY,
        ago: Millis = 0,
        priority: int = 5,
        options: Options = NO_OPTIONS,
        payload: bytes | None = b'{"subject":"hello"}',
        message: bytes | None = b"Subject: hello\r\n\r\nhello\r\n",
        payload_file_path: str | None = None,
        eml_file_path: str | None = None,
        fingerprint: str | None = None,
    ) -> NewEmail:
        """An e-mail that came `ago` and has passed intake, or not (ACCEPTED)."""
        at, now = self.now - ago, self.now
        name = email_id(next(self._numbers) if number is None else number)
        composed = status is S.READY
        return NewEmail(
            id=name,
            company_id=company_id,
            history=tuple(HistoryEntry(status=s, cause=c, reason="", at=at) for s, c in _STEPS[status]),
            created_at=at,
            due_at=min(at, now) if due_in == 0 else now + due_in,
            expires_at=now + expires_in,
            priority=priority,
            sender="shop@example.com" if composed else "",
            recipients=tuple(recipients) if composed else (),
            payload=payload,
            message=message if composed else None,
            payload_file_path=payload_file_path,
            eml_file_path=eml_file_path,
            options=options,
            fingerprint=f"print of {name}" if fingerprint is None else fingerprint,
        )

    async def add(self, *emails: NewEmail) -> list[str]:
        for added in await self.store.add(emails):
            assert not isinstance(added, Exception), added
            assert added.fresh
        return [new.id for new in emails]

    async def ready(self, **facts: Any) -> str:
        (id,) = await self.add(self.new(**facts))
        return id

    async def accepted(self, **facts: Any) -> str:
        (id,) = await self.add(self.new(S.ACCEPTED, **facts))
        return id

    # --- claims -----------------------------------------------------------------------------------

    async def try_claim(self, id: str, *, token: str | None = None, alone: bool = False) -> Claim | None:
        return await self.store.claim(job_of(id), token=token or self.token(), now=self.now, alone=alone)

    async def claim(
        self, id: str, *, worker: str = "w1", token: str | None = None, alone: bool = False
    ) -> Claim:
        claim = await self.try_claim(id, token=token or self.token(worker), alone=alone)
        assert claim is not None, "it must be READY and due"
        return claim

    async def commit(self, claim: Claim, *, transport: str = "relay") -> None:
        await self.store.commit(claim, transport=transport, now=self.now)

    async def intaking(self, worker: str = "w1", **facts: Any) -> IntakeClaim:
        await self.accepted(**facts)
        (claim,) = await self.store.claim_intake(tokens=self.tokens(1, worker), now=self.now)
        return claim

    async def calling(self, worker: str = "w1") -> ReportClaim:
        (claim,) = await self.store.claim_reports(tokens=self.tokens(1, worker), now=self.now)
        return claim

    # --- moves ------------------------------------------------------------------------------------

    def move(self, held: Any, target: Status, cause: Cause, **facts: Any) -> Transition:
        """A move out of PROCESSING, or out of what a claim of another stage holds."""
        source = getattr(held, "status", S.INTAKING if isinstance(held, IntakeClaim) else S.PROCESSING)
        values = {"at": self.now, "reason": f"because it is {cause}", **facts}
        return Transition(
            id=held.id, token=held.token, ref=held.ref, source=source, target=target, cause=cause, **values
        )

    def operator(self, id: str, source: Status, target: Status, cause: Cause, **facts: Any) -> Transition:
        """A move between statuses that nobody holds."""
        values = {"at": self.now, "reason": f"because it is {cause}", **facts}
        return Transition(id=id, source=source, target=target, cause=cause, **values)

    def closed(self, claim: Claim, *replies: Reply, counted: bool = True, committed: bool = False) -> Attempt:
        """The attempt that ends, with one reply for all recipients or one for each."""
        each = replies * len(claim.recipients) if len(replies) == 1 else replies
        pairs = zip(claim.recipients, each, strict=True) if replies else ()
        return Attempt(
            attempt=claim.attempt, part=claim.part, token=claim.token, transport="relay", opened_at=claim.at,
            committed_at=self.now if committed else 0, closed_at=self.now, counted=counted,
            replies=tuple(RecipientReply(address=address, reply=reply) for address, reply in pairs),
        )  # fmt: skip

    def delivered(self, claim: Claim, **facts: Any) -> Transition:
        attempt = self.closed(claim, OK, committed=True)
        return self.move(
            claim, S.SENT, C.DELIVERED, **{"attempts": claim.attempts + 1, "attempt": attempt, **facts}
        )

    def deferred(self, claim: Claim, *, due_in: Millis = 0, **facts: Any) -> Transition:
        values = {"attempts": claim.attempts + 1, "attempt": self.closed(claim, LATER), **facts}
        return self.move(claim, S.READY, C.DEFERRED, due_at=self.now + due_in, **values)

    def letter(self, id: str, *, company_id: str = "acme", code: str | None = "550", ago: Millis = 0,
               ttl_ms: int = 7 * DAY) -> DeadLetter:  # fmt: skip
        at = self.now - ago
        return DeadLetter(
            outbox_id=id, company_id=company_id, failed_attempts=1, last_failure_reason="no such user",
            last_failure_code=code, last_failure_at=at, enqueued_at=at - MINUTE, moved_at=at, ttl_ms=ttl_ms,
        )  # fmt: skip

    def refused(self, claim: Claim, *, code: str | None = "550", ago: Millis = 0, **facts: Any) -> Transition:
        letter = self.letter(claim.id, company_id=claim.company_id, code=code, ago=ago)
        values = {
            "attempts": claim.attempts + 1,
            "attempt": self.closed(claim, NEVER),
            "at": self.now - ago,
            **facts,
        }
        return self.move(claim, S.FAILED, C.REFUSED, **{"dead_letter": letter, **values})

    # --- whole walks ------------------------------------------------------------------------------

    async def sent(self, *, callback_due: bool = False, ago: Millis = 0, **facts: Any) -> str:
        id = await self.ready(ago=ago, **facts)
        move = self.delivered(await self.claim(id), callback_due=callback_due, at=self.now - ago)
        await self.store.apply(move)
        return id

    async def failed(
        self, *, callback_due: bool = False, ago: Millis = 0, code: str | None = "550", **facts: Any
    ) -> str:
        id = await self.ready(ago=ago, **facts)
        await self.store.apply(
            self.refused(await self.claim(id), callback_due=callback_due, ago=ago, code=code)
        )
        return id

    async def brought_to(self, status: Status) -> tuple[str, str]:
        """One e-mail in this status, and the token that holds it. Nothing else may be claimable."""
        if status is S.ACCEPTED:
            return await self.accepted(), ""
        if status in (S.INTAKING, S.INVALID):
            claim = await self.intaking()
            if status is S.INVALID:
                await self.store.apply(self.move(claim, S.INVALID, C.INVALID))
                return claim.id, ""
            return claim.id, claim.token
        if status is S.READY:
            return await self.ready(), ""
        if status is S.PROCESSING:
            held = await self.claim(await self.ready())
            return held.id, held.token
        return await self._ended(status)

    async def _ended(self, status: Status) -> tuple[str, str]:
        told = status not in (S.SENT, S.FAILED)
        ending = self.sent if "SENT" in status else self.failed
        id = await ending(callback_due=told)
        if not told:
            return id, ""
        calling = await self.calling()
        if status in (S.SENT_ACKNOWLEDGED, S.FAILED_ACKNOWLEDGED):
            await self.store.apply(self.move(calling, status, C.ACKNOWLEDGED))
            return id, ""
        return id, calling.token

    # --- looking ----------------------------------------------------------------------------------

    async def email(self, id: str) -> Email:
        found = await self.store.get(id)
        assert found is not None, id
        return found

    async def status(self, id: str) -> Status:
        return (await self.email(id)).status

    async def story(self, id: str) -> Story:
        return Story(
            await self.store.get(id), await self.store.history(id), await self.store.attempts(id),
            await self.store.content(id), await self.store.dead_letter(id),
        )  # fmt: skip

    def worker(self, id: str) -> Worker:
        return Worker(id=id, host="here", pid=1, started_at=self.now, seen_at=self.now)
