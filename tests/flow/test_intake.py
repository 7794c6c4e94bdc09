"""Intake of payloads that came another way: as rows that name a file. Right ones become READY, wrong ones INVALID."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import AsyncIterator
from email import policy
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

from doubles.stocked import START, Clock, Stock
from staffetta.attachments import Folder
from staffetta.flow.composing import Composer
from staffetta.flow.intake import AGAIN_MS, Intake, IntakeMeans
from staffetta.mail.events import Event, Moved, Troubled
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Email
from staffetta.queue.local import LocalQueue
from staffetta.spool import LARGE_BYTES, Spool
from staffetta.store.contract import Store
from staffetta.store.memory import MemoryStore
from staffetta.store.sqlite import SqliteStore

PAYLOAD: dict[str, Any] = {
    "from": "shop@example.com",
    "to": "ada@example.org",
    "subject": "Hello",
    "body_text": "Hi",
}


class Room:
    """The stage with a folder for payload files, another for attachments, and a store."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.clock = Clock()
        self.stock = Stock(store, self.clock)
        self.told: list[Event] = []
        self.queue = LocalQueue(clock=self.clock)
        self.payloads, self.files = folder / "payloads", folder / "files"
        self.payloads.mkdir()
        self.files.mkdir()
        tokens = (f"w1.{n}" for n in itertools.count())
        self.intake = Intake(
            IntakeMeans(
                store=store, spool=Spool(folder / "spool"), clock=self.clock, emit=self.told.append, queue=self.queue,
                composer=Composer(attachments=Folder(self.files, setting="attachments.base_path")),
                payload_files=Folder(self.payloads, setting="intake.payload_base_path"),
                new_token=lambda: next(tokens),
            )
        )  # fmt: skip

    async def named(self, path: str | Path, company_id: str = "default") -> str:
        return await self.stock.accepted(company_id, payload_path=str(path))

    async def written(self, name: str = "p.json", **fields: Any) -> str:
        (self.payloads / name).write_text(json.dumps({**PAYLOAD, **fields}), encoding="utf-8")
        return await self.named(name)

    async def email(self, id: str) -> Email:
        found = await self.store.get(id)
        assert found is not None
        return found

    async def message(self, id: str) -> Any:
        content = await self.store.content(id)
        assert content is not None
        data = content.message or Spool(self.folder / "spool").read(content.eml_file_path or "")
        return BytesParser(policy=policy.default).parsebytes(data)

    async def invalid(self, id: str) -> str:
        """It must have ended as INVALID; its reason."""
        await self.intake.step()
        email = await self.email(id)
        assert Status.INVALID is email.status, email
        assert await self.store.dead_letter(id) is None
        return email.reason


@pytest.fixture(params=["memory", "sqlite"])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    await store.open()
    try:
        yield Room(store, tmp_path)
    finally:
        await store.close()


async def test_a_payload_file_becomes_an_email_that_is_ready(room: Room) -> None:
    """Its company, priority and time are the payload's; the queue is reminded."""
    id = await room.written(company_id="acme", priority=2, subject="Grüße ✓", send_at="2999-01-01T00:00:00Z")

    assert 1 == await room.intake.step()

    email = await room.email(id)
    assert (Status.READY, "acme", 2) == (email.status, email.company_id, email.priority)
    assert email.due_at > START
    assert ["accepted", "claimed", "composed"] == [one.cause for one in await room.store.history(id)]
    message = await room.message(id)
    assert ("Grüße ✓", f"<{id}@example.com>") == (message["Subject"], message["Message-ID"])
    assert [Status.READY] == [one.target for one in room.told if isinstance(one, Moved)]


async def test_attachments_are_read_and_large_messages_spooled(room: Room) -> None:
    (room.files / "a.bin").write_bytes(b"\0" * LARGE_BYTES)
    id = await room.written(attachments=["a.bin"])

    await room.intake.step()

    content = await room.store.content(id)
    assert content is not None
    assert content.message is None
    (part,) = (await room.message(id)).iter_attachments()
    assert b"\0" * LARGE_BYTES == part.get_payload(decode=True)


async def test_every_wrong_field_is_in_the_reason(room: Room) -> None:
    """Nobody waits for an answer here: whoever looks finds all of it."""
    reason = await room.invalid(await room.written(to="nobody", priority=0, colour="red"))

    assert all(f"{field}: " in reason for field in ("to", "priority", "colour"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "JSON object"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"to": 1, "to": 2}', "twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\x1f\x8b\x08\x00zip", "UTF-8"),
    ],
    ids=range(8),
)
async def test_a_file_that_is_no_payload_ends_there(room: Room, content: bytes, words: str) -> None:
    (room.payloads / "p.json").write_bytes(content)

    assert words in await room.invalid(await room.named("p.json"))


@pytest.mark.parametrize(
    "path",
    [
        "../secret.json",
        "/etc/passwd",
        "missing.json",
        "link.json",
        "fifo",
        "folder",
        "file:///etc/passwd",
        "hard.json",
    ],
)
async def test_a_path_that_leads_elsewhere_ends_there(room: Room, path: str) -> None:
    """By the one resolver that attachments have too; nothing of what lies outside gets into the reason."""
    (room.folder / "secret.json").write_text(json.dumps({**PAYLOAD, "subject": "secret"}))
    (room.payloads / "link.json").symlink_to("../secret.json")
    os.mkfifo(room.payloads / "fifo")
    (room.payloads / "folder").mkdir()
    os.link(room.folder / "secret.json", room.payloads / "hard.json")

    reason = await room.invalid(await room.named(path))

    assert reason.startswith("payload_file_path: ")
    assert "secret" not in reason.replace("secret.json", "")


async def test_an_attachment_that_leads_elsewhere_ends_there(room: Room) -> None:
    assert "attachments[0]: " in await room.invalid(await room.written(attachments=["../s.db"]))


async def test_a_payload_that_names_another_email_ends_there(room: Room) -> None:
    reason = await room.invalid(await room.written(id="01a1f587-6ac1-76b1-a0a5-71bb1360af7e"))

    assert reason.startswith("id: ")


async def test_a_file_larger_than_any_payload_ends_there(room: Room) -> None:
    with (room.payloads / "huge.json").open("wb") as sparse:
        sparse.truncate(1 << 40)

    assert "at most" in await room.invalid(await room.named("huge.json"))


async def test_a_disk_that_is_away_is_waited_for(room: Room) -> None:
    """A folder that is not mounted is no wrong payload: the claim is kept, told of, and tried again."""
    id = await room.written()
    room.payloads.rename(room.folder / "away")

    assert 0 == await room.intake.step()
    assert Status.INTAKING is (await room.email(id)).status
    assert [one for one in room.told if isinstance(one, Troubled)]
    assert 0 == await room.intake.step(), "not before some time has passed"

    (room.folder / "away").rename(room.payloads)
    room.clock.turn(AGAIN_MS)
    assert 1 == await room.intake.step()
    assert Status.READY is (await room.email(id)).status


async def test_an_orderly_stop_gives_back_what_waits_for_a_disk(room: Room) -> None:
    id = await room.written()
    room.payloads.rename(room.folder / "away")
    await room.intake.step()

    await room.intake.stop(1.0)

    assert Status.ACCEPTED is (await room.email(id)).status
    assert Cause.RESTORED is (await room.store.history(id))[-1].cause
    (room.folder / "away").rename(room.payloads)
    assert 1 == await Intake(room.intake._means).step()


async def test_a_wrong_one_stops_no_other(room: Room) -> None:
    """Hundreds in one go, every third of them wrong."""
    right = [await room.written(f"{n}.json", subject=str(n)) for n in range(20)]
    wrong = [await room.written(f"w{n}.json", to=n) for n in range(10)]

    assert 30 == await room.intake.step()

    assert {Status.READY} == {(await room.email(id)).status for id in right}
    assert {Status.INVALID} == {(await room.email(id)).status for id in wrong}


async def test_one_that_another_worker_took_over_is_left_to_it(room: Room) -> None:
    """Claimed, then restored and claimed again elsewhere, while its disk was away."""
    id = await room.written()
    room.payloads.rename(room.folder / "away")
    await room.intake.step()
    (room.folder / "away").rename(room.payloads)
    held = await room.store.held(id)
    assert held is not None
    from staffetta.mail import rescue

    rules = room.stock.rulebook.rules_for("default", held.claim.options)
    await room.store.apply(rescue.after_crash(held, rules, now=room.clock()))
    room.clock.turn(AGAIN_MS)

    await room.intake.step()

    history = [one.status for one in await room.store.history(id)]
    assert 1 == history.count(Status.READY)
    assert 2 == history.count(Status.INTAKING)
