"""SMTP as bytes: replies taken apart, arguments checked, features read. Client and scripted sink share it.

Nothing here does I/O, and nothing a server says can make it grow without bound or raise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from staffetta.mail.message import Reply, Value

CRLF = b"\r\n"
DOT = b".\r\n"

Heard: TypeAlias = tuple[int, Sequence[bytes]]
"""One reply: its code, and its lines as they came, code included. Code 0: not a reply at all."""

LINE_MAX_BYTES = 8_192
"""Kept of one reply line; RFC 5321 4.5.3.1.5 promises 512. What is longer is read on and dropped."""
LINES_MAX = 128
"""Kept of one reply. EHLO answers some twenty."""
ADDRESS_MAX_BYTES = 900
"""More than any server must take, and a command around it still is a line that SMTP carries."""
REPLY_MAX_BYTES = 4 * 1024 * 1024
"""A reply that goes on past this is no reply: the other side is out of its mind or hostile."""

_CODES = {b"%d " % code: code for code in range(200, 600)}
_ENHANCED = re.compile(r"[245]\.\d{1,3}\.\d{1,3}(?=\s|$)")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f<>]")


class ReplyReader:
    """Takes the bytes as they come and gives whole replies. Holds at most a few kilobytes, whatever is sent."""

    __slots__ = ("_dropping", "_lines", "_rest", "_taken")

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._taken = 0
        self._dropping = False
        """Inside a line that was too long to keep: everything up to its end is dropped."""

    @property
    def begun(self) -> bool:
        """Something was read that is not a whole reply yet."""
        return bool(self._rest or self._lines)

    def feed(self, data: bytes) -> list[Heard]:
        """The replies that `data` completes, in order."""
        if self._rest or self._lines or len(data) > LINE_MAX_BYTES or data[-2:] != b"\r\n":
            return self._feed(data)
        lines = data[:-2].split(b"\r\n")
        try:
            heard: list[Heard] = [(_CODES[line[:4]], (line,)) for line in lines]
        except KeyError:
            # A line of several, no words at all, or nonsense.
            return self._feed(data)
        return heard if data.count(b"\n") == len(lines) else self._feed(data)

    def _feed(self, data: bytes) -> list[Heard]:
        heard: list[Heard] = []
        if self._dropping:
            end = data.find(b"\n")
            self._taken += len(data) if end < 0 else end
            if end < 0:
                self._check(heard)
                return heard
            self._dropping = False
            data = data[end:]
        lines = ((self._rest + data) if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        for raw in lines:
            line = raw[:LINE_MAX_BYTES].rstrip(b"\r")
            code = _CODES.get((line[:3] + b" ")[:4], 0)
            mark = line[3:4]
            if not code or mark not in (b" ", b"-", b""):
                self._forget()
                heard.append((0, (line,)))
            elif mark == b"-":
                self._taken += len(raw)
                if len(self._lines) < LINES_MAX:
                    self._lines.append(line)
                self._check(heard)
            else:
                heard.append((code, (*self._lines, line)))
                self._forget()
        if len(self._rest) > LINE_MAX_BYTES:
            self._taken += len(self._rest) - LINE_MAX_BYTES
            self._rest = self._rest[:LINE_MAX_BYTES]
            self._dropping = True
            self._check(heard)
        return heard

    def _check(self, heard: list[Heard]) -> None:
        if self._taken > REPLY_MAX_BYTES:
            self._forget()
            self._rest = b""
            heard.append((0, (b"a reply without end",)))

    def _forget(self) -> None:
        self._lines.clear()
        self._taken = 0


def reply(stage: str, heard: Heard, *, committed: bool = False) -> Reply:
    """What was heard, as a value: the server's words whole, printable, lines joined by a space."""
    code, lines = heard
    if not code:
        return Reply(
            stage=stage, name="protocol", committed=committed, text=f"not a reply: {_text(lines[0])[:512]}"
        )
    text = words(heard)
    enhanced = ""
    # "2.1.5 …": looked at by hand, for most replies are too short to be worth an expression.
    if text[1:2] == "." and (found := _ENHANCED.match(text)) is not None:
        enhanced = found.group()
        if len(lines) > 1:
            # Every line repeats the enhanced code; the words read as one sentence without the repeats.
            text = text.replace(f" {enhanced} ", " ")
    return Reply(stage=stage, code=code, enhanced=enhanced, text=text, committed=committed)


def words(heard: Heard) -> str:
    """What stands after the code."""
    lines = heard[1]
    return _text(lines[0][4:] if len(lines) == 1 else b" ".join([line[4:] for line in lines]))


def _text(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text).strip()


def unsafe(argument: str) -> bool:
    """True for what must never stand in a command: it could end the line, or the path."""
    return _UNSAFE.search(argument) is not None


def address_fault(address: str) -> str:
    """Why this address must not be put into a command; empty where nothing speaks against it."""
    if unsafe(address):
        return "it contains control characters or angle brackets"
    try:
        return "it is longer than any server must take" if len(address.encode()) > ADDRESS_MAX_BYTES else ""
    except UnicodeEncodeError:
        return "it cannot be written as UTF-8"


def ascii_domain(address: str) -> str | None:
    """The address with its domain as A-labels (RFC 5890), or None where that would name another domain."""
    local, at, domain = address.rpartition("@")
    if not at or not local.isascii():
        return None
    try:
        encoded = domain.encode("idna")
        # The 2003 rules fold some letters into others (ß into ss): then it would be another's domain.
        if encoded.decode("idna") != domain.lower():
            return None
    except UnicodeError:
        return None
    return f"{local}@{encoded.decode('ascii')}"


class Features(Value, frozen=True, kw_only=True):
    """What a server said it can do, in its last answer to EHLO."""

    pipelining: bool = False
    eight_bit: bool = False
    utf8: bool = False
    starttls: bool = False
    size_offered: bool = False
    size_max: int = 0
    """0: no limit named."""
    mechanisms: frozenset[str] = frozenset()


def features(lines: Sequence[bytes]) -> Features:
    """Read the answer to EHLO. Unknown words are skipped; the first line is the server's greeting."""
    words: dict[str, list[str]] = {}
    for line in lines[1:]:
        keyword, *rest = line[4:].decode("ascii", "replace").upper().replace("AUTH=", "AUTH ").split() or [""]
        words.setdefault(keyword, []).extend(rest)
    size = words.get("SIZE", [])
    return Features(
        pipelining="PIPELINING" in words,
        eight_bit="8BITMIME" in words,
        utf8="SMTPUTF8" in words,
        starttls="STARTTLS" in words,
        size_offered="SIZE" in words,
        size_max=int(size[0]) if size and size[0].isascii() and size[0].isdigit() and len(size[0]) < 19 else 0,
        mechanisms=frozenset(words.get("AUTH", ())),
    )
