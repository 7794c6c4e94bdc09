"""The OpenAPI 3.1 document, made from the table of routes and nothing else."""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import Any

from staffetta.web.fields import Field
from staffetta.web.problems import TITLES
from staffetta.web.routes import TABLE, Body, Route, tags
from staffetta.web.schemas import SCHEMAS, Schema, listed, made, ref

_ID: Schema = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The e-mail's id.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 64},
}
_KEY: Schema = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Kept for 24 hours per company: the same key and body give the first answer again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}
_KEY_TOLD = (
    "`Authorization: Bearer sk_…`. Until the first key is made, only this machine is answered, without one."
)
_IDS_IN = {
    ("POST", "/v1/emails"): ("/v1/emails/{id}", "$response.body#/id"),
    ("GET", "/v1/emails"): ("/v1/emails/{id}", "$response.body#/items/0/id"),
    ("GET", "/v1/dlq"): ("/v1/dlq/{id}", "$response.body#/items/0/jobId"),
}
"""Where ids are found, for the calls that take one."""
_ALWAYS = (400, 414, 431, 500, 503)
_WITH_ROLE = (401, 403, 421)
_WITH_BODY = (408, 413, 415, 422)


@functools.cache
def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in TABLE:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Staffetta",
            "version": version("staffetta"),
            "description": "Hand in an e-mail once; it is sent, or you are told exactly why not.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags()],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": _KEY_TOLD,
                }
            },
            "responses": {
                f"Problem{status}": _problem(status) for status in sorted({s for s, _ in TITLES.values()})
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": {str(route.status): _good(route), **_problems(route)},
        "security": [{"key": []}, {}] if route.role else [],
    }
    if route.role:
        roles = " or ".join(f"`{role}`" for role in dict.fromkeys((route.role, "operate")))
        operation["description"] = f"Needs a key with the role {roles}."
        operation["x-role"] = route.role
    parameters = [_ID] if "{id}" in route.path else []
    parameters += [_parameter(field) for field in route.query]
    if route.keyed:
        parameters.append(_KEY)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _body(route.body)
    return operation


def _good(route: Route) -> dict[str, Any]:
    if not route.answer and route.status == 204:
        return {"description": "Done."}
    schema = ref(route.answer) if route.answer else {}
    if route.media_type.startswith("text/"):
        schema = {"type": "string"}
    good: dict[str, Any] = {"description": "Done.", "content": {route.media_type: {"schema": schema}}}
    if (route.method, route.path) in _IDS_IN:
        good["links"] = _links(*_IDS_IN[route.method, route.path])
    return good


def _links(under: str, where: str) -> dict[str, Any]:
    """Which calls take an id of this answer."""
    takers = [route.name for route in TABLE if route.path.startswith(under)]
    return {name: {"operationId": name, "parameters": {"id": where}} for name in takers}


def _problems(route: Route) -> dict[str, Any]:
    statuses = {*_ALWAYS, *route.problems}
    if route.role:
        statuses.update(_WITH_ROLE)
    if route.body is not None or route.method != "GET":
        statuses.update(_WITH_BODY)
    answers: dict[str, Any] = {
        str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in sorted(statuses)
    }
    if route.path == "/readyz":
        answers["503"] = {
            "description": "No e-mail can be handed in.",
            "content": {"application/json": {"schema": ref("Readiness")}},
        }
    return answers


def _problem(status: int) -> dict[str, Any]:
    titles = [f"{title} (`{kind}`)" for kind, (its, title) in TITLES.items() if its == status]
    return {
        "description": "; ".join(titles) + ".",
        "content": {"application/problem+json": {"schema": ref("Problem")}},
    }


def _parameter(field: Field) -> dict[str, Any]:
    parameter: dict[str, Any] = {
        "name": field.name,
        "in": "query",
        "description": field.about,
        "schema": dict(field.schema),
    }
    if field.schema.get("type") == "array":
        parameter |= {"style": "form", "explode": True}
    return parameter


def _body(body: Body) -> dict[str, Any]:
    if body.items_max:
        schema: Schema = {**listed(ref(body.schema)), "maxItems": body.items_max}
    elif body.schema:
        schema = ref(body.schema)
    else:
        properties = {field.name: {**field.schema, "description": field.about} for field in body.fields}
        schema = made(properties, optional=tuple(properties))
    return {"required": not body.optional, "content": {"application/json": {"schema": schema}}}
