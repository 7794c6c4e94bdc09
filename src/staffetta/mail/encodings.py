"""Bodies as ASCII lines: quoted-printable where most can be read as it is, base64 for the rest (RFC 2045).

Whatever goes in, what comes out has CRLF line ends only, no line over 76 characters and only ASCII.
"""

from __future__ import annotations

from binascii import b2a_base64

LINE = 76

_PLAIN = bytes([0x09, 0x0A, *range(0x20, 0x3D), 0x3E, *range(0x3F, 0x7F)])
"""Bytes that stand for themselves in quoted-printable; a lone LF is a line's end until the lines are joined."""
_EQUALS = 0x3D
_ESCAPES = [(bytes([byte]), b"=%02X" % byte) for byte in range(256)]
_WHITE = (b" ", b"\t")
_DIFFERENT_MAX = 32
"""Each different byte that needs an escape costs one pass over the text; more of them are no Latin text."""


def text_body(text: str, *, last: bool) -> tuple[str, bytes]:
    """How a text is encoded, and the encoded lines, each with its CRLF, whichever line ends the text came with.

    `last`: nothing follows, so that the last CRLF belongs to the text; elsewhere it belongs to the boundary.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    data = text.encode("utf-8")
    unusual = data.translate(None, _PLAIN)
    if unusual:
        others = unusual.replace(b"=", b"")
        different = set(others)
        if len(unusual) * 6 > len(data) or len(different) > _DIFFERENT_MAX:
            return "base64", base64_lines(data.replace(b"\n", b"\r\n"))
        # "=" first, for the others bring new ones. Few different bytes are unusual: this is fast.
        if len(others) < len(unusual):
            data = data.replace(b"=", b"=3D")
        for byte in different:
            data = data.replace(*_ESCAPES[byte])
    return "quoted-printable", _lines(data, last=last)


def base64_lines(data: bytes) -> bytes:
    encoded = b2a_base64(data, newline=False)
    return b"".join([encoded[start : start + LINE] + b"\r\n" for start in range(0, len(encoded), LINE)])


def _lines(data: bytes, *, last: bool) -> bytes:
    """Escaped text cut into lines that may stand in a message."""
    open_end = last and data != b"" and data[-1:] != b"\n"
    if not last or open_end:
        data += b"\n"
    lines = data.split(b"\n")
    if [*map(bytes.rstrip, lines)] != lines:
        lines = [_guarded(line) if line[-1:] in _WHITE else line for line in lines]
    if max(map(len, lines)) >= LINE:
        lines = [_folded(line) if len(line) >= LINE else line for line in lines]
    data = b"\r\n".join(lines)
    # A soft line break at the very end: this text ends without a line end of its own.
    return data[:-2] + b"=\r\n" if open_end else data


def _guarded(line: bytes) -> bytes:
    """White space at a line's end is lost on the way, unless it is escaped."""
    return line[:-1] + _ESCAPES[line[-1]][1]


def _folded(line: bytes) -> bytes:
    """Soft line breaks, none of them inside an escape."""
    pieces, start = [], 0
    while len(line) - start >= LINE:
        end = start + LINE - 1
        if line[end - 1] == _EQUALS:
            end -= 1
        elif line[end - 2] == _EQUALS:
            end -= 2
        pieces.append(line[start:end])
        start = end
    pieces.append(line[start:])
    return b"=\r\n".join(pieces)
