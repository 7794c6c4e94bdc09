"""The client for plain code: no event loop, no thread of its own. Threads may share it; forks begin anew."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import urlsplit

from staffetta.client import talk
from staffetta.client.answers import Answer, Email, Receipt
from staffetta.client.door import Door
from staffetta.client.messages import Message
from staffetta.client.talk import Patience, Request, Talk, Wait
from staffetta.errors import NoAnswer, StaffettaError

Result = TypeVar("Result")

_IDLE_MAX = 32
"""Connections kept for the next calls; as many as threads call at a time."""


class Client:
    """Talks to one Staffetta. Close it, or use it with `with`."""

    def __init__(
        self, url: str, key: str = "", *, timeout_seconds: float = 30.0, tries: int = 5,
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._door = Door(url, key)
        self._patience = Patience(tries=tries)
        self._timeout_seconds = timeout_seconds
        parts = urlsplit(self._door.url)
        assert parts.hostname is not None, "the door looked at it"
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._process = os.getpid()

    def send(self, *, idempotency_key: str | None = None, **message: Unpack[Message]) -> Receipt:
        """Hand one e-mail in; it is durable when this returns.

        :raises PayloadError: fields are wrong; each is named. :raises Conflict: its id is another e-mail's.
        :raises NoAnswer: no answer came, in all tries. :raises ApiError: any other refusal.
        """
        key = idempotency_key or self._door.new_key()
        return self._walk(talk.send(message, key, self._patience, self._door))

    def send_batch(
        self, messages: Sequence[Message | Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[Receipt | StaffettaError]:
        """Hand many in; one result each, in order: a receipt, or what is wrong with it. Right ones are kept."""
        key = idempotency_key or self._door.new_key()
        return self._walk(talk.send_batch(messages, key, self._patience, self._door))

    def get(self, id: str) -> Email:
        """One e-mail with its history and attempts. :raises NotFound: there is no such e-mail for this key."""
        return self._walk(talk.get(id, self._patience, self._door))

    def cancel(self, id: str) -> Receipt:
        """Stop one that is not sent yet. :raises MoveNotAllowed: it is too late for that."""
        return self._walk(talk.cancel(id, self._patience, self._door))

    def close(self) -> None:
        """Close the connections that lie idle. A call after it opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _walk(self, said: Talk[Result]) -> Result:
        came: Answer | NoAnswer | None = None
        try:
            step = next(said)
            while True:
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    came = None
                else:
                    came = self._once(step)
                step = said.send(came)
        except StopIteration as done:
            result: Result = done.value
            return result

    # ------------------------------------------------------------------------------------------ connections

    def _once(self, request: Request) -> Answer | NoAnswer:
        """One request: on an idle connection, and on a new one where the idle one had been closed meanwhile."""
        connection = self._kept()
        if connection is not None:
            came = self._on(connection, request)
            if not (isinstance(came, NoAnswer) and came.kind == "lost" and request.repeatable):
                return came
        return self._on(self._new(), request)

    def _kept(self) -> http.client.HTTPConnection | None:
        if self._process != os.getpid():
            # These belong to the parent process: a word of ours in them would be a word of its own.
            self.close()
            self._process = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _new(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_seconds, context=self._tls
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)

    def _on(self, connection: http.client.HTTPConnection, request: Request) -> Answer | NoAnswer:
        try:
            connection.request(
                request.method,
                self._prefix + request.path,
                body=request.body,
                headers=self._door.headers(request),
            )
            response = connection.getresponse()
            body = response.read(self._door.answer_bytes)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return _no_answer(error, self._door.url)
        except BaseException:
            connection.close()  # half of an answer may still be in it
            raise
        if response.isclosed() and not response.will_close and len(self._idle) < _IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()
        return Answer(status=response.status, body=body, retry_after=response.headers.get("retry-after", ""))


def _no_answer(error: Exception, url: str) -> NoAnswer:
    kinds: tuple[tuple[type[Exception], str], ...] = (
        (TimeoutError, "timeout"),
        (ssl.SSLError, "tls"),
        (socket.gaierror, "dns"),
        (ConnectionRefusedError, "refused"),
        (http.client.RemoteDisconnected, "lost"),
        (ConnectionError, "lost"),
        (http.client.IncompleteRead, "lost"),
        (http.client.HTTPException, "protocol"),
    )
    kind = next((kind for known, kind in kinds if isinstance(error, known)), "unreachable")
    answer = NoAnswer(f"{url}: no answer ({error or type(error).__name__})", kind=kind)
    answer.__cause__ = error
    return answer
