"""A transport's breaker. Pure: every step takes the breaker and the time, and gives the next one.

    closed ── HOLD, or five failures in a row that reach the transport ─▶ open ── its wait is over ─▶ half-open
      ▲                                                                    ▲                              │
      │ e-mails went well                                                  ├── the probe failed ──────────┤
      │                                                                    │   (a longer wait)            │
      └── closed, on trial ── it fails again (a longer wait) ──────────────┘                              │
                ▲                                                                                         │
                └───────────────────────── the probe went well ───────────────────────────────────────────┘

A probe connects and signs in without an e-mail, so it cannot see trouble that shows only later (an account's
daily quota). Therefore a breaker that closes is on trial: few e-mails at a time, more with each that goes well.
On trial it opens sooner and for longer, so that a relay that greets well and then fails does not make it flap.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from staffetta.mail.message import Millis, Value, Verdict

FAILURES_MAX = 5
TRIAL_FAILURES_MAX = 2
"""On trial: what was in flight when it opened may still fail once without telling anything new."""
TRIAL_SUCCESSES = 5
FIRST_WAIT_MS = 1_000
WAIT_MAX_MS = 60_000
ACCOUNT_FIRST_WAIT_MS = 5_000
ACCOUNT_WAIT_MAX_MS = 600_000
"""Trouble of the sender's account is tried with e-mails, so it is tried less often."""
JITTER = 0.25


class Breaker(Value, frozen=True, kw_only=True):
    """What is known of one transport's health."""

    state: Literal["closed", "open", "half-open"] = "closed"
    since: Millis = 0
    """When the trouble began; kept until e-mails go well again. 0: there is none."""
    reason: str = ""
    """The words of the last trouble."""
    rule: str = ""
    """The rule of the verdict that told of it."""
    account: bool = False
    """The sender's account is in trouble, not the way there."""
    unseen: bool = False
    """E-mails failed on trial, after a probe that went well: it cannot see this trouble."""
    failures: int = 0
    """In a row, each of which reached the transport."""
    openings: int = 0
    """How often it opened since it last was well: the wait grows with it."""
    successes: int = 0
    """E-mails that went well on trial."""
    probe_at: Millis = 0
    """When it is probed; 0 unless it is open."""

    @property
    def lets_through(self) -> bool:
        return self.state == "closed"

    @property
    def on_trial(self) -> bool:
        return self.state == "closed" and self.openings > 0

    @property
    def shown(self) -> str:
        """For who watches: a good probe ends no trouble that it cannot see; the first e-mail that goes well does."""
        blind = self.on_trial and not self.successes and (self.account or self.unseen)
        return "half-open" if blind else self.state

    @property
    def room(self) -> int | None:
        """How many e-mails may be in flight at once: on trial few, twice as many with each that goes well."""
        if self.state != "closed":
            return 0
        return 1 << self.successes if self.openings else None


CLOSED = Breaker()


def counts_against(verdict: Verdict) -> bool:
    """Trouble of the transport or of the sender's account, not of one e-mail or its destination."""
    return verdict.action == "HOLD" or (verdict.reach == "transport" and verdict.action != "FAIL")


def after_verdict(breaker: Breaker, verdict: Verdict, *, reason: str, now: Millis, draw: float) -> Breaker:
    """What one reply on this transport makes of its breaker. One that is not closed learns from its probe."""
    if breaker.state != "closed" or verdict.in_doubt:
        return breaker
    if counts_against(verdict):
        return _failed(breaker, verdict, reason=reason, now=now, draw=draw)
    if not breaker.openings:
        return CLOSED
    # A "no" to one e-mail shows that the way there is open, but not that an account may send.
    if breaker.account and verdict.action != "DELIVERED":
        return breaker
    successes = breaker.successes + 1
    if successes >= TRIAL_SUCCESSES:
        return CLOSED
    return msgspec.structs.replace(breaker, failures=0, successes=successes)


def probe_due(breaker: Breaker, *, now: Millis) -> bool:
    return breaker.state == "open" and now >= breaker.probe_at


def begin_probe(breaker: Breaker) -> Breaker:
    """One probe is on its way, and nothing else."""
    return msgspec.structs.replace(breaker, state="half-open", probe_at=0)


def after_probe(breaker: Breaker, verdict: Verdict | None, *, reason: str, now: Millis, draw: float) -> Breaker:
    """What the probe brought. `None`: the way is open."""
    if verdict is None:
        return msgspec.structs.replace(breaker, state="closed", failures=0, successes=0, probe_at=0)
    told = _told(breaker, verdict, reason=reason, now=now)
    return _opened(told, now=now, draw=draw)


def wait_ms(openings: int, *, draw: float, account: bool = False) -> int:
    """How long the n-th opening in a row waits for its probe: doubling, bounded, spread by the draw."""
    first, most = (ACCOUNT_FIRST_WAIT_MS, ACCOUNT_WAIT_MAX_MS) if account else (FIRST_WAIT_MS, WAIT_MAX_MS)
    doubled = min(most, first << min(max(openings, 1) - 1, 30))
    return round(doubled + (draw * 2 - 1) * (doubled * JITTER))


def _failed(breaker: Breaker, verdict: Verdict, *, reason: str, now: Millis, draw: float) -> Breaker:
    told = _told(breaker, verdict, reason=reason, now=now)
    limit = TRIAL_FAILURES_MAX if told.openings else FAILURES_MAX
    if verdict.action == "HOLD" or told.failures >= limit:
        return _opened(told, now=now, draw=draw)
    return told


def _told(breaker: Breaker, verdict: Verdict, *, reason: str, now: Millis) -> Breaker:
    return msgspec.structs.replace(
        breaker,
        since=breaker.since or now,
        reason=reason,
        rule=verdict.rule,
        account=verdict.label == "account",
        unseen=breaker.unseen or breaker.on_trial,
        failures=breaker.failures + 1,
        successes=0,
    )


def _opened(breaker: Breaker, *, now: Millis, draw: float) -> Breaker:
    openings = breaker.openings + 1
    probe_at = now + wait_ms(openings, draw=draw, account=breaker.account)
    return msgspec.structs.replace(breaker, state="open", openings=openings, probe_at=probe_at)
