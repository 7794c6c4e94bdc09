"""Signing in and staying safe, in a real browser: roles, revoked keys, other sites' forms and frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from doubles.elsewhere import Elsewhere, elsewhere
from doubles.house import House
from staffetta.mail.lifecycle import Status


@pytest.fixture(scope="module")
def keyed(home: House) -> str:
    """An operator's key; from here on everybody needs one."""
    return home.key("operate", note="the tests' operator")


@pytest.fixture(scope="module")
def other() -> Iterator[Elsewhere]:
    with elsewhere() as site:
        yield site


def sign_in(page: Page, home: House, key: str, path: str = "/") -> None:
    page.goto(f"{home.url}{path}")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_one_signs_in_with_a_key_goes_on_and_signs_out(home: House, keyed: str, page: Page) -> None:
    sign_in(page, home, keyed, "/companies")
    expect(page).to_have_url(f"{home.url}/companies")
    assert page.evaluate("document.cookie") == "", "no script can read the session"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto(f"{home.url}/emails")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_wrong_key_is_told(home: House, keyed: str, page: Page) -> None:
    sign_in(page, home, keyed[:-1] + "_")
    expect(page.get_by_role("alert")).to_contain_text("unknown or revoked")


def test_who_reads_sees_no_button_that_changes(home: House, keyed: str, page: Page) -> None:
    sign_in(page, home, home.key("read"))
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    for path in ("/", "/dead-letters", "/companies", "/transports"):
        page.goto(f"{home.url}{path}")
        names = {one.inner_text() for one in page.get_by_role("button").all()}
        assert names <= {"Sign out", "Filter"}, path


def test_a_companys_key_opens_its_own_house(home: House, keyed: str, page: Page) -> None:
    mine, foreign = (
        home.send(company_id="globex", to="ada@example.com"),
        home.send(company_id="acme", to="bob@example.com"),
    )
    home.until(mine, Status.SENT)
    home.until(foreign, Status.SENT)
    sign_in(page, home, home.key("operate", "globex"))
    expect(page.get_by_role("heading", name="Overview of globex")).to_be_visible()
    page.goto(f"{home.url}/emails")
    expect(page.get_by_text("ada@example.com")).to_be_visible()
    assert page.get_by_text("bob@example.com").count() == 0
    page.goto(f"{home.url}/emails/{foreign}")
    expect(page.get_by_text("There is no such thing here")).to_be_visible()
    page.goto(f"{home.url}/transports")
    expect(page.get_by_text("needs a key that is bound to none")).to_be_visible()


def test_a_revoked_key_ends_its_sessions_within_a_second(home: House, keyed: str, page: Page) -> None:
    key = home.key("operate")
    sign_in(page, home, key)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    home.revoke(key)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()  # the live figures notice


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["same site, other port", "another site"])
def test_other_sites_can_neither_post_nor_read_nor_frame(
    home: House, keyed: str, context: BrowserContext, other: Elsewhere, host: str
) -> None:
    """An operator who is signed in visits a bad page: nothing of ours changes, and nothing is seen."""
    page = context.new_page()
    sign_in(page, home, keyed)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    token = page.locator('input[name="token"]').first.get_attribute("value")
    dead = home.send(to="gone@refusing.example")
    home.until(dead, Status.FAILED)
    for path, fields in (
        ("/pause", {"scope": "all", "name": ""}),
        ("/dead-letters", {"verb": "discard", "which": "all", "confirmed": "yes"}),
        (f"/emails/{dead}/retry", {}),
        ("/companies/weight", {"company_id": "acme", "weight": "9"}),
        ("/sign-out", {}),
    ):
        inputs = "".join(
            f'<input name="{name}" value="{value}">' for name, value in {**fields, "token": token}.items()
        )
        other.pages["/bad"] = (
            f'<form method="post" action="{home.url}{path}">{inputs}</form><script>document.forms[0].submit()</script>'
        )
        with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
            page.goto(f"http://{host}:{other.port}/bad")
        assert answered.value.status in (401, 403), path
    other.pages["/peek"] = f'<iframe src="{home.url}/"></iframe><p>peek</p>'
    page.goto(f"http://{host}:{other.port}/peek")
    peeked = page.evaluate(
        f"() => fetch('{home.url}/emails', {{credentials: 'include'}}).then((a) => a.text(), () => 'refused')"
    )
    assert peeked == "refused"
    assert page.frames[1].url.startswith("chrome-error:"), "it was not let into the frame"
    assert home.do(home.running.store.pauses()) == []
    assert home.do(home.running.store.dead_letter(dead)) is not None
    assert home.status(dead) is Status.FAILED
    page.goto(f"{home.url}/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_too_many_tries_are_slowed_down(home: House, keyed: str, browser: Browser) -> None:
    """The last of this file: the address of all tests has used its patience up then."""
    context = browser.new_context()
    page = context.new_page()
    for _ in range(12):
        sign_in(page, home, "sk_guess")
        if page.get_by_text("Too many tries").count():
            break
    expect(page.get_by_role("alert")).to_contain_text("Too many tries")
    context.close()
