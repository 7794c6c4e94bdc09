"""Writes what happened to standard error: JSON lines, or readable ones on a terminal. The flow only emits.

Addresses are masked wherever they stand; content and secrets are in no event, so they cannot come out here.
Every line about an e-mail carries its id as `jobId`, so that one search tells its story through all stages.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Literal

import msgspec

from staffetta.mail import events
from staffetta.mail.attempt import code_of, words
from staffetta.mail.events import Event
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Decision, Millis

Level = Literal["debug", "info", "warning", "error"]
RANKS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
SEED_NAMES = {"warning": "warn"}
"""The seeds write `warn`; everything else reads the same."""
BODY_MAX = 2_048
FLUSH_SECONDS = 0.05
FLUSH_BYTES = 65_536
PIPE_BYTES = 4_096
"""Several processes may write so much into one pipe at a time without mixing their lines (PIPE_BUF)."""

_ADDRESS = re.compile(
    r"""((?:"(?:[^"\\]|\\.){0,64}"|[^\s<>@,;:"'()\[\]]+))@(\[[^\]\s]{1,80}\]|[^\s<>@,;:"'()\[\]]+)"""
)
"""Also with a quoted local part, and at an address in brackets: servers repeat what they were told."""
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")
"""What a terminal would obey: another's words must not move its cursor or begin a line."""
Line = tuple[Level, str, dict[str, Any]]


def mask(text: str) -> str:
    """`user@example.com` becomes `u***@e***.com`, wherever it stands in the text."""
    return _ADDRESS.sub(_masked, text) if "@" in text else text


def _masked(found: re.Match[str]) -> str:
    local, domain = found.group(1), found.group(2)
    local = local.removeprefix('"')
    head, dot, last = domain.rpartition(".")
    if not dot or domain.startswith("["):
        return f"{local[:1]}***@{domain[:1]}***"
    return f"{local[:1]}***@{head[:1]}***.{last}"


class Clockface:
    """Milliseconds as RFC 3339 in UTC; the second's part is made once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def show(self, at: Millis) -> str:
        second, millis = divmod(at, 1000)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{millis:03d}Z"


# ------------------------------------------------------------------------------------------------- what is said


def _attempted(event: events.Attempted) -> Line:
    told: dict[str, Any] = {
        "jobId": event.id,
        "companyId": event.company_id,
        "attempt": event.attempts if event.counted else event.attempts + 1,
        "maxAttempts": event.max_attempts,
    }
    decision = event.decision
    if event.target is Status.READY:
        told |= _failure(decision, event.reason)
        told["nextRetryDelay"] = decision.delay_ms if decision else 0
        told["isRetryable"] = True
        told |= _why(event)
        if event.cause is not Cause.DEFERRED:
            told["cause"] = event.cause.value
            told["counted"] = event.counted
        if event.cause is Cause.STOPPED:
            return "info", "Job given back", told
        return "warning", "Job failed, scheduling retry", told
    if event.target is Status.FAILED:
        told |= _failure(decision, event.reason)
        told["isRetryable"] = False
        told |= _why(event)
        told["cause"] = event.cause.value
        return "error", "Job failed permanently", told
    told["transport"] = event.transport
    told["reply"] = mask(event.reason)
    told["durationMs"] = event.at - event.opened_at
    told["sinceAcceptedMs"] = event.at - event.accepted_at
    if event.cause is Cause.ENDED_IN_PART:
        return "warning", "Job sent in part", told
    return "info", "Job sent", told


def _failure(decision: Decision | None, reason: str) -> dict[str, Any]:
    """The code by itself and the server's words by themselves, as the seed's line has them."""
    if decision is None:
        return {"errorCode": "", "errorReason": mask(reason)}
    said = decision.reply.text.translate(_CONTROLS).strip() or words(decision.reply)
    return {"errorCode": code_of(decision.reply), "errorReason": mask(said)}


def _why(event: events.Attempted) -> dict[str, Any]:
    told: dict[str, Any] = {"transport": event.transport}
    if event.decision is not None:
        told |= {"category": event.decision.verdict.category, "rule": event.decision.verdict.rule}
    return told


def _moved(event: events.Moved) -> Line:
    told = {
        "jobId": event.id,
        "companyId": event.company_id,
        "from": event.source.value,
        "to": event.target.value,
        "cause": event.cause.value,
        "reason": mask(event.reason),
    }
    if event.target is Status.FAILED:
        asked_for = event.cause is Cause.CANCELLED
        return "info" if asked_for else "error", "Job failed permanently", told
    if event.target is Status.INVALID:
        return "warning", "Payload is invalid", told
    return "info", f"Job is {event.target.value}", told


def _reported(event: events.Reported) -> Line:
    told: dict[str, Any] = {
        "jobIds": list(event.ids),
        "companyId": event.company_id,
        "outcome": event.outcome,
        "status": event.status,
    }
    if event.outcome == "acknowledged":
        return "info", "Callback acknowledged", told
    told["body"] = mask(event.body[:BODY_MAX])
    return "error", f"Callback {event.outcome}", told


def _lock_lost(event: events.LockLost) -> Line:
    told = {"jobId": event.id, "companyId": event.company_id, "step": event.step}
    return "warning", "failed to acquire processing lock", told


def _breaker(event: events.BreakerMoved) -> Line:
    told = {"transport": event.transport, "state": event.state, "reason": mask(event.reason)}
    return ("info" if event.state == "closed" else "error"), f"Transport {event.state}", told


def _restored(event: events.Restored) -> Line:
    told = {
        "jobId": event.id,
        "companyId": event.company_id,
        "from": event.source.value,
        "to": event.target.value,
        "worker": event.worker,
    }
    return "warning", "Job taken back from a dead worker", told


def _dropped(event: events.DeadLetterDropped) -> Line:
    return "info", "Dead letter dropped", {"jobId": event.id, "companyId": event.company_id, "why": event.why}


def _troubled(event: events.Troubled) -> Line:
    return "error", mask(event.message), {"part": event.part, "error": mask(event.error)}


def _accepted(event: events.AcceptedEmail) -> Line:
    return "debug", "Job accepted", {"jobId": event.id, "companyId": event.company_id}


def _alert(event: events.AlertMoved) -> Line:
    told = {
        "alert": event.alert,
        "state": event.state,
        "value": event.value,
        "condition": event.condition,
        "detail": mask(event.detail),
    }
    return ("error", "Alert is firing", told) if event.state == "firing" else ("info", "Alert is over", told)


_LINES: dict[type[Event], Callable[[Any], Line]] = {
    events.Attempted: _attempted,
    events.Moved: _moved,
    events.Reported: _reported,
    events.LockLost: _lock_lost,
    events.BreakerMoved: _breaker,
    events.Restored: _restored,
    events.DeadLetterDropped: _dropped,
    events.Troubled: _troubled,
    events.AlertMoved: _alert,
    events.AcceptedEmail: _accepted,
}


class _Sent(msgspec.Struct, rename="camel"):
    """The line of a good attempt. They are the bulk, so theirs is written without a table in between."""

    level: str
    message: str
    job_id: str
    company_id: str
    attempt: int
    max_attempts: int
    transport: str
    reply: str
    duration_ms: int
    since_accepted_ms: int
    timestamp: str


# ------------------------------------------------------------------------------------------------------ writing


class Log:
    """A listener that writes. Lines are gathered for a moment; what is serious is written at once."""

    def __init__(
        self,
        *,
        level: Level = "info",
        levels: Mapping[str, str] | None = None,
        form: Literal["auto", "json", "text"] = "auto",
        stream: BinaryIO | None = None,
        write_bytes: int = FLUSH_BYTES,
    ) -> None:
        """`levels`: sections with a level of their own. `write_bytes`: written in one piece at most."""
        self._least = RANKS[level]
        self._levels = {section: RANKS[own] for section, own in (levels or {}).items()}
        self._least_sent = self._levels.get("deliver", self._least)
        self._stream = stream if stream is not None else sys.stderr.buffer
        self._json = form == "json" or (form == "auto" and not self._stream.isatty())
        self._clockface = Clockface()
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._bytes = 0
        self._write_bytes = write_bytes
        self._timer: asyncio.TimerHandle | None = None

    @property
    def hears_attempts(self) -> bool:
        """Whether every attempt is written, the good ones too."""
        return self._least_sent <= RANKS["info"]

    def __call__(self, event: Event) -> None:
        if type(event) is events.Attempted and event.cause is Cause.DELIVERED and self._json:
            if self._least_sent <= RANKS["info"]:
                self._sent(event)
            return
        line = _LINES.get(type(event))
        if line is None:
            return
        level, message, told = line(event)
        self.write(level, message, told, at=event.at, section=events.section_of(event))

    def _sent(self, event: events.Attempted) -> None:
        reason = event.reason
        line = _Sent(
            "info",
            "Job sent",
            event.id,
            event.company_id,
            event.attempts,
            event.max_attempts,
            event.transport,
            mask(reason) if "@" in reason else reason,
            event.at - event.opened_at,
            event.at - event.accepted_at,
            self._clockface.show(event.at),
        )
        self._add(self._encoder.encode(line))

    def write(self, level: Level, message: str, told: dict[str, Any], *, at: Millis, section: str = "") -> None:
        """One line. `told` has been masked already."""
        if RANKS[level] < self._levels.get(section, self._least):
            return
        shown = self._clockface.show(at)
        if self._json:
            line = self._encoder.encode(
                {"level": SEED_NAMES.get(level, level), "message": message, **told, "timestamp": shown}
            )
        else:
            words_ = " ".join(f"{name}={value}" for name, value in told.items() if value not in ("", None))
            text = f"{shown[11:23]} {SEED_NAMES.get(level, level):5} {message}  {words_}"
            line = (text if text.isprintable() else text.translate(_CONTROLS)).encode(errors="replace")
        self._add(line, at_once=level == "error")

    def _add(self, line: bytes, *, at_once: bool = False) -> None:
        if self._bytes + len(line) >= self._write_bytes:
            self.flush()
        self._lines.append(line)
        self._bytes += len(line) + 1
        if at_once:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        gathered = b"\n".join(self._lines) + b"\n"
        self._lines.clear()
        self._bytes = 0
        try:
            self._stream.write(gathered)
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads any more (a closed pipe, a full disk). Sending mail goes on without a log.
            return


class Listeners:
    """Passes every event to everyone who listens. One listener's trouble is not the flow's."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Event], None]] = []
        self.attempts_heard = False
        """Somebody wants to hear of good attempts too: they are the bulk, so nobody makes them for nothing."""

    def add(self, listener: Callable[[Event], None], *, attempts: bool = True) -> None:
        self._listeners.append(listener)
        self.attempts_heard = self.attempts_heard or attempts

    def __call__(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001  # a listener must never stop an e-mail
                print(f"staffetta: a listener failed: {error!r}", file=sys.stderr)  # noqa: T201  # there is no log to tell
