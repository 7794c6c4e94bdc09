"""Where a Staffetta is, and how a client shows that it may come in; and both clients' chance and clock."""

from __future__ import annotations

import random
import time
import uuid
from urllib.parse import urlsplit

from staffetta.client.talk import Draw, Request
from staffetta.errors import FieldProblem, SettingsError

ANSWER_BYTES = 16 * 2**20


class Door(Draw):
    """An address and a key, checked once."""

    answer_bytes = ANSWER_BYTES
    """Longer answers are not read."""

    def __init__(self, url: str, key: str) -> None:
        problems = []
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            problems.append(
                FieldProblem("url", "must be the address of a Staffetta, such as http://127.0.0.1:8025")
            )
        elif "@" in parts.netloc:
            problems.append(
                FieldProblem("url", "must not carry a user name or password; give the API key as `key`")
            )
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            problems.append(FieldProblem("key", "is no API key; `staffetta keys create` makes one"))
        if problems:
            raise SettingsError(problems)
        self.url = url.rstrip("/")
        self._common = {"accept": "application/json", "user-agent": "Staffetta-Client"}
        if key:
            self._common["authorization"] = f"Bearer {key}"

    def headers(self, request: Request) -> dict[str, str]:
        headers = dict(self._common)
        if request.body is not None:
            headers["content-type"] = "application/json"
        if request.key:
            headers["idempotency-key"] = request.key
        return headers

    def new_key(self) -> str:
        """A key for one call, kept over its tries."""
        return uuid.uuid4().hex

    def number(self) -> float:
        return random.random()  # noqa: S311  # spreads retries; guards nothing

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
