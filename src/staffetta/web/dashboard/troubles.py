"""What is wrong now, and what to do about it: decided from figures, told to whoever opens the overview."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis, Value
from staffetta.mail.operators import Pause
from staffetta.mail.steering import EXPIRED_CODE
from staffetta.mail.trend import Step
from staffetta.store.contract import DeadLetterCounts
from staffetta.web.dashboard.visit import address
from staffetta.web.dashboard.words import counted, number
from staffetta.web.parts import Figures, PartHealth

IN_DOUBT_CODE = "IN-DOUBT"
SILENT_MS = 60_000
MANY_LETTERS = 10
Weight = Literal["bad", "warn", "note"]
_ORDER: tuple[Weight, ...] = ("bad", "warn", "note")


class Trouble(Value, frozen=True, kw_only=True):
    """One thing that someone should know, and what to do."""

    weight: Weight
    title: str
    what: str
    remedy: str
    link: str = ""
    link_words: str = ""


class State(Value, frozen=True, kw_only=True):
    """What is judged."""

    health: Sequence[PartHealth]
    breakers: Sequence[Mapping[str, Any]]
    pauses: Sequence[Pause]
    alerts: Figures
    letters: DeadLetterCounts
    counts: Mapping[Status, int]
    queue: tuple[int, int, int]
    senders: int
    """Processes that send, as they tell of themselves."""
    minute: Step
    """What was sent in the last minute."""
    began: Millis | None
    """Since when that is known."""
    now: Millis


def of(state: State) -> list[Trouble]:
    """The worst first."""
    found = [
        *_parts(state),
        *_breakers(state),
        *_pauses(state),
        *_alerts(state),
        *_standing(state),
        *_letters(state),
    ]
    return sorted(found, key=lambda one: _ORDER.index(one.weight))


def _parts(state: State) -> Iterator[Trouble]:
    """What runs the engine: the store, the queue, workers. Transports are told with their breakers."""
    for part in state.health:
        if part.state == "ok" or part.name.startswith("transport "):
            continue
        remedy = (
            "Hand-ins are refused until it is back; what was handed in is safe. See that the database runs, then"
            " run `staffetta doctor`."
            if part.needed
            else "E-mails wait in the store meanwhile; none is lost. Run `staffetta doctor`."
        )
        yield Trouble(weight="bad" if part.state == "down" else "warn", title=f"The {part.name} is {part.state}",
                      what=part.detail, remedy=remedy)  # fmt: skip
    if not state.senders:
        yield Trouble(
            weight="bad", title="No worker sends",
            what="No process with a transport has told of itself in the last seconds: e-mails are taken in and wait.",
            remedy="Start `staffetta serve`, or `staffetta work` beside this API. Waiting e-mails go on by themselves.",
        )  # fmt: skip


def _breakers(state: State) -> Iterator[Trouble]:
    for row in state.breakers:
        if row["state"] in ("closed", "paused"):
            continue
        yield Trouble(
            weight="bad",
            title=f"Transport {row['transport']} does not take mail",
            what=str(row["reason"]) or "Its breaker is open.",
            remedy="E-mails are held and no attempt counts. It is probed by itself and goes on when it answers;"
            " if it is the password or the account, mend that and wait for the next probe.",
            link="/transports",
            link_words="Look at the transports",
        )


def _pauses(state: State) -> Iterator[Trouble]:
    for pause in state.pauses:
        name = {
            "all": "All sending",
            "transport": f"Transport {pause.name}",
            "company": f"Company {pause.name}",
        }
        where = "/companies" if pause.scope == "company" else "/transports"
        yield Trouble(
            weight="warn" if pause.scope == "all" else "note",
            title=f"{name[pause.scope]} is paused",
            what="An operator paused it; e-mails wait and may expire meanwhile.",
            remedy="Resume when the reason for the pause is gone.",
            link=where,
            link_words="Resume there",
        )


_LINKS: Mapping[str, tuple[str, str]] = {
    "failure-rate": ("/dead-letters", "See why"),
    "dlq-size": ("/dead-letters", "See why"),
    "dlq-rate": ("/dead-letters", "See why"),
    "dlq-company": ("/dead-letters", "See whose"),
    "error-anomaly": ("/transports", "See the replies"),
    "fallback-in-use": ("/transports", "Look at the transports"),
    "processing-time": ("/companies", "See who waits"),
    "stalled": ("/companies", "See who waits"),
}
_TOLD_BETTER = frozenset({"breaker-open", "in-doubt", "store-down"})
"""Alerts whose trouble is told by this page with its name, its reason and where to act."""


def _alerts(state: State) -> Iterator[Trouble]:
    """Those that fire and are not told in better words."""
    firing = {str(row.get("name", "")): row for row in state.alerts if row.get("state") == "firing"}
    if "failure-rate" in firing:
        firing.pop("dlq-rate", None)  # the same e-mails, counted once more
    for name, row in firing.items():
        if name in _TOLD_BETTER:
            continue
        link, words = _LINKS.get(name, ("/alerts", "All alerts"))
        yield Trouble(
            weight="bad" if row.get("severity") == "critical" else "warn", title=str(row.get("title") or name),
            what=f"{row.get('value', '')}. Fires when: {row.get('condition', '')}.",
            remedy=_sentence(str(row.get("remedy", ""))), link=link, link_words=words,
        )  # fmt: skip


def _sentence(text: str) -> str:
    """As the others on the page: a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _standing(state: State) -> Iterator[Trouble]:
    waiting, _, active = state.queue
    watched = state.began is not None and state.now - state.began >= SILENT_MS
    held = any(row["state"] != "closed" for row in state.breakers) or any(
        p.scope == "all" for p in state.pauses
    )
    quiet = not (state.minute.sent or state.minute.deferred or state.minute.failed)
    known = any(row.get("name") == "stalled" for row in state.alerts)
    if waiting and not active and watched and quiet and not held and state.senders and not known:
        yield Trouble(
            weight="bad", title="Nothing is sent while work waits",
            what=f"{counted(waiting, 'e-mail')} could go now, and no attempt ended in the last minute.",
            remedy="Run `staffetta doctor`; see whether a company's pause or rate holds them back.",
            link="/companies", link_words="Look at the companies",
        )  # fmt: skip
    invalid = state.counts.get(Status.INVALID, 0)
    if invalid:
        yield Trouble(
            weight="note", title=f"{counted(invalid, 'payload')} could not be used",
            what="They were named by a file, or written into the tables, and a field is wrong.",
            remedy="Each one's reason names the field. Mend it and hand the e-mail in again.",
            link=address("/emails", {"status": "INVALID"}), link_words="See them",
        )  # fmt: skip


def _letters(state: State) -> Iterator[Trouble]:
    doubtful = state.letters.by_code.get(IN_DOUBT_CODE, 0)
    if doubtful:
        yield Trouble(
            weight="warn", title=f"{counted(doubtful, 'e-mail')} in doubt",
            what="The message was handed over and no reply was read: it may have arrived.",
            remedy="Ask the mail server's log by Message-ID. Resolve those that arrived; retry the others.",
            link=address("/dead-letters", {"code": IN_DOUBT_CODE}), link_words="Decide",
        )  # fmt: skip
    others = [
        (code, size)
        for code, size in state.letters.by_code.items()
        if code != IN_DOUBT_CODE and size >= MANY_LETTERS
    ]
    for code, size in sorted(others, key=lambda pair: -pair[1])[:3]:
        remedy = (
            "Their time was over before a transport took them: look for what held them back, then retry."
            if code == EXPIRED_CODE
            else "Look at one of them for the server's words; when the cause is mended, retry them together."
        )
        yield Trouble(
            weight="note", title=f"{number(size)} dead letters with code {code or 'none'}",
            what="They share a code, so most likely a cause.", remedy=remedy,
            link=address("/dead-letters", {"code": code}), link_words="See them",
        )  # fmt: skip
