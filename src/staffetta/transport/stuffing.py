"""What a message looks like between DATA and the final dot: CRLF line ends only, leading dots doubled.

A bare CR or LF on the wire is how messages are smuggled past a server that reads line ends another way; it
never leaves this house, whatever bytes are handed in.
"""

from __future__ import annotations

import re
from io import IncrementalNewlineDecoder

_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
LINE_MAX_BYTES = 998
"""Of one line, without its end. The second dot of a doubled one is not counted."""
_LOOK_BYTES = 65_536
"""Larger ones are counted in place rather than copied into text."""


def stuffed(message: bytes | memoryview) -> bytes:
    """The bytes to write before the final dot. Costs two looks where they are clean already."""
    data = with_line_ends(message)
    if b"\r\n." in data:
        data = data.replace(b"\r\n.", b"\r\n..")
    if data[:1] == b".":
        data = b"." + data
    return data if data[-2:] == b"\r\n" or not data else data + b"\r\n"


def with_line_ends(message: bytes | memoryview) -> bytes:
    """Every line end as CRLF, whichever it was."""
    data = message if isinstance(message, bytes) else bytes(message)
    return data if _only_crlf(data) else _ANY_LINE_END.sub(b"\r\n", data)


def _only_crlf(data: bytes) -> bool:
    """The decoder of newlines remembers the kinds it met: one look, where counting takes three."""
    if len(data) > _LOOK_BYTES:
        ends = data.count(b"\r\n")
        return data.count(b"\n") == ends and data.count(b"\r") == ends
    kinds = IncrementalNewlineDecoder(None, translate=False)
    kinds.decode(data.decode("latin-1"), final=True)
    return kinds.newlines in ("\r\n", None)


def too_long(content: bytes) -> bool:
    """True where a line has more than SMTP carries (RFC 5321 4.5.3.1.6). Looks once every thousand bytes."""
    start, size, most = 0, len(content), LINE_MAX_BYTES + 2
    while size - start > most:
        # The last line end in reach: the lines before it are short enough, all of them.
        end = content.rfind(b"\n", start, start + most)
        if end < 0 and content[start : start + 2] == b"..":
            end = content.find(b"\n", start + most, start + most + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def unstuffed(content: bytes) -> bytes:
    """The message that a server reads out of what stood before the final dot."""
    if content[:1] == b".":
        content = content[1:]
    return content.replace(b"\r\n.", b"\r\n") if b"\r\n." in content else content
