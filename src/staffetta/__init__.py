"""Staffetta: a delivery engine for the e-mail that an application must not lose.

An application imports its names from here; they are loaded when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from staffetta import outbox
    from staffetta.client import AsyncClient, Attachment, Client

__all__ = ["AsyncClient", "Attachment", "Client", "outbox"]


def __getattr__(name: str) -> Any:
    if name == "outbox":
        import importlib

        return importlib.import_module("staffetta.outbox")
    if name in __all__:
        from staffetta import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
