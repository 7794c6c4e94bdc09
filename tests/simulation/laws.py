"""What must be true of every e-mail after the chaos, whatever happened: each law has its name.

L1  what was acknowledged is in the store and finished; the same key always gave the same id
L2  nothing reached anybody that was not handed in; every copy of an e-mail has the same bytes
L3  no copy without its mark: there are at most as many copies as committed parts in the journal
L4  a recipient has one copy; one more where the e-mail was in doubt and its policy is `resend`, or an operator
    sent it again; under `hold` there is never a second one without an operator
L5  SENT: everybody named as accepted has a copy, and nobody is left to try
L6  FAILED without a doubt: nobody has a copy. With one: its dead letter says IN-DOUBT
L7  the history is a walk through the table, and the version counts its rows
L8  attempts stay within the policy, and one resend
L9  an owner was told the outcome that was recorded, or his report is marked exhausted; one outcome is always
    told under one webhook-id, with one body
L10 nobody holds anything after an orderly stop, and the counts are those of the rows
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from simulation.outside import POISON, World
from staffetta.mail import lifecycle
from staffetta.mail.attempt import IN_DOUBT_CODE
from staffetta.mail.lifecycle import IN_WORK, MOVES, Cause, Status
from staffetta.mail.message import Attempt, DeadLetter, Email, HistoryEntry
from staffetta.mail.rulebook import RuleBook
from staffetta.store.contract import Store

SENT_FAMILY = (Status.SENT, Status.SENT_ACKNOWLEDGED, Status.CALLING_SENT_CALLBACK)
FAILED_FAMILY = (Status.FAILED, Status.FAILED_ACKNOWLEDGED, Status.CALLING_FAILED_CALLBACK)


def finished(email: Email) -> bool:
    """Nothing more will happen to it by itself."""
    if email.status in (Status.CALLING_SENT_CALLBACK, Status.CALLING_FAILED_CALLBACK):
        return email.callback_exhausted
    return email.status in lifecycle.FINISHED and not (
        email.status in (Status.SENT, Status.FAILED) and email.callback_due
    )


class Laws:
    """Checks one store and one world; `broken` names each law that does not hold, with the e-mail."""

    def __init__(
        self, store: Store, world: World, rulebook: RuleBook, answers: Mapping[str, Sequence[str]]
    ) -> None:
        self._store = store
        self._world = world
        self._rulebook = rulebook
        self._answers = answers
        self.broken: list[str] = []

    def _law(self, name: str, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(f"{name}: {what}")

    async def check(self, ids: Sequence[str]) -> None:
        for key, answered in self._answers.items():
            self._law("L1", len(set(answered)) == 1, f"key {key} was answered with {answered}")
        self._law("L2", {copy.id for copy in self._world.copies} <= set(ids), "a copy that nobody handed in")
        statuses: Counter[Status] = Counter()
        for id in ids:
            email = await self._store.get(id)
            if email is None:
                self._law("L1", holds=False, what=f"{id} is gone")
                continue
            statuses[email.status] += 1
            await self._email(email)
        self._law(
            "L10", not any(statuses[status] for status in IN_WORK if "CALLING" not in status), f"{statuses}"
        )
        counts = {status: total for status, total in (await self._store.counts()).items() if total}
        self._law("L10", counts == dict(statuses), f"counted {counts}, there are {dict(statuses)}")
        self._told_alike()

    async def _email(self, email: Email) -> None:
        history = await self._store.history(email.id)
        attempts = await self._store.attempts(email.id)
        letter = await self._store.dead_letter(email.id)
        self._law("L1", finished(email), f"{email.id} is {email.status}: {email.reason}")
        self._law("L10", not email.token, f"{email.id} is held by {email.token}")
        self._walk(email, history)
        self._copies(email, history, attempts)
        self._outcome(email, history, letter)
        self._tries(email, history, attempts)
        self._told(email)
        content = await self._store.content(email.id)
        if content is None:
            self._law(
                "L11", finished(email) and letter is None, f"{email.id} is {email.status} and has no content"
            )
        elif content.message is not None and POISON in content.message:
            self._law("L12", email.status not in SENT_FAMILY, f"{email.id} is poison, and {email.status}")

    def _walk(self, email: Email, history: Sequence[HistoryEntry]) -> None:
        before: Status | None = None
        for entry in history:
            move = (before, entry.status, entry.cause)
            self._law("L7", move in MOVES, f"{email.id} went {move}")
            before = entry.status
        self._law("L7", before is email.status, f"{email.id} is {email.status}, its history ends {before}")
        self._law(
            "L7", email.version == len(history), f"{email.id} has version {email.version}, {len(history)} rows"
        )

    def _copies(self, email: Email, history: Sequence[HistoryEntry], attempts: Sequence[Attempt]) -> None:
        copies = [copy for copy in self._world.copies if copy.id == email.id]
        envelope = {one.address for one in email.recipients}
        self._law(
            "L2", all(set(copy.recipients) <= envelope for copy in copies), f"{email.id} reached a stranger"
        )
        self._law("L2", len({copy.message for copy in copies}) <= 1, f"copies of {email.id} differ")
        committed = sum(1 for attempt in attempts if attempt.committed_at)
        self._law("L3", len(copies) <= committed, f"{email.id}: {len(copies)} copies, {committed} marks")
        again = sum(entry.cause is Cause.RETRIED for entry in history)
        rules = self._rulebook.rules_for(email.company_id, email.options)
        allowed = 1 + again + (again + 1 if rules.in_doubt == "resend" else 0)
        in_doubt = sum(1 for attempt in attempts if attempt.committed_at and not _answered(attempt))
        per_recipient = Counter(address for copy in copies for address in copy.recipients)
        for address, count in per_recipient.items():
            self._law("L4", count <= allowed, f"{email.id} came {count} times to {address}, {allowed} allowed")
            late = sum(1 for attempt in attempts if _delivered_to(attempt, address))
            self._law(
                "L4",
                count <= in_doubt + max(1, late),
                f"{email.id} came {count} times to {address} without a doubt",
            )

    def _outcome(self, email: Email, history: Sequence[HistoryEntry], letter: DeadLetter | None) -> None:
        reached = {address for copy in self._world.copies if copy.id == email.id for address in copy.recipients}
        resolved = any(entry.cause is Cause.RESOLVED for entry in history)
        if email.status in SENT_FAMILY:
            accepted = {one.address for one in email.recipients if one.state == "accepted"}
            self._law("L5", accepted, f"{email.id} is {email.status}, accepted by nobody")
            self._law("L5", resolved or accepted <= reached, f"{email.id}: {accepted - reached} have no copy")
            waiting = [one.address for one in email.recipients if one.state == "waiting"]
            self._law("L5", not waiting, f"{email.id} is {email.status}, and {waiting} wait")
            self._law("L6", letter is None, f"{email.id} is {email.status} and has a dead letter")
        elif email.status in FAILED_FAMILY:
            self._law(
                "L6", not reached or email.doubts, f"{email.id} failed without a doubt, and {reached} have it"
            )
            if email.doubts and letter is not None:
                self._law("L6", letter.last_failure_code == IN_DOUBT_CODE, f"{email.id} in doubt: {letter}")
            cancelled = [entry.cause for entry in history if entry.status is Status.FAILED][
                -1
            ] is Cause.CANCELLED
            self._law("L6", letter is None or not cancelled, f"{email.id} was cancelled and has a dead letter")
        else:
            self._law("L6", not reached, f"{email.id} is {email.status}, and {reached} have it")

    def _tries(self, email: Email, history: Sequence[HistoryEntry], attempts: Sequence[Attempt]) -> None:
        rules = self._rulebook.rules_for(email.company_id, email.options)
        self._law(
            "L8", email.attempts <= rules.policy.max_attempts + 1, f"{email.id} took {email.attempts} attempts"
        )
        keys = [(attempt.attempt, attempt.part) for attempt in attempts]
        self._law("L8", keys == sorted(set(keys)), f"{email.id} has attempts {keys}")
        claimed = sum(entry.status is Status.PROCESSING for entry in history)
        self._law(
            "L8",
            len({attempt.attempt for attempt in attempts}) == claimed,
            f"{email.id}: {claimed} claims, {keys}",
        )

    # --- owners -----------------------------------------------------------------------------------

    def _told(self, email: Email) -> None:
        if email.status not in (Status.SENT_ACKNOWLEDGED, Status.FAILED_ACKNOWLEDGED):
            return
        code = "TRAVELING" if email.status is Status.SENT_ACKNOWLEDGED else "DISPATCH-ERROR"
        heard = [
            said
            for _, said, _, status in self._world.calls
            if status == 200 and email.id in said["message_ids"]
        ]
        self._law(
            "L9", any(said["code"] == code for said in heard), f"the owner of {email.id} never heard {code}"
        )

    def _told_alike(self) -> None:
        bodies: dict[str, set[bytes]] = defaultdict(set)
        names: dict[tuple[str, Any], set[str]] = defaultdict(set)
        for name, said, body, _ in self._world.calls:
            bodies[name].add(body)
            if len(said["message_ids"]) == 1 and "sequence" in said:
                names[said["message_ids"][0], said["sequence"]].add(name)
        for name, said_so in bodies.items():
            self._law("L9", len(said_so) == 1, f"{name} was told in {len(said_so)} ways")
        for outcome, called in names.items():
            self._law("L9", len(called) == 1, f"outcome {outcome} was told as {called}")


def _answered(attempt: Attempt) -> bool:
    """A reply was read for everybody in it."""
    return bool(attempt.replies) and all(answer.reply.code for answer in attempt.replies)


def _delivered_to(attempt: Attempt, address: str) -> bool:
    return any(answer.address == address and answer.reply.delivered for answer in attempt.replies)
