"""Companies: each one's share, how long its e-mails wait, its weight, and pausing it."""

from __future__ import annotations

import asyncio
from typing import Any

from staffetta.errors import FieldProblem
from staffetta.flow import weights
from staffetta.web import problems
from staffetta.web.asked import Answer
from staffetta.web.dashboard import charts, render
from staffetta.web.dashboard.visit import Visit
from staffetta.web.problems import Problem

SHOWN = 100
WAITS_READ = 40
"""For so many of the busiest the oldest waiting e-mail is looked up."""


async def listing(visit: Visit) -> Answer:
    parts, now = visit.parts, visit.now
    asked = visit.asked()
    sought = asked.get("q", "").lower()
    rows, pauses, letters, set_weights = await asyncio.gather(
        parts.tenants(), parts.store.pauses(), parts.store.dead_letter_counts(), weights.read(parts.store)
    )
    own = visit.company_id
    known = {str(row["company_id"]): dict(row) for row in rows if own is None or row["company_id"] == own}
    paused = {one.name: one for one in pauses if one.scope == "company" and own in (None, one.name)}
    for name in paused:
        known.setdefault(name, _unknown(name))
    if own is not None:
        known.setdefault(own, _unknown(own))
    found = [row for name, row in known.items() if sought in name.lower()]
    shown = found[:SHOWN]
    waits = await asyncio.gather(
        *(
            parts.store.waiting(row["company_id"], now=now, limit=1)
            for row in shown[:WAITS_READ]
            if row["waiting"]
        )
    )
    oldest = {jobs[0].company_id: jobs[0].due_at for jobs in waits if jobs}
    processed = sum(row["totalProcessed"] for row in known.values())
    for row in shown:
        name = row["company_id"]
        row["share"] = row["totalProcessed"] / processed if processed else 0.0
        row["oldest"] = oldest.get(name)
        row["paused"] = paused.get(name)
        row["dead"] = letters.by_company.get(name, 0)
        row["weight"] = set_weights.get(name, row["weight"])
    return render.page(
        visit, "companies.html", items=shown, found=len(found), known=len(known), asked=asked, charts=charts,
        busiest=max((row["waiting"] + row["active"] for row in shown), default=0),
        waiting=sum(row["waiting"] for row in known.values()), processed=processed, paused=len(paused),
        did=asked.get("did", ""),
    )  # fmt: skip


def _unknown(name: str) -> dict[str, Any]:
    """A company that no running worker has told of: paused, or quiet since the start."""
    return {
        "company_id": name, "waiting": 0, "active": 0, "weight": 1.0, "roundsWithoutProcessing": 0,
        "currentPriority": None, "consecutiveBatchCount": 0, "totalProcessed": 0, "lastProcessedAt": None,
    }  # fmt: skip


async def set_weight(visit: Visit) -> Answer:
    company_id, word = visit.said("company_id"), visit.said("weight").replace(",", ".")
    if visit.company_id is not None:
        raise Problem(
            "not-allowed", "weights are set against the other companies': this needs a key bound to none"
        )
    if not 1 <= len(company_id) <= 64 or not company_id.isprintable():
        raise problems.told([FieldProblem("company_id", "must be 1 to 64 printable characters")])
    try:
        await weights.set_weight(visit.parts.store, company_id, float(word))
    except ValueError as error:
        said = str(error) if "weight" in str(error) else "must be a number, such as 2 or 0.5"
        raise problems.told([FieldProblem("weight", said)]) from None
    visit.parts.changed()
    return render.seeing("/companies?did=weighed")
