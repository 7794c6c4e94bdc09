"""A connection that carries letters.

MAIL, RCPT… and DATA leave in one write where the server pipelines (RFC 2920). Under load the final dot and
the next letter's envelope leave in one write too: the *rider*. It is not committed, so that a connection lost
meanwhile costs it nothing: it goes on another one.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import Protocol

from staffetta import failpoints
from staffetta.mail.message import Reply
from staffetta.transport import wire
from staffetta.transport.smtp_letter import SMALL_BYTES, Letter
from staffetta.transport.smtp_line import NEVER, SAYS, Line
from staffetta.transport.smtp_settings import Timeouts
from staffetta.transport.wire import Heard


class Owner(Protocol):
    """Who hands letters to a connection, and takes them back."""

    def next_for(self, connection: Connection) -> Letter | None:
        """A letter that may go now, with nothing else on the connection."""

    def rider_for(self, connection: Connection) -> Letter | None:
        """A letter whose envelope may follow another's dot."""

    def idle(self, connection: Connection) -> None: ...

    def give_back(self, letter: Letter) -> None:
        """Nothing was handed over: it needs a connection of its own."""

    def lost(self, connection: Connection) -> None: ...


class Connection(Line):
    """A `Line` while it is opened; from `carry` on its answers belong to letters."""

    def __init__(self, owner: Owner, timeouts: Timeouts, loop: AbstractEventLoop) -> None:
        super().__init__(timeouts, loop)
        self.owner = owner
        self.carried = 0
        self.idle_since = NEVER
        self._carrying = False
        self._current: Letter | None = None
        self._rider: Letter | None = None
        self._rides_since = NEVER
        self._resetting = False
        self._last = False
        """The letter on it is the last: closed when that one is settled."""

    def data_received(self, data: bytes) -> None:
        if failpoints.armed:
            failpoints.reach("transport.read")
        if not self._carrying or self.gone:
            super().data_received(data)
            return
        for heard in self._reader.feed(data):
            self._hear(heard)
        self._wait_for_answer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        current, rider = self._current, self._rider
        self._current = self._rider = None
        if current is not None:
            self._lose(current)
        if rider is not None:
            self.owner.give_back(rider)
        self.owner.lost(self)

    # ------------------------------------------------------------------------------- taking letters

    def carry(self) -> None:
        """From now on answers belong to letters."""
        self._carrying = True

    def begin(self) -> None:
        """Free: take a letter, or stand idle."""
        self._turn(reset=False)

    @property
    def fresh(self) -> bool:
        return self.carried == 0

    def take(self, letter: Letter, prefix: bytes = b"") -> bool:
        """Begin a letter on a free connection. False: this server cannot be given it, it is settled already."""
        envelope = self._board(letter)
        if not envelope:
            return False
        self._current = letter
        self.idle_since = NEVER
        self.write(prefix + envelope if prefix else envelope)
        self.deadline = self.loop.time() + self.timeouts.mail
        return True

    def _board(self, letter: Letter) -> bytes:
        """What to write to begin it: the whole envelope, or its first command."""
        envelope = letter.envelope(self.features)
        if envelope:
            letter.connection = self
            self.carried += 1
            if not self.features.pipelining:
                first, *rest = envelope.splitlines(keepends=True)
                letter.commands = rest
                return first
        return envelope

    async def send_ahead(self, letter: Letter) -> None:
        """Write a large content in blocks before the mark is made, at the pace the other side takes it."""
        content = memoryview(letter.content)
        for start in range(0, len(content), SMALL_BYTES):
            if self.gone or letter.settled or letter.early is not None:
                return
            self.write(bytes(content[start : start + SMALL_BYTES]))
            if self._may_write is not None:
                self.deadline = self.loop.time() + self.timeouts.block
                await self._may_write
        self.deadline = NEVER
        letter.content = b""

    def finish(self, letter: Letter) -> None:
        """The mark is durable: write the rest and the dot, and begin the next letter in the same write."""
        if letter.early is not None or self.gone:
            letter.settle(
                letter.early or Reply(stage="data", name=self.why or "eof", text=SAYS[self.why or "eof"])
            )
            return
        letter.done = self.loop.create_future()
        letter.dot_sent = True
        rider = self.owner.rider_for(self) if self.features.pipelining and not self._last else None
        envelope = b""
        while rider is not None and not (envelope := self._board(rider)):
            rider = self.owner.rider_for(self)
        self._rider = rider
        self.write(b"".join((letter.content, wire.DOT, envelope)))
        letter.content = b""
        self._rides_since = now = self.loop.time()
        self.deadline = now + self.timeouts.dot

    def withdraw(self, letter: Letter) -> None:
        """The caller gave up. Before the dot the connection is of no use now; after it the answer is lost."""
        if letter is self._rider:
            self._rider = None
            self._last = True
        elif letter is self._current and not letter.dot_sent:
            self._current = None
            self.abort("stopped")

    def let_off_rider(self, since: float) -> None:
        """Whoever rides behind a dot that nobody has answered since then goes on another connection."""
        rider = self._rider
        if rider is not None and self._rides_since <= since:
            self._rider = None
            self._last = True
            self.owner.give_back(rider)

    def _hear(self, heard: Heard) -> None:
        letter = self._current
        if self.gone:
            return
        if self._resetting:
            self._hear_reset(heard)
        elif letter is None:
            # Nothing was asked: a farewell (421), or out of step. Either way it is over.
            self.abort("eof" if heard[0] == 421 else "protocol")
        elif letter.dot_sent:
            self._hear_dot(letter, heard)
        elif letter.at < letter.last and 200 <= heard[0] < 300:
            if letter.at:
                letter.accepted += 1
            letter.at += 1
            if letter.commands:
                self._say_next(letter)
        elif letter.at > letter.last:
            # It speaks while it should read: whatever it is, the dot must not follow.
            letter.early = wire.reply("data", heard)
            if letter.early.code and letter.early.code < 400:
                letter.early = Reply(
                    stage="data", name="protocol", text=f"spoke out of turn: {letter.early.text}"
                )
            self.abort("protocol")
        else:
            self._hear_no(letter, heard)

    def _hear_reset(self, heard: Heard) -> None:
        self._resetting = False
        if 200 <= heard[0] < 300:
            if self._current is None:
                self._turn(reset=False)
            return
        letter, self._current = self._current, None
        if letter is not None:
            self.owner.give_back(letter)
        self.abort("protocol")

    def _hear_no(self, letter: Letter, heard: Heard) -> None:
        """Any answer to MAIL and RCPT but a plain yes, and every answer to DATA."""
        code, at = heard[0], letter.at
        if code == 421 and at == 0 and self._was_on_its_way_out(letter):
            self.abort("eof")
            return
        if code == 421 or not code:
            self._end(letter, wire.reply(letter.stage, heard))
            self.abort("eof" if code else "protocol")
            return
        if _out_of_step(letter, code) and not letter.out_of_step_before:
            letter.out_of_step_before = True
            self._current = None
            self.owner.give_back(letter)
            self.abort("protocol")
            return
        letter.at += 1
        if at == letter.last:
            self._hear_data(letter, heard)
            return
        if at == 0:
            self._refuse_all(letter, wire.reply("mail", heard))
        else:
            index = letter.open[at - 1]
            if letter.answers[index] is None:
                letter.answers[index] = wire.reply("rcpt", heard)
        if letter.commands:
            self._say_next(letter)

    def _refuse_all(self, letter: Letter, reply: Reply) -> None:
        for index in letter.open:
            letter.answers[index] = reply

    def _say_next(self, letter: Letter) -> None:
        """Without pipelining: the next command, or none where all is refused."""
        refused_all = all(letter.answers[index] is not None for index in letter.open)
        if refused_all and letter.at in (1, letter.last):
            letter.commands = ()
            self._end(letter, _REFUSED_ALL)
            self._turn(reset=True)
        else:
            self.write(letter.commands[0])
            letter.commands = letter.commands[1:]

    def _hear_data(self, letter: Letter, heard: Heard) -> None:
        code = heard[0]
        if 300 <= code < 400:
            if letter.accepted and None in letter.answers:
                if not letter.go.done():
                    letter.go.set_result(None)
            elif letter.accepted:
                # It refused the sender and took recipients all the same: whatever it has now, it gets no dot.
                self._end(letter, _REFUSED_ALL)
                self.abort("protocol")
            else:
                # It wants the content although every recipient was refused: end it at once (RFC 2920 3.1).
                letter.dot_sent = True
                letter.done = None
                self.write(wire.DOT)
            return
        if code < 300:
            self._end(
                letter,
                Reply(
                    stage="data", name="protocol", text=f"{code} {wire.words(heard)[:200]} is no answer to DATA"
                ),
            )
            self.abort("protocol")
            return
        self._end(letter, wire.reply("data", heard))
        self._turn(reset=True)

    def _hear_dot(self, letter: Letter, heard: Heard) -> None:
        code = heard[0]
        if not letter.accepted:
            self._end(letter, _REFUSED_ALL)
        elif 300 <= code < 400:
            text = f"{code} {wire.words(heard)[:200]} is no answer to the final dot"
            self._end(letter, Reply(stage="dot", name="protocol", text=text, committed=True))
        else:
            self._end(letter, wire.reply("dot", heard, committed=True))
        if code == 421 or not 200 <= code < 600 or 300 <= code < 400:
            self.abort("eof" if code == 421 else "protocol")
        else:
            self._turn(reset=False)

    def _end(self, letter: Letter, reply: Reply) -> None:
        self._current = None
        letter.connection = None
        letter.settle(reply)

    def _turn(self, *, reset: bool) -> None:
        """The letter is settled: the rider's turn, or the next one's, or nobody's."""
        if self._rider is not None:
            assert not reset, "a rider follows a dot, and after a dot nothing is left to reset"
            self._current, self._rider = self._rider, None
            return
        if self._last:
            self.abort("stopped")
            return
        prefix = b""
        if reset:
            self._resetting = True
            prefix = b"RSET\r\n"
            if not self.features.pipelining:
                self.write(prefix)
                return
        while (letter := self.owner.next_for(self)) is not None:
            if self.take(letter, prefix):
                return
        if prefix:
            self.write(prefix)
        elif not self.gone:
            self.deadline = NEVER
            self.idle_since = self.loop.time()
            self.owner.idle(self)

    def _wait_for_answer(self) -> None:
        """One deadline for whatever answer is next; nothing where the next word is ours."""
        letter = self._current
        if letter is not None and not self._resetting:
            if letter.go.done() and not letter.dot_sent:
                self.deadline = NEVER
            else:
                self.deadline = self.loop.time() + getattr(self.timeouts, letter.stage)
        elif self._resetting:
            self.deadline = self.loop.time() + self.timeouts.goodbye

    # ------------------------------------------------------------------------------- the end

    def _lose(self, letter: Letter) -> None:
        """The line is dead under this letter."""
        letter.connection = None
        if letter.at == 0 and self.why in ("eof", "reset") and self._was_on_its_way_out(letter):
            return
        reply = Reply(
            stage=letter.stage, name=self.why, text=SAYS.get(self.why, self.why), committed=letter.dot_sent
        )
        if letter.dot_sent and not letter.accepted:
            reply = _REFUSED_ALL
        if letter.go.done() and not letter.dot_sent:
            letter.early = letter.early or reply
        else:
            letter.settle(reply)

    def _was_on_its_way_out(self, letter: Letter) -> bool:
        """A connection that had carried others ends at this one's MAIL: too old, too many, or idle too long.

        Nothing was said of the letter itself: it goes on a new connection, once.
        """
        if letter.lost_before or self.carried < 2:
            return False
        letter.lost_before = True
        self._current = None
        self.owner.give_back(letter)
        return True


_REFUSED_ALL = Reply(stage="rcpt", name="protocol", text="every recipient was refused")
"""Never seen outside: each recipient has an answer of its own by then."""


def _out_of_step(letter: Letter, code: int) -> bool:
    """503 or a stray 3yz where it is not just the echo of an earlier refusal (RFC 5321 4.1.4)."""
    if letter.at == letter.last:
        return code == 503 and letter.accepted > 0
    stray = code == 503 or 300 <= code < 400
    return stray and (letter.at == 0 or letter.answers[letter.open[letter.at - 1]] is None)
