"""Fills a store with e-mails in every status, by the moves that the engine itself makes."""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.mail import attempt, backoff
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import (
    NO_OPTIONS,
    Claim,
    Delivery,
    HistoryEntry,
    Job,
    Millis,
    NewEmail,
    Options,
    RecipientReply,
    Reply,
    Transition,
)
from staffetta.mail.operators import Worker
from staffetta.mail.rulebook import RuleBook
from staffetta.mail.verdict import judge
from staffetta.store.contract import Store

START = 1_800_000_000_000


class Clock:
    """A clock that is turned by hand."""

    def __init__(self, now: Millis = START) -> None:
        self.now = now

    def __call__(self) -> Millis:
        return self.now

    def turn(self, ms: int) -> None:
        self.now += ms


def email_id(number: int) -> str:
    return f"0198f0a0-0000-7000-8000-{number:012d}"


class Stock:
    """Moves e-mails of one store through their lives."""

    def __init__(self, store: Store, clock: Clock, *, callback_url: str | None = None) -> None:
        self.store = store
        self.clock = clock
        self.rulebook = RuleBook(policy=backoff.POLICIES["gateway"], callback_url=callback_url)
        self.made = 0

    async def accepted(self, company_id: str = "acme", *, payload_path: str = "a.json") -> str:
        """Named by another program through its payload file: nothing is composed yet."""
        return await self._add(company_id, (Status.ACCEPTED,), message=None, payload_path=payload_path)

    async def ready(
        self,
        company_id: str = "acme",
        *,
        recipients: Sequence[str] = ("ada@example.com",),
        options: Options = NO_OPTIONS,
        payload: bytes = b'{"subject":"hello"}',
    ) -> str:
        steps = (Status.ACCEPTED, Status.INTAKING, Status.READY)
        return await self._add(company_id, steps, recipients=recipients, options=options, payload=payload)

    async def _add(
        self,
        company_id: str,
        steps: Sequence[Status],
        *,
        recipients: Sequence[str] = (),
        options: Options = NO_OPTIONS,
        message: bytes | None = b"Subject: hello\r\n\r\nhello\r\n",
        payload: bytes | None = None,
        payload_path: str | None = None,
    ) -> str:
        self.made += 1
        now = self.clock()
        causes = {Status.ACCEPTED: Cause.ACCEPTED, Status.INTAKING: Cause.CLAIMED, Status.READY: Cause.COMPOSED}
        new = NewEmail(
            id=email_id(self.made),
            company_id=company_id,
            history=tuple(HistoryEntry(status=s, cause=causes[s], reason="", at=now) for s in steps),
            created_at=now,
            due_at=now,
            expires_at=now + 86_400_000,
            sender="shop@example.com",
            recipients=tuple(recipients),
            payload=payload,
            message=message,
            payload_file_path=payload_path,
            options=options,
            fingerprint=email_id(self.made),
        )
        (added,) = await self.store.add([new])
        assert not isinstance(added, Exception), added
        return new.id

    async def processing(self, id: str, worker: str = "w1") -> Claim:
        job = Job(id=id, company_id="", priority=5, due_at=0)
        claim = await self.store.claim(job, token=f"{worker}.{self.clock()}", now=self.clock())
        assert claim is not None, "it must be READY and due"
        return claim

    async def answered(self, claim: Claim, *replies: Reply, committed: bool = True) -> Transition:
        """The attempt ends: these replies, one for each recipient still to try."""
        now = self.clock()
        if committed:
            await self.store.commit(claim, transport="relay", now=now)
        pairs = zip(claim.recipients, replies, strict=True)
        delivery = Delivery(
            transport="relay",
            replies=tuple(RecipientReply(address=address, reply=reply) for address, reply in pairs),
            committed=committed,
        )
        rules = self.rulebook.rules_for(claim.company_id, claim.options)
        move = attempt.after_attempt(
            claim, delivery, [judge(reply) for reply in replies], rules,
            now=now, draw=0.5, committed_at=now if committed else 0,
        )  # fmt: skip
        await self.store.apply(move)
        return move

    async def sent(self, company_id: str = "acme") -> str:
        new = await self.ready(company_id)
        await self.answered(await self.processing(new), Reply(stage="dot", code=250, text="OK", committed=True))
        return new

    async def failed(
        self, company_id: str = "acme", *, code: int = 550, recipient: str = "ada@example.com"
    ) -> str:
        new = await self.ready(company_id, recipients=[recipient])
        refusal = Reply(stage="rcpt", code=code, enhanced="5.1.1", text="5.1.1 no such user")
        await self.answered(await self.processing(new), refusal, committed=False)
        return new

    async def in_doubt(self, company_id: str = "acme") -> str:
        """Handed over, no reply read, and the policy is to leave it to a human."""
        new = await self.ready(company_id, options=Options(in_doubt="hold"))
        lost = Reply(stage="dot", name="eof", text="the line was lost", committed=True)
        await self.answered(await self.processing(new), lost)
        return new

    async def alive(self, worker: str) -> None:
        now = self.clock()
        await self.store.heartbeat(Worker(id=worker, host="here", pid=1, started_at=now, seen_at=now))
