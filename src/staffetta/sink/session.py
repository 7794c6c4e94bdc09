"""One client at the sink: reads commands and content in whatever pieces they come."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from staffetta.sink.answering import Answering
from staffetta.sink.content import ContentReader, bare
from staffetta.sink.script import Rule
from staffetta.transport import stuffing

if TYPE_CHECKING:
    from staffetta.sink.server import SinkServer

COMMAND_MAX_BYTES = 16_384
MESSAGE_MAX_BYTES = 256 * 1024 * 1024
_PATH = re.compile(rb"^[A-Za-z]+ (?:FROM|TO):[ ]?<([^<>]*)>(.*)$", re.IGNORECASE | re.DOTALL)

_OK = b"250 2.0.0 Ok\r\n"
_SENDER_OK = b"250 2.1.0 Ok\r\n"
_RECIPIENT_OK = b"250 2.1.5 Ok\r\n"
_LEAVING = b"421 4.3.2 Shutting down, come back later\r\n"
_GO_AHEAD = b"354 End data with <CR><LF>.<CR><LF>\r\n"


class Session(Answering):
    """Commands are handled strictly one after the other; while a delayed answer is due the rest waits."""

    def __init__(self, server: SinkServer, number: int) -> None:
        super().__init__(server, number)
        self.tls = server.implicit_tls
        self.greeted = False
        self.user = ""
        self.refused = 0
        self._buffer = b""
        self._content: ContentReader | None = None
        self._fault: Rule | None = None
        """What is to happen in the middle of the content."""
        self._watched = server.watching
        self._secret: Callable[[bytes], None] | None = None
        """Who reads the next line, where it is no command (AUTH)."""
        self._user_said = ""
        self._verbs: dict[bytes, Callable[[bytes], None]] = {
            b"MAIL": self._mail,
            b"RCPT": self._rcpt,
            b"DATA": self._data,
            b"EHLO": self._ehlo,
            b"HELO": self._helo,
            b"RSET": self._rset,
            b"NOOP": lambda _: self._say("noop", _OK),
            b"QUIT": self._quit,
            b"STAR": self._starttls,
            b"AUTH": self._auth,
        }

    # ------------------------------------------------------------------------------- what asyncio tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.server.joined(self)
        self._say("connect", f"220 {self.server.script.host_name} ESMTP sink\r\n".encode())
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._watched:
            self.server.heard(self, data)
        self._buffer = self._buffer + data if self._buffer else data
        if not self._paused:
            self._work()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._ended = True
        self.server.left(self)

    def dismiss(self) -> None:
        """The server leaves: who is between two messages hears it now, the others at their next MAIL."""
        if self.sender is None and not self._paused and not self._ended:
            self._out.append(_LEAVING)
            self._end()

    # ------------------------------------------------------------------------------- reading

    def _work(self) -> None:
        while not (self._paused or self._ended):
            if self._content is not None:
                if not self._read_content():
                    break
                continue
            end = self._buffer.find(b"\n")
            if end < 0:
                if len(self._buffer) > COMMAND_MAX_BYTES:
                    self._broken("a command line without end")
                    self._buffer = b""
                break
            line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
            self._command(line)
        self._flush()

    def _command(self, line: bytes) -> None:
        if line[-1:] != b"\r" or b"\r" in line[:-1]:
            self._broken("a command line that does not end in CRLF")
        line = line.rstrip(b"\r")
        if self._watched:
            self.server.commanded(line)
        if self._secret is not None:
            reader, self._secret = self._secret, None
            reader(line)
            return
        verb = self._verbs.get(line[:4].upper())
        if verb is None:
            self._out.append(b"500 5.5.2 Command not recognised\r\n")
        else:
            verb(line)

    def _broken(self, what: str) -> None:
        self.server.broke(self, what)

    # ------------------------------------------------------------------------------- greeting

    def _ehlo(self, line: bytes) -> None:
        self._forget()
        script = self.server.script
        offers = list(script.extensions)
        if script.size_max:
            offers.append(f"SIZE {script.size_max}")
        else:
            offers.append("SIZE")
        if self.server.tls_offered and not self.tls:
            offers.append("STARTTLS")
        if script.credentials:
            offers.append("AUTH " + " ".join(script.mechanisms))
        lines = [script.host_name, *offers]
        self.greeted = bool(line[5:].strip())
        usual = "".join(f"250-{one}\r\n" for one in lines[:-1]) + f"250 {lines[-1]}\r\n"
        self._say("ehlo", usual.encode() if self.greeted else b"501 5.5.4 Syntax: EHLO hostname\r\n")

    def _helo(self, line: bytes) -> None:
        self._forget()
        self.greeted = bool(line[5:].strip())
        self._say("ehlo", f"250 {self.server.script.host_name}\r\n".encode())

    def _starttls(self, line: bytes) -> None:
        del line
        if not self.server.tls_offered or self.tls:
            self._out.append(b"502 5.5.1 STARTTLS is not offered\r\n")
            return
        if self._buffer:
            self._broken("bytes in clear follow STARTTLS")
            self._buffer = b""
        rule = self._rule("starttls")
        usual = b"220 2.0.0 Ready to start TLS\r\n"
        if rule is None:
            self._out.append(usual)
            self._secure(220)
        else:
            self._act(rule, usual, None if rule.clear else self._secure)

    def _secure(self, code: int) -> None:
        if code != 220:
            return
        self._flush()
        self._paused = True
        self.server.begin(self._shake_hands())

    async def _shake_hands(self) -> None:
        context = self.server.ssl_context
        assert context is not None
        assert self.transport is not None
        clear = self.transport
        # All that was said in clear is forgotten (RFC 3207 4.2); what comes from here on came under TLS, and the
        # client's first words may come with the end of the handshake.
        self._buffer, self.greeted, self.tls = b"", False, True
        self._forget()
        try:
            secured = await asyncio.get_running_loop().start_tls(clear, self, context, server_side=True)
        except (OSError, ssl.SSLError):
            clear.abort()
            return
        if secured is None:
            return
        self.transport = secured
        self._paused = False
        self._work()

    def _auth(self, line: bytes) -> None:
        script = self.server.script
        words = line.split()
        mechanism = words[1].upper().decode("ascii", "replace") if len(words) > 1 else ""
        if not script.credentials or mechanism not in script.mechanisms:
            self._say("auth", b"504 5.5.4 Unrecognised authentication type\r\n")
        elif mechanism == "PLAIN":
            if len(words) > 2:
                self._plain(words[2])
            else:
                self._secret = self._plain
                self._out.append(b"334 \r\n")
        else:
            self._secret = self._login_user
            self._out.append(b"334 VXNlcm5hbWU6\r\n")

    def _plain(self, token: bytes) -> None:
        _, _, rest = _unbase64(token).partition("\0")
        user, _, password = rest.partition("\0")
        self._signed(user, password)

    def _login_user(self, token: bytes) -> None:
        self._user_said = _unbase64(token)
        self._secret = lambda line: self._signed(self._user_said, _unbase64(line))
        self._out.append(b"334 UGFzc3dvcmQ6\r\n")

    def _signed(self, user: str, password: str) -> None:
        good = self.server.script.credentials.get(user) == password

        def then(code: int) -> None:
            self.user = user if 200 <= code < 300 else ""

        self._say(
            "auth",
            b"235 2.7.0 Authentication successful\r\n" if good else b"535 5.7.8 Authentication failed\r\n",
            then,
        )

    # ------------------------------------------------------------------------------- the envelope

    def _mail(self, line: bytes) -> None:
        script = self.server.script
        found = _PATH.match(line)
        if self.server.leaving:
            self._out.append(_LEAVING)
            self._end()
        elif script.auth_required and not self.user:
            self._out.append(b"530 5.7.0 Authentication required\r\n")
        elif not self.greeted:
            self._out.append(b"503 5.5.1 Say EHLO first\r\n")
        elif self.sender is not None:
            self._out.append(b"503 5.5.1 Nested MAIL\r\n")
        elif found is None:
            self._broken("MAIL with a path that is none")
            self._out.append(b"501 5.1.7 Bad sender address syntax\r\n")
        elif script.size_max and (size := _size(found[2])) and size > script.size_max:
            self._out.append(b"552 5.3.4 Message too big\r\n")
        else:
            self.sender = found[1].decode("utf-8", "replace")
            self._say("mail", _SENDER_OK, self._mailed)

    def _mailed(self, code: int) -> None:
        if not 200 <= code < 300:
            self.sender = None

    def _rcpt(self, line: bytes) -> None:
        if self.sender is None:
            self._out.append(b"503 5.5.1 Need MAIL before RCPT\r\n")
            return
        found = _PATH.match(line)
        if found is None or not found[1]:
            self._broken("RCPT with a path that is none")
            self._out.append(b"501 5.1.3 Bad recipient address syntax\r\n")
            return
        self.recipients.append(found[1].decode("utf-8", "replace"))
        if "rcpt" in self._scripted:
            self._say("rcpt", _RECIPIENT_OK, self._asked)
        else:
            self._out.append(_RECIPIENT_OK)

    def _asked(self, code: int) -> None:
        if not 200 <= code < 300:
            self.recipients.pop()
            self.refused += 1

    def _data(self, line: bytes) -> None:
        del line
        if not self.recipients and not (self.refused and self.server.script.data_without_recipients):
            why = (
                b"554 5.5.1 No valid recipients\r\n" if self.refused else b"503 5.5.1 Need RCPT before DATA\r\n"
            )
            self._out.append(why)
            return
        self._say("data", _GO_AHEAD, self._listen)

    def _listen(self, code: int) -> None:
        if code == 354:
            if self._buffer:
                self._broken("content before the answer to DATA")
            self._content = ContentReader(lenient=self.server.script.line_ends == "lenient")
            self._fault = self._rule("content")

    def _forget(self) -> None:
        self.sender = None
        self.recipients = []
        self.refused = 0

    def _rset(self, line: bytes) -> None:
        del line
        self._forget()
        self._say("rset", _OK)

    def _quit(self, line: bytes) -> None:
        del line
        self._say("quit", b"221 2.0.0 Bye\r\n", lambda _: self._end())

    # ------------------------------------------------------------------------------- the content

    def _read_content(self) -> bool:
        """Take what is there up to the final dot. False: more must come first."""
        reader = self._content
        assert reader is not None
        fault = self._fault
        if fault is not None and reader.size + len(self._buffer) >= fault.after_bytes and self._buffer:
            self._fault = None
            self._act(fault, b"", None)
            return True
        if not self._buffer:
            return False
        found = reader.feed(self._buffer)
        self._buffer = b""
        if found is None:
            if reader.size > MESSAGE_MAX_BYTES:
                self._broken("a message without end")
                self._end()
            return False
        self._content = None
        content, self._buffer = found
        self._take(content)
        return True

    def _take(self, content: bytes) -> None:
        """The final dot was read."""
        if self.server.script.line_ends == "strict" and bare(content):
            self._broken("bare CR or LF in the content")
            self._out.append(b"554 5.6.0 Bare CR or LF\r\n")
            self._forget()
            return
        if not self.recipients:
            self._out.append(b"554 5.5.1 No valid recipients\r\n")
            self._forget()
            return
        message = stuffing.unstuffed(content)
        script = self.server.script
        if script.size_max and len(message) > script.size_max:
            self._out.append(b"552 5.3.4 Message too big\r\n")
            self._forget()
            return
        rule = self._rule("dot")
        usual = self.server.taken_reply()
        if rule is None:
            self._keep(message)
            self._out.append(usual)
            self._forget()
            return
        says_yes = (rule.bytes() is None and not (rule.disconnect or rule.reset or rule.stall)) or (
            200 <= rule.code < 300
        )
        if rule.accept if rule.accept is not None else says_yes:
            self._keep(message)
            self.server.record.write()
        self._act(rule, usual, lambda _: self._forget())

    def _keep(self, message: bytes) -> None:
        self.server.keep(self, self.sender or "", tuple(self.recipients), message)


def _size(parameters: bytes) -> int:
    for word in parameters.upper().split():
        if word.startswith(b"SIZE=") and word[5:].isdigit():
            return int(word[5:])
    return 0


def _unbase64(token: bytes) -> str:
    try:
        return base64.b64decode(token, validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return ""
