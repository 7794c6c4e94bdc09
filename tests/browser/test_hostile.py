"""A hundred hostile e-mails, looked at in a real browser: no script runs and nobody is called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Dialog, Error, Page, Request

from doubles import hostile
from doubles.elsewhere import Elsewhere, elsewhere
from doubles.house import House

EACH = 10


@pytest.fixture(scope="module")
def trap() -> Iterator[Elsewhere]:
    with elsewhere() as site:
        yield site


def watched(context: BrowserContext, own: str) -> list[str]:
    """Everything that the browser asks for beyond our own pages, and every dialog it opens."""
    seen: list[str] = []

    def asked(request: Request) -> None:
        if not request.url.startswith((own, "data:")):
            seen.append(request.url)

    def spoke(dialog: Dialog) -> None:
        seen.append(dialog.message)
        dialog.dismiss()

    context.on("request", asked)
    context.on("dialog", spoke)
    return seen


@pytest.mark.parametrize("start", range(0, 100, EACH))
def test_hostile_emails_are_looked_at_in_peace(
    home: House, context: BrowserContext, trap: Elsewhere, start: int
) -> None:
    """By its story, as operators do, and by the frame's own address, where only its own policy holds."""
    seen = watched(context, home.url)
    page = context.new_page()
    for text in hostile.mails(trap.host)[start : start + EACH]:
        email_id = home.send(
            to="ada@example.com", subject=text.replace("\x00", "")[:200], body_html=text, body_text=text
        )
        page.goto(f"{home.url}/emails/{email_id}", wait_until="load")
        assert page.frames[1].url.endswith("/body")
        page.goto(f"{home.url}/emails/{email_id}/body", wait_until="load")
    assert seen == []
    assert trap.heard == []


def test_the_trap_springs_where_nothing_guards(page: Page) -> None:
    """Else the peace above would prove nothing: bare, many of the hundred reach it."""
    with elsewhere() as site:
        for text in hostile.mails(site.host):
            with contextlib.suppress(Error):  # some lead the whole page away
                page.set_content(text, wait_until="commit")
        page.set_content(f"<img src='http://{site.host}/last'>", wait_until="load")
        assert len(site.heard) > 15, site.heard


def test_the_frame_alone_holds_what_slips_through(
    home: House, context: BrowserContext, trap: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second wall: with the first one taken down, still no script runs and nobody is called."""
    from staffetta.mail import safe_html

    monkeypatch.setattr(safe_html, "harmless", lambda text, images: safe_html.Harmless(text, remote=0, links=0))
    seen = watched(context, home.url)
    page = context.new_page()
    preconnects = ("preconnect", "dns-prefetch")
    """A connection without a request: no policy speaks of it, so the first wall takes it out."""
    for text in hostile.mails(trap.host)[::3]:
        if any(word in text for word in preconnects):
            continue
        email_id = home.send(to="ada@example.com", body_html=text)
        page.goto(f"{home.url}/emails/{email_id}", wait_until="load")
    assert trap.heard == []
    assert [url for url in seen if not url.startswith("http")] == []
