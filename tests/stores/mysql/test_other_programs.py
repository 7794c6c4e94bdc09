"""Another program of the seed's design works on the same tables, by the seed's own statements. Each e-mail is sent once,
by one of us, and nothing of either is lost.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doubles.databases import Server
from doubles.office import office, until
from doubles.seedling import LockNotAcquired, Seedling
from staffetta import errors
from staffetta.config import sections
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, Job, Options, RecipientReply, Reply, Transition
from staffetta.store.mysql import MysqlStore, Owners

pytestmark = pytest.mark.service
S = Status


@pytest.fixture
def url(mariadb_server: Server) -> str:
    return mariadb_server.url(mariadb_server.emptied())


@pytest.fixture
def seedling(mariadb_server: Server, url: str) -> Iterator[Seedling]:
    other = Seedling(mariadb_server, url.rpartition("/")[2])
    yield other
    other.close()


def id_of(number: int) -> str:
    return f"0198f0a0-0000-7000-8000-{number:012d}"


def payload(**fields: Any) -> str:
    whole = {"from": "us@example.com", "to": "you@example.org", "subject": "hello", "body_text": "hello"}
    return json.dumps({**whole, **fields})


def message(to: str = "you@example.org", *more: str) -> bytes:
    lines = ["From: Us <us@example.com>", f"To: {to}", *more, "Subject: hello", "", "hello", ""]
    return "\n".join(lines).encode()


async def test_a_row_with_id_status_and_path_is_picked_up_and_sent(
    url: str, seedling: Seedling, tmp_path: Path
) -> None:
    """All that such a program knows to write."""
    async with office(url, tmp_path) as ours:
        (tmp_path / "payloads" / "one.json").write_text(payload(company_id="acme"))
        seedling.hand_in(id_of(1), str(tmp_path / "payloads" / "one.json"))
        await ours.until(id_of(1), S.SENT)
        email = await ours.running.store.get(id_of(1))
        assert email is not None
        assert ("acme", ["you@example.org"]) == (email.company_id, ours.recipients())
        causes = [entry.cause for entry in await ours.running.store.history(id_of(1))]
        assert causes == [Cause.ACCEPTED, Cause.CLAIMED, Cause.COMPOSED, Cause.CLAIMED, Cause.DELIVERED]
    assert seedling.row(id_of(1)).version == 5


async def test_a_payload_of_such_a_program_that_is_wrong_is_invalid_in_words(
    url: str, seedling: Seedling, tmp_path: Path
) -> None:
    async with office(url, tmp_path) as ours:
        (tmp_path / "payloads" / "one.json").write_text(payload(to="nobody at all"))
        seedling.hand_in(id_of(1), str(tmp_path / "payloads" / "one.json"))
        await ours.until(id_of(1), S.INVALID)
    assert "to" in (seedling.row(id_of(1)).reason or "")


async def test_a_ready_row_takes_its_envelope_from_the_payload(
    url: str, seedling: Seedling, tmp_path: Path
) -> None:
    """The company too, and so its place in the fair order."""
    (tmp_path / "payloads").mkdir()
    (tmp_path / "payloads" / "one.json").write_text(payload(company_id="acme", to="named@example.org"))
    (tmp_path / "payloads" / "one.eml").write_bytes(message("shown@example.org"))
    seedling.hand_in(id_of(1), str(tmp_path / "payloads" / "one.json"))
    seedling.compose(id_of(1), str(tmp_path / "payloads" / "one.eml"))
    before = seedling.row(id_of(1))
    async with office(url, tmp_path) as ours:
        await ours.until(id_of(1), S.SENT)
        email = await ours.running.store.get(id_of(1))
        assert email is not None
        assert (email.company_id, ours.recipients()) == ("acme", ["named@example.org"])
        content = await ours.running.store.content(id_of(1))
        assert content is not None
        assert content.message is not None
        assert b"shown@example.org" in content.message
    assert seedling.row(id_of(1)).eml_file_path == before.eml_file_path


async def test_a_ready_row_without_a_payload_takes_it_from_the_headers_and_hides_bcc(
    url: str, seedling: Seedling, tmp_path: Path
) -> None:
    (tmp_path / "payloads").mkdir()
    text = message("a@example.org", "Cc: b@example.org", "Bcc: c@example.org,", " d@example.org")
    (tmp_path / "payloads" / "one.eml").write_bytes(text)
    seedling.hand_in(id_of(1), "")
    seedling.compose(id_of(1), str(tmp_path / "payloads" / "one.eml"))
    async with office(url, tmp_path) as ours:
        await ours.until(id_of(1), S.SENT)
        assert ours.recipients() == [f"{one}@example.org" for one in "abcd"]
        content = await ours.running.store.content(id_of(1))
        assert content is not None
        assert content.message is not None
        assert b"Bcc" not in content.message
        assert b"d@example.org" not in content.message


async def test_a_large_message_is_copied_to_our_own_spool(url: str, seedling: Seedling, tmp_path: Path) -> None:
    """What the other program does with its file afterwards changes nothing of what we send."""
    (tmp_path / "payloads").mkdir()
    text = message("a@example.org") + b"x" * 70 * 5_000 + b"\n"
    (tmp_path / "payloads" / "one.eml").write_bytes(text.replace(b"x" * 70, b"x" * 70 + b"\n"))
    seedling.hand_in(id_of(1), "")
    seedling.compose(id_of(1), str(tmp_path / "payloads" / "one.eml"))
    async with office(url, tmp_path) as ours:
        await ours.until(id_of(1), S.SENT)
        assert ours.recipients() == ["a@example.org"]
        assert ours.taken()[0]["size"] > 350_000
    assert str(tmp_path / "spool") in (seedling.row(id_of(1)).eml_file_path or "")


@pytest.mark.parametrize(
    ("more", "field"),
    [({"send_at": "2030-01-01T00:00:00Z"}, "send_at"), ({"cc": ["b@example.org"]}, "to"), ({"bcc": ["b@example.org"]}, "bcc")],
)  # fmt: skip
async def test_what_the_other_program_could_not_honour_is_refused_on_a_shared_store(
    url: str, tmp_path: Path, more: dict[str, Any], field: str
) -> None:
    async with office(url, tmp_path, shared=True) as ours:
        with pytest.raises(errors.PayloadError) as told:
            await ours.send(**more)
        assert field in {problem.field for problem in told.value.problems}
        sent = await ours.send()
        email = await ours.running.store.get(sent)
        assert email is not None
        assert email.eml_file_path is not None
        assert email.payload_file_path is not None


async def test_a_ready_row_that_nobody_can_send_is_refused_in_words(
    url: str, seedling: Seedling, tmp_path: Path
) -> None:
    """It must neither stand there for ever nor stop the others."""
    seedling.hand_in(id_of(1), "")
    seedling.compose(id_of(1), "/etc/passwd")
    async with office(url, tmp_path) as ours:
        await ours.until(id_of(1), S.FAILED)
        letter = await ours.running.store.dead_letter(id_of(1))
        assert letter is not None
        assert "names no sender" in letter.last_failure_reason
        assert ours.taken() == []


async def test_its_time_counts_from_when_it_is_first_seen(url: str, seedling: Seedling, tmp_path: Path) -> None:
    """A backlog that is a week old when we come is not thrown away."""
    (tmp_path / "payloads").mkdir()
    for number in (1, 2):
        (tmp_path / "payloads" / f"{number}.json").write_text(payload())
        seedling.hand_in(id_of(number), str(tmp_path / "payloads" / f"{number}.json"))
    (tmp_path / "payloads" / "2.eml").write_bytes(message())
    seedling.compose(id_of(2), str(tmp_path / "payloads" / "2.eml"))
    with seedling._transaction() as cursor:
        cursor.execute(
            "UPDATE emails SET created_at = NOW() - INTERVAL 7 DAY, updated_at = NOW() - INTERVAL 7 DAY"
        )
    async with office(url, tmp_path) as ours:
        for number in (1, 2):
            await ours.until(id_of(number), S.SENT)


async def test_each_is_sent_by_one_of_us(url: str, seedling: Seedling, tmp_path: Path) -> None:
    """The other one takes its share of the same READY rows while we take ours."""
    count = 200
    (tmp_path / "payloads").mkdir()
    (tmp_path / "payloads" / "one.json").write_text(payload())
    async with office(url, tmp_path, shared=True) as ours:
        for number in range(count):
            seedling.hand_in(id_of(number), str(tmp_path / "payloads" / "one.json"))
        theirs: list[str] = []

        def work() -> None:
            for row in seedling.take("READY", "PROCESSING", 3):
                assert row.eml_file_path, "on a shared store the message is a file that it can send"
                assert b"you@example.org" in Path(row.eml_file_path).read_bytes()
                theirs.append(row.id)
                seedling.move(row.id, "PROCESSING", "SENT", "250 OK")

        async def all_sent() -> bool:
            await asyncio.to_thread(work)
            return (await ours.running.store.counts())[S.SENT] == count

        await until(all_sent, "some were never sent")
        assert len(ours.taken()) + len(theirs) == count
        assert len(set(theirs)) == len(theirs)


async def test_our_claim_is_lost_when_the_other_program_moves_the_row(url: str, seedling: Seedling) -> None:
    """It knows no tokens: the version that it counts up tells us all the same, even in the same status again."""
    store = MysqlStore(url)
    await store.open()
    try:
        await _hand_in(store, 1)
        claim = await store.claim(_job(1), token="w1.1", now=_now())
        assert claim is not None
        seedling.move(id_of(1), "PROCESSING", "READY", "stale")
        seedling.take("READY", "PROCESSING")
        with pytest.raises(errors.LockNotAcquired):
            await store.commit(claim, transport="relay", now=_now())
        with pytest.raises(errors.LockNotAcquired):
            await store.apply(_sent(claim.id, claim.token))
        seedling.move(id_of(1), "PROCESSING", "SENT", "theirs")
        assert [entry.reason for entry in await store.history(id_of(1))][-1] == "theirs"
        with pytest.raises(LockNotAcquired):
            seedling.move(id_of(1), "READY", "PROCESSING")
    finally:
        await store.close()


async def test_a_reply_is_kept_though_the_other_program_took_the_row(url: str, seedling: Seedling) -> None:
    """It put the row back while our server was answering: the next claim reads that answer and sends nothing."""
    store = MysqlStore(url)
    await store.open()
    try:
        await _hand_in(store, 1)
        claim = await store.claim(_job(1), token="w1.1", now=_now())
        assert claim is not None
        await store.commit(claim, transport="relay", now=_now())
        seedling.move(id_of(1), "PROCESSING", "READY", "stale")
        with pytest.raises(errors.LockNotAcquired):
            await store.apply(_sent(claim.id, claim.token))
        again = await store.claim(_job(1), token="w1.2", now=_now())
        assert again is not None
        assert again.late is not None
        assert again.late.replies[0].reply.delivered
    finally:
        await store.close()


async def test_what_is_found_in_work_without_our_journal_is_in_doubt(url: str, seedling: Seedling) -> None:
    """Nobody knows how far the other one had come: not unsent."""
    store = MysqlStore(url)
    await store.open()
    try:
        await _hand_in(store, 1)
        (row,) = seedling.take("READY", "PROCESSING")
        with seedling._transaction() as cursor:
            cursor.execute("UPDATE emails SET updated_at = NOW() - INTERVAL 31 MINUTE WHERE id = %s", (row.id,))
        (found,) = await store.stuck(now=_now(), dead_after_ms=60_000, timeout_ms=30 * 60_000)
        assert (found.status, found.claim.attempt, found.committed_at) == (S.PROCESSING, 0, 0)
        seedling.move(id_of(1), "PROCESSING", "READY")
        seedling.take("READY", "PROCESSING")
        move = _sent(found.claim.id, found.claim.token)
        with pytest.raises(errors.LockNotAcquired):
            await store.apply(move)  # decided on what it was before: it is another hold now
    finally:
        await store.close()


@pytest.mark.parametrize(("age_hours", "told"), [(1, True), (73, False)])
async def test_an_owner_hears_of_what_others_ended_while_it_is_young(
    url: str, seedling: Seedling, age_hours: int, told: bool
) -> None:
    """Whether a callback is due is fixed on entering the end; of older ones nobody wants to hear any more."""
    waits = {"acme": True, "default": False}

    def owner_waits(company_id: str, options: Options) -> bool:
        return waits[company_id]

    store = MysqlStore(url, owners=Owners(window_ms=72 * 3_600_000, waits=owner_waits))
    await store.open()
    try:
        for number, company_id in ((1, "acme"), (2, "default")):
            await _hand_in(store, number, company_id)
        for row in seedling.take("READY", "PROCESSING"):
            seedling.move(row.id, "PROCESSING", "SENT", "250 theirs")
        with seedling._transaction() as cursor:
            cursor.execute("UPDATE emails SET updated_at = NOW() - INTERVAL %s HOUR", (age_hours,))
        claims = await store.claim_reports(tokens=["w1.1", "w1.2"], now=_now())
        assert [claim.id for claim in claims] == ([id_of(1)] if told else [])
        for claim in claims:
            assert (claim.reason, claim.sequence) == ("250 theirs", 1)
            assert abs(claim.reached_at - (_now() - age_hours * 3_600_000)) < 120_000
        assert not await store.claim_reports(tokens=["w1.3"], now=_now())
    finally:
        await store.close()


async def test_a_clean_up_of_the_other_program_leaves_nothing_behind(
    mariadb_server: Server, url: str, seedling: Seedling, tmp_path: Path
) -> None:
    """It deletes rows of `emails`; what we kept beside them goes with them."""
    async with office(url, tmp_path, callback=sections.Callback()) as ours:
        sent = await ours.send(cc=["other@example.org"])
        await ours.until(sent, S.SENT)
    with seedling._transaction() as cursor:
        cursor.execute("DELETE FROM emails WHERE id = %s", (sent,))
    database = url.rpartition("/")[2]
    for table in ("email_statuses", "contents", "staffetta_recipients", "staffetta_parts", "staffetta_late"):
        assert mariadb_server.ask(f"SELECT COUNT(*) FROM {table}", database=database) == [(0,)], table


# --- what the tests above have in common ------------------------------------------------------------------


def _now() -> int:
    return time.time_ns() // 1_000_000


def _job(number: int) -> Job:
    return Job(id=id_of(number), company_id="acme", priority=5, due_at=0)


def _sent(id: str, token: str) -> Transition:
    reply = RecipientReply(
        address="you@example.org", reply=Reply(stage="dot", code=250, text="ok", committed=True)
    )
    return Transition(
        id=id, source=S.PROCESSING, target=S.SENT, cause=Cause.DELIVERED, at=_now(), token=token,
        attempt=Attempt(attempt=1, part=1, token=token, transport="relay", closed_at=_now(), replies=(reply,)),
    )  # fmt: skip


async def _hand_in(store: MysqlStore, number: int, company_id: str = "acme") -> None:
    from contracts.letters import _STEPS
    from staffetta.mail.message import HistoryEntry, NewEmail

    now = _now() - 1_000
    new = NewEmail(
        id=id_of(number), company_id=company_id, created_at=now, due_at=now, expires_at=now + 86_400_000,
        history=tuple(HistoryEntry(status=s, cause=c, reason="", at=now) for s, c in _STEPS[S.READY]),
        sender="us@example.com", recipients=("you@example.org",), message=b"Subject: x\r\n\r\nx\r\n",
    )  # fmt: skip
    (added,) = await store.add([new])
    assert not isinstance(added, Exception), added
