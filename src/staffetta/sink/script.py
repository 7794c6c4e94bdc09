"""What the sink says and does instead of taking everything: rules, read from TOML or JSON.

    host_name = "sink.example"      # greets with this name
    extensions = ["PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
                                    # what EHLO offers; SIZE, STARTTLS and AUTH come by themselves
    size_max = 26214400             # bytes of a message; 0: any
    line_ends = "strict"            # refuse bare CR and LF, or "lenient": take them for line ends
    data_without_recipients = false # answer 354 to DATA although every RCPT was refused
    credentials = { "user" = "password" }
    auth_required = false           # 530 to MAIL before AUTH

    [[rule]]
    at = "rcpt"                     # connect, ehlo, starttls, auth, mail, rcpt, data, content, dot, rset, quit
    recipient = "*@slow.example"    # patterns with * and ?, any case; a rule without them fits all
    sender = "*"
    skip = 0                        # the first so many that fit pass by
    every = 1                       # then each such one
    count = 3                       # at most so many times (left out: always)
    per = "all"                     # these three count for all, or each per "recipient", "sender", "connection"
    reply = "451 4.7.1 try again in 5 minutes"   # or a list: a reply of several lines
    delay_ms = 200                  # wait before it
    disconnect = true               # close after it, or without a word where no reply is given
    name = "greylisting"            # counted under this name

Rules are asked in order; the first that fits acts. Without a reply, `delay_ms` only delays the usual one.
For faults: `raw` (bytes as they are, instead of a reply), `chunk_bytes` (the reply in pieces), `reset` (RST
instead of a close), `stall` (never answer), `accept` (at dot: keep the message although the answer is lost, or
drop it although the answer says yes), `after_bytes` (at content: act once so many bytes came), `clear` (at
starttls: say yes and go on in clear).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec

from staffetta.mail.message import Value

Stage: TypeAlias = Literal[
    "connect", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "content", "dot", "rset", "quit"
]  # fmt: skip

EXTENSIONS = ("PIPELINING", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES")


class Rule(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to do at one stage. See the module's text for each field."""

    at: Stage
    recipient: str | None = None
    sender: str | None = None
    skip: int = 0
    every: int = 1
    count: int | None = None
    per: Literal["all", "recipient", "sender", "connection"] = "all"
    reply: str | tuple[str, ...] | None = None
    raw: str | None = None
    delay_ms: int = 0
    chunk_bytes: int = 0
    disconnect: bool = False
    reset: bool = False
    stall: bool = False
    accept: bool | None = None
    after_bytes: int = 0
    clear: bool = False
    name: str = ""

    @property
    def code(self) -> int:
        """Of what it says; 0: it says nothing."""
        text = self.raw or (self.reply if isinstance(self.reply, str) else (self.reply or ("",))[-1])
        return int(text[:3]) if text[:3].isdigit() else 0

    def bytes(self) -> bytes | None:
        """What goes out; None: nothing of its own."""
        if self.raw is not None:
            return self.raw.encode("latin-1")
        if self.reply is None:
            return None
        if isinstance(self.reply, str):
            return f"{self.reply}\r\n".encode()
        *firsts, last = self.reply
        return b"".join([*(f"{line[:3]}-{line[4:]}\r\n".encode() for line in firsts), f"{last}\r\n".encode()])


class Script(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole script, and the server's manners."""

    host_name: str = "sink.example"
    extensions: tuple[str, ...] = EXTENSIONS
    size_max: int = 0
    line_ends: Literal["strict", "lenient"] = "strict"
    data_without_recipients: bool = False
    credentials: dict[str, str] = {}  # msgspec copies it for each
    mechanisms: tuple[str, ...] = ("PLAIN", "LOGIN")
    auth_required: bool = False
    rule: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Script:
        """Read TOML, or JSON where it begins with a brace. Raises ValueError naming the place."""
        try:
            raw: Any = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
            script = msgspec.convert(raw, cls)
        except (msgspec.ValidationError, tomllib.TOMLDecodeError, ValueError) as error:
            raise ValueError(f"the sink's script cannot be read: {error}") from error
        return script.checked()

    def checked(self) -> Script:
        for number, rule in enumerate(self.rule, 1):
            if rule.every < 1 or rule.skip < 0 or rule.delay_ms < 0 or rule.chunk_bytes < 0:
                raise ValueError(f"the sink's script, rule {number}: counts and delays cannot be negative")
            if rule.reply is not None and not rule.code:
                raise ValueError(f"the sink's script, rule {number}: a reply begins with three digits")
        return self


class Play:
    """A script while it is played: who counts what. One for a server, over all its connections."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._rules: dict[str, list[tuple[int, Rule]]] = {}
        for number, rule in enumerate(script.rule):
            self._rules.setdefault(rule.at, []).append((number, rule))
        self._seen: dict[tuple[int, str], int] = {}
        self.fired: dict[str, int] = {}
        """How often each rule acted, by its name or number."""

    @property
    def stages(self) -> Mapping[str, object]:
        """Those at which a rule may act; all others need not ask."""
        return self._rules

    def rules_at(self, stage: str) -> Sequence[tuple[int, Rule]]:
        return self._rules.get(stage, ())

    def rule_for(self, stage: str, *, sender: str, recipients: Sequence[str], connection: str) -> Rule | None:
        """The rule that acts now, if one does. Each that fits counts, whether it acts or not."""
        for number, rule in self._rules.get(stage, ()):
            if not _fits(rule.sender, (sender,)) or not _fits(rule.recipient, recipients):
                continue
            key = {
                "all": "",
                "sender": sender.lower(),
                "recipient": ",".join(recipients).lower(),
                "connection": connection,
            }[rule.per]
            seen = self._seen.get((number, key), 0)
            self._seen[number, key] = seen + 1
            turn = seen - rule.skip
            if turn < 0 or turn % rule.every:
                continue
            if rule.count is not None and turn // rule.every >= rule.count:
                continue
            name = rule.name or str(number + 1)
            self.fired[name] = self.fired.get(name, 0) + 1
            return rule
        return None


def _fits(pattern: str | None, addresses: Sequence[str]) -> bool:
    return pattern is None or any(fnmatchcase(address.lower(), pattern.lower()) for address in addresses)
