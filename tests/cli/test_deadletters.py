"""Dead letters by command: seen, sent again, closed, thrown away, carried off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from doubles.shell import Shell
from doubles.stocked import Stock
from staffetta.mail.deadletter import validate_dead_letter

Stocked = Callable[[Callable[[Stock], Any]], Any]
UNKNOWN = "0198f0a0-0000-7000-8000-00000000ffff"


async def letters(stock: Stock) -> dict[str, str]:
    return {
        "acme": await stock.failed(),
        "bistro": await stock.failed("bistro", code=554, recipient="bob@example.org"),
        "doubt": await stock.in_doubt(),
        "sent": await stock.sent(),
    }


@pytest.fixture
def ids(stocked: Stocked) -> dict[str, str]:
    found: dict[str, str] = stocked(letters)
    return found


def listed(shell: Shell, *options: str) -> set[str]:
    return {one["outboxId"] for one in shell("dlq", "list", "--json", *options).json}


def status_of(shell: Shell, id: str) -> str:
    return str(shell("show", id, "--json").json["status"])


def test_entries_are_those_of_the_contract(shell: Shell, ids: dict[str, str]) -> None:
    """A list of entries without `originalData`; each passes the contract's own check."""
    entries = shell("dlq", "list", "--json").json

    assert {ids["acme"], ids["bistro"], ids["doubt"]} == {one["jobId"] for one in entries}
    for one in entries:
        assert "originalData" not in one
        assert one["jobId"] == one["outboxId"]
        validate_dead_letter({**one, "originalData": {}})


def test_listings_narrow(shell: Shell, ids: dict[str, str]) -> None:
    assert {ids["bistro"]} == listed(shell, "--company", "bistro") == listed(shell, "--code", "554")
    assert {ids["doubt"]} == listed(shell, "--code", "IN-DOUBT")
    assert {ids["bistro"]} == listed(shell, "--recipient", "bob@example.org")
    assert set() == listed(shell, "--until", "1h")
    assert "No dead letters fit" in shell("dlq", "list", "--code", "999").out


def test_a_page_that_is_not_all_says_so_beside_the_list(shell: Shell, ids: dict[str, str]) -> None:
    """The list stays a list; where the next page begins stands on standard error."""
    said = shell("dlq", "list", "--json", "--limit", "2")
    more = shell("dlq", "list", "--json", "--cursor", said.err.split()[-1])

    assert set(ids.values()) - {ids["sent"]} == {one["jobId"] for one in said.json + more.json}


def test_one_is_shown_with_what_was_handed_in(shell: Shell, ids: dict[str, str]) -> None:
    assert {"subject": "hello"} == shell("dlq", "show", ids["acme"], "--json").json["originalData"]
    assert "lastFailureReason" in shell("dlq", "show", ids["acme"]).out
    assert "there is no dead letter" in shell("dlq", "show", UNKNOWN, code=1).err


def test_they_are_counted_by_code_and_company(shell: Shell, ids: dict[str, str]) -> None:
    told = shell("dlq", "stats", "--json").json

    assert 3 == told["size"]
    assert {"550": 1, "554": 1, "IN-DOUBT": 1} == told["by_code"]
    assert {"acme": 2, "bistro": 1} == told["by_company"]
    assert shell("dlq", "stats").out.startswith("3 dead letters")


def test_a_dry_run_changes_nothing(shell: Shell, ids: dict[str, str]) -> None:
    done = shell("dlq", "retry", "--company", "bistro", "--dry-run", "--json").json

    assert ([ids["bistro"]], True) == (done["changed"], done["dry_run"])
    assert "FAILED" == status_of(shell, ids["bistro"])


def test_retry_by_filter_and_limit(shell: Shell, ids: dict[str, str]) -> None:
    """The runbook's line: those of one code, so many at a time."""
    said = shell("dlq", "retry", "--code", "554", "--limit", "10")

    assert [ids["bistro"]] == said.lines
    assert "1 on their way again" in said.err
    assert "READY" == status_of(shell, ids["bistro"])
    assert "being retried" in shell("dlq", "list").out
    assert 1 == len(shell("dlq", "retry", "--all", "--limit", "1", "--json").json["changed"])


def test_retry_by_id_names_what_cannot_be_done_and_does_the_rest(shell: Shell, ids: dict[str, str]) -> None:
    said = shell("dlq", "retry", UNKNOWN, ids["acme"], ids["sent"], code=1)

    assert [ids["acme"]] == said.lines
    assert f"left alone: {UNKNOWN}: there is no dead letter" in said.err
    assert f"left alone: {ids['sent']}" in said.err
    assert "READY" == status_of(shell, ids["acme"])


def test_a_dry_run_by_id_tells_the_truth_too(shell: Shell, ids: dict[str, str]) -> None:
    said = shell("retry", ids["acme"], ids["sent"], "--dry-run", "--json", code=1)

    assert [ids["acme"]] == said.json["changed"]
    assert [ids["sent"]] == [one["id"] for one in said.json["skipped"]]
    assert "FAILED" == status_of(shell, ids["acme"])


def test_one_in_doubt_is_closed_as_delivered(shell: Shell, ids: dict[str, str]) -> None:
    """And only one in doubt: what a server refused was not delivered, whatever somebody says."""
    said = shell("dlq", "resolve", ids["doubt"], ids["acme"], "--delivered", code=1)

    assert [ids["doubt"]] == said.lines
    assert ids["acme"] in said.err
    assert "SENT" == status_of(shell, ids["doubt"])
    assert "FAILED" == status_of(shell, ids["acme"])


def test_discarded_letters_leave_the_record(shell: Shell, ids: dict[str, str]) -> None:
    said = shell("dlq", "discard", ids["acme"], UNKNOWN, code=1)

    assert [ids["acme"]] == said.lines
    assert UNKNOWN in said.err
    assert ids["acme"] not in listed(shell)
    assert "FAILED" == status_of(shell, ids["acme"])


def test_purge_takes_the_old_ones_only(shell: Shell, ids: dict[str, str]) -> None:
    assert [] == shell("dlq", "purge", "--older-than", "30d", "--json").json["changed"]
    dry = shell("dlq", "purge", "--older-than", "0s", "--company", "bistro", "--dry-run", "--json").json
    assert [ids["bistro"]] == dry["changed"]
    assert 3 == len(listed(shell))

    shell("dlq", "purge", "--older-than", "0s", "--company", "bistro")

    assert {ids["acme"], ids["doubt"]} == listed(shell)


def test_export_carries_them_off_with_their_payloads(shell: Shell, ids: dict[str, str]) -> None:
    """JSON lines, to a file or a pipe; the count goes to standard error."""
    said = shell("dlq", "export", "--company", "acme")

    assert {ids["acme"], ids["doubt"]} == {one["outboxId"] for one in said.jsonl}
    assert all({"subject": "hello"} == one["originalData"] for one in said.jsonl)
    assert "2 dead letters written" in said.err
    shell("dlq", "export", "--output", "letters.jsonl")
    lines = (shell.folder / "letters.jsonl").read_text().splitlines()
    assert 3 == len([json.loads(line) for line in lines])


def test_failed_ones_are_retried_by_filter(shell: Shell, ids: dict[str, str]) -> None:
    shell("dlq", "discard", ids["acme"])

    said = shell("retry", "--status", "FAILED", "--company", "acme", "--json")

    assert {ids["acme"], ids["doubt"]} == set(said.json["changed"]), "with a dead letter or without"
    assert "only FAILED" in shell("retry", "--status", "SENT", code=1).err


def test_cancel_and_erase_name_what_cannot_be_done_and_do_the_rest(
    shell: Shell, stocked: Stocked, ids: dict[str, str]
) -> None:
    waiting = stocked(lambda stock: _after(stock, 4))

    cancelled = shell("cancel", ids["sent"], waiting, code=1)
    assert [waiting] == cancelled.lines
    assert ids["sent"] in cancelled.err
    told = shell("show", waiting, "--json").json
    assert ("FAILED", "cancelled") == (told["status"], told["history"][-1]["cause"])
    assert waiting not in listed(shell)

    erased = shell("erase", ids["sent"], UNKNOWN, code=1)
    assert [ids["sent"]] == erased.lines
    assert UNKNOWN in erased.err


async def _after(stock: Stock, made: int) -> str:
    """One more, in a store that has so many."""
    stock.made = made
    return await stock.ready()
