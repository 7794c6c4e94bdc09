"""A command's short view of the store, beside a running `serve` or without one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from staffetta.app import wiring
from staffetta.app.engine import opened_store
from staffetta.config import Config
from staffetta.errors import StoreUnusable
from staffetta.flow import figures
from staffetta.flow.accept import Desk
from staffetta.flow.operate import Operator
from staffetta.logs import Listeners, Log
from staffetta.mail.message import Millis
from staffetta.mail.rulebook import RuleBook
from staffetta.store.contract import Store
from staffetta.worker import WEIGHTS_SETTING


@dataclasses.dataclass(slots=True, kw_only=True)
class Tools:
    """What a command works with. What it changes, running workers see within a second."""

    config: Config
    store: Store
    operator: Operator
    desk: Desk
    rulebook: RuleBook
    clock: Callable[[], Millis]

    async def tenants(self) -> list[dict[str, Any]]:
        """Every company's figures, as the running workers last told them."""
        return await figures.tenants(self.store, now=self.clock())

    async def set_weight(self, company_id: str, weight: float) -> None:
        """Running workers follow within a second; it survives restarts."""
        kept = await self.store.setting(WEIGHTS_SETTING)
        weights = msgspec.json.decode(kept, type=dict[str, float]) if kept else {}
        weights[company_id] = weight
        await self.store.put_setting(WEIGHTS_SETTING, msgspec.json.encode(weights))

    async def alerts(self) -> list[dict[str, Any]]:
        """Every alert's condition, value and state."""
        return []


@contextlib.asynccontextmanager
async def tools(config: Config) -> AsyncIterator[Tools]:
    """Open the store as a command does: in short transactions beside whoever owns it."""
    listeners = Listeners()
    log = Log(level="warning", form=config.log.format)
    listeners.add(log, attempts=False)
    rulebook = wiring.rulebook_for(config)
    async with opened_store(config, owner=False) as store:
        spool = wiring.spool_for(config)
        yield Tools(
            config=config,
            store=store,
            operator=wiring.operator_for(
                config, store=store, rulebook=rulebook, emit=listeners, queue=None, spool=spool
            ),
            desk=wiring.desk_for(
                config, store=store, rulebook=rulebook, emit=listeners, queue=None, spool=spool
            ),
            rulebook=rulebook,
            clock=wiring.clock,
        )
    log.flush()


async def migrate(config: Config) -> list[str]:
    """Bring the store's schema up to date; what was done."""
    store = wiring.store_for(config, owner=False)
    try:
        return list(await store.migrate())
    finally:
        with contextlib.suppress(StoreUnusable):
            await store.close()
