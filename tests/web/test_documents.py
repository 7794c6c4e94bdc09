"""The documents: OpenAPI from the table of routes, pages without scripts, and answers that keep to what is written."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from doubles.front import Front
from staffetta.mail import payload
from staffetta.mail.operators import Filter
from staffetta.web import reference
from staffetta.web.openapi import document
from staffetta.web.problems import TITLES
from staffetta.web.routes import TABLE, Route
from staffetta.web.schemas import PAYLOAD, SCHEMAS

ROOT = Path(__file__).parents[2]


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_every_call_of_the_contract_is_in_the_table() -> None:
    contract = """
        POST /v1/emails  POST /v1/emails/batch  GET /v1/emails  GET /v1/emails/{id}  GET /v1/emails/{id}/history
        POST /v1/emails/{id}/retry  POST /v1/emails/retry  POST /v1/emails/{id}/cancel
        DELETE /v1/emails/{id}/content  GET /v1/emails/stale  POST /v1/emails/{id}/requeue
        GET /v1/dlq  GET /v1/dlq/stats  GET /v1/dlq/{id}  POST /v1/dlq/{id}/retry  POST /v1/dlq/{id}/resolve
        POST /v1/dlq/retry  DELETE /v1/dlq/{id}  GET /v1/tenants  GET /v1/alerts  POST /v1/pause  POST /v1/resume
        GET /healthz  GET /readyz  GET /metrics  GET /openapi.json  GET /docs
    """
    assert {" ".join(pair) for pair in re.findall(r"(\w+) (/\S*)", contract)} == {
        named(route) for route in TABLE
    }


def test_the_document_has_every_route_and_nothing_else() -> None:
    documented = {(method.upper(), path) for path, calls in document()["paths"].items() for method in calls}
    assert {(route.method, route.path) for route in TABLE} == documented
    ids = [call["operationId"] for calls in document()["paths"].values() for call in calls.values()]
    assert len(ids) == len(set(ids))


def test_the_document_names_every_field_of_a_payload() -> None:
    assert payload.FIELDS == set(PAYLOAD["properties"])


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    jsonschema_rs.meta.validate({**SCHEMAS[name], "$schema": "https://json-schema.org/draft/2020-12/schema"})
    references = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(SCHEMAS[name]))
    assert set(references) <= set(SCHEMAS)


def validator(schema: dict[str, Any]) -> Any:
    """With the document's schemas where references look for them."""
    whole = {**schema, "components": {"schemas": SCHEMAS}}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


async def stocked(front: Front) -> dict[str, str]:
    """An e-mail for every call that takes an id."""
    await front.stock.alive("w1")
    ids = {
        "GET /v1/emails/{id}": await front.stock.failed(),
        "POST /v1/emails/{id}/cancel": await front.stock.ready(),
        "POST /v1/emails/{id}/retry": await front.stock.failed(),
        "DELETE /v1/emails/{id}/content": await front.stock.sent(),
        "POST /v1/emails/{id}/requeue": await front.stock.ready(),
        "GET /v1/dlq/{id}": await front.stock.in_doubt(),
        "POST /v1/dlq/{id}/retry": await front.stock.failed(),
        "POST /v1/dlq/{id}/resolve": await front.stock.in_doubt(),
        "DELETE /v1/dlq/{id}": await front.stock.failed(),
    }
    ids["GET /v1/emails/{id}/history"] = ids["GET /v1/emails/{id}"]
    await front.stock.processing(ids["POST /v1/emails/{id}/requeue"], "w1")
    front.clock.turn(60_000)
    return ids


@pytest.mark.parametrize("route", TABLE, ids=named)
async def test_good_answers_keep_to_their_schema(front: Front, route: Route) -> None:
    ids = await stocked(front)
    bodies: dict[str, object] = {
        "/v1/emails": PAYLOAD["examples"][0],
        "/v1/emails/retry": {},
        "/v1/dlq/retry": {},
    }
    bodies["/v1/emails/batch"] = [PAYLOAD["examples"][0], {"from": 7}]
    body = bodies.get(route.path) if route.method == "POST" else None
    said = await front.ask(route.method, route.path.replace("{id}", ids.get(named(route), "")), body=body)
    assert route.status == said.status, said.body
    operation = document()["paths"][route.path][route.method.lower()]
    content = operation["responses"][str(said.status)].get("content")
    if content is None:
        assert b"" == said.body
        return
    assert {said.headers["Content-Type"].partition(";")[0]} == set(content)
    if route.answer:
        validator(content["application/json"]["schema"]).validate(said.json)


@pytest.mark.parametrize("route", TABLE, ids=named)
async def test_a_wrong_method_is_told_the_right_ones(front: Front, route: Route) -> None:
    path = route.path.replace("{id}", "x")
    said = await front.ask("PATCH", path)
    assert (405, "wrong-method") == (said.status, said.kind)
    offered = set(said.headers["Allow"].split(", "))
    same_path = {other.method for other in TABLE if other.path == route.path}
    assert same_path | {"OPTIONS"} | ({"HEAD"} if "GET" in same_path else set()) == offered
    options = await front.ask("OPTIONS", path)
    assert (204, said.headers["Allow"]) == (options.status, options.headers["Allow"])


@pytest.mark.parametrize(
    "path", [route.path for route in TABLE if route.method == "GET" and "{id}" not in route.path]
)
async def test_head_is_get_without_the_body(front: Front, path: str) -> None:
    get, head = await front.ask("GET", path), await front.ask("HEAD", path)
    assert (get.status, b"") == (head.status, head.body)
    assert get.headers["Content-Type"] == head.headers["Content-Type"]
    assert str(len(get.body)) == head.headers["Content-Length"]


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v2/emails", "/v1/emails/", "/v1/emails/a/b/c", "/v1/emails/a/", "//",
                                  "/v1//emails", "/V1/emails", "/v1/dlq/x/history", "/../etc/passwd", "/favicon.ico"])  # fmt: skip
async def test_a_path_that_is_not_there_is_not_found(front: Front, path: str) -> None:
    reader, writer = await front.wire()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 404 ")
    assert b"application/problem+json" in said


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "href":
                self.links.add(value or "")
            if name == "id":
                self.anchors.add(value or "")


async def test_the_docs_work_without_scripts_and_allow_none(front: Front) -> None:
    said = await front.ask("GET", "/docs")
    page = Elements()
    page.feed(said.body.decode())
    assert not page.tags & {"script", "iframe", "object", "embed", "img", "form", "link", "base"}
    assert not [name for name in page.attributes if name.startswith("on") or name == "style"]
    policy = said.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.anchors
    for link in page.links:
        if link.startswith("/"):
            assert (await front.ask("GET", link)).status == 200


async def test_the_docs_tell_every_call_and_every_problem(front: Front) -> None:
    text = (await front.ask("GET", "/docs")).body.decode()
    for route in TABLE:
        assert f"{route.method} {route.path}" in text
    for kind in TITLES:
        assert f'id="{kind}"' in text


async def test_a_problem_points_to_where_it_is_told(front: Front) -> None:
    """`type` is the address of its explanation."""
    said = await front.ask("GET", "/v1/emails/x")
    assert "/docs#not-found" == said.json["type"]
    validator(SCHEMAS["Problem"]).validate(said.json)


def test_the_reference_page_is_made_from_the_same_table() -> None:
    written = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    assert reference.markdown() == written, "write it anew: python -m staffetta.web.reference"


async def test_an_empty_engine_answers_everything(front: Front) -> None:
    assert () == (await front.store.emails(Filter(), limit=1)).items
    for path in ("/v1/emails", "/v1/dlq", "/v1/emails/stale", "/v1/tenants", "/v1/alerts"):
        assert [] == (await front.ask("GET", path)).json["items"]
