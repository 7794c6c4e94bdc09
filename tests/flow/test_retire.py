"""Letting go: old content, old dead letters, old records and files that nobody names; never what is still alive."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doubles.stocked import Clock, Stock
from staffetta.flow.accept import Desk
from staffetta.flow.retire import RetireMeans, Retirement
from staffetta.mail.events import DeadLetterDropped, Event
from staffetta.mail.identity import uuid7
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Reply
from staffetta.spool import LARGE_BYTES, Spool
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore
from staffetta.store.sqlite import SqliteStore

DAY_MS = 86_400_000
OK = Reply(stage="dot", code=250, text="OK", committed=True)


class Room:
    """The stage, a desk that puts large content into the spool, and a store."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder / "spool"
        self.clock = Clock()
        self.stock = Stock(store, self.clock)
        self.told: list[Event] = []
        self.spool = Spool(self.folder)
        self.desk = Desk(
            store=store, spool=self.spool, clock=self.clock, new_id=lambda now: uuid7(now, os.urandom(10))
        )

    def retirement(self, *, record_days: int | None = None, dead_letter_max: int = 10_000) -> Retirement:
        return Retirement(
            RetireMeans(
                store=self.store, spool=self.spool, clock=self.clock, emit=self.told.append,
                record_ms=record_days and record_days * DAY_MS, dead_letter_max=dead_letter_max,
            )
        )  # fmt: skip

    async def retire(self, *, record_days: int | None = None, dead_letter_max: int = 10_000) -> int:
        """All that can go now, in as many steps as it takes; how many went."""
        stage, gone = self.retirement(record_days=record_days, dead_letter_max=dead_letter_max), 0
        while found := await stage.step():
            gone += found
        return gone

    async def large(self) -> str:
        body = f'{{"from":"a@b.example","to":"c@d.example","subject":"s","body_text":"{"x" * LARGE_BYTES}"}}'
        return (await self.desk.accept(body.encode())).id

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    async def has_content(self, id: str) -> bool:
        content = await self.store.content(id)
        return content is not None and any(
            (content.payload, content.message, content.eml_file_path, content.payload_file_path)
        )

    def age(self, path: Path) -> None:
        """As old as the clock says that the e-mails are."""
        os.utime(path, (self.clock.now / 1_000 - 2 * 86_400,) * 2)


@pytest.fixture(params=["memory", "sqlite"])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    await store.open()
    try:
        yield Room(store, tmp_path)
    finally:
        await store.close()


async def test_content_goes_thirty_days_after_the_end_and_the_record_stays(room: Room) -> None:
    small, large = await room.stock.sent(), await room.large()
    await room.stock.answered(await room.stock.processing(large), OK)
    room.clock.turn(30 * DAY_MS - 1)
    assert 0 == await room.retire()
    assert [True, True] == [await room.has_content(id) for id in (small, large)]

    room.clock.turn(2)
    assert 2 == await room.retire()

    assert [False, False] == [await room.has_content(id) for id in (small, large)]
    assert [] == room.files(), "its files go with it"
    email = await room.store.get(large)
    assert email is not None
    assert Status.SENT is email.status
    assert await room.store.history(large)


async def test_what_is_alive_or_has_a_dead_letter_keeps_its_content(room: Room) -> None:
    """However old: it may have to be sent again."""
    waiting, failed = await room.stock.ready(), await room.stock.failed()
    room.clock.turn(6 * DAY_MS)
    await room.retire()
    assert [True, True] == [await room.has_content(id) for id in (waiting, failed)]

    room.clock.turn(60 * DAY_MS)
    await room.retire()

    assert await room.has_content(waiting)
    assert await room.store.dead_letter(failed) is None, "its seven days are over"
    await room.retire()
    assert not await room.has_content(failed), "and then its content's thirty"


async def test_dead_letters_go_by_age_and_by_number_each_told(room: Room) -> None:
    """The oldest first, and somebody hears of each: the e-mails' own records stay."""
    first = await room.stock.failed()
    room.clock.turn(1_000)
    later = [await room.stock.failed() for _ in range(3)]

    await room.retire(dead_letter_max=3)
    assert await room.store.dead_letter(first) is None
    room.clock.turn(7 * DAY_MS + 1)
    await room.retire()

    assert 0 == (await room.store.dead_letter_counts()).size
    told = [one for one in room.told if isinstance(one, DeadLetterDropped)]
    assert {first, *later} == {one.id for one in told}
    assert 4 == len(told)
    email = await room.store.get(first)
    assert email is not None
    assert Status.FAILED is email.status


async def test_records_go_only_where_that_is_set(room: Room) -> None:
    sent, waiting = await room.stock.sent(), await room.stock.ready()
    room.clock.turn(400 * DAY_MS)
    await room.retire()
    assert await room.store.get(sent) is not None

    await room.retire(record_days=365)

    assert await room.store.get(sent) is None
    assert [] == list(await room.store.history(sent))
    assert await room.store.get(waiting) is not None


async def test_files_that_no_row_names_are_swept_after_a_day(room: Room) -> None:
    """A crash came between the file and its row. Those of living e-mails, and those that are young, stay."""
    kept = await room.large()
    named = room.files()
    stray = Path(room.spool.write("01a1f587-6ac1-76b1-a0a5-71bb1360af7e-x.eml", b"nobody's"))
    part = stray.with_name(stray.name.replace("-x", "-y") + ".part")
    part.write_bytes(b"half")
    foreign = stray.with_name("readme.txt")
    foreign.write_bytes(b"put here by somebody")
    for path in (*named, stray, part, foreign):
        room.age(path)
    young = Path(room.spool.write("01a1f587-6ac1-76b1-a0a5-71bb1360af7e-z.eml", b"being handed in"))
    os.utime(young, (room.clock.now / 1_000,) * 2)

    await room.retire()

    assert {*named, foreign, young} == set(room.files())
    assert await room.has_content(kept)


async def test_a_step_is_bounded_and_says_whether_there_is_more(room: Room) -> None:
    for _ in range(700):
        await room.stock.sent()
    room.clock.turn(31 * DAY_MS)
    stage = room.retirement()

    steps = [await stage.step() for _ in range(3)]

    assert [500, 200, 0] == steps
