"""Figures that live in processes, as each writes them to the store every second and anybody may read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from staffetta.mail.message import Millis
from staffetta.mail.operators import Worker
from staffetta.mail.shapes import moment
from staffetta.queue.contract import CompanyFigures, Depth, Health
from staffetta.store.contract import Store

COMPANIES_MAX = 1_000
"""Companies whose figures are published; the busiest."""
FRESH_MS = 15_000
"""Figures older than this are a dead or stopped worker's."""


def company(one: CompanyFigures) -> dict[str, Any]:
    """One company's figures, under the seed's names."""
    return {
        "company_id": one.company_id,
        "companyId": one.company_id,
        "waiting": one.waiting,
        "active": one.active,
        "weight": one.weight,
        "roundsWithoutProcessing": one.rounds_without_processing,
        "currentPriority": one.current_priority,
        "consecutiveBatchCount": one.consecutive_batch_count,
        "totalProcessed": one.total_processed,
        "lastProcessedAt": moment(one.last_processed_at),
    }


def told(
    worker: Worker,
    done: Mapping[str, int],
    counted: Mapping[str, object],
    *,
    queue: Depth | None,
    health: Health,
    companies: Iterable[CompanyFigures],
    breakers: Iterable[Mapping[str, Any]],
    blocked: Iterable[str],
) -> bytes:
    """What one process tells of itself, as JSON."""
    return msgspec.json.encode(
        {
            "worker": {
                "id": worker.id, "host": worker.host, "pid": worker.pid, "started_at": worker.started_at, **done,
            },
            "queue": queue,
            "shared": health.shared,
            "companies": busiest(companies),
            "breakers": list(breakers),
            "blocked": sorted(blocked)[:COMPANIES_MAX],
            **server(health),
            **counted,
        }
    )  # fmt: skip


def busiest(known: Iterable[CompanyFigures]) -> list[dict[str, Any]]:
    companies = sorted(known, key=lambda one: (-one.waiting, one.company_id))
    return [company(one) for one in companies[:COMPANIES_MAX]]


def server(health: Health) -> dict[str, dict[str, float | int]]:
    """The gauges of a queue that lives in a server of its own."""
    if health.memory_used_ratio is None and health.rejected_connections is None:
        return {}
    ratio, rejected = health.memory_used_ratio or 0.0, health.rejected_connections or 0
    return {"redis": {"memory_used_ratio": ratio, "rejected_connections": rejected}}


async def published(store: Store, *, now: Millis) -> list[dict[str, Any]]:
    """What each living worker last told."""
    found = await store.figures(newer_than=now - FRESH_MS)
    told = [msgspec.json.decode(figures) for _, figures in sorted(found.items())]
    shared: set[str] = set()
    for each in told:
        # Several workers on one queue tell the same companies: one of them counts.
        name = each.get("shared", "")
        if name and name in shared:
            each["companies"] = []
        shared.add(name)
    return told


async def tenants(store: Store, *, now: Millis) -> list[dict[str, Any]]:
    """Every company's figures, the busiest first; those of several workers are laid together."""
    told = await published(store, now=now)
    return laid_together(row for each in told for row in each.get("companies", ()))


def laid_together(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    companies: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = companies.get(row["companyId"])
        if known is None:
            companies[row["companyId"]] = dict(row)
            continue
        for name in ("waiting", "active", "totalProcessed"):
            known[name] += row[name]
        for name in ("roundsWithoutProcessing", "consecutiveBatchCount"):
            known[name] = max(known[name], row[name])
        known["currentPriority"] = min(known["currentPriority"], row["currentPriority"])
        known["lastProcessedAt"] = max(known["lastProcessedAt"] or "", row["lastProcessedAt"] or "") or None
    return sorted(companies.values(), key=lambda row: (-row["waiting"] - row["active"], row["companyId"]))
