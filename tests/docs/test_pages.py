"""What the pages tell people to type is typed here, in their order, and shows what they show."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from doubles import pages
from doubles.pages import Reader

ACTING = [page for page in pages.pages() if any(block.acts for block in pages.blocks(page))]


@pytest.mark.parametrize("page", ACTING, ids=pages.name_of)
def test_a_page_keeps_its_word(page: Path, tmp_path: Path) -> None:
    """A first try that fails at a mistyped command is the last one."""
    if shutil.which("curl") is None:
        pages.missing("curl")
    with Reader(tmp_path) as reader:
        for block in pages.blocks(page):
            reader.follow(block)


def test_the_pages_that_must_act_do() -> None:
    """A block that lost its word is not run by anybody."""
    acting = {pages.name_of(page) for page in ACTING}

    assert {"README.md", "docs/start.md"} <= acting
