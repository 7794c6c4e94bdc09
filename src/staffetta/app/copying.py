"""Opens two stores and moves the e-mails of one into the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from staffetta import config as settings
from staffetta.app import wiring
from staffetta.config import Config
from staffetta.errors import FieldProblem, SettingsError
from staffetta.flow import copy as flow
from staffetta.flow.copy import Copied

AT_ONCE = 16
"""E-mails on their way at the same time; progress is told as often."""


async def copy(config: Config, source: str, target: str, tell: Callable[[int, int], None]) -> Copied:
    """From one URL to another. The target's tables are made; the source must not be served meanwhile."""
    if source == target:
        raise SettingsError([FieldProblem("TO", "names the store that FROM names; nothing was copied")])
    if source.startswith("sqlite") and not settings.sqlite_path(source).exists():
        raise SettingsError([FieldProblem("FROM", f"there is no file {settings.sqlite_path(source)}")])
    into = wiring.store_for(_at(config, target, "TO"), owner=True)
    # As its owner: a process that serves it would go on sending what was copied.
    async with wiring.opened_store(_at(config, source, "FROM"), owner=True) as leaving:
        await into.migrate()
        async with contextlib.AsyncExitStack() as stack:
            await into.open()
            stack.push_async_callback(into.close)
            return await flow.copy(leaving, into, tell, at_once=AT_ONCE)


def _at(config: Config, url: str, name: str) -> Config:
    """These settings, with another store; its table is the one in its URL."""
    if "://" not in url:
        raise SettingsError([FieldProblem(name, "must be a store's URL, such as sqlite:///staffetta.db")])
    store = msgspec.structs.replace(config.store, url=url, table=config.store.table if _bare(url) else None)
    return msgspec.structs.replace(config, store=store)


def _bare(url: str) -> bool:
    """A URL of DynamoDB that names no table itself."""
    return url.startswith("dynamodb") and not url.partition("://")[2].partition("?")[0].partition("/")[2]


__all__ = ["AT_ONCE", "Copied", "copy"]
