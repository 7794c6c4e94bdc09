"""The connections to one relay: who carries which letter, how many there may be, how fast letters may go.

The first connection goes alone, and the others follow once it was let in: a wrong password is said once, not a
hundred times. Letters that wait are no failure; they fail only when no connection can be had at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from staffetta.mail.message import Reply
from staffetta.transport.smtp_connection import Connection
from staffetta.transport.smtp_letter import Letter
from staffetta.transport.smtp_line import NEVER, SAYS
from staffetta.transport.smtp_opening import Contexts, NotOpened, open_connection
from staffetta.transport.smtp_settings import SmtpSettings

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task, TimerHandle

CEILING_SECONDS = 30.0
"""How long a relay that refused one more connection is not asked for more than it took."""
RIDE_SECONDS = 10.0
"""How long a letter rides behind another's unanswered dot, which may take ten minutes; then it leaves."""
BURST_SECONDS = 0.05
"""How far the rate may run ahead, so that the timer need not ring for each message."""


class Pool:
    """Letters in, connections beneath. One event loop, no locks."""

    def __init__(
        self,
        settings: SmtpSettings,
        contexts: Contexts,
        loop: AbstractEventLoop,
        *,
        ride_seconds: float = RIDE_SECONDS,
    ) -> None:
        self.settings = settings
        self._contexts = contexts
        self._loop = loop
        self._waiting: deque[Letter] = deque()
        self._alone: deque[Letter] = deque()
        """Given back by a lost connection: each goes first on a new one."""
        self._idle: list[Connection] = []
        """The last one used is used again first, so that those not needed grow old."""
        self._ready: set[Connection] = set()
        self._leaving: set[Connection] = set()
        self._opening: set[Task[None]] = set()
        self._ceiling = settings.connections_max
        self._ceiling_until = 0.0
        self._limit = settings.messages_per_connection or NEVER
        self._interval = 1 / settings.messages_per_second if settings.messages_per_second else 0.0
        self._next_at = 0.0
        self._pump: TimerHandle | None = None
        self._watch: TimerHandle | None = None
        self._ride_seconds = ride_seconds
        shortest = min(settings.timeouts.least, settings.idle_seconds, ride_seconds)
        self._watch_seconds = min(max(shortest / 10, 0.005), 5.0)
        self._closed = False

    @property
    def connections(self) -> int:
        return len(self._ready)

    def submit(self, letter: Letter) -> None:
        """Put it on a connection, or in the line for one."""
        assert not self._closed, "a transport is opened before it sends"
        if self._idle and not self._waiting and self._may_go():
            connection = self._idle.pop()
            if not connection.take(letter):
                self._idle.append(connection)
            return
        self._waiting.append(letter)
        self._grow()

    def withdraw(self, letter: Letter) -> None:
        letter.withdrawn = True
        if letter.connection is not None:
            letter.connection.withdraw(letter)

    # ------------------------------------------------------------------------------- what a connection asks

    def next_for(self, connection: Connection) -> Letter | None:
        if self._closed or connection.carried >= self._limit or connection.gone:
            return None
        if connection.fresh and self._alone:
            letter = self._pop(self._alone)
            if letter is not None:
                return letter
        if self._must_make_room():
            return None  # `idle` lets it go
        return self._pop(self._waiting) if self._waiting and self._may_go() else None

    def rider_for(self, connection: Connection) -> Letter | None:
        # Those for whom a connection is being opened are better off there: nobody slow stands before them.
        if len(self._waiting) <= len(self._opening) or self._alone or connection.carried >= self._limit:
            return None
        return self._pop(self._waiting) if not self._closed and self._may_go() else None

    def idle(self, connection: Connection) -> None:
        if self._closed or connection.carried >= self._limit or self._must_make_room():
            self._let_go(connection)
            self._grow()
        else:
            self._idle.append(connection)

    def give_back(self, letter: Letter) -> None:
        if letter.withdrawn:
            return
        letter.again()
        if self._closed:
            letter.settle(_CLOSED)
            return
        self._alone.append(letter)
        self._grow()

    def lost(self, connection: Connection) -> None:
        self._ready.discard(connection)
        self._leaving.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._grow()

    # ------------------------------------------------------------------------------- opening

    def _room(self) -> bool:
        if self._ceiling < self.settings.connections_max and self._loop.time() >= self._ceiling_until:
            self._ceiling = self.settings.connections_max
        return len(self._ready) + len(self._leaving) + len(self._opening) < self._ceiling

    def _must_make_room(self) -> bool:
        """A letter needs a connection of its own, and there may be no more of them."""
        return len(self._alone) > len(self._opening) + len(self._leaving) and not self._room()

    def _grow(self) -> None:
        """Open as many connections as letters wait for, doubling at most: the first one goes alone."""
        if self._closed:
            return
        # Letters that wait for their turn in the rate, not for a connection, need none.
        paced = self._pump is not None and bool(self._ready)
        wanted = len(self._alone) + (0 if paced else len(self._waiting))
        while self._room() and len(self._opening) < min(wanted, max(1, len(self._ready))):
            task = self._loop.create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opened)
        if self._idle and self._must_make_room():
            self._let_go(self._idle.pop())

    async def _open(self) -> None:
        try:
            connection, _ = await open_connection(self.settings, self._contexts, self._make)
        except NotOpened as refused:
            self._refuse(refused.reply)
        else:
            self._admit(connection)

    def _opened(self, task: Task[None]) -> None:
        self._opening.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(
                Reply(stage="connect", name="unexpected", text=f"{type(error).__name__} while connecting")
            )
        self._grow()

    def _make(self) -> Connection:
        return Connection(self, self.settings.timeouts, self._loop)

    def _admit(self, connection: Connection) -> None:
        if self._closed:
            connection.abort("stopped")
            return
        if connection.gone:
            # Let in and thrown out at once: a "no" like any other, or it would be asked again without end.
            why = connection.why or "eof"
            self._refuse(Reply(stage="ehlo", name=why, text=SAYS.get(why, why)))
            return
        self._ready.add(connection)
        if self._watch is None:
            self._watch = self._loop.call_later(self._watch_seconds, self._look)
        connection.begin()

    def _refuse(self, reply: Reply) -> None:
        """No new connection. While others live the letters wait for those; else there is no use in waiting."""
        if not self._ready:
            self._fail(reply)
            return
        self._ceiling = max(1, len(self._ready))
        self._ceiling_until = self._loop.time() + CEILING_SECONDS
        if self._alone:
            self._alone.popleft().settle(reply)

    def _fail(self, reply: Reply) -> None:
        for line in (self._alone, self._waiting):
            while line:
                letter = line.popleft()
                if not letter.go.done():
                    letter.settle(reply)

    # ------------------------------------------------------------------------------- the line and its pace

    def _pop(self, line: deque[Letter]) -> Letter | None:
        while line:
            letter = line.popleft()
            if not letter.go.done():
                return letter
        return None

    def _may_go(self) -> bool:
        """Take one place in the rate, or ring when the next is free."""
        if not self._interval:
            return True
        now = self._loop.time()
        if self._next_at - now > BURST_SECONDS:
            if self._pump is None:
                self._pump = self._loop.call_later(self._next_at - now - BURST_SECONDS + 0.001, self._go_on)
            return False
        self._next_at = max(now, self._next_at) + self._interval
        return True

    def _go_on(self) -> None:
        self._pump = None
        while self._waiting and self._idle:
            connection = self._idle.pop()
            connection.begin()
            if connection in self._idle:
                break
        self._grow()

    # ------------------------------------------------------------------------------- growing old

    def _look(self) -> None:
        """The one timer: who waited too long for an answer, who stood idle too long."""
        now = self._loop.time()
        old = now - self.settings.idle_seconds
        for connection in [*self._ready, *self._leaving]:
            if connection.deadline <= now:
                connection.abort("timeout")
            else:
                connection.let_off_rider(now - self._ride_seconds)
        # The longest idle stand first.
        while self._idle and self._idle[0].idle_since <= old:
            self._let_go(self._idle.pop(0))
        self._watch = None
        if self._waiting or self._alone:
            self._grow()  # a relay that took no more connections may take them now
        if self._ready or self._leaving:
            self._watch = self._loop.call_later(self._watch_seconds, self._look)

    def _let_go(self, connection: Connection) -> None:
        self._ready.discard(connection)
        self._leaving.add(connection)
        connection.leave()

    async def close(self) -> None:
        self._closed = True
        for task in self._opening:
            task.cancel()
        self._fail(_CLOSED)
        idle, self._idle = self._idle, []
        for connection in idle:
            self._let_go(connection)
        for connection in [*self._ready]:
            connection.abort("stopped")
        everyone = [*self._ready, *self._leaving]
        ended = asyncio.gather(*self._opening, *(one.closed() for one in everyone), return_exceptions=True)
        try:
            async with asyncio.timeout(self.settings.timeouts.goodbye):
                await ended
        except TimeoutError:
            for connection in everyone:
                connection.abort("timeout")
            await asyncio.gather(*(one.closed() for one in everyone))
        for timer in (self._watch, self._pump):
            if timer is not None:
                timer.cancel()


_CLOSED = Reply(stage="connect", name="stopped", text="the transport was closed")
