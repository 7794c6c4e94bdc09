"""The front door of a real engine's API on a free port, and a caller in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from doubles.stocked import Clock, Stock
from staffetta.flow.accept import Desk
from staffetta.flow.operate import Operator
from staffetta.mail import keys
from staffetta.mail.events import Event
from staffetta.mail.identity import uuid7
from staffetta.spool import Spool
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore
from staffetta.web.api import Api
from staffetta.web.parts import PartHealth, Parts
from staffetta.web.server import Patience, Serving, serving

HEALTHY = (PartHealth(name="store", state="ok", needed=True), PartHealth(name="transport", state="ok"))


@dataclasses.dataclass(frozen=True)
class Said:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def fields(self) -> set[str]:
        """The wrong fields that a problem names."""
        return {error["field"] for error in self.json.get("errors", ())}

    @property
    def kind(self) -> str:
        return str(self.json["type"]).removeprefix("/docs#")


@dataclasses.dataclass
class Front:
    """Everything behind the door, and the door itself."""

    store: Store
    clock: Clock
    stock: Stock
    operator: Operator
    parts: Parts
    told: list[Event]
    serving: Serving
    session: aiohttp.ClientSession
    random: Chance

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        raw: bytes | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Said:
        sent = dict(headers or {})
        if key is not None:
            sent.setdefault("Authorization", f"Bearer {key}")
        if body is not None:
            raw = msgspec.json.encode(body)
        if raw is not None:
            sent.setdefault("Content-Type", "application/json")
        async with self.session.request(
            method,
            self.serving.url + path,
            data=io.BytesIO(raw) if raw is not None else None,
            headers=sent,
            skip_auto_headers=["Content-Type"],
        ) as answer:
            return Said(status=answer.status, headers=answer.headers, body=await answer.read())

    async def key(self, role: keys.Role, company_id: str | None = None) -> str:
        """A new key that works at once: the door's copy of the keys is made old."""
        text, stored = keys.make(
            random=self.random(32), role=role, company_id=company_id, now=self.clock(), note=""
        )
        await self.store.add_key(stored)
        await asyncio.sleep(0)
        self.forget_keys()
        return text

    def forget_keys(self) -> None:
        self.seconds.now += 10.0

    seconds: Seconds = dataclasses.field(default_factory=lambda: Seconds())

    async def wire(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection, for what no client would send."""
        return await asyncio.open_connection(self.serving.host, self.serving.port)


class Seconds:
    """The door's own clock for how old its copy of the keys is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Chance:
    """Random bytes that come again in the next run."""

    def __init__(self, seed: str = "chance") -> None:
        self._seed = seed
        self._drawn = 0

    def __call__(self, size: int) -> bytes:
        self._drawn += 1
        return hashlib.shake_128(f"{self._seed}{self._drawn}".encode()).digest(size)


@contextlib.asynccontextmanager
async def front_door(
    folder: Path,
    *,
    store: Store | None = None,
    health: Sequence[PartHealth] = HEALTHY,
    patience: Patience | None = None,
    host: str = "127.0.0.1",
    **settings: Any,
) -> AsyncIterator[Front]:
    store = store or MemoryStore()
    clock, told, chance, seconds = Clock(), list[Event](), Chance(), Seconds()
    stock = Stock(store, clock)
    spool = Spool(folder / "spool")
    operator = Operator(
        store=store, rulebook=stock.rulebook, clock=clock, draw=lambda: 0.5, emit=told.append, spool=spool
    )
    desk = Desk(
        store=store, spool=spool, clock=clock, new_id=lambda now: uuid7(now, chance(10)), emit=told.append,
    )  # fmt: skip

    async def known_health() -> Sequence[PartHealth]:
        return health

    parts = Parts(
        store=store, desk=desk, operator=operator, clock=clock, random=chance, emit=told.append, health=known_health,
        **settings,
    )  # fmt: skip
    async with (
        serving(Api(parts, seconds), host=host, port=0, patience=patience) as server,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        yield Front(
            store=store, clock=clock, stock=stock, operator=operator, parts=parts, told=told, serving=server,
            session=session, random=chance, seconds=seconds,
        )  # fmt: skip
