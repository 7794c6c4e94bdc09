"""Listing few SENT e-mails among many that are acknowledged: the same answer by every road."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doubles.stocked import Clock, Stock
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Transition
from staffetta.mail.operators import Filter
from staffetta.store.sqlite import SqliteStore, browsing


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    monkeypatch.setattr(browsing, "WALKED", 5)
    opened = SqliteStore(tmp_path / "outbox.db", owner=True)
    await opened.open()
    yield opened
    await opened.close()


async def acknowledged(store: SqliteStore, clock: Clock, count: int) -> None:
    tokens = [f"w1.{clock()}.{number}" for number in range(count)]
    for claim in await store.claim_reports(tokens=tokens, now=clock()):
        move = Transition(id=claim.id, ref=claim.ref, source=claim.status, target=Status.SENT_ACKNOWLEDGED,
                          token=claim.token, cause=Cause.ACKNOWLEDGED, at=clock())  # fmt: skip
        await store.apply(move)


async def listed(store: SqliteStore, company_id: str | None = None) -> list[str]:
    """Page by page, so that the cursor is held to it as well."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.emails(Filter(status=(Status.SENT,), company_id=company_id), limit=2, cursor=cursor)
        found += [email.id for email in page.items]
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("for_good", [False, True], ids=["all-have-owners", "one-has-none"])
async def test_old_ones_whose_owner_waits_are_found_behind_all_that_are_done(
    store: SqliteStore, for_good: bool
) -> None:
    clock = Clock()
    told, silent = Stock(store, clock, callback_url="https://acme.example/"), Stock(store, clock)
    wanted = []
    for company_id in ("acme", "globex"):
        done = []
        for _ in range(9):
            clock.turn(1_000)
            done.append(await told.sent(company_id))
        await acknowledged(store, clock, 9)
    silent.made = told.made
    if for_good:
        clock.turn(1_000)
        wanted.append(await silent.sent("acme"))
        told.made = silent.made
    for company_id in ("acme", "acme", "globex", "acme"):
        clock.turn(1_000)
        wanted.append(await told.sent(company_id))
    held = await store.claim_reports(tokens=["w1.held"], now=clock())
    assert len(held) == 1
    for _ in range(8):
        clock.turn(1_000)
        await told.failed("acme")
    left = [each for each in wanted if each != held[0].id]
    assert left[::-1] == await listed(store)
    companies = {each: email.company_id for each in left if (email := await store.get(each)) is not None}
    assert [each for each in left[::-1] if companies[each] == "acme"] == await listed(store, company_id="acme")
