"""How the sink answers: as its script says at each stage, else as usual; late, in pieces, or never."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from staffetta.sink.script import Rule

if TYPE_CHECKING:
    from staffetta.sink.server import SinkServer


class Answering(asyncio.Protocol):
    """Half of a session: what goes out. While a delayed answer is due, what comes in waits."""

    def __init__(self, server: SinkServer, number: int) -> None:
        self.server = server
        self.play = server.play
        self.number = number
        self.transport: asyncio.Transport | None = None
        self.sender: str | None = None
        self.recipients: list[str] = []
        self._out: list[bytes] = []
        self._scripted = frozenset(server.play.stages)
        self._paused = False
        """A delayed or missing answer stands before whatever comes."""
        self._ended = False

    def _work(self) -> None:
        """Go on reading. The other half's."""
        raise NotImplementedError

    def _say(self, stage: str, usual: bytes, then: Callable[[int], None] | None = None) -> None:
        """Answer at a stage: as the script says, else the usual. `then` hears the code once it is said."""
        rule = self._rule(stage)
        if rule is None:
            self._out.append(usual)
            if then is not None:
                then(int(usual[:3]))
            return
        self._act(rule, usual, then)

    def _rule(self, stage: str) -> Rule | None:
        if stage not in self._scripted:
            return None
        asked = self.recipients[-1:] if stage == "rcpt" else self.recipients
        return self.play.rule_for(
            stage, sender=self.sender or "", recipients=asked, connection=str(self.number)
        )

    def _act(self, rule: Rule, usual: bytes, then: Callable[[int], None] | None) -> None:
        own = rule.bytes()
        silent = own is None and (rule.disconnect or rule.reset or rule.stall)
        answer = b"" if silent else (usual if own is None else own)
        code = int(answer[:3]) if answer[:3].isdigit() else 0

        def after() -> None:
            if then is not None:
                then(code)
            if rule.reset or rule.disconnect:
                self._end(reset=rule.reset)

        def done() -> None:
            if answer:
                self._out.append(answer)
            if rule.chunk_bytes:
                self._drip(rule.chunk_bytes, after)
            else:
                after()

        if rule.stall:
            self._paused = True
        elif rule.delay_ms:
            self._later(rule.delay_ms / 1000, done)
        else:
            done()

    def _later(self, seconds: float, done: Callable[[], None]) -> None:
        """Go on after a while. What was said before goes out now."""
        self._flush()
        self._paused = True

        def go_on() -> None:
            if self._ended:
                return
            self._paused = False
            done()
            self._work()

        self.server.later(seconds, go_on)

    def _drip(self, size: int, after: Callable[[], None]) -> None:
        """All that waits to go out, in pieces: each in a turn of its own, so that they arrive apart."""
        data = b"".join(self._out)
        self._out.clear()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        self._paused = True

        def next_piece() -> None:
            if self._ended or self.transport is None:
                return
            if pieces:
                self.server.record.write()
                self.transport.write(pieces.pop(0))
                self.server.later(0, next_piece)
                return
            self._paused = False
            after()
            self._work()

        next_piece()

    def _flush(self) -> None:
        if self._out and self.transport is not None:
            # The log first: an answer that was heard is in it, whatever happens next.
            self.server.record.write()
            self.transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
            self._out.clear()

    def _end(self, *, reset: bool = False) -> None:
        self._flush()
        self._ended = True
        transport = self.transport
        if transport is None:
            return
        if reset:
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()
