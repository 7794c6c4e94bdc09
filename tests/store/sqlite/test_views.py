"""Whatever the layout for speed: `emails`, `email_statuses` and `dlq` are read under MySQL's names and columns."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contracts.letters import HOUR, Letters
from staffetta.mail.lifecycle import Cause, Status

EMAILS = "id, status, eml_file_path, payload_file_path, reason, version, created_at, updated_at"
STATUSES = "id, email_id, status, reason, created_at"
DLQ = (
    "jobId, outboxId, companyId, originalData, failedAttempts, lastFailureReason, lastFailureCode,"
    " lastFailureTimestamp, enqueuedAt, movedToDLQAt, ttl"
)


def rows(path: Path, statement: str, *facts: Any) -> list[tuple[Any, ...]]:
    """As a person with any SQLite tool reads it, beside the running owner."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as opened:
        return opened.execute(statement, facts).fetchall()


def millis(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize("status", list(Status))
async def test_an_email_is_seen_as_the_store_tells_it(post: Letters, path: Path, status: Status) -> None:
    id, _ = await post.brought_to(status)
    told = await post.email(id)

    ((found_id, seen, eml, payload, reason, version, created_at, updated_at),) = rows(
        path, f"SELECT {EMAILS} FROM emails"
    )

    assert (found_id, seen, version) == (id, status, told.version)
    assert (eml, payload) == (told.eml_file_path, told.payload_file_path)
    assert (reason or "") == told.reason
    assert (millis(created_at), millis(updated_at)) == (told.created_at, told.updated_at)


async def test_an_email_is_found_by_its_status_whether_held_or_not(post: Letters, path: Path) -> None:
    held, waiting = await post.claim(await post.ready()), await post.ready()

    assert rows(path, "SELECT id FROM emails WHERE status = 'PROCESSING'") == [(held.id,)]
    assert rows(path, "SELECT id FROM emails WHERE status = 'READY'") == [(waiting,)]
    assert rows(path, "SELECT status, COUNT(*) FROM emails GROUP BY status ORDER BY status") == [
        ("PROCESSING", 1),
        ("READY", 1),
    ]


async def test_a_history_is_seen_row_by_row(post: Letters, path: Path) -> None:
    id = await post.ready()
    await post.ready()
    await post.store.apply(post.deferred(await post.claim(id), reason="450 later"))
    held = await post.claim(id)
    await post.commit(held)
    told = await post.store.history(id)

    found = rows(path, f"SELECT {STATUSES} FROM email_statuses WHERE email_id = ? ORDER BY id", id)

    assert [(status, reason or "", millis(at)) for _, _, status, reason, at in found] == [
        (one.status, one.reason, one.at) for one in told
    ]
    assert {email for _, email, *_ in found} == {id}


async def test_parts_of_attempts_are_no_statuses(post: Letters, path: Path) -> None:
    claim = await post.claim(await post.ready(recipients=["a@example.com", "b@example.com"]))
    await post.store.next_part(claim, post.closed(claim))

    assert len(rows(path, "SELECT * FROM email_statuses")) == 4


async def test_dead_letters_are_seen_under_the_runbooks_names(post: Letters, path: Path) -> None:
    id = await post.failed(company_id="other", payload=b'{"subject": "hello"}', code="421")
    letter = await post.store.dead_letter(id)
    assert letter is not None

    ((job, outbox, company, data, attempts, reason, code, failed, enqueued, moved, ttl),) = rows(
        path, f"SELECT {DLQ} FROM dlq"
    )

    assert (job, outbox, company, code, ttl) == (id, id, "other", "421", letter.ttl_ms)
    assert (attempts, reason) == (letter.failed_attempts, letter.last_failure_reason)
    assert json.loads(data) == {"subject": "hello"}
    assert [millis(one) for one in (failed, enqueued, moved)] == [
        letter.last_failure_at, letter.enqueued_at, letter.moved_at,
    ]  # fmt: skip
    assert moved.endswith("Z")


async def test_the_runbooks_questions_run_as_they_stand(post: Letters, path: Path) -> None:
    for code in ("421", "421", "550"):
        await post.failed(code=code)

    assert rows(
        path, "SELECT lastFailureCode, COUNT(*) AS n FROM dlq GROUP BY lastFailureCode ORDER BY n DESC"
    ) == [
        ("421", 2),
        ("550", 1),
    ]
    assert rows(path, "SELECT companyId, COUNT(*) FROM dlq GROUP BY companyId") == [("acme", 3)]


async def test_a_letter_goes_from_the_view_with_the_store(post: Letters, path: Path) -> None:
    id = await post.failed()
    await post.store.apply(
        post.operator(id, Status.FAILED, Status.READY, Cause.RETRIED, due_at=post.now, attempts=0)
    )
    assert len(rows(path, "SELECT * FROM dlq")) == 1

    await post.store.apply(post.delivered(await post.claim(id)))

    assert rows(path, "SELECT * FROM dlq") == []


async def test_due_times_are_seen(post: Letters, path: Path) -> None:
    new = post.new(due_in=HOUR)
    await post.add(new)

    ((at,),) = rows(path, "SELECT next_attempt_at FROM emails")

    assert millis(at) == new.due_at
