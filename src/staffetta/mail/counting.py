"""Counts what happens, for metrics and alerts: the listener that hears every event, good attempts too.

It stands in the path of every e-mail, so a good attempt costs it some lookups and no new value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from staffetta.mail import events
from staffetta.mail.attempt import code_of, words
from staffetta.mail.events import Event
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Decision, Millis
from staffetta.mail.tally import BOUNDS_MS, MINUTE_MS, OTHER, SEPARATOR, Spread, Tally

ATTEMPTS_MAX = 50
"""Attempts beyond this share its label."""
ROWS_MAX = 1_000
REPLIES_MAX = 40
"""Different refusals that are remembered; the ones longest not heard go first."""
WORDS_MAX = 300
WAITS_MAX = 20_000
"""E-mails whose last attempt is remembered, to measure the time to the next."""

SENT, FAILED = Status.SENT, Status.FAILED


class Counting:
    """Owns one process's tally."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._told: dict[type[Event], Callable[[Any], None]] = {
            events.Attempted: self.attempted,
            events.Moved: self._moved,
            events.Reported: self._reported,
            events.Restored: self._restored,
            events.LockLost: lambda event: self.tally.count("locks_lost", event.step),
            events.BreakerMoved: lambda event: self.tally.count(
                "breaker_moves", f"{event.transport}{SEPARATOR}{event.state}"
            ),
            events.DeadLetterDropped: lambda event: self.tally.count("dead_letters_dropped", event.why),
            events.Troubled: lambda event: self.tally.count("troubles", event.part),
            events.AcceptedEmail: self._accepted,
        }
        self._deferred: dict[str, Millis] = {}
        """E-mails that wait for their next attempt: id → when the last one ended."""
        self._replies: dict[tuple[str, str, int | str], tuple[Decision, int, Millis]] = {}
        """By transport, action and code: the latest decision, how often, and when."""
        self._rows: dict[tuple[str, str, int | str], tuple[Spread, dict[str, int], str]] = {}
        self._to_sent = self.tally.spread("to_sent")
        self._in_process = self.tally.spread("in_process")
        self._ended = self.tally.counts.setdefault("ended", {"SENT": 0})
        self._minute = -1
        self._attempts: dict[int, list[int]] = {}

    def __call__(self, event: Event) -> None:
        told = self._told.get(type(event))
        if told is not None:
            told(event)

    def attempted(self, event: events.Attempted) -> None:
        at, decision = event.at, event.decision
        if decision is not None:
            reply, action = decision.reply, decision.verdict.action
            said: int | str = reply.code or reply.name
        else:
            action, said = ("DELIVERED" if event.target is SENT else event.cause.value), ""
        row = self._rows.get((event.transport, action, said))
        if row is None:
            row = self._row(event, action, said)
        spread, codes, code = row
        took = at - event.opened_at
        spread.total_ms += took
        spread.buckets[bisect_left(BOUNDS_MS, took)] += 1
        codes[code] += 1
        took = at - (event.due_at or event.opened_at)
        self._in_process.total_ms += took
        self._in_process.buckets[bisect_left(BOUNDS_MS, took)] += 1
        if self._deferred:
            self._waited(event)
        if event.counted:
            minute = at // MINUTE_MS
            if minute != self._minute:
                self._minute, self._attempts = minute, self.tally.minute(minute)
            number = min(ATTEMPTS_MAX, event.attempts)
            both = self._attempts.get(number)
            if both is None:
                both = self._attempts[number] = [0, 0]
            both[1] += 1
            if event.target is SENT:
                both[0] += 1
        if event.target is SENT:
            self._ended["SENT"] += 1
            took = at - event.accepted_at
            self._to_sent.total_ms += took
            self._to_sent.buckets[bisect_left(BOUNDS_MS, took)] += 1
        else:
            self._went_wrong(event)

    def _row(self, event: events.Attempted, action: str, said: int | str) -> tuple[Spread, dict[str, int], str]:
        """Where attempts of this transport, action and code are counted. What servers name is bounded."""
        tally = self.tally
        code = code_of(event.decision.reply) if event.decision is not None else "none"
        tally.count("reply_codes", code, 0)
        codes = tally.counts["reply_codes"]
        kept = code if code in codes else OTHER
        row = (tally.spread("sends", f"{event.transport}{SEPARATOR}{action}"), codes, kept)
        if len(self._rows) < ROWS_MAX:
            self._rows[(event.transport, action, said)] = row
        return row

    def _waited(self, event: events.Attempted) -> None:
        last = self._deferred.pop(event.id, None)
        if last is not None:
            self.tally.spread("between_attempts").add(max(0, event.opened_at - last))

    def replies(self) -> list[dict[str, Any]]:
        """What transports last said when they did not take an e-mail, the latest first."""
        return [
            {"transport": transport, "action": action, "code": code_of(decision.reply), "rule": decision.verdict.rule,
             "words": words(decision.reply)[:WORDS_MAX], "times": times, "at": at}
            for (transport, action, _), (decision, times, at) in reversed(self._replies.items())
        ]  # fmt: skip

    def _remember(self, event: events.Attempted, decision: Decision) -> None:
        """Put into words only when somebody asks: many refusals a second pass here."""
        reply = decision.reply
        key = (event.transport, decision.verdict.action, reply.name or reply.code)
        known = self._replies.pop(key, None)
        self._replies[key] = (decision, 1 if known is None else known[1] + 1, event.at)
        if len(self._replies) > REPLIES_MAX:
            self._replies.pop(next(iter(self._replies)))

    def _went_wrong(self, event: events.Attempted) -> None:
        tally, decision = self.tally, event.decision
        if decision is not None:
            self._remember(event, decision)
        if event.target is FAILED:
            self._end(FAILED)
            return
        if event.cause not in (Cause.DEFERRED, Cause.IN_DOUBT):
            tally.count("given_back", event.cause.value)
            return
        tally.count("retries", str(min(event.attempts, ATTEMPTS_MAX)))
        if decision is not None:
            tally.count("retries_by_category", decision.verdict.category)
            tally.spread("backoff").add(decision.delay_ms)
        if len(self._deferred) >= WAITS_MAX:
            self._deferred.pop(next(iter(self._deferred)))
        self._deferred[event.id] = event.at

    def _moved(self, event: events.Moved) -> None:
        self.tally.count("moves", f"{event.target.value}{SEPARATOR}{event.cause.value}")
        if event.cause in (Cause.EXPIRED, Cause.ENDED_IN_PART):
            self._deferred.pop(event.id, None)
            self._end(event.target)

    def _end(self, status: Status) -> None:
        """An e-mail came to its end without an attempt: given up ones leave a dead letter."""
        self.tally.count("ended", status.value)
        if status is FAILED:
            self.tally.count("dead_letters")

    def _restored(self, event: events.Restored) -> None:
        self.tally.count("restored", event.source.value)
        if event.source is Status.PROCESSING and event.target in (SENT, FAILED):
            self._end(event.target)

    def _reported(self, event: events.Reported) -> None:
        self.tally.count("callbacks", event.outcome, len(event.ids))

    def _accepted(self, event: events.AcceptedEmail) -> None:
        del event
        self.tally.count("accepted")
