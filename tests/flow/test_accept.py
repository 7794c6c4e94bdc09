"""Taking e-mails in at the desk: durable or refused, whole or not at all, the same answer again for the same key."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from email import policy
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

from doubles.stocked import START, Clock
from staffetta.attachments import Folder
from staffetta.errors import Conflict, KeyReused, PayloadError, StillRunning, StoreUnavailable
from staffetta.flow.accept import Answer, Desk
from staffetta.mail.events import AcceptedEmail, Event
from staffetta.mail.identity import uuid7
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Filter
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
LARGE = "x" * (LARGE_BYTES + 1)


def raw(**fields: Any) -> bytes:
    return json.dumps({**PAYLOAD, **fields}).encode()


class Room:
    """A desk with all that stands around it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.clock = Clock()
        self.told: list[Event] = []
        self.queue = LocalQueue(clock=self.clock)
        self.spool = folder / "spool"
        (folder / "out").mkdir()
        self.desk = self.another_desk()

    def another_desk(self) -> Desk:
        """As of another process: it knows nothing of what the first one remembers."""
        return Desk(
            store=self.store, spool=Spool(self.spool), clock=self.clock, emit=self.told.append, queue=self.queue,
            new_id=lambda now: uuid7(now, os.urandom(10)),
            attachments=Folder(self.folder / "out", setting="attachments.base_path"),
        )  # fmt: skip

    def files(self) -> list[Path]:
        return [path for path in self.spool.rglob("*") if path.is_file()]

    async def kept(self) -> int:
        return len((await self.store.emails(Filter(), limit=1_000)).items)

    async def message(self, id: str) -> Any:
        content = await self.store.content(id)
        assert content is not None
        data = content.message or Spool(self.spool).read(content.eml_file_path or "")
        return BytesParser(policy=policy.default).parsebytes(data)


@pytest.fixture(params=["memory", "sqlite"])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    await store.open()
    try:
        yield Room(store, tmp_path)
    finally:
        await store.close()


# ------------------------------------------------------------------------------------------ one


async def test_what_is_answered_is_ready_with_its_whole_history(room: Room) -> None:
    """Checked, composed and kept in one transaction; the queue is reminded, and whoever listens is told."""
    answer = await room.desk.accept(raw(company_id="acme", priority=2))

    email = await room.store.get(answer.id)
    assert email is not None
    assert (Status.READY, Status.READY, True, 2) == (answer.status, email.status, answer.fresh, email.priority)
    history = await room.store.history(answer.id)
    assert [Status.ACCEPTED, Status.INTAKING, Status.READY] == [entry.status for entry in history]
    assert [AcceptedEmail(at=START, id=answer.id, company_id="acme")] == room.told
    assert 1 == (await room.queue.depth()).waiting
    message = await room.message(answer.id)
    assert ("Hello", f"<{answer.id}@example.com>") == (message["Subject"], message["Message-ID"])


async def test_what_is_wrong_leaves_nothing(room: Room) -> None:
    for body in (
        raw(to="nobody"),
        raw(attachments=["../s.db"]),
        raw(colour=1),
        b"{",
        raw(body_html=7, body_text=LARGE),
    ):
        with pytest.raises(PayloadError):
            await room.desk.accept(body)

    assert 0 == await room.kept()
    assert not room.files()
    assert not room.told


async def test_a_file_is_read_when_it_is_handed_in(room: Room) -> None:
    """What lies on the disk afterwards does not matter: every attempt sends the same bytes."""
    (room.folder / "out" / "ü note.txt").write_bytes(b"as it was")
    answer = await room.desk.accept(raw(attachments=["ü note.txt"]))
    (room.folder / "out" / "ü note.txt").unlink()

    (part,) = (await room.message(answer.id)).iter_attachments()
    assert ("ü note.txt", b"as it was") == (part.get_filename(), part.get_payload(decode=True))


async def test_each_wrong_attachment_is_named(room: Room) -> None:
    with pytest.raises(PayloadError) as refused:
        await room.desk.accept(raw(attachments=["../s.db", "missing", {"path": "/etc/passwd", "name": "x"}]))

    assert ["attachments[0]", "attachments[1]", "attachments[2]"] == [
        field for field, _ in refused.value.problems
    ]


async def test_the_sum_of_files_and_contents_is_bounded(room: Room) -> None:
    (room.folder / "out" / "half").write_bytes(b"x" * (13 << 20))
    inline = {"name": "b", "content": base64.b64encode(b"y" * (13 << 20)).decode()}

    with pytest.raises(PayloadError) as refused:
        await room.desk.accept(raw(attachments=["half", inline]))

    assert ["attachments"] == [field for field, _ in refused.value.problems]
    assert "limits.message_bytes" in str(refused.value)


# ------------------------------------------------------------------------------------------ ids and keys


async def test_a_known_id_gives_the_first_answer_or_a_conflict(room: Room) -> None:
    """The same fields written down in another way are the same payload."""
    id = "01a1f587-6ac1-76b1-a0a5-71bb1360af7e"
    first = await room.desk.accept(raw(id=id))
    again = await room.desk.accept(json.dumps({**PAYLOAD, "id": id}, indent=2, sort_keys=True).encode())

    assert (id, True, id, False) == (first.id, first.fresh, again.id, again.fresh)
    with pytest.raises(Conflict):
        await room.desk.accept(raw(id=id, subject="other"))
    with pytest.raises(Conflict):
        await room.desk.accept(raw(id=id, company_id="bistro"))
    assert 1 == await room.kept()


async def test_the_same_key_and_body_are_one_email_across_processes(room: Room) -> None:
    first = await room.desk.accept(raw(), key="k")
    again = await room.another_desk().accept(raw(), key="k")

    assert (first.id, False) == (again.id, again.fresh)
    assert 1 == await room.kept()
    assert 1 == len(room.told)


async def test_the_same_key_with_another_body_is_refused_and_keeps_nothing(room: Room) -> None:
    await room.desk.accept(raw(), key="k")

    with pytest.raises(KeyReused):
        await room.desk.accept(raw(body_text=LARGE), key="k")

    assert 1 == await room.kept()
    assert [] == room.files(), "large content of what was refused is removed"


async def test_a_key_counts_within_its_company_and_a_day(room: Room) -> None:
    first = await room.desk.accept(raw(company_id="acme"), key="k")
    other = await room.desk.accept(raw(company_id="bistro"), key="k")
    room.clock.turn(86_400_001)
    later = await room.desk.accept(raw(company_id="acme", subject="another day"), key="k")

    assert 3 == len({first.id, other.id, later.id})


async def test_two_at_once_under_one_key_are_one(room: Room) -> None:
    answers = await asyncio.gather(
        *(room.desk.accept(raw(), key="k") for _ in range(8)), return_exceptions=True
    )

    kept = {one.id for one in answers if isinstance(one, Answer)}
    assert 1 == len(kept) == await room.kept()
    assert all(isinstance(one, Answer | StillRunning) for one in answers)


async def test_two_processes_at_once_under_one_key_are_one(room: Room) -> None:
    """Neither knows of the other; the store decides."""
    desks = [room.another_desk() for _ in range(8)]
    answers = await asyncio.gather(*(desk.accept(raw(), key="k") for desk in desks))

    assert 1 == len({one.id for one in answers}) == await room.kept()
    assert 1 == sum(one.fresh for one in answers)


# ------------------------------------------------------------------------------------------ many


async def test_right_ones_are_kept_and_wrong_ones_named_in_order(room: Room) -> None:
    payloads = [{**PAYLOAD, "to": "nobody" if n % 3 == 0 else f"r{n}@example.org"} for n in range(1_000)]

    results = await room.desk.accept_batch(json.dumps(payloads).encode())

    assert [n % 3 == 0 for n in range(1_000)] == [isinstance(one, PayloadError) for one in results]
    for n in (1, 500, 998):
        answer = results[n]
        assert isinstance(answer, Answer)
        email = await room.store.get(answer.id)
        assert email is not None
        assert f"r{n}@example.org" == email.recipients[0].address
    assert 666 == await room.kept()


@pytest.mark.parametrize(
    "body", [b"{}", b"7", b"[", b"[" * 100_000, b"\xff", json.dumps([PAYLOAD] * 1_001).encode()]
)
async def test_what_is_no_batch_is_refused_whole(room: Room, body: bytes) -> None:
    with pytest.raises(PayloadError):
        await room.desk.accept_batch(body)

    assert 0 == await room.kept()


async def test_an_item_that_is_no_payload_spoils_no_other(room: Room) -> None:
    body = b'[7, null, ["x"], ' + b'{"x":' * 900 + b"1" + b"}" * 900 + b", " + raw() + b', {"to": 1, "to": 2}]'
    results = await room.desk.accept_batch(body)

    assert [False, False, False, False, True, False] == [isinstance(one, Answer) for one in results]


async def test_a_batch_under_a_key_is_kept_once(room: Room) -> None:
    body = json.dumps([{**PAYLOAD, "subject": str(n)} for n in range(5)] + [{"to": 7}]).encode()
    first = await room.desk.accept_batch(body, key="k")
    again = await room.another_desk().accept_batch(body, key="k")

    def ids(results: list[Answer | Exception]) -> list[str]:
        return [one.id if isinstance(one, Answer) else str(one) for one in results]

    assert ids(first) == ids(again)
    assert 5 == await room.kept()


async def test_the_same_id_twice_in_a_batch_is_kept_once(room: Room) -> None:
    id = "01a1f587-6ac1-76b1-a0a5-71bb1360af7e"
    one, same, other = await room.desk.accept_batch(
        json.dumps(
            [{**PAYLOAD, "id": id}, {**PAYLOAD, "id": id}, {**PAYLOAD, "id": id, "subject": "x"}]
        ).encode()
    )

    assert isinstance(one, Answer)
    assert isinstance(same, Answer)
    assert (id, id) == (one.id, same.id)
    assert isinstance(other, Conflict)
    assert 1 == await room.kept()


# ------------------------------------------------------------------------------------------ large content, full disks


async def test_large_content_becomes_files_that_the_row_names(room: Room) -> None:
    answer = await room.desk.accept(raw(body_text=LARGE))

    content = await room.store.content(answer.id)
    assert content is not None
    assert (None, None) == (content.payload, content.message)
    assert sorted(map(str, room.files())) == sorted(
        [content.payload_file_path or "", content.eml_file_path or ""]
    )
    body = (await room.message(answer.id)).get_body(("plain",)).get_content()
    assert body.rstrip("\n") == LARGE
    assert all(path.stat().st_mode & 0o077 == 0 for path in room.files()), "contents are nobody else's business"


async def test_what_was_known_already_leaves_no_second_file(room: Room) -> None:
    for _ in range(3):
        await room.desk.accept(raw(body_text=LARGE), key="k")

    assert 2 == len(room.files())


async def test_a_spool_that_cannot_be_written_keeps_nothing(room: Room) -> None:
    """A file lies where the folder should: as with a disk that is full, the caller may come again."""
    room.spool.write_bytes(b"")

    with pytest.raises(StoreUnavailable, match="spool"):
        await room.desk.accept(raw(body_text=LARGE))
    with pytest.raises(StoreUnavailable, match="spool"):
        await room.desk.accept_batch(json.dumps([PAYLOAD, {**PAYLOAD, "body_text": LARGE}]).encode(), key="k")

    assert 0 == await room.kept()
    room.spool.unlink()
    assert 2 == len(
        await room.desk.accept_batch(json.dumps([PAYLOAD, {**PAYLOAD, "body_text": LARGE}]).encode(), key="k")
    )


async def test_a_queue_that_is_away_hinders_nobody(room: Room) -> None:
    """The store has it; it is found there a little later."""
    await room.queue.close()

    assert Status.READY is (await room.desk.accept(raw())).status
