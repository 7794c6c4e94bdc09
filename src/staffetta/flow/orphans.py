"""Claims of this very process that no rider works under: a claim whose answer was lost, a ride that broke.

A worker never restores its own live claims, so nobody else would look at these before it dies.
"""

from __future__ import annotations

from staffetta.errors import LockNotAcquired
from staffetta.flow.deliver import Means
from staffetta.flow.restore import restore_these
from staffetta.mail.attempt import after_stop
from staffetta.mail.events import LockLost
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import InWork, Job


class Orphans:
    """Noted when they arise, looked at once the store answers."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._noted: dict[str, tuple[Job, str]] = {}

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, job: Job, token: str, why: str) -> None:
        """`why`: "claim" when the answer to a claim was lost, "broken" when a ride broke after it."""
        self._noted[token] = (job, why)

    async def look(self) -> int:
        """Take back those that exist; how many there were to look at."""
        means = self._means
        looked = len(self._noted)
        for token, (job, why) in list(self._noted.items()):
            found = await means.store.held(job.id)
            if found is not None and found.claim.token == token:
                if why == "claim" and found.status is Status.PROCESSING and not found.committed_at:
                    await self._give_back(found, job)
                else:
                    await restore_these(
                        [found], store=means.store, queue=means.queue, rulebook=means.rulebook,
                        now=means.clock(), draw=means.draw, emit=means.emit,
                    )  # fmt: skip
            elif found is None:
                await means.queue.offer([job])
            del self._noted[token]
        return looked

    async def _give_back(self, found: InWork, job: Job) -> None:
        """Nothing was sent under it: READY again, nothing counted, and no crash."""
        means, claim = self._means, found.claim
        rules = means.rulebook.rules_for(claim.company_id, claim.options)
        now = means.clock()
        try:
            await means.store.apply(after_stop(claim, transport="", now=now, rules=rules))
        except LockNotAcquired:
            means.emit(LockLost(at=now, id=claim.id, company_id=claim.company_id, step="restore"))
            return
        await means.queue.offer([job])
