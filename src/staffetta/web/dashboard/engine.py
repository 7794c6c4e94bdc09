"""The engine itself: transports, alerts, settings, pausing; signing in."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from staffetta.errors import FieldProblem
from staffetta.flow.gathering import Sight
from staffetta.mail.tally import SEPARATOR, Spread
from staffetta.mail.trend import Waits
from staffetta.web import problems
from staffetta.web.asked import Answer
from staffetta.web.dashboard import charts, render
from staffetta.web.dashboard.visit import Visit
from staffetta.web.problems import Problem

REPLIES_SHOWN = 8
ACTIONS: Mapping[str, tuple[str, str]] = {
    "DELIVERED": ("taken", "good"),
    "RETRY": ("put off", "wait"),
    "RETRY_SLOW": ("put off, slowly", "wait"),
    "SPLIT": ("the rest went at once", "wait"),
    "HOLD": ("held, not counted", "warn"),
    "FAIL": ("refused", "bad"),
}
"""Verdicts in words, with how they look."""


async def transports(visit: Visit) -> Answer:
    parts = visit.parts
    sight, pauses = await asyncio.gather(parts.sight(), parts.store.pauses())
    paused = {one.name: one for one in pauses if one.scope == "transport"}
    sends = sends_of(sight)
    replies = sight.replies()
    rows = []
    known = sight.breakers()
    names = {row["transport"] for row in known}
    known += [{"transport": name, "state": "paused", "reason": "", "since": 0, "limit": None}
              for name in paused if name not in names]  # fmt: skip
    for row in known:
        name = row["transport"]
        mine = sends.get(name, {})
        rows.append({
            **row,
            "state": "paused" if name in paused else ("closed" if row["state"] == "paused" else row["state"]),
            "paused": paused.get(name),
            "sends": sorted(mine.items(), key=lambda pair: -pair[1].count),
            "tried": sum(spread.count for spread in mine.values()),
            "took": took(mine),
            "replies": [reply for reply in replies if reply["transport"] == name][:REPLIES_SHOWN],
        })  # fmt: skip
    everything = next((one for one in pauses if one.scope == "all"), None)
    return render.page(visit, "transports.html", items=rows, everything=everything, actions=ACTIONS, charts=charts,
                       processes=len(sight.processes), did=visit.asked().get("did", ""))  # fmt: skip


def sends_of(sight: Sight) -> dict[str, dict[str, Spread]]:
    """Transport → verdict → how many and how long, since this process began to look."""
    found: defaultdict[str, dict[str, Spread]] = defaultdict(dict)
    for key, spread in sight.sums.spreads.get("sends", {}).items():
        name, _, action = key.partition(SEPARATOR)
        if action in ACTIONS:
            found[name][action] = spread
    return found


def took(sends: Mapping[str, Spread]) -> Waits:
    """How long it took this transport to take an e-mail."""
    return Waits(buckets=tuple(sends["DELIVERED"].buckets)) if "DELIVERED" in sends else Waits()


async def alerts(visit: Visit) -> Answer:
    """From the same source as `/v1/alerts`."""
    own = visit.company_id
    rows = [dict(row) for row in await visit.parts.alerts() if own is None or row.get("company_id") == own]
    firing = [row for row in rows if is_firing(row)]
    return render.page(visit, "alerts.html", firing=firing, quiet=[row for row in rows if not is_firing(row)])


def is_firing(row: Mapping[str, Any]) -> bool:
    return row.get("state") == "firing"


async def settings(visit: Visit) -> Answer:
    parts = visit.parts
    sight, keys = await asyncio.gather(parts.sight(), parts.store.keys())
    sections: dict[str, list[Any]] = {}
    for one in parts.settings():
        sections.setdefault(one.name.partition(".")[0] if "." in one.name else "general", []).append(one)
    return render.page(
        visit, "settings.html", sections=sections, processes=sight.processes, keys=keys,
        changed=sum(one.source != "default" for one in parts.settings()),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ pausing

_SCOPES = {"all": "/", "transport": "/transports", "company": "/companies"}


async def pause(visit: Visit) -> Answer:
    scope, name = _scope(visit)
    await visit.parts.operator.pause(scope, name)
    return _steered(visit, scope, "paused")


async def resume(visit: Visit) -> Answer:
    scope, name = _scope(visit)
    await visit.parts.operator.resume(scope, name)
    return _steered(visit, scope, "resumed")


def _scope(visit: Visit) -> tuple[str, str]:
    scope, name = visit.said("scope"), visit.said("name")
    if scope not in _SCOPES or bool(name) != (scope != "all") or len(name) > 255 or not name.isprintable():
        raise problems.told([FieldProblem("scope", "all, or a transport or a company by its name")])
    if visit.company_id is not None and (scope, name) != ("company", visit.company_id):
        raise Problem("not-allowed", f"this key may pause only its own company, {visit.company_id}")
    return scope, name


def _steered(visit: Visit, scope: str, what: str) -> Answer:
    visit.parts.changed()
    back = "/transports" if visit.said("back") == "transports" else _SCOPES[scope]
    return render.seeing(back if back == "/" else f"{back}?did={what}")


# ------------------------------------------------------------------------------------------------ signing in


async def sign_in(visit: Visit) -> Answer:
    """The form; who is known already is sent on."""
    if visit.caller.role:
        return render.seeing("/")
    return render.sign_in(visit.token, visit.asked().get("next", "/"))


async def handled_at_the_door(_visit: Visit) -> Answer:
    """Signing in and out and the files are answered before there is a visit."""
    raise problems.no_such_thing()
