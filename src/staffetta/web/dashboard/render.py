"""Turns facts into pages: the templates, the headers that keep them harmless, the files that stand beside them."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from staffetta.web import problems as told
from staffetta.web.asked import Answer
from staffetta.web.problems import Headers, Problem

if TYPE_CHECKING:
    from jinja2 import Environment

    from staffetta.web.dashboard.visit import Visit

_WEB = Path(__file__).parent.parent
_KINDS = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    b" frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-dns-prefetch-control", b"off"),
)
HTML: Headers = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
    *SAFE,
)

REMEDIES = {
    "not-found": "It may belong to another company, or its record was deleted by retention. Search for it.",
    "no-key": "Sign in with an API key that has the role read or operate.",
    "not-allowed": "Sign in with another key, or ask whoever runs Staffetta for one.",
    "store-away": "Nothing was changed. This page can be loaded again; e-mails that were handed in are safe.",
    "wrong-status": "Nothing was changed. Go back and look at it again.",
    "busy": "Load this page again in a moment.",
}


@functools.cache
def _environment() -> Environment:
    """Made when the first page is asked for: an API without visitors never pays for it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from staffetta.web.dashboard import words

    made = Environment(
        loader=FileSystemLoader(_WEB / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters.update(words.FILTERS)
    made.globals["file"] = _address
    return made


@functools.cache
def _files() -> dict[str, tuple[bytes, bytes, str]]:
    """Name → content, kind, and a sign that changes with it."""
    found = {}
    for path in sorted((_WEB / "static").iterdir()):
        if path.suffix in _KINDS:
            content = path.read_bytes()
            found[path.name] = content, _KINDS[path.suffix], hashlib.sha256(content).hexdigest()[:12]
    return found


def _address(name: str) -> str:
    return f"/static/{name}?v={_files()[name][2]}"


def static(name: str, query: bytes) -> Answer:
    """:raises Problem: there is no such file."""
    file = _files().get(name)
    if file is None:
        raise told.no_such_thing()
    content, kind, sign = file
    kept = b"public, max-age=31536000, immutable" if query == f"v={sign}".encode() else b"no-cache"
    headers = ((b"content-type", kind), (b"cache-control", kept), (b"x-content-type-options", b"nosniff"),
               (b"cross-origin-resource-policy", b"same-origin"))  # fmt: skip
    return Answer(status=200, body=content, headers=headers)


def page(visit: Visit, template: str, *, status: int = 200, **facts: Any) -> Answer:
    """A page of the dashboard."""
    known = {
        "visit": visit, "now": visit.now, "token": visit.token, "may_operate": visit.may_operate,
        "own_company": visit.company_id, "here": f"/{visit.page.path.split('/')[1]}",
    }  # fmt: skip
    return _made(template, status, {**known, **facts})


def _made(template: str, status: int, facts: dict[str, Any]) -> Answer:
    text = _environment().get_template(template).render(facts)
    return Answer(status=status, body=text.encode("utf-8", errors="replace"), headers=HTML)


def sign_in(token: str, onward: str, words: str = "", *, status: int = 200) -> Answer:
    return _made("sign_in.html", status, {"token": token, "onward": onward, "words": words})


def problem(told: Problem) -> Answer:
    """What went wrong, as a page of its own."""
    facts = {
        "title": told.title, "detail": told.detail, "status": told.status,
        "remedy": REMEDIES.get(told.kind, ""), "sign_in": told.kind == "no-key",
    }  # fmt: skip
    made = _made("problem.html", told.status, facts)
    return Answer(status=made.status, body=made.body, headers=(*made.headers, *told.headers))


def seeing(path: str, headers: Headers = ()) -> Answer:
    """Done: look there now. Loading that page again does nothing again."""
    where = (b"location", quote(path, safe="/?&=%+:,;@!$'()*~-._#").encode())
    return Answer(status=303, headers=(where, (b"cache-control", b"no-store"), *headers))
