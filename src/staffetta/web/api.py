"""The API as one ASGI application: finds the route, knows the caller, asks the handler, tells what went wrong.

It stands on the server alone, without a framework between them (decision 0080).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias
from urllib.parse import quote, unquote

from staffetta import failpoints
from staffetta.errors import FieldProblem
from staffetta.web import auth, problems, routes
from staffetta.web.asked import Answer, Asked, our_fault
from staffetta.web.auth import ANYONE_HERE, Keyring
from staffetta.web.bodies import Body, Budget, ClientGone
from staffetta.web.cursors import Cursors
from staffetta.web.dashboard import render
from staffetta.web.dashboard.door import Door
from staffetta.web.dashboard.visit import Page
from staffetta.web.parts import Parts, Receive, Scope, Send
from staffetta.web.problems import RETRY_SOON, Headers, Problem
from staffetta.web.routes import Route

DRAIN_SECONDS = 2.0
DRAIN_BYTES_MAX = 64 * 2**20
ID_LENGTH_MAX = 64

_CLOSE = (b"connection", b"close")
_PROBLEM: Headers = (
    (b"content-type", problems.MEDIA_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_ONCE = (
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"host", b"idempotency-key",
    b"origin",
)  # fmt: skip
"""Headers that decide something: two of them are two opinions."""

_Found: TypeAlias = tuple[Mapping[str, Route | Page] | None, str]


class Api:
    """Answers HTTP requests; one for a process."""

    def __init__(self, parts: Parts, seconds: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self._keyring = Keyring(parts.store, seconds)
        self._cursors = Cursors(parts.store, parts.random)
        self._budget = Budget(parts.bodies_bytes_max)
        self._door = Door(parts, self._keyring, self._cursors, seconds)
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _raw_path(scope)
        found = routes.find(path)
        headers: dict[bytes, bytes] = dict(scope["headers"])
        body = Body(receive, headers, self._budget)
        self._requests += 1
        try:
            answer = await self._answer(scope, headers, body, found)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # whatever failed, the caller hears of it and the engine lives on
            answer = _told(problems.of(error) or our_fault(self._parts, error))
        finally:
            self._requests -= 1
            body.done()
        await _send(send, answer, body)
        if failpoints.armed:
            failpoints.reach("web.after-answer")

    async def _answer(self, scope: Scope, headers: dict[bytes, bytes], body: Body, found: _Found) -> Answer:
        by_method, raw_id = found
        if by_method is None:
            if b"text/html" in headers.get(b"accept", b"") and not _raw_path(scope).startswith("/v1/"):
                return render.problem(problems.no_such_thing())
            raise problems.no_such_thing()
        method: str = scope["method"]
        route = by_method.get("GET" if method == "HEAD" else method)
        if route is None:
            allow = ((b"allow", routes.allowed(by_method)),)
            if method == "OPTIONS":
                return Answer(status=204, headers=allow)
            raise Problem("wrong-method", f"{method} is not for this path", headers=allow)
        if len(headers) != len(scope["headers"]):
            _check_once(scope["headers"])
        caller = ANYONE_HERE
        if route.role is not None and self._requests > self._parts.requests_max:
            detail = "too many requests at one time; come again in a moment"
            raise Problem("busy", detail, headers=RETRY_SOON)
        if isinstance(route, Page):
            return await self._door.answer(route, scope, headers, body, _id(raw_id) if raw_id else "")
        if route.role is not None:
            caller = await auth.caller(self._keyring, scope, headers)
            auth.check_role(caller, route.role)
            auth.check_origin(method, headers)
        asked = Asked(
            parts=self._parts, cursors=self._cursors, caller=caller, id=_id(raw_id) if raw_id else "",
            query=scope["query_string"], headers=headers, body=body,
        )  # fmt: skip
        return await route.handler(asked)


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("latin-1") if raw is not None else quote(scope["path"])


def _id(raw: str) -> str:
    """:raises Problem: no id of ours looks like that, so there is nothing under it."""
    try:
        told = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        raise problems.no_such_thing() from None
    if len(told) > ID_LENGTH_MAX or not told.isascii() or not told.isprintable():
        raise problems.no_such_thing()
    return told


def _check_once(pairs: list[tuple[bytes, bytes]]) -> None:
    counts = Counter(name for name, _ in pairs)
    twice = [name.decode() for name in _ONCE if counts[name] > 1]
    if twice:
        raise problems.wrong_query([FieldProblem(name, "this header stands more than once") for name in twice])


def _told(problem: Problem) -> Answer:
    return Answer(status=problem.status, body=problem.body(), headers=(*_PROBLEM, *problem.headers))


async def _send(send: Send, answer: Answer, body: Body) -> None:
    if failpoints.armed:
        failpoints.reach("web.before-answer")
    headers = [*answer.headers]
    if answer.pieces is not None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    if answer.status != 204:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    if body.whole:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        return
    # The caller may still be sending. Closing now could cost it the answer, so it is read on for a moment.
    headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    await body.drain(DRAIN_SECONDS, DRAIN_BYTES_MAX)
    await send({"type": "http.response.body", "body": b""})
