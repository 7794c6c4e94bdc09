"""How long a server asks us to wait: "try again in 5 minutes", "Retry-After: 120", "wait 300 seconds"."""

from __future__ import annotations

import re

from staffetta.mail.backoff import HINT_MAX_MS

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10, "fifteen": 15,
          "twenty": 20, "thirty": 30, "sixty": 60}  # fmt: skip
_ASKED = (
    " again ",
    " retry",
    " wait",
    " come back ",
    "greylist",
    "graylist",
    " delay",
    " defer",
    " resend ",
    " block",
)
"""Only a number that follows one of these is a request; others are limits and time-outs of the server's own."""
_LOOK_BACK = 80

# Every quantifier is bounded and no two neighbours overlap: time grows with the text's length and no faster.
_AMOUNT = re.compile(
    r" (?:in|after|for|wait|least|about|approximately|another|next|within|retry) "
    r"(?:about |at least |approximately |the next )?"
    r"(?:(\d{1,7}) ?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)"
    rf"|({'|'.join(_WORDS)}) (seconds?|minutes?|hours?)"
    r"|(\d\d) (\d\d) (\d\d))(?= )"
    r"(?: and)?(?: (\d{1,2}) ?(s|secs?|seconds?|m|mins?|minutes?)(?= ))?"
)
_AFTER = re.compile(r" retry after (\d{1,7}) (?!(?:s|m|h|secs?|seconds?|mins?|minutes?|hrs?|hours?) )")


def wait_asked_for(text: str) -> int:
    """Milliseconds that a plain text (see `verdict.plain`) asks us to wait, at most an hour; 0: it does not."""
    if not any(word in text for word in _ASKED):
        return 0
    header = _AFTER.search(text)
    if header:
        return min(HINT_MAX_MS, int(header[1]) * 1_000)
    for match in _AMOUNT.finditer(text):
        before = text[max(0, match.start() - _LOOK_BACK) : match.end()]
        if any(word in before for word in _ASKED):
            return min(HINT_MAX_MS, _milliseconds(match))
    return 0


def _milliseconds(match: re.Match[str]) -> int:
    number, unit, word, word_unit, hours, minutes, seconds, more, more_unit = match.groups()
    if hours is not None:
        return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000
    asked = int(number) * _UNITS_MS[unit[0]] if number else _WORDS[word] * _UNITS_MS[word_unit[0]]
    return asked + (int(more) * _UNITS_MS[more_unit[0]] if more is not None else 0)
