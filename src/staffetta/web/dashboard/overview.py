"""The front page: is it well, what is wrong and what to do, how much is sent and how fast."""

from __future__ import annotations

import asyncio
from typing import Any

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Value
from staffetta.mail.operators import Filter
from staffetta.mail.trend import Trend
from staffetta.web.asked import Answer
from staffetta.web.dashboard import charts, engine, render, troubles
from staffetta.web.dashboard.visit import Visit
from staffetta.web.dashboard.words import counted, duration, number

MINUTE_MS = 60_000
COMPANIES_SHOWN = 6
RECENT_SHOWN = 8


class Span(Value, frozen=True, kw_only=True):
    """How much of the past the pictures show."""

    name: str
    words: str
    step_ms: int
    count: int

    @property
    def ms(self) -> int:
        return self.step_ms * self.count


SPANS = (
    Span(name="5m", words="5 minutes", step_ms=5_000, count=60),
    Span(name="1h", words="1 hour", step_ms=60_000, count=60),
)


async def overview(visit: Visit) -> Answer:
    if visit.company_id is not None:
        return await _of_company(visit, visit.company_id)
    parts, now = visit.parts, visit.now
    store = parts.store
    sight, health, alerts = await asyncio.gather(parts.sight(), parts.health(), parts.alerts())
    counts, queue, letters, pauses = await asyncio.gather(
        store.counts(), store.queue_counts(now=now), store.dead_letter_counts(), store.pauses()
    )
    span = _span(visit)
    minute, _ = parts.trend.over(now=now, span_ms=MINUTE_MS)
    found = troubles.of(
        troubles.State(
            health=health,
            breakers=sight.breakers(),
            pauses=pauses,
            alerts=alerts,
            letters=letters,
            counts=counts,
            queue=queue,
            senders=sum(bool(each.get("breakers")) for each in sight.processes),
            minute=minute,
            began=parts.trend.since,
            now=now,
        )
    )
    companies = sight.companies()
    sends = engine.sends_of(sight)
    breakers = [{**row, "took": engine.took(sends.get(row["transport"], {}))} for row in sight.breakers()]
    return render.page(
        visit, "overview.html", troubles=found, counts=counts, S=Status, waiting=queue[0], delayed=queue[1],
        active=queue[2], letters=letters, codes=_largest(letters.by_code), breakers=breakers,
        companies=companies[:COMPANIES_SHOWN], companies_all=len(companies),
        busiest=max((row["waiting"] + row["active"] for row in companies), default=0), spans=SPANS, span=span,
        paused_all=next((one for one in pauses if one.scope == "all"), None),
        charts=charts, total=sum(counts.values()), **_trend(parts.trend, span, now),
    )  # fmt: skip


def _span(visit: Visit) -> Span:
    asked = visit.asked().get("span")
    return next((one for one in SPANS if one.name == asked), SPANS[0])


def _trend(trend: Trend, span: Span, now: int) -> dict[str, Any]:
    """The pictures, and the figures beside them."""
    steps = trend.steps(now=now, step_ms=span.step_ms, count=span.count)
    over, waits = trend.over(now=now, span_ms=span.ms)
    minutes = max(1.0, (now - max(over.since, trend.since or now)) / MINUTE_MS)
    told = (
        f"In the last {span.words}: {counted(over.sent, 'e-mail')} sent, {number(over.deferred)} put off,"
        f" {number(over.failed)} given up."
    )
    halves = tuple(waits.percentile(part) for part in (0.5, 0.95, 0.99))
    waited = f"From hand-in to SENT: half within {duration(halves[0])}, 95 in 100 within {duration(halves[1])}."
    return {
        "over": over,
        "per_minute": over.sent / minutes,
        "waits": waits,
        "p50": halves[0],
        "p95": halves[1],
        "p99": halves[2],
        "ended": over.sent + over.failed,
        "flow": charts.flow(steps, per_minute=MINUTE_MS / span.step_ms, words=told),
        "spark": charts.line([one.sent for one in steps[-30:]], words="Sent lately"),
        "spread": charts.spread(waits, words=waited) if waits.count else None,
        "told": told,
    }


def _largest(sizes: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))[:5]


async def _of_company(visit: Visit, company_id: str) -> Answer:
    """What a key bound to one company may see: its own, and nothing of the others or of the engine."""
    parts = visit.parts
    tenants, letters, recent, pauses, health = await asyncio.gather(
        parts.tenants(), parts.store.dead_letter_counts(),
        parts.store.emails(Filter(company_id=company_id), limit=RECENT_SHOWN), parts.store.pauses(),
        parts.health(),
    )  # fmt: skip
    own = next((row for row in tenants if row.get("company_id") == company_id), None)
    paused = any(one.scope == "all" or (one.scope, one.name) == ("company", company_id) for one in pauses)
    down = any(part.needed and part.state == "down" for part in health)
    return render.page(
        visit, "own.html", own=own, dead=letters.by_company.get(company_id, 0), recent=recent.items,
        paused=paused, down=down,
    )  # fmt: skip
