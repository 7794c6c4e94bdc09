"""What a reply means: the rows of `replies.toml`, first match wins. Code decides nothing that a row can say.

R0  the message was handed over and no answer was read: in doubt, whatever else is known
R1  an error while leaving, after the server took the message: delivered
R3  an enhanced code counts only if its class is the reply's first digit; for 550 its class 4 decides instead
R4  a row that names no action retries 4yz and fails 5yz, so that a text can never turn one into the other
R7  2 KiB are read, in lower case, other signs as gaps; phrases are found by plain search, in linear time
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from typing import TypeAlias

import msgspec

from staffetta.mail import hints
from staffetta.mail.message import Reply, Verdict
from staffetta.mail.reply_rows import KEY, Row, read_rows

READ_MAX = 2048
SLOW_MS = 60_000
GREYLIST_MS = 300_000
_KNOWN_MAX = 4096
"""Keys kept ready; a hostile server can make many, so they are let go."""
_SHORT = 256
"""A text up to this length is judged once and remembered."""

DOUBTFUL = frozenset({"", "timeout", "reset", "eof", "protocol", "unexpected", "stopped"})
"""Events that leave it open whether a message that was handed over was taken."""

_Key: TypeAlias = tuple[str, int, str, str]
"""Stage, code, enhanced code and name, as said."""

_GAPS = bytes(
    byte + 32 if 65 <= byte <= 90 else byte if 97 <= byte <= 122 or 48 <= byte <= 57 else 32
    for byte in range(256)
)


def plain(text: str) -> str:
    """A text as phrases are looked for in it: words in lower case between single blanks."""
    return f" {' '.join(_words(text))} "


def _words(text: str) -> list[str]:
    return text[:READ_MAX].encode("ascii", "replace").translate(_GAPS).decode("ascii").split()


class _Choice:
    """The rows that stage, codes and name leave possible, as far as the first that asks for no words."""

    __slots__ = ("phrases", "verdicts")

    def __init__(self, rows: Sequence[Row], verdicts: Sequence[Verdict], otherwise: Verdict) -> None:
        self.verdicts = (*verdicts, otherwise)
        phrases: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
        for place, row in enumerate(rows):
            for phrase in row.phrases:
                phrases.setdefault(phrase[0].split()[0][:KEY], []).append((place, phrase))
        self.phrases = phrases

    def choose(self, words: list[str], text: str) -> Verdict:
        """The verdict of the first row one of whose phrases stands in the text; without any, the last one's."""
        phrases = self.phrases
        best = len(self.verdicts) - 1
        for key in phrases.keys() & {word[:KEY] for word in words}:
            for place, phrase in phrases[key]:
                if place >= best:
                    break
                if (phrase[0] in text) if len(phrase) == 1 else in_order(phrase, text):
                    best = place
                    break
        return self.verdicts[best]


class Table:
    """An ordered table of rows, ready to judge. Own rows stand before the packaged ones."""

    __slots__ = ("_delivered", "_greylist_ms", "_judged", "_known", "_slow_ms", "names", "rows")

    def __init__(self, rows: Iterable[Row], *, slow_ms: int = SLOW_MS, greylist_ms: int = GREYLIST_MS) -> None:
        self.rows = tuple(rows)
        self.names: frozenset[str] = frozenset().union(*(row.name for row in self.rows))
        """All names of events and SES errors that a row asks for."""
        self._slow_ms = slow_ms
        self._greylist_ms = greylist_ms
        self._judged: dict[Reply, Verdict] = {}
        self._known: dict[_Key, _Choice] = {}
        self._delivered: dict[tuple[int, str], Verdict] = {}

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        first: str | None = None,
        slow_ms: int = SLOW_MS,
        greylist_ms: int = GREYLIST_MS,
    ) -> Table:
        """Read a table. `first`: the text of an operator's own rules, which come before all others.

        :raises SettingsError: every wrong row and field is named.
        """
        own = [] if first is None else read_rows(first, where="rules file")
        return cls([*own, *read_rows(text, where="replies.toml")], slow_ms=slow_ms, greylist_ms=greylist_ms)

    def judge(self, reply: Reply) -> Verdict:
        """What this reply means."""
        code = reply.code
        if 200 <= code < 300 and (reply.stage == "dot" or reply.stage == "request"):  # noqa: PLR1714  # the hot path
            return self._delivered.get((code, reply.enhanced)) or self._deliver(code, reply.enhanced)
        if reply.committed:
            if reply.stage in {"quit", "rset"}:
                return self._deliver(code, reply.enhanced)
            if not code and reply.name.lower() in DOUBTFUL:
                return _in_doubt(reply.name.lower())
        judged = self._judged.get(reply)
        return judged if judged is not None else self._read(reply)

    def _read(self, reply: Reply) -> Verdict:
        """A relay says the same words to many e-mails: short ones are read once."""
        verdict = self._weigh(reply)
        if len(reply.text) <= _SHORT:
            if len(self._judged) >= _KNOWN_MAX:
                self._judged.clear()
            self._judged[reply] = verdict
        return verdict

    def _weigh(self, reply: Reply) -> Verdict:
        key = (reply.stage, reply.code, reply.enhanced, reply.name)
        choice = self._known.get(key)
        if choice is None:
            choice = self._prepare(key)
        # Each line of a long reply may begin with its enhanced code, in the middle of a phrase.
        said = reply.text[:READ_MAX]
        words = _words(said.replace(reply.enhanced, " ") if reply.enhanced else said)
        text = f" {' '.join(words)} "
        verdict = choice.choose(words, text) if choice.phrases else choice.verdicts[-1]
        if verdict.action in ("RETRY", "RETRY_SLOW"):
            hint_ms = hints.wait_asked_for(text)
            if hint_ms > verdict.min_delay_ms:
                return msgspec.structs.replace(verdict, min_delay_ms=hint_ms)
        return verdict

    def _deliver(self, code: int, enhanced: str) -> Verdict:
        if len(self._delivered) >= _KNOWN_MAX:
            self._delivered.clear()
        said = f"{code}" if code else ""
        verdict = Verdict(
            category="", action="DELIVERED", reach="message", rule="delivered", code=said, enhanced=enhanced
        )
        self._delivered[code, enhanced] = verdict
        return verdict

    def _prepare(self, key: _Key) -> _Choice:
        _, code, enhanced, name = key
        digit, _, _ = read_codes(code, enhanced)
        asking: list[Row] = []
        verdicts: list[Verdict] = []
        otherwise = _unknown(code, enhanced, name)
        for row in self._fitting(key):
            verdict = self._verdict(row, row.action_for(digit), key)
            if not row.phrases:
                otherwise = verdict
                break
            asking.append(row)
            verdicts.append(verdict)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        choice = self._known[key] = _Choice(asking, verdicts, otherwise)
        return choice

    def _fitting(self, key: _Key) -> Iterator[Row]:
        stage, code, enhanced, name = key
        digit, code, enhanced = read_codes(code, enhanced)
        event = bare_name(name)
        for row in self.rows:
            if row.fits(stage=stage, code=code, digit=digit, enhanced=enhanced, name=event) and row.action_for(
                digit
            ):
                yield row

    def _verdict(self, row: Row, action: str, key: _Key) -> Verdict:
        stage, code, enhanced, name = key
        least = self._greylist_ms if row.least == "greylist" else int(row.least or 0) * 1000
        if action == "RETRY_SLOW":
            least = max(least, self._slow_ms)
        return Verdict(
            category=row.category,
            action=action,
            reach=row.reach or _REACHES.get(stage, "message"),
            rule=row.rule,
            code=said_code(code, name),
            enhanced=enhanced,
            min_delay_ms=least if action in ("RETRY", "RETRY_SLOW") else 0,
            max_attempts=row.attempts if action in ("RETRY", "RETRY_SLOW", "SPLIT") else 0,
            in_doubt=row.in_doubt,
            label=row.label,
        )


_REACHES = {
    "connect": "transport",
    "ehlo": "transport",
    "starttls": "transport",
    "auth": "transport",
    "rcpt": "recipient",
}


def in_order(parts: tuple[str, ...], text: str) -> bool:
    """Whether the parts of a phrase stand in the text one after another, anything between them."""
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part) - 1  # the blank that ends one part may begin the next
    return True


def read_codes(code: int, enhanced: str) -> tuple[str, int, str]:
    """(first digit, basic code, enhanced code) as they count: R3, and 550's own rule."""
    said = enhanced[:1]
    if not code:
        return (said if said in {"4", "5"} else ""), 0, enhanced
    if code == 550 and said == "4":
        return "4", 450, enhanced
    digit = str(code)[0] if 200 <= code < 600 else "5"
    return digit, code, enhanced if said == digit else ""


def bare_name(name: str) -> str:
    """`AWS.SimpleEmailService.Throttling` and `com.amazonaws.sesv2#BadRequestException` by their last part."""
    return name.partition(":")[0].rpartition(".")[2].rpartition("#")[2].lower()


def said_code(code: int, name: str) -> str:
    """The code by which a reply is told and counted: an error's name says more than the HTTP status beside it."""
    return name or (str(code) if code else "")


def _in_doubt(name: str) -> Verdict:
    return Verdict(
        category="TIMEOUT", action="RETRY", reach="message", rule="in-doubt", code=name, in_doubt=True
    )


def _unknown(code: int, enhanced: str, name: str) -> Verdict:
    """No code and no known words: not tried again, never lost: it ends as a dead letter with its words."""
    return Verdict(
        category="UNKNOWN",
        action="FAIL",
        reach="message",
        rule="unknown",
        code=said_code(code, name),
        enhanced=enhanced,
    )


def packaged() -> str:
    """The text of the table that comes with the program."""
    return resources.files("staffetta.mail").joinpath("replies.toml").read_text("utf-8")


DEFAULT: Table = Table.parse(packaged())
judge: Callable[[Reply], Verdict] = DEFAULT.judge
