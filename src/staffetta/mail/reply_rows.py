"""Reads the rows of a table of replies; every wrong row and field is named at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from typing import Any, Literal, get_args

from staffetta.errors import FieldProblem, SettingsError
from staffetta.mail.message import Value

Category = Literal["VALIDATION", "PERMANENT", "TRANSIENT", "QUOTA", "CONFIGURATION", "TIMEOUT", "UNKNOWN"]
Action = Literal["RETRY", "RETRY_SLOW", "SPLIT", "HOLD", "FAIL"]
Reach = Literal["recipient", "message", "destination", "transport"]
STAGES = (
    "connect", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "dot", "rset", "quit", "request",
    "stopped", "unknown",
)  # fmt: skip
"""`unknown` stands for a reply whose stage was not told (a bounce that someone asks about)."""

KEY = 4
"""Letters of a phrase's first word by which it is looked up."""

_CODE = re.compile(r"[2-5][0-9][0-9]|[2-5]yz|none")
_ENHANCED = re.compile(r"([245x])\.(\d{1,3}|x)\.(x|\d{1,3}(?:-\d{1,3})?)")
_WORDS = re.compile(r"[^a-z0-9*]+")
_ASKED = ("stage", "code", "enhanced", "text", "name")


class Row(Value, frozen=True, kw_only=True):
    """One row: what must be so (every part that is given), and what it means then."""

    rule: str
    category: str
    action: str = ""
    """Empty: RETRY for 4yz, FAIL for 5yz."""
    slow: bool = False
    """The retry that follows from 4yz is RETRY_SLOW."""
    bare: str = ""
    """The action where no code was said; empty: the row does not speak of such replies."""
    reach: str = ""
    """Empty: by the stage."""
    least: str = ""
    """Least delay: whole seconds, or `greylist`."""
    attempts: int = 0
    label: str = ""
    in_doubt: bool = False
    note: str = ""
    stage: frozenset[str] = frozenset()
    code: frozenset[str] = frozenset()
    enhanced: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    name: frozenset[str] = frozenset()
    said: tuple[str, ...] = ()
    """The names as they are written."""
    phrases: tuple[tuple[str, ...], ...] = ()

    def fits(self, *, stage: str, code: int, digit: str, enhanced: str, name: str) -> bool:
        """Whether everything but the words is as the row asks."""
        if self.name and name not in self.name:
            return False
        if self.stage and (stage or "unknown") not in self.stage:
            return False
        if self.code and not self.code & {str(code) if code else "none", f"{digit}yz" if code else "none"}:
            return False
        return not self.enhanced or any(_within(enhanced, pattern) for pattern in self.enhanced)

    def action_for(self, digit: str) -> str:
        """What is done: as the row says, else by the first digit (R4). Empty: it does not speak of this."""
        if self.action:
            return self.action
        if digit == "4":
            return "RETRY_SLOW" if self.slow else "RETRY"
        if digit:
            return "FAIL"
        return self.bare


def _within(enhanced: str, pattern: str) -> bool:
    """Whether an enhanced code is one of a pattern: `x` for any number, `500-599` for a range of details."""
    said, asked = enhanced.split("."), pattern.split(".")
    if len(said) != 3 or not all(part.isdigit() for part in said):
        return False
    for number, want in zip(said, asked, strict=True):
        low, _, high = want.partition("-")
        if want != "x" and not int(low) <= int(number) <= int(high or low):
            return False
    return True


def phrase(text: str) -> tuple[str, ...]:
    """A phrase as it is looked for: whole words; `*` at a word's end leaves it open, alone it is anything."""
    parts = []
    for part in re.split(r"(?:^| )\*(?: |$)", text.lower()):
        words = " ".join(_WORDS.sub(" ", part).split())
        if words:
            parts.append(f" {words} ".replace("* ", "").replace(" *", ""))
    return tuple(parts)


def read_rows(text: str, *, where: str) -> list[Row]:
    """The `[[rule]]` rows of a TOML text, in their order.

    :raises SettingsError: every wrong row and field is named.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([FieldProblem(where, f"is no TOML: {error}")]) from error
    problems = [
        FieldProblem(f"{where}: {name}", "only [[rule]] tables belong here")
        for name in document
        if name != "rule"
    ]
    raw = document.get("rule", [])
    if not isinstance(raw, list) or not all(isinstance(one, dict) for one in raw):
        raise SettingsError([*problems, FieldProblem(f"{where}: rule", "must be written as [[rule]] tables")])
    rows = []
    for number, fields in enumerate(raw, start=1):
        named = fields.get("rule")
        place = f"{where}: rule {number}" + (f" ({named})" if isinstance(named, str) else "")
        wrong = [FieldProblem(f"{place}: {name}", problem) for name, problem in _wrong(fields)]
        problems.extend(wrong)
        if not wrong:
            rows.append(_row(fields))
    if problems:
        raise SettingsError(problems)
    return rows


def _row(fields: dict[str, Any]) -> Row:
    texts = tuple(fields.get("text", ()))
    return Row(
        **{key: value for key, value in fields.items() if key not in {*_ASKED, "least"}},
        said=tuple(fields.get("name", ())),
        least=str(fields.get("least", "")),
        stage=frozenset(fields.get("stage", ())),
        code=frozenset(fields.get("code", ())),
        enhanced=tuple(fields.get("enhanced", ())),
        text=texts,
        name=frozenset(form for name in fields.get("name", ()) for form in _forms(name.lower())),
        phrases=tuple(phrase(one) for one in texts),
    )


def _forms(name: str) -> tuple[str, ...]:
    """Some of an API's versions and libraries say `Exception` at the end of a name, others do not."""
    return (name,) if name.endswith(("exception", "error")) else (name, f"{name}exception")


def _wrong(fields: dict[str, Any]) -> list[tuple[str, str]]:
    problems = [(name, "is missing") for name in ("rule", "category") if name not in fields]
    for name, value in fields.items():
        check = _CHECKS.get(name)
        if check is None:
            problems.append((name, f"is no field of a rule; known are {', '.join(_CHECKS)}"))
        elif problem := check(value):
            problems.append((name, problem))
    if not any(name in fields for name in _ASKED):
        problems.append(
            ("", f"asks for nothing, so it would judge every reply; give one of {', '.join(_ASKED)}")
        )
    return problems


def _findable(parts: tuple[str, ...]) -> bool:
    """Phrases are looked up by the first four letters of their first word (see `verdict`)."""
    return bool(parts) and (" " in parts[0][1:] or len(parts[0]) > KEY) and parts[0].startswith(" ")


def _one_of(*known: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        return "" if value in known else f"must be one of {', '.join(known)}"

    return check


def _list_of(good: Callable[[str], bool], told: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        fine = isinstance(value, list) and value and all(isinstance(one, str) and good(one) for one in value)
        return "" if fine else f"must be a list of {told}"

    return check


def _least(value: object) -> str:
    fine = value == "greylist" or (isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 3600)
    return "" if fine else 'must be whole seconds from 1 to 3600, or "greylist"'


def _attempts(value: object) -> str:
    fine = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return "" if fine else "must be a whole number of attempts, 1 or more"


def _words(value: object) -> str:
    return "" if isinstance(value, str) and value.strip() else "must be a text"


def _flag(value: object) -> str:
    return "" if isinstance(value, bool) else "must be true or false"


_CHECKS: dict[str, Callable[[object], str]] = {
    "rule": _words,
    "category": _one_of(*get_args(Category)),
    "action": _one_of(*get_args(Action)),
    "slow": _flag,
    "bare": _one_of(*get_args(Action)),
    "reach": _one_of(*get_args(Reach)),
    "least": _least,
    "attempts": _attempts,
    "label": _words,
    "in_doubt": _flag,
    "note": _words,
    "stage": _list_of(lambda one: one in STAGES, f"stages: {', '.join(STAGES)}"),
    "code": _list_of(lambda one: _CODE.fullmatch(one) is not None, 'codes such as "421", "4yz", or "none"'),
    "enhanced": _list_of(
        lambda one: _ENHANCED.fullmatch(one) is not None, 'codes such as "x.1.1" or "5.7.606-649"'
    ),
    "text": _list_of(
        lambda one: _findable(phrase(one)), "phrases; the first word's `*` needs 4 letters before it"
    ),
    "name": _list_of(bool, "names of events or SES errors"),
}
