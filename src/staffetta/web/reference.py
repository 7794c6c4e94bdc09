"""The reference page of the HTTP API in Markdown, from the same document.

`python -m staffetta.web.reference` prints it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from staffetta.web.openapi import document
from staffetta.web.problems import TITLES

_HEAD = """# HTTP

This page is made from the table of routes (`python -m staffetta.web.reference > docs/reference/http.md`). A
running engine serves the same as `/docs` and, for programs, as `/openapi.json`.

Bodies are JSON (`Content-Type: application/json`), gzip is understood. Keys go into the header
`Authorization: Bearer sk_…`; until the first key is made, only programs on the same machine are answered,
without one. A key of one company sees only its own; another's e-mail answers as one that never was.

Errors are problem details (RFC 9457) whose `errors` name every wrong field:

```json
{"type": "/docs#wrong-fields", "title": "Fields are wrong", "status": 422, "detail": "wrong: to, subject",
 "errors": [{"field": "to", "detail": "is required"}, {"field": "subject", "detail": "is required"}]}
```

Listings come in pages: pass `next_cursor` as `cursor`, with the same filters, until it is null.
"""


def markdown() -> str:
    doc = document()
    parts = [_HEAD, "## Calls\n"]
    for path, calls in doc["paths"].items():
        parts.extend(_call(path, method, call) for method, call in calls.items())
    parts.append("## Problems\n\n| type | status | means |\n|---|---|---|")
    parts.extend(f"| `{kind}` | {status} | {title} |" for kind, (status, title) in TITLES.items())
    parts.append("\n## Shapes\n")
    parts.extend(
        f"### {name}\n\n```json\n{json.dumps(schema, indent=2, ensure_ascii=False)}\n```\n"
        for name, schema in doc["components"]["schemas"].items()
    )
    return "\n".join(parts)


def _call(path: str, method: str, call: dict[str, Any]) -> str:
    lines = [
        f"### {method.upper()} {path}\n",
        f"{call['summary']}. {call.get('description', 'Needs no key.')}\n",
    ]
    if "parameters" in call:
        lines.append("| parameter | in | means |\n|---|---|---|")
        lines += [f"| `{each['name']}` | {each['in']} | {each['description']} |" for each in call["parameters"]]
        lines.append("")
    if "requestBody" in call:
        schema = call["requestBody"]["content"]["application/json"]["schema"]
        lines.append(f"Body: {_named(schema)}.\n")
    for status, response in call["responses"].items():
        if status.startswith("2"):
            shapes = [_named(each["schema"]) for each in response.get("content", {}).values()]
            lines.append(f"Answer: {status}{', ' + shapes[0] if shapes else ''}.")
    lines.append("Problems: " + ", ".join(s for s in call["responses"] if not s.startswith("2")) + ".\n")
    return "\n".join(lines)


def _named(schema: dict[str, Any]) -> str:
    """A shape in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if schema.get("type") == "array":
        return f"a list of {_named(schema['items'])}"
    if "properties" in schema:
        fields = ", ".join(f"`{name}`" for name in schema["properties"])
        return f"an object, each field optional: {fields}" if fields else "none, or an empty object"
    return "text" if schema.get("type") == "string" else "JSON"


if __name__ == "__main__":
    sys.stdout.write(markdown())
