"""The riders of one worker: a fixed set of coroutines, each carrying one e-mail at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from staffetta.flow.deliver import STOPPED, Means, Rider, deliver
from staffetta.mail.events import Troubled
from staffetta.mail.message import Job


class Riders:
    """Hands jobs to riders. Some wait here a moment, so that a rider who is done finds the next at once."""

    def __init__(self, means: Means, *, count: int) -> None:
        self._means = means
        self._riders = [Rider(means) for _ in range(count)]
        self._ahead = count // 8
        self._ready: deque[Job] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._changed = asyncio.Event()
        self._closing = False
        self._hurry = asyncio.Event()
        self.done = 0

    def start(self) -> None:
        for number, rider in enumerate(self._riders):
            rider.task = asyncio.create_task(self._ride(rider), name=f"rider {number}")

    @property
    def in_flight(self) -> int:
        """E-mails in riders' hands, or about to be."""
        return len(self._riders) - len(self._idle) + len(self._ready)

    def live(self, token: str) -> bool:
        """Whether a rider works under this claim now."""
        return any(rider.token == token for rider in self._riders)

    def ids(self) -> list[str]:
        """The e-mails in hand, for the queue's leases."""
        carried = [rider.job.id for rider in self._riders if rider.job is not None]
        return carried + [job.id for job in self._ready]

    # --- handing out ------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many jobs may be given now."""
        return max(0, len(self._idle) + self._ahead - len(self._ready))

    async def until_room(self) -> int:
        while True:
            room = self.room()
            # A few at a time are not worth a question to the queue while there is work in hand.
            if room > self._ahead // 2:
                return room
            self._changed.clear()
            await self._changed.wait()

    def give(self, jobs: Sequence[Job]) -> None:
        self._ready.extend(jobs)
        self._wake(len(jobs))

    async def give_alone(self, job: Job) -> None:
        """A suspect: nothing else is in flight while it is sent."""
        await self.until_idle()
        for rider in self._riders:
            rider.alone = True
        try:
            self.give((job,))
            await self.until_idle()
        finally:
            for rider in self._riders:
                rider.alone = False

    def _wake(self, count: int) -> None:
        idle = self._idle
        while count and idle:
            rider = idle.popleft()
            if not rider.done():
                rider.set_result(None)
                count -= 1

    async def until_idle(self) -> None:
        while self.in_flight:
            self._changed.clear()
            await self._changed.wait()

    async def _ride(self, rider: Rider) -> None:
        ready, idle, means = self._ready, self._idle, self._means
        loop = asyncio.get_running_loop()
        low = self._ahead // 2
        while True:
            while not ready:
                if self._closing:
                    return
                rest = loop.create_future()
                idle.append(rest)
                self._changed.set()
                await rest
            job = ready.popleft()
            if len(ready) <= low:
                self._changed.set()
            rider.job = job
            try:
                await deliver(job, rider, means)
            except Exception as error:  # noqa: BLE001  # one e-mail's trouble must not stop the others
                self._broken(job, rider, error)
            self.done += 1
            rider.reset()

    def _broken(self, job: Job, rider: Rider, error: Exception) -> None:
        message = f"e-mail {job.id} of {job.company_id} could not be carried on; it is taken back by restore"
        self._means.emit(Troubled(at=self._means.clock(), part="deliver", message=message, error=repr(error)))
        if rider.token:
            self._means.unsure(job, rider.token, "broken")

    def hurry(self) -> None:
        """Wait no longer for what is in flight."""
        self._hurry.set()

    # --- watching and stopping --------------------------------------------------------------------------------

    def interrupt_overdue(self) -> None:
        """E-mails that could not be handed over within the deadline go back; others may get through."""
        now = self._means.monotonic()
        for rider in self._riders:
            if not rider.committed_at and now - rider.since > self._means.deadline_seconds:
                rider.interrupt("it could not be handed over within delivery.deadline")

    def close(self) -> list[Job]:
        """Nothing more is begun. The jobs that were not begun."""
        self._closing = True
        left = list(self._ready)
        self._ready.clear()
        self._wake(len(self._idle))
        return left

    async def finish(self, grace_seconds: float, last_seconds: float) -> bool:
        """Let what is in flight end by itself, then end the waits, then let go. False: it came to the last."""
        tasks = [rider.task for rider in self._riders if rider.task is not None]
        if not tasks:
            return True
        hurried = asyncio.create_task(self._hurry.wait())
        everybody = asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait((hurried, everybody), timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if everybody.done():
            return True
        for rider in self._riders:
            rider.interrupt(STOPPED)
        _, late = await asyncio.wait(tasks, timeout=last_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return not late
