"""Header lines: what text may stand in one, and how it is written so that every reader finds the same text.

RFC 5322 (lines), 2047 (encoded words), 2231 (file names), 6532 (only for addresses that need it).
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Sequence
from email.base64mime import decode as decode_base64
from email.quoprimime import header_decode
from urllib.parse import quote

from staffetta.mail.message import Value

LINE = 76
"""Where lines are folded (RFC 2047 asks for it wherever a line has encoded words)."""
LINE_MAX = 998
"""What RFC 5322 allows at most; a single word may be this long."""
_FOLD = "\r\n "
_WORD_BYTES = 45
"""As many as fit into an encoded word of 75 characters."""
_RUN_BYTES = 600

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ENCODED_WORD = re.compile(r"=\?([^?\s]{1,80})\?([bBqQ])\?([^?]*)\?=")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+^_`{|}~.-]+")


class Mailbox(Value, frozen=True, kw_only=True):
    """Somebody's address, and the name to show for it."""

    address: str
    """As the envelope says it: the domain in ASCII (A-labels), the local part as it is."""
    name: str = ""


# ------------------------------------------------------------ what may stand in one


def control_in(text: str) -> str:
    """The first character that no header may hold, encoded words decoded or not; empty: there is none."""
    found = None if text.isascii() and text.isprintable() else _CONTROL.search(text)
    if found is not None:
        return f"U+{ord(found.group()):04X}"
    return _encoded_control(text) if "=?" in text else ""


def _encoded_control(text: str) -> str:
    """A control character that hides in an encoded word: some readers decode before they look."""
    for charset, encoding, payload in _ENCODED_WORD.findall(text):
        try:
            data = (
                decode_base64(payload)
                if encoding in "bB"
                else header_decode(payload).encode("latin-1", "ignore")
            )
        except ValueError:
            continue  # not decodable: nobody reads anything in it
        hidden = _CONTROL.search(data.decode("ascii", "ignore"))
        if hidden is None:
            try:
                hidden = _CONTROL.search(data.decode(charset, "replace"))
            except (LookupError, ValueError):
                continue  # a charset that nobody here knows
        if hidden is not None:
            return f"U+{ord(hidden.group()):04X} inside an encoded word"
    return ""


# ------------------------------------------------------------ how it is written


def unstructured(name: str, text: str) -> str:
    """`Name: text` with its line ends, folded where it is long."""
    if len(name) + 2 + len(text) <= LINE and text.isascii() and "=?" not in text and text == text.strip():
        return f"{name}: {text}\r\n" if text else f"{name}:\r\n"
    return _long(name, text)


def _long(name: str, text: str) -> str:
    words = text.split(" ")
    plain = text.isascii() and "=?" not in text and "" not in words
    if not plain or max(map(len, words)) > LINE_MAX - len(name) - 2:
        return f"{name}: {encoded_words(text, room=LINE - len(name) - 2)}\r\n"
    lines, line = [], f"{name}: {words[0]}"
    for word in words[1:]:
        if len(line) + 1 + len(word) > LINE:
            lines.append(line)
            line = ""
        line = f"{line} {word}"
    return "\r\n".join((*lines, line)) + "\r\n"


def encoded_words(text: str, *, room: int) -> str:
    """RFC 2047 words, folded; `room` is left on the first line. No character is cut in two."""
    data = text.encode("utf-8")
    words: list[str] = []
    start = 0
    size = max((room - 12) // 4 * 3, 12)
    while start < len(data):
        end = start + size
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        words.append(_encoded_word(data[start:end]))
        start, size = end, _WORD_BYTES
    return _FOLD.join(words)


def _encoded_word(data: bytes) -> str:
    return f"=?utf-8?b?{b2a_base64(data, newline=False).decode('ascii')}?="


def _encoded_phrase(text: str) -> list[str]:
    """A display name that needs encoding, cut where a line may be folded.

    Two encoded words never stand side by side: readers differ on whether the space between them counts in a
    name (Python's own did until 3.13). So plain words stay plain, and what stands between them is one word, in
    the rare case over the 75 characters of RFC 2047, for that harms fewer readers than a space too many.
    """
    data = text.encode("utf-8")
    if len(data) <= _WORD_BYTES:
        return [_encoded_word(data)]
    pieces: list[str] = []
    run: list[str] = []
    for word in text.split(" "):
        if _ATOMS.fullmatch(word) and "=?" not in word:
            if run:
                pieces.append(_encoded_run(run))
                run = []
            pieces.append(word)
        else:
            run.append(word)
    if run:
        pieces.append(_encoded_run(run))
    return pieces


def _encoded_run(words: list[str]) -> str:
    data = " ".join(words).encode("utf-8")
    return _encoded_word(data) if len(data) <= _RUN_BYTES else encoded_words(data.decode("utf-8"), room=0)


def mailboxes(name: str, people: Sequence[Mailbox]) -> str:
    """`To: …` with its line ends: one mailbox, or a list folded where it is long."""
    if len(people) == 1 and not people[0].name:
        return f"{name}: {people[0].address}\r\n"
    line, lines = f"{name}: ", []
    last = len(people) - 1
    for index, person in enumerate(people):
        pieces = _pieces(person)
        if index < last:
            pieces[-1] += ","
        for piece in pieces:
            if line[-1] == " ":
                line += piece
            elif len(line) + 1 + len(piece) <= LINE:
                line += f" {piece}"
            else:
                lines.append(line)
                line = f" {piece}"
    return "\r\n".join((*lines, line)) + "\r\n"


def _pieces(person: Mailbox) -> list[str]:
    """One mailbox, cut where a line may be folded."""
    if not person.name:
        return [person.address]
    return [*_phrase(person.name), f"<{person.address}>"]


def _phrase(name: str) -> list[str]:
    if name.isascii() and len(name) <= LINE - 16 and "=?" not in name:
        if _ATOMS.fullmatch(name):
            return [name]
        if name == name.strip():
            return ['"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"']
    return _encoded_phrase(name)


def file_name(name: str) -> str:
    """The `filename` parameter of a Content-Disposition, on lines of its own (RFC 2231 where it is needed)."""
    if name.isascii() and len(name) <= LINE - 16 and '"' not in name and "\\" not in name and "=?" not in name:
        return f';\r\n filename="{name}"'
    escaped = quote(name, safe="!#$&+-.^_`{|}~", encoding="utf-8")
    pieces: list[str] = []
    start = 0
    while start < len(escaped):
        end = start + LINE - 24
        if end < len(escaped):
            end -= next((back for back in (1, 2) if escaped[end - back] == "%"), 0)
        pieces.append(escaped[start:end])
        start = end
    if len(pieces) == 1:
        return f";\r\n filename*=utf-8''{pieces[0]}"
    first = f";\r\n filename*0*=utf-8''{pieces[0]}"
    return first + "".join(f";\r\n filename*{number}*={piece}" for number, piece in enumerate(pieces[1:], 1))


def is_token(text: str) -> bool:
    """A token of RFC 2045, as types and their parameters are made of."""
    return _TOKEN.fullmatch(text) is not None
