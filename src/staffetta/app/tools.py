"""A command's short view of the store, beside a running `serve` or without one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from staffetta.app import wiring
from staffetta.config import Config
from staffetta.errors import StoreUnusable
from staffetta.logs import Listeners, Log
from staffetta.mail.message import Millis
from staffetta.store.contract import Store

if TYPE_CHECKING:
    from staffetta.flow.accept import Desk
    from staffetta.flow.operate import Operator


class Tools:
    """What a command works with. What it changes, running workers see within a second.

    Parts are made when they are asked for: counting e-mails needs no composer.
    """

    def __init__(self, config: Config, store: Store, listeners: Listeners) -> None:
        self.config = config
        self.store = store
        self._listeners = listeners

    def clock(self) -> Millis:
        return wiring.clock()

    @cached_property
    def operator(self) -> Operator:
        return wiring.operator_for(
            self.config,
            store=self.store,
            rulebook=wiring.rulebook_for(self.config),
            emit=self._listeners,
            queue=None,
            spool=wiring.spool_for(self.config),
        )

    @cached_property
    def desk(self) -> Desk:
        return wiring.desk_for(
            self.config,
            store=self.store,
            rulebook=wiring.rulebook_for(self.config),
            emit=self._listeners,
            queue=None,
            spool=wiring.spool_for(self.config),
        )

    async def tenants(self) -> list[dict[str, Any]]:
        """Every company's figures, as the running workers last told them."""
        from staffetta.flow import figures

        return await figures.tenants(self.store, now=self.clock())

    async def set_weight(self, company_id: str, weight: float) -> None:
        """Running workers follow within a second; it survives restarts."""
        from staffetta.flow import weights

        await weights.set_weight(self.store, company_id, weight)

    async def alerts(self) -> list[dict[str, Any]]:
        """Every alert's condition, value and state, as the running workers last found them."""
        from staffetta.flow import watch
        from staffetta.flow.gathering import Gathering

        gathering = Gathering(self.store, self.clock)
        return await watch.current(self.store, gathering, now=self.clock())


@contextlib.asynccontextmanager
async def tools_for(config: Config) -> AsyncIterator[Tools]:
    """Open the store as a command does: in short transactions beside whoever owns it."""
    listeners = Listeners()
    log = Log(level="warning", form=config.log.format)
    listeners.add(log, attempts=False)
    async with wiring.opened_store(config, owner=False) as store:
        yield Tools(config, store, listeners)
    log.flush()


async def migrate(config: Config) -> list[str]:
    """Bring the store's schema up to date; what was done."""
    store = wiring.store_for(config, owner=False)
    try:
        return list(await store.migrate())
    finally:
        with contextlib.suppress(StoreUnusable):
            await store.close()
