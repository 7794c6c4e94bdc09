"""Every page as it is seen: at desk and phone width, light and dark; pictures are kept, and checked for whoever
needs contrast, a keyboard or a reader of screens.

The pictures lie in `tests/browser/pictures/` (not in the repository), for people to look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from doubles.house import House, house
from staffetta.mail.lifecycle import Status

PICTURES = Path(__file__).parent / "pictures"
WIDTHS: dict[str, ViewportSize] = {
    "desk": {"width": 1366, "height": 900},
    "phone": {"width": 390, "height": 844},
}
NEWSLETTER = """<table width="100%" bgcolor="#f2f4f8"><tr><td align="center"><table width="520" bgcolor="#ffffff"
cellpadding="24"><tr><td><h2 style="color:#1b3a6b">Your invoice 0042</h2><p style="font-size:16px">Good day Ada, your
invoice is ready.</p><p><a href="https://acme.example/42" style="background:#1b3a6b;color:#fff;padding:10px 18px">Look
at it</a></p><img src="https://track.example/p.gif" alt="Acme"></td></tr></table></td></tr></table>"""

CHECKS = (Path(__file__).parent / "checks.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """With something to see on every page."""
    with house(tmp_path_factory.mktemp("house")) as opened:
        for company_id, count in (
            ("acme", 24),
            ("bistro", 14),
            ("clinic", 9),
            ("daily-news", 6),
            ("flood-inc", 60),
        ):
            for number in range(count):
                opened.send(
                    company_id=company_id, to=f"user{number}@example.com", subject=f"Your invoice {number:04d}"
                )
        for number in range(12):
            opened.send(company_id="flood-inc", to=f"gone{number}@refusing.example")
        for domain, company_id in (
            ("policy", "bistro"),
            ("full", "clinic"),
            ("greylisting", "acme"),
            ("lost", "acme"),
        ):
            for number in range(2):
                last = opened.send(
                    company_id=company_id, to=f"user{number}@{domain}.example", subject="Contract to sign"
                )
        opened.until(last, Status.FAILED)
        yield opened


@pytest.fixture(scope="module")
def story(home: House) -> str:
    email_id = home.send(to=["ada@greylisting.example", "bob@example.com"], subject="Your invoice 0042 ✓",
                         body_html=NEWSLETTER, tags=["invoice"])  # fmt: skip
    home.until_true(lambda: len(home.do(home.running.store.attempts(email_id))) == 1, "no attempt")
    home.until(email_id, Status.READY)
    return email_id


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("empty")) as opened:
        yield opened


@pytest.fixture(scope="module")
def homes(home: House, empty_home: House, story: str) -> tuple[House, House, str]:
    return home, empty_home, story


PAGES = ("/", "/emails", "/emails/{story}", "/dead-letters", "/companies", "/transports", "/alerts", "/settings",
         "/emails/0198f0a0-0000-7000-8000-000000000009")  # fmt: skip
MORE = ("/?span=1h", "/dead-letters?code=550", "/emails?q=nobody%40example.com")
EMPTY = ("/", "/emails", "/dead-letters", "/companies", "/transports")
LOOKS = [("desk", "light"), ("phone", "dark"), ("desk", "dark"), ("phone", "light")]
"""Under the first two everything is looked at, under the others every page once."""


def looked_at(page: Page, url: str, name: str) -> dict[str, Any]:
    """Open, keep a picture, and tell what is wrong with it."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    answer = page.goto(url, wait_until="load")
    assert answer is not None
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)
    found: dict[str, Any] = page.evaluate(CHECKS)
    found["said"] = [one for one in said if "404" not in one]
    return found


def name_of(path: str) -> str:
    return (
        path.strip("/").replace("?", "-").replace("=", "-").replace("/", "-").replace("{", "").replace("}", "")
        or "overview"
    )


@pytest.mark.parametrize(("device", "scheme"), LOOKS)
def test_every_page_can_be_read_by_everybody(
    homes: tuple[House, House, str], browser: Browser, device: str, scheme: Any
) -> None:
    """Contrast of every text (4.5, large ones 3), a label for every field, a name for every button, headings in
    order, one main place; nothing wider than the window; no error in the console, so no policy was broken."""
    context = browser.new_context(viewport=WIDTHS[device], color_scheme=scheme)
    home, empty_home, story = homes
    wrong: dict[str, Any] = {}
    wanted = [(home, path, name_of(path)) for path in PAGES]
    if (device, scheme) in LOOKS[:2]:
        wanted += [(home, path, name_of(path)) for path in MORE]
        wanted += [(empty_home, path, f"empty-{name_of(path)}") for path in EMPTY]
    for where, path, name in wanted:
        page = context.new_page()
        found = looked_at(page, where.url + path.replace("{story}", story), f"{name}-{device}-{scheme}")
        page.close()
        wrong |= {f"{path}: {check}": told for check, told in found.items() if told}
    context.close()
    assert wrong == {}


@pytest.mark.parametrize(("device", "scheme"), LOOKS)
def test_the_questions_before_acting_can_be_read_too(
    home: House, browser: Browser, device: str, scheme: Any
) -> None:
    context = browser.new_context(viewport=WIDTHS[device], color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{home.url}/dead-letters?code=550")
    page.get_by_label("Which ones").select_option("all")
    page.get_by_role("button", name="Retry…").click()
    page.screenshot(path=PICTURES / f"ask-{device}-{scheme}.png", full_page=True)
    wrong: dict[str, Any] = {check: told for check, told in page.evaluate(CHECKS).items() if told}
    page.goto(f"{home.url}/")
    page.locator("summary", has_text="Pause all sending").click()
    page.screenshot(path=PICTURES / f"sure-{device}-{scheme}.png")
    wrong |= {check: told for check, told in page.evaluate(CHECKS).items() if told}
    context.close()
    assert wrong == {}


def test_a_keyboard_goes_everywhere_in_order_and_sees_where_it_is(home: House, page: Page) -> None:
    page.goto(f"{home.url}/dead-letters")
    seen: list[dict[str, Any]] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        here: dict[str, Any] | None = page.evaluate(
            """() => {
                const one = document.activeElement;
                if (!one || one === document.body) return null;
                const all = [...document.querySelectorAll("*")];
                const box = one.getBoundingClientRect();
                return { place: all.indexOf(one), outline: getComputedStyle(one).outlineStyle, words: one.innerText || one.name,
                         visible: box.width > 0 && box.right > 0 };
            }"""
        )
        if here is None:
            break
        seen.append(here)
    assert seen[0]["words"] == "To the content"
    assert [one["place"] for one in seen] == sorted(one["place"] for one in seen)
    assert [one for one in seen if one["outline"] == "none" or not one["visible"]] == []
    assert len(seen) > 20
    page.keyboard.press("Control+Home")
    page.goto(f"{home.url}/emails")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_signing_in_and_a_companys_own_pages_can_be_read_by_everybody(browser: Browser, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {}
    with house(tmp_path) as keyed:
        key = keyed.key("operate", "acme")
        for number in range(5):
            last = keyed.send(company_id="acme", to=f"user{number}@example.com")
        keyed.until(last, Status.SENT)
        for device, scheme in LOOKS:
            context = browser.new_context(viewport=WIDTHS[device], color_scheme=scheme)  # type: ignore[arg-type]  # one of two
            page = context.new_page()
            seen = {"sign-in": looked_at(page, f"{keyed.url}/", f"sign-in-{device}-{scheme}")}
            page.get_by_label("API key").fill(key)
            page.get_by_role("button", name="Sign in").click()
            page.wait_for_url(f"{keyed.url}/")
            for path in ("/", "/companies", "/alerts"):
                seen[path] = looked_at(page, f"{keyed.url}{path}", f"own-{name_of(path)}-{device}-{scheme}")
            wrong |= {
                f"{path}: {check}": told
                for path, found in seen.items()
                for check, told in found.items()
                if told
            }
            context.close()
    assert wrong == {}
