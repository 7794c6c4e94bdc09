"""Everything here is held on both event loops: their sockets, aborts and TLS differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from doubles.mouth import LOOPS


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], Any]]:
    return LOOPS
