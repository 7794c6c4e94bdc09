"""What operators ask with, see and set: filters and pages, live workers, pauses, keys. Values, as in `message.py`."""

from __future__ import annotations

from typing import Any, Literal

from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis, Value


class Filter(Value, frozen=True, kw_only=True):
    """Which e-mails or dead letters are meant. Every field narrows; none means all."""

    status: tuple[Status, ...] = ()
    company_id: str | None = None
    recipient: str | None = None
    code: str | None = None
    since: Millis | None = None
    until: Millis | None = None


class Page(Value, frozen=True, kw_only=True):
    """One page of a listing, newest first, and where the next begins (None: the end)."""

    items: tuple[Any, ...]
    cursor: str | None = None


class Worker(Value, frozen=True, kw_only=True):
    """A process that claims: its heartbeat, as the store last saw it."""

    id: str
    host: str
    pid: int
    started_at: Millis
    seen_at: Millis
    feeds: bool = False
    """It feeds a queue of its own from the store: where several do, they part the e-mails among themselves."""


class Pause(Value, frozen=True, kw_only=True):
    """What is paused: everything, a transport, or a company."""

    scope: Literal["all", "transport", "company"]
    name: str
    since: Millis


class ApiKey(Value, frozen=True, kw_only=True):
    """A key as stored: never the key itself. `id` is the public part by which it is found and revoked."""

    id: str
    sha256: str
    role: Literal["send", "read", "operate"]
    company_id: str | None
    """None: for all companies."""
    note: str = ""
    created_at: Millis
    revoked_at: Millis = 0
