"""The API for reading by people, made from the OpenAPI document."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from html import escape
from typing import Any

from staffetta.web.asked import JSON, Answer, Asked, answer
from staffetta.web.problems import TITLES, Headers

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;"
    "background:#fff}code,pre{font:14px/1.45 ui-monospace,monospace;background:#f3f3f0}pre{padding:.8rem;"
    "overflow:auto}table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;"
    "padding:.3rem .5rem;text-align:left;vertical-align:top}h3{margin-top:2.5rem}"
    "@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#171717}code,pre{background:#262626}"
    "td,th{border-color:#444}a{color:#8ab4f8}}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_HTML: Headers = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


async def openapi_json(_asked: Asked) -> Answer:
    return _openapi()


async def docs(_asked: Asked) -> Answer:
    return Answer(status=200, body=_docs(), headers=_HTML)


@functools.cache
def _openapi() -> Answer:
    from staffetta.web.openapi import document  # it reads the table of routes, which names this module's pages

    made = answer(200, document())
    headers = tuple(pair for pair in JSON if pair[0] != b"cache-control")
    return Answer(status=200, body=made.body, headers=(*headers, (b"cache-control", b"no-cache")))


@functools.cache
def _docs() -> bytes:
    from staffetta.web.openapi import document

    doc = document()
    parts = [
        f"<h1>Staffetta {escape(doc['info']['version'])}: HTTP</h1>",
        f"<p>{escape(doc['info']['description'])}</p>",
        f"<p>{_ticked(doc['components']['securitySchemes']['key']['description'])}</p>",
        '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>',
        "<h2>Calls</h2><table>",
    ]
    calls = [(path, method, call) for path, methods in doc["paths"].items() for method, call in methods.items()]
    for path, method, call in calls:
        link = f'<a href="#{call["operationId"]}"><code>{method.upper()} {escape(path)}</code></a>'
        parts.append(f"<tr><td>{link}</td><td>{escape(call['summary'])}</td></tr>")
    parts.append("</table>")
    parts.extend(_call(path, method, call) for path, method, call in calls)
    parts.append("<h2>Shapes</h2>")
    for name, schema in doc["components"]["schemas"].items():
        parts.append(f'<h3 id="schema-{name}">{name}</h3><pre>{escape(json.dumps(schema, indent=1))}</pre>')
    parts.append(
        '<h2 id="problems">Problems</h2><p>Errors are problem details (RFC 9457); '
        '<a href="#schema-Problem">their shape</a>.</p>'
        "<table><tr><th>Type</th><th>Status</th><th>Means</th></tr>"
    )
    for kind, (status, title) in TITLES.items():
        parts.append(
            f'<tr id="{kind}"><td><code>{kind}</code></td><td>{status}</td><td>{escape(title)}</td></tr>'
        )
    parts.append("</table>")
    return _page("Staffetta: HTTP", "\n".join(parts))


def _call(path: str, method: str, call: dict[str, Any]) -> str:
    parts = [
        f'<h3 id="{call["operationId"]}"><code>{method.upper()} {escape(path)}</code></h3>',
        f"<p>{escape(call['summary'])}. {_ticked(call.get('description', 'Needs no key.'))}</p>",
    ]
    if "parameters" in call:
        parts.append("<table><tr><th>Parameter</th><th>In</th><th>Means</th><th>Value</th></tr>")
        for each in call["parameters"]:
            value = escape(json.dumps(each["schema"]))
            parts.append(f"<tr><td><code>{each['name']}</code></td><td>{each['in']}</td>"
                         f"<td>{_ticked(each['description'])}</td><td><code>{value}</code></td>")  # fmt: skip
        parts.append("</table>")
    if "requestBody" in call:
        schema = call["requestBody"]["content"]["application/json"]["schema"]
        word = "Body" if call["requestBody"]["required"] else "Body (may be left out)"
        parts.append(f"<p>{word}: {_schema(schema)}</p>")
    for status, response in call["responses"].items():
        if status.startswith("2"):
            content = response.get("content", {})
            shown = "".join(f"{media}: {_schema(each['schema'])}" for media, each in content.items())
            parts.append(f"<p>Answer {status}: {shown or 'no body'}</p>")
    problems = ", ".join(status for status in call["responses"] if not status.startswith("2"))
    parts.append(f'<p>Problems: {problems} (<a href="#problems">all problems</a>)</p>')
    return "\n".join(parts)


def _schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{name}">{name}</a>'
    if schema.get("type") == "array":
        return f"a list of {_schema(schema['items'])}"
    return f"<pre>{escape(json.dumps(schema, indent=1))}</pre>" if schema else "JSON"


def _ticked(text: str) -> str:
    """Escaped, with `ticks` as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))


def _page(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    ).encode()
