"""One e-mail on its way through a connection: its commands, the answers so far, and who waits for them.

    waiting -> MAIL, RCPT…, DATA written -> all answers read: go -> (the caller marks it) -> dot -> settled

Until the dot is written a letter can be taken off a lost connection and put on another: nothing is out yet.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Sequence
from typing import TYPE_CHECKING

from staffetta.mail.message import Delivery, RecipientReply, Reply
from staffetta.transport import stuffing, wire
from staffetta.transport.wire import Features

if TYPE_CHECKING:
    from staffetta.transport.smtp_connection import Connection

SMALL_BYTES = 65_536
"""Up to here the content leaves in the same write as the dot; larger ones go ahead in blocks."""


class Letter:
    """Held by the sending coroutine; a pool and a connection pass it around."""

    at = 0
    """Answers read: MAIL is 0, then each of `open`, then DATA."""
    last = 0
    """Which answer DATA's is."""
    accepted = 0
    commands: Sequence[bytes] = ()
    """Where the server does not pipeline: those not written yet, the next one first."""
    connection: Connection | None = None
    done: Future[None] | None = None
    dot_sent = False
    settled = False
    withdrawn = False
    early: Reply | None = None
    """What happened to the connection while the caller made its mark."""
    lost_before = False
    out_of_step_before = False

    def __init__(
        self, loop: AbstractEventLoop, sender: str, recipients: Sequence[str], message: bytes | memoryview
    ) -> None:
        self.sender = sender
        self.recipients = recipients
        self.content = content = stuffing.stuffed(message)
        self.size = size = len(message)
        """As the server will count it: with whole line ends, without doubled dots (RFC 1870 5)."""
        if len(content) != size:
            self.size = len(stuffing.unstuffed(content))
        self.answers: list[Reply | None] = [None] * len(recipients)
        """What settled each recipient so far. None: accepted, or not asked yet."""
        self.open: list[int] = []
        """The recipients that this connection is asked about."""
        self.go: Future[None] = loop.create_future()
        """Done when the server waits for the content, or when all is settled without it."""

    @property
    def stage(self) -> str:
        """Of the answer that is awaited now."""
        if self.at == 0:
            return "mail"
        if self.at < self.last:
            return "rcpt"
        return "dot" if self.dot_sent else "data"

    def envelope(self, features: Features) -> bytes:
        """MAIL, RCPT… and DATA in one piece; empty where this server can take none of it: then settled."""
        guarded = not self.content.isascii()
        refusal = self._refusal(features, guarded=guarded)
        if refusal is not None:
            self.settle(refusal)
            return b""
        utf8 = guarded and _utf8_header(self.content)
        paths = [self.sender, *self.recipients]
        together = "".join(paths)
        clean = together.isascii()
        if not (clean and len(together) <= wire.ADDRESS_MAX_BYTES and all(self.recipients)) or wire.unsafe(
            together
        ):
            self._refuse_faulty()
        if not clean:
            paths, utf8 = self._foreign(features, utf8=utf8)
        if utf8 and not features.utf8:
            self.settle(_no_utf8("the message's header"))
        answers = self.answers
        self.open = [index for index, answer in enumerate(answers) if answer is None]
        if not self.open:
            self.settle(_NOBODY)
            return b""
        self.last = len(self.open) + 1
        size = f" SIZE={self.size}" if features.size_offered else ""
        body = " BODY=8BITMIME" if guarded and features.eight_bit else ""
        wide = " SMTPUTF8" if utf8 else ""
        rcpt = "".join([f"RCPT TO:<{paths[index + 1]}>\r\n" for index in self.open])
        return f"MAIL FROM:<{paths[0]}>{size}{body}{wide}\r\n{rcpt}DATA\r\n".encode()

    def _refusal(self, features: Features, *, guarded: bool) -> Reply | None:
        """What can be told of the message before a word is said."""
        if features.size_max and self.size > features.size_max:
            text = f"the message has {self.size} bytes, the server takes at most {features.size_max}"
            return Reply(stage="mail", name="too-large", text=text)
        if stuffing.too_long(self.content):
            text = f"a line of the message has more than the {stuffing.LINE_MAX_BYTES} bytes that SMTP carries"
            return Reply(stage="mail", name="too-large", text=text)
        if guarded and not (features.eight_bit or features.utf8):
            text = "the message has 8-bit content and the server does not offer 8BITMIME"
            return Reply(stage="mail", name="utf8-unsupported", text=text)
        return None

    def _refuse_faulty(self) -> None:
        """Some address must not be put into a command: the sender's refuses all, a recipient's only itself."""
        fault = wire.address_fault(self.sender)
        if fault:
            text = f"the sender's address was not used: {fault}"
            self.settle(Reply(stage="mail", name="bad-address", text=text))
        for index, address in enumerate(self.recipients):
            fault = wire.address_fault(address) if address else "it is empty"
            if fault and self.answers[index] is None:
                text = f"this address was not used: {fault}"
                self.answers[index] = Reply(stage="rcpt", name="bad-address", text=text)

    def _foreign(self, features: Features, *, utf8: bool) -> tuple[list[str], bool]:
        """Addresses beyond ASCII: as they are where the server takes them, else with the domain as A-label."""
        paths = [self.sender, *self.recipients]
        if features.utf8:
            return paths, True
        for index, path in enumerate(paths):
            if path.isascii():
                continue
            plain = wire.ascii_domain(path)
            if plain is not None:
                paths[index] = plain
            elif index == 0:
                return paths, True
            elif self.answers[index - 1] is None:
                self.answers[index - 1] = _no_utf8("this address", stage="rcpt")
        return paths, utf8

    def again(self) -> None:
        """Off a lost connection, before anything was handed over: as new."""
        self.connection = None
        self.at = self.accepted = 0
        self.open = []
        self.commands = ()
        self.answers = [None] * len(self.recipients)

    def settle(self, reply: Reply) -> None:
        """`reply` settles all recipients that have no answer of their own."""
        answers = self.answers
        if len(answers) == 1:
            if answers[0] is None:
                answers[0] = reply
        else:
            self.answers = [reply if answer is None else answer for answer in answers]
        self.settled = True
        self.content = b""
        if not self.go.done():
            self.go.set_result(None)
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def delivery(self, transport: str, *, committed: bool) -> Delivery:
        answers = self.answers
        if len(answers) == 1 and (only := answers[0]) is not None:
            replies: tuple[RecipientReply, ...] = (RecipientReply(address=self.recipients[0], reply=only),)
        else:
            replies = tuple(
                [
                    RecipientReply(address=address, reply=answer)
                    for address, answer in zip(self.recipients, answers, strict=True)
                    if answer is not None
                ]
            )
        return Delivery(transport=transport, replies=replies, committed=committed)


_NOBODY = Reply(stage="rcpt", name="bad-address", text="no recipient is left to ask for")


def _no_utf8(what: str, *, stage: str = "mail") -> Reply:
    return Reply(
        stage=stage, name="utf8-unsupported", text=f"{what} needs SMTPUTF8, which the server does not offer"
    )


def _utf8_header(content: bytes) -> bool:
    """Raw non-ASCII in the header needs SMTPUTF8 (RFC 6532); in the body 8BITMIME is enough."""
    end = content.find(b"\r\n\r\n")
    return not (content[:end] if end >= 0 else content).isascii()
