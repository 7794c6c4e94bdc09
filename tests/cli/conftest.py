"""Commands in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty folder and nothing set: what a newcomer has."""
    return Shell(tmp_path)
