"""Looking at a store by commands: counts, listings, stories; each `--json` in the shape that others rely on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from doubles.shell import Program, Shell
from doubles.stocked import Stock
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Reply

Stocked = Callable[[Callable[[Stock], Any]], Any]


async def some(stock: Stock) -> dict[str, str]:
    """One of each kind that a person looks for."""
    waiting = await stock.ready("bistro", recipients=["bob@example.org"])
    later = await stock.ready()
    await stock.answered(
        await stock.processing(later), Reply(stage="rcpt", code=450, enhanced="4.2.1", text="4.2.1 later"),
        committed=False,
    )  # fmt: skip
    return {"sent": await stock.sent(), "failed": await stock.failed(), "waiting": waiting, "later": later}


def test_status_counts_in_the_shape_that_others_rely_on(shell: Shell, stocked: Stocked) -> None:
    stocked(some)

    told = shell("status", "--json").json

    assert {status.value for status in Status} == set(told["emails"])
    assert (1, 1, 2) == (told["emails"]["SENT"], told["emails"]["FAILED"], told["emails"]["READY"])
    assert {"waiting": 1, "delayed": 1, "active": 0} == told["queue"]
    assert 1 == told["dlq"]["size"]


def test_status_of_an_empty_folder_is_all_zero(shell: Shell) -> None:
    """A newcomer asks before anything was sent."""
    told = shell("status", "--json").json

    assert not any(told["emails"].values())
    assert "dead letters: 0" in shell("status").out


def test_status_watches_until_it_is_told_to_stop(shell: Shell) -> None:
    """With `--json` a line a second for programs, here until Ctrl-C; that is no failure of anything."""
    watching = Program(shell, "status", "--watch", "--json")
    try:
        for _ in range(2):
            assert watching.line(bool).startswith('{"emails":')
    finally:
        code = watching.stop(signal.SIGINT)

    assert 0 == code
    assert "Traceback" not in "".join(watching.heard)


def test_top_says_a_line_a_second_where_it_is_no_terminal(shell: Shell) -> None:
    top = Program(shell, "top")
    try:
        assert top.line(bool).startswith("sent 0, waiting 0, dead letters 0")
    finally:
        code = top.stop(signal.SIGINT)

    assert 0 == code
    assert "Traceback" not in "".join(top.heard)


def test_a_story_has_every_field_that_others_rely_on(shell: Shell, stocked: Stocked) -> None:
    """The shape of `show --json`, down to the attempt's rule."""
    ids = stocked(some)

    told = shell("show", ids["failed"], "--json").json

    assert {"id", "status", "company_id", "reason", "version", "recipients", "history", "attempts"} <= set(told)
    assert [{"address": "ada@example.com", "state": "refused", "reply": "550 5.1.1 no such user"}] == told[
        "recipients"
    ]
    assert ["ACCEPTED", "INTAKING", "READY", "PROCESSING", "FAILED"] == [
        one["status"] for one in told["history"]
    ]
    assert all({"status", "cause", "reason", "at"} <= set(one) for one in told["history"])
    (attempt,) = told["attempts"]
    assert {
        "attempt": 1, "transport": "relay", "committed": False, "counted": True, "code": "550", "enhanced": "5.1.1",
        "category": "PERMANENT", "retry": False, "action": "FAIL", "next_at": None,
    }.items() <= attempt.items()  # fmt: skip
    assert {"rule", "delay_ms"} <= set(attempt)


def test_a_story_tells_what_happens_next(shell: Shell, stocked: Stocked) -> None:
    ids = stocked(some)

    later, failed = shell("show", ids["later"]).out, shell("show", ids["failed"]).out

    assert "READY (delayed)" in later
    assert "next attempt at " in later
    assert "permanently_failed, dead letter" in failed
    assert "a***@e***.com" in failed
    assert "ada@example.com" not in failed


def test_an_id_that_is_not_there_is_said_so(shell: Shell) -> None:
    said = shell("show", "0198f0a0-0000-7000-8000-00000000ffff", code=1)

    assert "there is no e-mail" in said.err
    assert not said.out


def test_listings_narrow_and_page(shell: Shell, stocked: Stocked) -> None:
    ids = stocked(some)

    def listed(*options: str) -> set[str]:
        return {one["id"] for one in shell("list", "--json", *options).json["emails"]}

    assert set(ids.values()) == listed()
    assert {ids["sent"]} == listed("--status", "SENT")
    assert {ids["sent"], ids["failed"]} == listed("--status", "SENT", "--status", "failed")
    assert {ids["waiting"]} == listed("--company", "bistro") == listed("--recipient", "bob@example.org")
    assert set() == listed("--until", "1h")
    assert set(ids.values()) == listed("--since", "1h") == listed("--since", "2026-01-01T00:00:00Z")
    paged: list[str] = []
    cursor: list[str] = []
    while True:
        page = shell("list", "--json", "--limit", "1", *cursor).json
        paged += [one["id"] for one in page["emails"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert sorted(ids.values()) == sorted(paged)


def test_a_listing_for_people_masks_and_says_when_it_is_empty(shell: Shell, stocked: Stocked) -> None:
    assert "No e-mail fits" in shell("list").out
    stocked(some)

    said = shell("list", "--limit", "2").out

    assert "b***@e***.org" in said or "a***@e***.com" in said
    assert "ada@example.com" not in said
    assert "More: --cursor " in said


def test_a_cursor_of_nobody_is_refused(shell: Shell) -> None:
    said = shell("list", "--cursor", "invented", code=2)

    assert "cursor" in said.err


def test_companies_and_alerts_are_listed_without_a_worker_too(shell: Shell) -> None:
    """Nobody runs: that is said, in words and as an empty list."""
    assert [] == shell("tenants", "--json").json
    assert "Is `staffetta serve` running?" in shell("tenants").out
    assert isinstance(shell("alerts", "--json").json, list)
    assert shell("alerts").out


def test_a_servers_words_cannot_paint_the_screen(shell: Shell, stocked: Stocked) -> None:
    """Replies are hostile text: escape sequences and markup are shown, not obeyed."""

    async def hostile(stock: Stock) -> str:
        new = await stock.ready()
        reply = Reply(stage="rcpt", code=550, text="\x1b[2J[red]gone[/red]\u202e\x07")
        await stock.answered(await stock.processing(new), reply, committed=False)
        return new

    id = stocked(hostile)

    for said in (shell("show", id).out, shell("list").out, shell("dlq", "list").out):
        assert "\x1b" not in said
        assert "\x07" not in said
        assert "[red]gone[/red]" in said
