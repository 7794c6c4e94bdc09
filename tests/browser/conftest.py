"""A real Chromium and a real engine for each file of the dashboard's tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from doubles.engines import program
from doubles.house import House, house

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb",
]  # fmt: skip
PATIENCE_MS = 20_000
"""Longer than anything here takes on a busy machine."""
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process runs them all: a browser takes longer to start than most of them to run."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.xdist_group("browser"))
            item.add_marker(pytest.mark.service)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Gone with its file: while it lives, its driver's event loop runs in this thread, and no other could."""
    chromium = program("chromium", package="chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@contextlib.contextmanager
def visitor(browser: Browser, **wishes: Any) -> Iterator[BrowserContext]:
    """Somebody with a browser of his own: no cookies, nothing remembered."""
    context = browser.new_context(**{"viewport": {"width": 1366, "height": 900}, **wishes})
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context
    finally:
        context.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with visitor(browser) as someone:
        yield someone


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("house")) as opened:
        yield opened
