from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doubles.front import Front, front_door


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with front_door(tmp_path) as front:
        yield front
