"""What the API is handed by `app`: the store, the desk, the operator's hands, ways to ask how things are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from staffetta.flow.gathering import Sight
from staffetta.flow.operate import Operator
from staffetta.mail.events import Emit
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis, Value
from staffetta.mail.tally import Tally
from staffetta.mail.trend import Trend
from staffetta.mail.verdict import DEFAULT, Table
from staffetta.store.contract import Store

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

Figures: TypeAlias = Sequence[Mapping[str, Any]]


class Answered(Protocol):
    """The desk's answer to one hand-in."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> Status: ...


class Desk(Protocol):
    """The part of `flow.accept.Desk` that HTTP uses. Both return after the e-mails are durable."""

    async def accept(
        self, raw: bytes, *, company_id: str | None = None, key: str | None = None
    ) -> Answered: ...

    async def accept_batch(
        self, raw: bytes, *, company_id: str | None = None, key: str | None = None
    ) -> Sequence[Answered | Exception]: ...


class PartHealth(Value, frozen=True, kw_only=True):
    """How one part is. `needed`: without it no e-mail can be handed in."""

    name: str
    state: Literal["ok", "degraded", "down"]
    detail: str = ""
    needed: bool = False


async def no_figures() -> Figures:
    return ()


async def no_metrics() -> str:
    return ""


async def no_sight() -> Sight:
    return Sight(at=0, processes=(), sums=Tally(), processed={})


def nobody() -> None: ...


class Setting(Value, frozen=True, kw_only=True):
    """One setting in force, for people."""

    name: str
    value: str
    source: str
    """`default`, a file or a variable."""
    about: str = ""


class Parts(Value, frozen=True, kw_only=True):
    store: Store
    desk: Desk
    operator: Operator
    clock: Callable[[], Millis]
    random: Callable[[int], bytes]
    emit: Emit
    health: Callable[[], Awaitable[Sequence[PartHealth]]]
    """Asked by `/readyz`; answers at once with what is known."""
    tenants: Callable[[], Awaitable[Figures]] = no_figures
    """The figures of section 6, one mapping a company, each with `company_id`."""
    alerts: Callable[[], Awaitable[Figures]] = no_figures
    """Every alert's condition, value and state; those of one company carry its `company_id`."""
    metrics: Callable[[], Awaitable[str]] = no_metrics
    """Prometheus text format 0.0.4."""
    changed: Callable[[], None] = nobody
    """Called after an operator's change, so that this process acts on it at once."""
    sight: Callable[[], Awaitable[Sight]] = no_sight
    """What every process on the store has told of itself and counted."""
    trend: Trend = msgspec.field(default_factory=Trend)
    """What was sent in the last hour."""
    settings: Callable[[], Sequence[Setting]] = tuple
    """Every setting in force, secrets hidden."""
    rules: Table = DEFAULT
    """By which replies are judged now."""
    body_bytes_max: int = 64 * 2**20
    """The largest request body, after decompression."""
    bodies_bytes_max: int = 256 * 2**20
    """All request bodies being read at one time."""
    requests_max: int = 2_000
    """Requests in work at one time; more are told to come again."""
