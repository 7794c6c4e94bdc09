"""What is wrong, by conditions over figures: each alert once, with its condition in words and its runbook's anchor.

Pure: readings in, findings out. `flow/watch.py` takes the readings; `deploy/alerts.yml` asks the same of Prometheus,
and a test keeps both lists equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from staffetta.mail.message import Millis, Value
from staffetta.mail.shapes import moment
from staffetta.mail.tally import BOUNDS_MS

WINDOW_MS = 300_000
"""Rates are looked at over so much of the past."""
STALL_MS = 120_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STEP_MS = 600_000
"""Older readings than the window are kept so far apart, for a day."""
LEAST = 10
"""Below so many ends or attempts a share says nothing."""
LEAST_CALLS = 3
"""A receiver that is down is called less and less often."""

FAILURE_SHARE, DEAD_SHARE, CALLBACK_SHARE = 0.10, 0.02, 0.50
DEAD_LETTERS, DEAD_LETTERS_OF_ONE = 100, 50
PROCESSING_MS = 300_000
MEMORY_WARN, MEMORY_CRITICAL = 0.8, 0.9
ANOMALY_TIMES = 3
COMPANIES_MAX = 100
"""Companies told apart by one alert; the largest."""

Severity: TypeAlias = Literal["warning", "critical"]


class Reading(Value, frozen=True, kw_only=True):
    """The figures at one moment. Counts only grow while one process looks."""

    at: Millis
    store_up: bool = True
    sent: int = 0
    failed: int = 0
    dead_letters: int = 0
    """Written so far; `letters` are present."""
    attempts: int = 0
    codes: Mapping[str, int] = {}
    """Attempts by the reply that decided them."""
    processing: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    """Attempts by their time from READY and due to their end, one count a bucket."""
    callbacks: int = 0
    callbacks_failed: int = 0
    letters: int = 0
    letters_by_company: Mapping[str, int] = {}
    in_doubt: int = 0
    """Dead letters present that a human must decide."""
    waiting: int = 0
    paused: bool = False
    """All sending, by an operator."""
    breakers: tuple[tuple[str, str, str], ...] = ()
    """Transport, state, reason."""
    redis_memory: float | None = None
    redis_rejected: int | None = None


class Finding(Value, frozen=True, kw_only=True):
    """What one alert's condition says now."""

    wrong: bool
    value: str
    company_id: str | None = None
    """Where it concerns one company."""


class Alert(Value, frozen=True, kw_only=True):
    """One condition."""

    name: str
    title: str
    severity: Severity
    condition: str
    remedy: str
    runbook: str
    """The runbook's anchor."""
    find: Callable[[Sequence[Reading]], Iterable[Finding]]


class State(Value, frozen=True, kw_only=True):
    """One alert, of one company where `company_id` is set, as it stands."""

    name: str
    firing: bool
    value: str
    since: Millis
    company_id: str | None = None


# ------------------------------------------------------------------------------------------------ the past


def remember(past: Sequence[Reading], now: Reading) -> tuple[Reading, ...]:
    """The readings to keep: all of the window, one every ten minutes of the day before it."""
    kept: list[Reading] = []
    for one in (*past, now):
        if one.at > now.at or one.at < now.at - DAY_MS:
            continue  # a clock that was set back, or too old
        if one.at >= now.at - WINDOW_MS - STEP_MS or not kept or one.at - kept[-1].at >= STEP_MS:
            kept.append(one)
    return tuple(kept)


def _before(past: Sequence[Reading], span_ms: int) -> Reading:
    """The reading that began this span: the newest one that is at least so old, else the oldest there is."""
    since = past[-1].at - span_ms
    return next((one for one in reversed(past) if one.at <= since), past[0])


# ------------------------------------------------------------------------------------------------ conditions


def _share(some: int, of: int, limit: float, least: int = LEAST) -> Finding:
    if of < least:
        return Finding(wrong=False, value=f"{some} of {of}")
    return Finding(wrong=some / of > limit, value=f"{some / of:.1%} ({some} of {of})")


def _failures(past: Sequence[Reading]) -> Iterator[Finding]:
    before, now = _before(past, WINDOW_MS), past[-1]
    failed = now.failed - before.failed
    yield _share(failed, failed + now.sent - before.sent, FAILURE_SHARE)


def _dead_share(past: Sequence[Reading]) -> Iterator[Finding]:
    before, now = _before(past, WINDOW_MS), past[-1]
    ended = now.failed - before.failed + now.sent - before.sent
    yield _share(now.dead_letters - before.dead_letters, ended, DEAD_SHARE)


def _dead_letters(past: Sequence[Reading]) -> Iterator[Finding]:
    size = past[-1].letters
    yield Finding(wrong=size > DEAD_LETTERS, value=f"{size:,}")


def _dead_of_company(past: Sequence[Reading]) -> Iterator[Finding]:
    sizes = past[-1].letters_by_company
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:COMPANIES_MAX]
    over = [(company_id, size) for company_id, size in largest if size > DEAD_LETTERS_OF_ONE]
    most = f"{largest[0][1]:,} at the most" if largest else "0"
    told = ", ".join(f"{company_id}: {size:,}" for company_id, size in over[:5])
    yield Finding(wrong=bool(over), value=told or most)
    for company_id, size in over:
        yield Finding(wrong=True, value=f"{size:,}", company_id=company_id)


def _slow(past: Sequence[Reading]) -> Iterator[Finding]:
    before, now = _before(past, WINDOW_MS), past[-1]
    grown = [a - b for a, b in zip(now.processing, before.processing, strict=True)]
    count = sum(grown)
    if count < LEAST:
        yield Finding(wrong=False, value=f"{count} attempts")
        return
    reached = 0
    for bound, size in zip((*BOUNDS_MS, None), grown, strict=True):
        reached += size
        if reached >= 0.95 * count:
            wrong = bound is None or bound > PROCESSING_MS
            yield Finding(wrong=wrong, value=f"p95 {'over a day' if bound is None else f'{bound / 1000:g} s'}")
            return


def _memory(limit: float) -> Callable[[Sequence[Reading]], Iterator[Finding]]:
    def find(past: Sequence[Reading]) -> Iterator[Finding]:
        used = past[-1].redis_memory
        if used is None:
            yield Finding(wrong=False, value="no Redis")
        else:
            yield Finding(wrong=used > limit, value=f"{used:.0%}")

    return find


def _rejected(past: Sequence[Reading]) -> Iterator[Finding]:
    now = past[-1].redis_rejected
    if now is None:
        yield Finding(wrong=False, value="no Redis")
        return
    before = _before(past, HOUR_MS).redis_rejected
    # Redis counts from its own start: the first look tells of the past as well, a restart begins anew.
    grown = now - before if before is not None and now >= before and len(past) > 1 else now
    yield Finding(wrong=grown > 0, value=f"{grown:,}")


def _stalled(past: Sequence[Reading]) -> Iterator[Finding]:
    now = past[-1]
    span = [one for one in past if one.at >= now.at - STALL_MS]
    before = _before(past, STALL_MS)
    waited = all(one.waiting > 0 and not one.paused for one in (before, *span))
    long_enough = now.at - before.at >= STALL_MS
    value = f"{now.waiting:,} waiting, {now.sent - before.sent:,} sent"
    if now.paused:
        value += "; paused by an operator"
    yield Finding(wrong=waited and long_enough and now.sent == before.sent, value=value)


def _breakers(past: Sequence[Reading]) -> Iterator[Finding]:
    shut = [
        (name, state, reason) for name, state, reason in past[-1].breakers if state in ("open", "half-open")
    ]
    told = "; ".join(f"{name}: {reason}" if reason else name for name, _, reason in shut)
    yield Finding(wrong=bool(shut), value=told or "all closed")


def _fallback(past: Sequence[Reading]) -> Iterator[Finding]:
    before, now = _before(past, STALL_MS // 2), past[-1]
    shut = [name for name, state, _ in now.breakers if state in ("open", "half-open")]
    carried = now.sent - before.sent
    if shut and carried and any(state == "closed" for _, state, _ in now.breakers):
        yield Finding(wrong=True, value=f"{carried:,} sent by others while {', '.join(shut)} is away")
    else:
        yield Finding(wrong=False, value="not in use")


def _anomaly(past: Sequence[Reading]) -> Iterator[Finding]:
    before, now, day = _before(past, WINDOW_MS), past[-1], past[0]
    tried, usual = now.attempts - before.attempts, before.attempts - day.attempts
    strange = []
    if tried >= LEAST and before.at - day.at >= HOUR_MS and usual >= LEAST:
        for code, count in now.codes.items():
            lately = count - before.codes.get(code, 0)
            mean = (before.codes.get(code, 0) - day.codes.get(code, 0)) / usual
            if lately >= LEAST and not code.startswith("2") and lately / tried > ANOMALY_TIMES * mean:
                strange.append((lately / tried, code, mean))
    told = ", ".join(
        f"{code}: {share:.1%}, usually {mean:.1%}" for share, code, mean in sorted(strange)[::-1][:3]
    )
    yield Finding(wrong=bool(strange), value=told or "as usual")


def _callbacks(past: Sequence[Reading]) -> Iterator[Finding]:
    before, now = _before(past, WINDOW_MS), past[-1]
    failed, calls = now.callbacks_failed - before.callbacks_failed, now.callbacks - before.callbacks
    yield _share(failed, calls, CALLBACK_SHARE, LEAST_CALLS)


def _in_doubt(past: Sequence[Reading]) -> Iterator[Finding]:
    count = past[-1].in_doubt
    yield Finding(wrong=count > 0, value=f"{count:,}")


def _store(past: Sequence[Reading]) -> Iterator[Finding]:
    up = past[-1].store_up
    yield Finding(wrong=not up, value="answers" if up else "does not answer")


ALERTS: tuple[Alert, ...] = (
    Alert(name="failure-rate", title="Many e-mails fail", severity="critical", find=_failures,
          condition="FAILED > 10 % of what ended in 5 minutes", runbook="dead-letters-grow",
          remedy="see which codes: `staffetta dlq stats`"),
    Alert(name="dlq-size", title="Dead letters pile up", severity="warning", find=_dead_letters,
          condition="dead letters > 100", runbook="dead-letters-grow",
          remedy="group them by code: `staffetta dlq stats`; mend the cause, then `staffetta dlq retry --code CODE`"),
    Alert(name="dlq-rate", title="Dead letters come fast", severity="critical", find=_dead_share,
          condition="dead letters > 2 % of what ended in 5 minutes", runbook="dead-letters-grow",
          remedy="see which codes: `staffetta dlq stats`"),
    Alert(name="dlq-company", title="One company has many dead letters", severity="warning",
          find=_dead_of_company, condition="dead letters of one company > 50", runbook="dead-letters-grow",
          remedy="look at that company's: `staffetta dlq list --company COMPANY`, and tell it"),
    Alert(name="processing-time", title="E-mails wait too long", severity="warning", find=_slow,
          condition="p95 from due to the end of the attempt > 5 minutes, over 5 minutes",
          runbook="one-company-fills-the-queue",
          remedy="see who waits: `staffetta tenants`; and whether transports are slow: `staffetta status`"),
    Alert(name="redis-memory-80", title="Redis fills up", severity="warning", find=_memory(MEMORY_WARN),
          condition="used_memory / maxmemory > 80 %", runbook="redis-near-its-limit",
          remedy="see what waits and how many dead letters there are; raise `maxmemory` in good time"),
    Alert(name="redis-memory-90", title="Redis is nearly full", severity="critical", find=_memory(MEMORY_CRITICAL),
          condition="used_memory / maxmemory > 90 %", runbook="redis-near-its-limit",
          remedy="raise `maxmemory` now; e-mails are safe in the store, but are found more slowly"),
    Alert(name="redis-rejected", title="Redis turns connections away", severity="critical", find=_rejected,
          condition="rejected_connections > 0 in an hour", runbook="redis-near-its-limit",
          remedy="raise Redis's `maxclients`, or run fewer workers"),
    Alert(name="stalled", title="Nothing is sent while e-mails wait", severity="critical", find=_stalled,
          condition="e-mails waiting and none sent for 2 minutes", runbook="provider-down",
          remedy="see whether workers run and transports answer: `staffetta status`, `staffetta doctor`"),
    Alert(name="breaker-open", title="A transport is away", severity="critical", find=_breakers,
          condition="a transport's breaker is not closed", runbook="provider-down",
          remedy="its e-mails are held and none is lost; the reason is the server's own word: mend it there"),
    Alert(name="fallback-in-use", title="A fallback hides an outage", severity="warning", find=_fallback,
          condition="e-mails leave by another transport while one is away", runbook="provider-down",
          remedy="mend the transport that is away; sending goes back to it by itself"),
    Alert(name="error-anomaly", title="An error code is unusually frequent", severity="warning", find=_anomaly,
          condition="an error code's share of 5 minutes > 3 times its mean of the day",
          runbook="dead-letters-grow", remedy='ask what the reply means: `staffetta explain "CODE …"`'),
    Alert(name="callbacks-failing", title="A callback receiver is down", severity="warning", find=_callbacks,
          condition="callbacks not acknowledged > 50 % in 5 minutes", runbook="callback-receiver-down",
          remedy="nothing is lost: they are repeated until callback.window_hours are over; mend the receiver"),
    Alert(name="in-doubt", title="E-mails in doubt wait for a decision", severity="warning", find=_in_doubt,
          condition="dead letters with code IN-DOUBT > 0", runbook="e-mails-in-doubt",
          remedy="ask the receiving side, then `staffetta dlq resolve ID --delivered`, or send again by `dlq retry`"),
    Alert(name="store-down", title="The store does not answer", severity="critical", find=_store,
          condition="the store cannot be read", runbook="store-full",
          remedy="outcomes wait for it and nothing is claimed; see `staffetta doctor` for disk and access"),
)  # fmt: skip
BY_NAME = {alert.name: alert for alert in ALERTS}


# ------------------------------------------------------------------------------------------------ what follows


def evaluate(past: Sequence[Reading], before: Sequence[State]) -> tuple[State, ...]:
    """Every alert as it stands after the newest reading. `before`: as it stood; `since` stays while nothing turns."""
    known = {(state.name, state.company_id): state for state in before}
    now = past[-1].at
    states: list[State] = []
    for alert in ALERTS:
        if not past[-1].store_up and alert.find is not _store:
            # Nothing is known of the rest: it stands as it stood.
            states += [state for state in before if state.name == alert.name]
            continue
        for found in alert.find(past):
            was = known.get((alert.name, found.company_id))
            since = was.since if was is not None and was.firing == found.wrong else now
            states.append(
                State(
                    name=alert.name, firing=found.wrong, value=found.value, since=since, company_id=found.company_id
                )
            )  # fmt: skip
    return tuple(states)


def turned(before: Sequence[State], after: Sequence[State]) -> list[State]:
    """Those that began or ended between the two."""
    were = {(state.name, state.company_id) for state in before if state.firing}
    are = {(state.name, state.company_id): state for state in after}
    began = [state for key, state in are.items() if state.firing and key not in were]
    over = [state for key, state in are.items() if not state.firing and key in were]
    at = max((state.since for state in after), default=0)
    gone = [
        State(name=state.name, firing=False, value="over", since=at, company_id=state.company_id)
        for state in before
        if state.firing and (state.name, state.company_id) not in are
    ]
    return [*began, *over, *gone]


def shown(state: State) -> dict[str, Any]:
    """As `staffetta alerts`, `/v1/alerts` and the dashboard show it."""
    alert = BY_NAME[state.name]
    told: dict[str, Any] = {
        "name": alert.name,
        "title": alert.title,
        "severity": alert.severity,
        "condition": alert.condition,
        "value": state.value,
        "state": "firing" if state.firing else "ok",
        "since": moment(state.since),
        "remedy": alert.remedy,
        "runbook": f"docs/operating/runbook.md#{alert.runbook}",
    }
    if state.company_id is not None:
        told["company_id"] = state.company_id
    return told
