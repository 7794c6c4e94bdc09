"""How the engine is, and pausing it: health, readiness, metrics, fairness figures, alerts, pauses."""

from __future__ import annotations

from typing import Any

from staffetta.errors import FieldProblem
from staffetta.mail import shapes
from staffetta.web.asked import JSON, Answer, Asked, answer
from staffetta.web.fields import COMPANY, TRANSPORT
from staffetta.web.parts import Figures, PartHealth
from staffetta.web.problems import Headers, Problem, told

_TEXT: Headers = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_ALIVE = Answer(status=200, body=b'{"status":"ok"}', headers=JSON)


async def healthz(_asked: Asked) -> Answer:
    return _ALIVE


async def readyz(asked: Asked) -> Answer:
    """200 while e-mails can be handed in, `degraded` where something else is wrong; 503 where they cannot."""
    parts = await asked.parts.health()
    if any(part.needed and part.state == "down" for part in parts):
        status, word = 503, "down"
    elif any(part.state != "ok" for part in parts):
        status, word = 200, "degraded"
    else:
        status, word = 200, "ok"
    return answer(status, {"status": word, "parts": {part.name: _shown(part) for part in parts}})


def _shown(part: PartHealth) -> dict[str, Any]:
    return {"status": part.state, "detail": part.detail}


async def metrics(asked: Asked) -> Answer:
    if asked.company_id is not None:
        raise Problem("not-allowed", "metrics speak of every company: this needs a key that is bound to none")
    text = await asked.parts.metrics()
    return Answer(status=200, body=text.encode(), headers=_TEXT)


async def tenants(asked: Asked) -> Answer:
    asked.queried()
    return answer(200, {"items": _own(asked, await asked.parts.tenants())})


async def alerts(asked: Asked) -> Answer:
    asked.queried()
    return answer(200, {"items": _own(asked, await asked.parts.alerts())})


def _own(asked: Asked, figures: Figures) -> list[dict[str, Any]]:
    own = asked.company_id
    return [dict(each) for each in figures if own is None or each.get("company_id") == own]


async def pause(asked: Asked) -> Answer:
    scope, name = await _scope(asked)
    await asked.parts.operator.pause(scope, name)
    return await _pauses(asked)


async def resume(asked: Asked) -> Answer:
    scope, name = await _scope(asked)
    await asked.parts.operator.resume(scope, name)
    return await _pauses(asked)


async def _scope(asked: Asked) -> tuple[str, str]:
    """What is meant: nothing said is everything, for those who may."""
    asked.queried()
    values = await asked.said((TRANSPORT, COMPANY), optional=True)
    transport, company_id = values["transport"], values["company_id"]
    if transport and company_id:
        problem = "name a transport or a company, not both"
        raise told([FieldProblem("transport", problem), FieldProblem("company_id", problem)])
    if asked.company_id is not None and company_id != asked.company_id:
        detail = f'this key may pause only its own company: send {{"company_id": "{asked.company_id}"}}'
        raise Problem("not-allowed", detail)
    if transport:
        return "transport", transport
    return ("company", company_id) if company_id else ("all", "")


async def _pauses(asked: Asked) -> Answer:
    asked.parts.changed()
    own = asked.company_id
    pauses = await asked.parts.store.pauses()
    shown = [
        shapes.pause(each) for each in pauses if own is None or (each.scope, each.name) == ("company", own)
    ]
    return answer(200, {"pauses": shown})
