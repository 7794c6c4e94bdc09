"""What does it cost to judge a reply: known words, fresh ones, and the worst that a hostile server can say?"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import parts
from staffetta.mail import bounce_text
from staffetta.mail.explain import explain
from staffetta.mail.message import Reply
from staffetta.mail.verdict import DEFAULT

LABELLED = Path(__file__).parents[1] / "tests" / "mail" / "replies_of_servers.toml"
HOSTILE_BYTES = 65_536
AIM_US, HOSTILE_AIM_MS = 15, 5


def said_by_servers() -> list[tuple[str, str]]:
    """(words, stage) of every labelled reply of the tests."""
    document = tomllib.loads(LABELLED.read_text(encoding="utf-8"))
    return [(said, stage) for table in document.values() for said, stage, _ in table["replies"]]


def hostile() -> dict[str, str]:
    """64 KiB each, made to keep a reader busy: the table's own words again and again, numbers, half hints."""
    phrases = [" ".join(part.strip() for part in phrase) for row in DEFAULT.rows for phrase in row.phrases]
    pieces = {
        "one letter": "a", "one word": "a ", "codes": "450 ", "lines of codes": "\n450-", "enhanced codes": "4.1.1 ",
        "all phrases": " ".join(phrases) + " ", "openings of phrases": "exceeded quota temporar message the user ",
        "half hints": "try again in about 1 m and ", "half times": "retry in 00 00 ",
        "names": "AWS.SimpleEmailService.", "escapes": "\x1b[1;1;1;", "brackets": "(<[", "blanks": " ", "digits": "1",
        "signs": "é",
    }  # fmt: skip
    return {name: (piece * (HOSTILE_BYTES // len(piece) + 1))[:HOSTILE_BYTES] for name, piece in pieces.items()}


def _median(work: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> float:
    """Of one call each, in microseconds."""
    found = []
    for given in arguments:
        began = time.perf_counter_ns()
        work(*given)
        found.append((time.perf_counter_ns() - began) / 1_000)
    return parts.middle(found)


def each() -> dict[str, float]:
    """Medians over all labelled replies, in microseconds."""
    labelled = said_by_servers()
    known = [bounce_text.read_reply(said, stage, names=DEFAULT.names) for said, stage in labelled]
    fresh = [msgspec.structs.replace(one, text=f"{one.text} id {n}") for n, one in enumerate(known * 3)]
    judged = [(one,) for one in known]
    _median(DEFAULT.judge, judged)
    return {
        "heard before": _median(DEFAULT.judge, judged),
        "fresh words": _median(DEFAULT.judge, [(one,) for one in fresh]),
        "read out of a text (explain)": _median(explain, labelled),
    }


def worst() -> dict[str, float]:
    """Milliseconds of CPU for each hostile text, judged at several codes and read out of a text; the least of runs."""
    found = {}
    for name, text in hostile().items():
        told = [Reply(stage="dot", code=code, text=text) for code in (0, 421, 450, 550, 554)]
        spent = [_cpu(DEFAULT.judge, one) for one in told]
        spent += [_cpu(explain, at + text) for at in ("", "550 ", "SMTP Error 421: ")]
        found[name] = max(spent)
    return found


def _cpu(work: Callable[[Any], object], argument: object) -> float:
    least = float("inf")
    for _ in range(5):
        began = time.process_time_ns()
        work(argument)
        least = min(least, time.process_time_ns() - began)
    return least / 1_000_000


def measure() -> None:
    shown = each()
    rows = [(name, f"{spent:.1f}") for name, spent in shown.items()]
    parts.table(f"A verdict (aim: {AIM_US} µs)", ("reply", "µs, median"), rows)
    bad = sorted(worst().items(), key=lambda pair: -pair[1])
    parts.table(
        f"The worst 64 KiB (aim: {HOSTILE_AIM_MS} ms)",
        ("text", "ms"),
        [(name, f"{ms:.2f}") for name, ms in bad[:5]],
    )


if __name__ == "__main__":
    measure()
