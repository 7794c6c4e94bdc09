"""The one table of routes: dispatch, roles, 405 and Allow, the OpenAPI document and the docs come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from staffetta.mail.keys import Role
from staffetta.mail.message import Value
from staffetta.web import deadletters, emails, engine, pages
from staffetta.web.asked import Answer, Asked
from staffetta.web.dashboard import PAGES
from staffetta.web.dashboard.visit import Page
from staffetta.web.fields import (
    COMPANY,
    DEAD_LETTER_FILTER,
    DELIVERED,
    DRY_RUN,
    EMAIL_FILTER,
    MANY,
    PAGE,
    PAGING,
    TRANSPORT,
    Field,
)

Handler: TypeAlias = Callable[[Asked], Awaitable[Answer]]


class Body(Value, frozen=True, kw_only=True):
    """A request body: a named schema, a list of one, or the fields of a small object."""

    schema: str = ""
    items_max: int = 0
    fields: tuple[Field, ...] = ()
    optional: bool = False


class Route(Value, frozen=True, kw_only=True):
    method: str
    path: str
    handler: Handler
    role: Role | None
    """None: open to everybody."""
    tag: str
    summary: str
    status: int = 200
    answer: str = ""
    """The schema of a good answer; empty: none, or no JSON."""
    media_type: str = "application/json"
    query: tuple[Field, ...] = ()
    body: Body | None = None
    keyed: bool = False
    """Takes an Idempotency-Key."""
    problems: tuple[int, ...] = ()
    """Statuses of problems beyond those that every call may give."""

    @property
    def name(self) -> str:
        """`retry_email`-like: the handler's module and name make the operation's id."""
        return f"{self.handler.__module__.rpartition('.')[2]}_{self.handler.__name__}"


_NO_BODY = Body(optional=True)
_ONE = (404, 409)

TABLE: tuple[Route, ...] = (
    Route(method="POST", path="/v1/emails", handler=emails.hand_in, role="send", tag="e-mails", status=202,
          answer="Kept", body=Body(schema="Payload"), keyed=True, problems=(409,),
          summary="Hand in one e-mail; the answer comes when it is durable"),
    Route(method="POST", path="/v1/emails/batch", handler=emails.hand_in_batch, role="send", tag="e-mails",
          status=202, answer="BatchResults", body=Body(schema="Payload", items_max=1000), keyed=True,
          problems=(409,), summary="Hand in up to 1,000 e-mails; wrong ones are named, right ones are kept"),
    Route(method="GET", path="/v1/emails", handler=emails.listing, role="read", tag="e-mails", answer="Emails",
          query=(*EMAIL_FILTER, *PAGING), summary="E-mails by filter, newest first"),
    Route(method="GET", path="/v1/emails/stale", handler=emails.stale, role="read", tag="e-mails",
          answer="StuckEmails", query=(COMPANY, PAGE), summary="E-mails stuck in an in-work status"),
    Route(method="POST", path="/v1/emails/retry", handler=emails.retry_many, role="operate", tag="e-mails",
          answer="Many", body=Body(fields=(*EMAIL_FILTER, MANY, DRY_RUN)), problems=(409,),
          summary="All failed e-mails of a filter back on their way"),
    Route(method="GET", path="/v1/emails/{id}", handler=emails.one, role="read", tag="e-mails", answer="Story",
          problems=(404,), summary="One e-mail's whole story"),
    Route(method="GET", path="/v1/emails/{id}/history", handler=emails.history, role="read", tag="e-mails",
          answer="History", problems=(404,), summary="The statuses it went through"),
    Route(method="POST", path="/v1/emails/{id}/retry", handler=emails.retry, role="operate", tag="e-mails",
          answer="Kept", body=_NO_BODY, problems=_ONE, summary="A failed e-mail back on its way"),
    Route(method="POST", path="/v1/emails/{id}/cancel", handler=emails.cancel, role="operate", tag="e-mails",
          answer="Kept", body=_NO_BODY, problems=_ONE, summary="Cancel one that was not sent yet"),
    Route(method="POST", path="/v1/emails/{id}/requeue", handler=emails.requeue, role="operate", tag="e-mails",
          answer="Kept", body=_NO_BODY, problems=_ONE, summary="Put one that is stuck back one step"),
    Route(method="DELETE", path="/v1/emails/{id}/content", handler=emails.erase, role="operate", tag="e-mails",
          status=204, problems=_ONE, summary="Erase the content of a finished e-mail, keep its record"),
    Route(method="GET", path="/v1/dlq", handler=deadletters.listing, role="read", tag="dead letters",
          answer="DeadLetters", query=(*DEAD_LETTER_FILTER, *PAGING), summary="Dead letters, newest first"),
    Route(method="GET", path="/v1/dlq/stats", handler=deadletters.stats, role="read", tag="dead letters",
          answer="DeadLetterStats", summary="How many there are, by code and by company"),
    Route(method="POST", path="/v1/dlq/retry", handler=deadletters.retry_many, role="operate",
          tag="dead letters", answer="Many", body=Body(fields=(*DEAD_LETTER_FILTER, MANY, DRY_RUN)),
          summary="All dead letters of a filter back on their way"),
    Route(method="GET", path="/v1/dlq/{id}", handler=deadletters.one, role="read", tag="dead letters",
          answer="WholeDeadLetter", problems=(404,), summary="One dead letter with its payload"),
    Route(method="DELETE", path="/v1/dlq/{id}", handler=deadletters.discard, role="operate", tag="dead letters",
          status=204, problems=(404,), summary="Discard one; the e-mail's record stays"),
    Route(method="POST", path="/v1/dlq/{id}/retry", handler=deadletters.retry, role="operate",
          tag="dead letters", answer="Kept", body=_NO_BODY, problems=_ONE, summary="Its e-mail goes again"),
    Route(method="POST", path="/v1/dlq/{id}/resolve", handler=deadletters.resolve, role="operate",
          tag="dead letters", answer="Kept", body=Body(fields=(DELIVERED,), optional=True), problems=_ONE,
          summary="Close one in doubt as delivered"),
    Route(method="GET", path="/v1/tenants", handler=engine.tenants, role="read", tag="engine", answer="Figures",
          summary="Fairness figures per company"),
    Route(method="GET", path="/v1/alerts", handler=engine.alerts, role="read", tag="engine", answer="Figures",
          summary="Every alert's condition, value and state"),
    Route(method="POST", path="/v1/pause", handler=engine.pause, role="operate", tag="engine", answer="Pauses",
          body=Body(fields=(TRANSPORT, COMPANY), optional=True),
          summary="Stop sending: everything, one transport or one company"),
    Route(method="POST", path="/v1/resume", handler=engine.resume, role="operate", tag="engine",
          answer="Pauses", body=Body(fields=(TRANSPORT, COMPANY), optional=True), summary="Send again"),
    Route(method="GET", path="/healthz", handler=engine.healthz, role=None, tag="watching", answer="Alive",
          summary="The process is alive"),
    Route(method="GET", path="/readyz", handler=engine.readyz, role=None, tag="watching", answer="Readiness",
          problems=(503,), summary="Able to work, each part named"),
    Route(method="GET", path="/metrics", handler=engine.metrics, role="read", tag="watching",
          media_type="text/plain", summary="Prometheus text format 0.0.4"),
    Route(method="GET", path="/openapi.json", handler=pages.openapi_json, role=None, tag="watching",
          media_type="application/json", summary="This document"),
    Route(method="GET", path="/docs", handler=pages.docs, role=None, tag="watching", media_type="text/html",
          summary="This document for reading"),
)  # fmt: skip
"""The API, as its document tells it. The dashboard's pages stand beside it, for people."""

_BY_PATH: dict[str, dict[str, Route | Page]] = {}
for _route in TABLE:
    _BY_PATH.setdefault(_route.path, {})[_route.method] = _route
for _page in PAGES:
    _BY_PATH.setdefault(_page.path, {})[_page.method] = _page


def find(path: str) -> tuple[Mapping[str, Route | Page] | None, str]:
    """The routes of a raw path by method, and the id in it, still percent-encoded. Fixed paths go first."""
    routes = _BY_PATH.get(path)
    if routes is not None:
        return routes, ""
    place = 3 if path.startswith("/v1/") else 2
    head = path.split("/", place + 1)
    if len(head) <= place or not head[place]:
        return None, ""
    pattern = "/".join((*head[:place], "{id}", *head[place + 1 :]))
    return _BY_PATH.get(pattern), head[place]


def allowed(routes: Mapping[str, Route | Page]) -> bytes:
    """The value of Allow for a path."""
    methods = set(routes) | {"OPTIONS"} | ({"HEAD"} if "GET" in routes else set())
    return ", ".join(sorted(methods)).encode()


def tags() -> Sequence[str]:
    return tuple(dict.fromkeys(route.tag for route in TABLE))
