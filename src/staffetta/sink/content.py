"""Finds the final dot, in whatever pieces the content comes; strictly, or as a careless server would."""

from __future__ import annotations

import re

_END = b"\r\n.\r\n"
_ANY_END = re.compile(rb"(?:\r\n|\r|\n)\.(?:\r\n|\n|\r(?!\Z))")


class ContentReader:
    """For one message. `lenient` takes any line end around a dot for the end: what smuggling lives on."""

    __slots__ = ("_lenient", "_parts", "_tail", "size")

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient
        self._parts: list[bytes] = []
        self._tail = b"\r\n"
        """The last bytes of the piece before: the end may stand across the border. At first DATA's own."""
        self.size = 0

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The content (still stuffed) and what follows it, or None: more must come."""
        self.size += len(data)
        data = self._tail + data
        if self._lenient:
            match = _ANY_END.search(data)
            start, end = match.span() if match is not None else (-1, -1)
        else:
            start = data.find(_END)
            end = start + len(_END)
        if start < 0:
            self._parts.append(data[:-4])
            self._tail = data[-4:]
            return None
        content = data[: start + 2] if data[start : start + 2] == b"\r\n" else data[:start] + b"\r\n"
        if self._parts:
            content = b"".join((*self._parts, content))
        return content[2:], data[end:]


def bare(content: bytes) -> bool:
    """True where a CR or LF stands alone."""
    ends = content.count(b"\r\n")
    return content.count(b"\n") != ends or content.count(b"\r") != ends
