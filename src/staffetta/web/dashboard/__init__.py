"""The dashboard: what the engine does, for people, and their hands on it. Its pages, one row each.

Everything shown comes from the store's contract, from the figures that processes publish and from `flow/operate`;
no page counts by scanning. Reading needs no script.
"""

from __future__ import annotations

from staffetta.web.dashboard import companies, emails, engine, letters, overview
from staffetta.web.dashboard.visit import Page

PAGES: tuple[Page, ...] = (
    Page(method="GET", path="/", handler=overview.overview),
    Page(method="GET", path="/emails", handler=emails.listing),
    Page(method="GET", path="/emails/{id}", handler=emails.story),
    Page(method="GET", path="/emails/{id}/body", handler=emails.body),
    Page(method="GET", path="/emails/{id}/raw", handler=emails.raw),
    Page(method="POST", path="/emails/{id}/retry", handler=emails.retry, role="operate"),
    Page(method="POST", path="/emails/{id}/cancel", handler=emails.cancel, role="operate"),
    Page(method="POST", path="/emails/{id}/resolve", handler=emails.resolve, role="operate"),
    Page(method="POST", path="/emails/{id}/requeue", handler=emails.requeue, role="operate"),
    Page(method="POST", path="/emails/{id}/discard", handler=emails.discard, role="operate"),
    Page(method="POST", path="/emails/{id}/erase", handler=emails.erase, role="operate"),
    Page(method="GET", path="/dead-letters", handler=letters.listing),
    Page(method="POST", path="/dead-letters", handler=letters.act, role="operate"),
    Page(method="GET", path="/dead-letters/export", handler=letters.export),
    Page(method="GET", path="/companies", handler=companies.listing),
    Page(method="POST", path="/companies/weight", handler=companies.set_weight, role="operate"),
    Page(method="GET", path="/transports", handler=engine.transports, whole=True),
    Page(method="GET", path="/alerts", handler=engine.alerts),
    Page(method="GET", path="/settings", handler=engine.settings, whole=True),
    Page(method="POST", path="/pause", handler=engine.pause, role="operate"),
    Page(method="POST", path="/resume", handler=engine.resume, role="operate"),
    Page(method="GET", path="/sign-in", handler=engine.sign_in, role=None),
    Page(method="POST", path="/sign-in", handler=engine.handled_at_the_door, role=None),
    Page(method="POST", path="/sign-out", handler=engine.handled_at_the_door, role=None),
    Page(method="GET", path="/static/{id}", handler=engine.handled_at_the_door, role=None),
)  # fmt: skip
