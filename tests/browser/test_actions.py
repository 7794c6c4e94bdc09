"""What an operator does in the dashboard, in a real browser, on a real engine: each ends in what the store says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from doubles.house import House, house
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Filter


@pytest.fixture(params=[True, False], ids=["with-scripts", "without-scripts"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Everything that changes something can be done without scripts, too."""
    context = browser.new_context(viewport={"width": 1366, "height": 900}, java_script_enabled=request.param)
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def failed(home: House, domain: str = "refusing.example", **more: str) -> str:
    email_id = home.send(**{"to": f"gone@{domain}", **more})
    home.until(email_id, Status.FAILED)
    return email_id


def empty(home: House) -> None:
    home.do(home.running.operator.discard_dead_letters(Filter()))


def test_a_dead_letter_is_retried_and_seen_sent(home: House, page: Page) -> None:
    """Found among the dead letters, picked, tried dry, retried; its own page tells that it was sent."""
    empty(home)
    email_id = failed(home, "once.example", subject="Welcome back", to=f"ada-{id(page)}@once.example")
    page.goto(f"{home.url}/")
    page.get_by_role("link", name="Dead letters", exact=True).first.click()
    page.get_by_role("checkbox", name=f"Select {email_id}").check()
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_text("A dry run: nothing has been changed yet.")).to_be_visible()
    assert home.status(email_id) is Status.FAILED
    page.get_by_role("button", name="Retry 1 e-mail").click()
    expect(page.get_by_role("status")).to_have_text("1 e-mail put back on the way.")
    home.until(email_id, Status.SENT)
    page.goto(f"{home.url}/emails/{email_id}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Welcome back")
    expect(page.get_by_text("Put back on its way by an operator")).to_be_visible()
    expect(page.get_by_text("The next mail server took it")).to_be_visible()


def test_dead_letters_of_one_cause_are_filtered_and_discarded(home: House, page: Page) -> None:
    empty(home)
    kept = failed(home)
    gone = [failed(home, "policy.example") for _ in range(3)]
    page.goto(f"{home.url}/dead-letters")
    page.get_by_role("link", name="554").click()
    expect(page.get_by_role("row")).to_have_count(1 + len(gone))
    page.get_by_label("Which ones").select_option("all")
    page.get_by_role("button", name="Discard…").click()
    page.get_by_role("button", name="Discard 3 e-mails").click()
    expect(page.get_by_role("status")).to_have_text("3 e-mails discarded.")
    left = home.do(home.running.store.dead_letters(Filter(), limit=10)).items
    assert [kept] == [letter.outbox_id for letter in left]
    assert {Status.FAILED} == {home.status(each) for each in gone}, "the records stay"


def test_a_company_is_paused_and_resumed(home: House, page: Page) -> None:
    home.until(home.send(company_id="quiet-co", to="ada@example.com"), Status.SENT)
    home.until_true(lambda: "quiet-co" in _companies(home), "the worker never told of its company")
    page.goto(f"{home.url}/companies")
    row = page.get_by_role("row").filter(has_text="quiet-co")
    row.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("Paused")
    expect(row.get_by_text("paused", exact=True)).to_be_visible()
    assert ["quiet-co"] == [pause.name for pause in home.do(home.running.store.pauses())]
    held = home.send(company_id="quiet-co", to="bob@example.com")
    home.until(home.send(to="carl@example.com"), Status.SENT)
    assert home.status(held) is Status.READY
    row.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("sends again")
    home.until(held, Status.SENT)


def _companies(home: House) -> set[str]:
    from staffetta.app import wiring
    from staffetta.flow import figures

    return {row["companyId"] for row in home.do(figures.tenants(home.running.store, now=wiring.clock()))}


def test_a_weight_is_set(home: House, page: Page) -> None:
    home.until(home.send(company_id="heavy-co", to="ada@example.com"), Status.SENT)
    home.until_true(lambda: "heavy-co" in _companies(home), "the worker never told of its company")
    page.goto(f"{home.url}/companies")
    page.get_by_label("Weight of heavy-co").fill("2.5")
    page.get_by_role("row").filter(has_text="heavy-co").get_by_role("button", name="Set").click()
    expect(page.get_by_label("Weight of heavy-co")).to_have_value("2.5")
    assert 2.5 == json.loads(home.do(home.running.store.setting("weights")) or b"{}")["heavy-co"]


def test_a_transport_and_everything_are_paused_and_resumed(home: House, page: Page) -> None:
    page.goto(f"{home.url}/transports")
    card = page.get_by_role("region", name="relay")
    card.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("region", name="relay").get_by_text("paused", exact=True)).to_be_visible()
    card.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_contain_text("sends again")
    page.goto(f"{home.url}/")
    page.locator("summary", has_text="Pause all sending").click()
    page.get_by_role("button", name="Pause all sending").click()
    expect(page.get_by_role("heading", name="All sending is paused")).to_be_visible()
    assert ["all"] == [pause.scope for pause in home.do(home.running.store.pauses())]
    page.get_by_role("button", name="Resume all sending").click()
    expect(page.locator("summary", has_text="Pause all sending")).to_be_visible()
    assert [] == home.do(home.running.store.pauses())


def test_an_email_in_doubt_is_resolved(home: House, page: Page) -> None:
    empty(home)
    email_id = failed(home, "lost.example", subject="Contract")
    page.goto(f"{home.url}/")
    expect(page.get_by_role("heading", name="1 e-mail in doubt")).to_be_visible()
    page.get_by_role("link", name="Decide").click()
    page.get_by_role("link", name=f"…{email_id[-12:]}").click()
    page.locator("summary", has_text="It was delivered").click()
    page.get_by_role("button", name="Resolve as delivered").click()
    expect(page.get_by_role("status")).to_contain_text("counts as delivered")
    assert home.status(email_id) is Status.SENT


def test_a_waiting_email_is_cancelled(home: House, page: Page) -> None:
    email_id = home.send(to="ada@greylisting.example")
    home.until_true(
        lambda: home.status(email_id) is Status.READY and _attempts(home, email_id) == 1, "no first attempt"
    )
    page.goto(f"{home.url}/emails/{email_id}")
    expect(page.get_by_text("It is tried again (1 of 5 attempts used, policy gateway)")).to_be_visible()
    page.locator("summary", has_text="Cancel…").click()
    page.get_by_role("button", name="Cancel this e-mail").click()
    expect(page.get_by_role("status")).to_have_text("It was cancelled.")
    assert home.status(email_id) is Status.FAILED


def _attempts(home: House, email_id: str) -> int:
    email = home.do(home.running.store.get(email_id))
    return email.attempts if email is not None else 0


def test_a_story_is_read_whole(home: House, page: Page) -> None:
    """What was answered, by which rule, what is next; who has it; what it says; the raw message to keep."""
    email_id = home.send(
        to=["ada@greylisting.example", "bob@example.com"],
        subject="Your order",
        body_html="<p>Hello <b>you</b></p>",
    )
    home.until_true(lambda: _attempts(home, email_id) == 1, "no first attempt")
    page.goto(f"{home.url}/emails")
    page.get_by_label(re.compile("Id, recipient")).fill(email_id)
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(f"{home.url}/emails/{email_id}")
    story = page.get_by_role("region", name="What happened")
    expect(story.get_by_text("451 4.7.1 Greylisted, please try again in 5 minutes").first).to_be_visible()
    expect(story.get_by_text("rule greylisted").first).to_be_visible()
    expect(story.get_by_text("Next attempt:").first).to_be_visible()
    recipients = page.get_by_role("region", name="Recipients")
    expect(recipients.get_by_text("accepted")).to_be_visible()
    expect(recipients.get_by_text("waiting")).to_be_visible()
    expect(page.frame_locator("iframe").get_by_text("Hello you")).to_be_visible()
    page.locator("summary", has_text="Headers").click()
    expect(page.get_by_text("Message-ID")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile("^Raw")).click()
    assert download.value.suggested_filename == f"{email_id}.eml"
    assert b"Subject: Your order" in download.value.path().read_bytes()


def test_searches_find_and_say_when_they_do_not(home: House, page: Page) -> None:
    email_id = home.send(to="needle@example.com", company_id="hay-co")
    page.goto(f"{home.url}/emails")
    page.get_by_label(re.compile("Id, recipient")).fill("needle@example.com")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(f'a[href="/emails/{email_id}"]')).to_be_visible()
    page.get_by_label("Status").select_option("INVALID")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No e-mail fits")).to_be_visible()
    page.get_by_role("link", name="All e-mails").click()
    expect(page.get_by_role("row").nth(1)).to_be_visible()


def test_dead_letters_are_exported(home: House, page: Page) -> None:
    empty(home)
    ids = {failed(home), failed(home, "full.example")}
    page.goto(f"{home.url}/dead-letters")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all").click()
    rows = [json.loads(line) for line in download.value.path().read_text().splitlines()]
    assert ids == {row["jobId"] for row in rows}


def test_settings_tell_where_they_came_from_and_no_secret(home: House, page: Page) -> None:
    page.goto(f"{home.url}/settings")
    row = page.get_by_role("row").filter(has_text="transport.url")
    expect(row).to_contain_text("smtp://user:***@127.0.0.1")
    expect(row).to_contain_text("STAFFETTA_TRANSPORT")
    assert "hidden-word" not in page.content()


def test_figures_move_by_themselves_and_nothing_else_does(browser: Browser, tmp_path: Path) -> None:
    """With scripts: a new e-mail is counted without loading the page, and what one reads stays where it is."""
    with house(tmp_path) as quiet:
        context = browser.new_context(viewport={"width": 1366, "height": 900})
        page = context.new_page()
        page.goto(f"{quiet.url}/")
        expect(page.get_by_role("heading", name="All is well")).to_be_visible()
        node = page.locator('#statuses a[href="/emails?status=SENT"] b')
        expect(node).to_have_text("0")
        places = "() => [...document.querySelectorAll('main > *')].map((one) => Math.round(one.getBoundingClientRect().top))"
        stood = page.evaluate(places)
        quiet.until(quiet.send(to="live@example.com"), Status.SENT)
        expect(node).to_have_text("1")
        assert stood == page.evaluate(places)
        context.close()


def test_one_tick_selects_the_page_and_the_slash_goes_to_the_search(home: House, browser: Browser) -> None:
    empty(home)
    for _ in range(3):
        failed(home)
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    page = context.new_page()
    page.goto(f"{home.url}/dead-letters")
    page.get_by_label("All on this page").check()
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Recipient")).to_be_focused()
    context.close()
