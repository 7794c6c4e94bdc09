"""Operating by HTTP: what each call does, when it says 409, and that mistakes change nothing."""

from __future__ import annotations

import pytest

from doubles.front import Front
from staffetta.mail.events import Moved
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email

UNKNOWN = "0198f0a0-ffff-7000-8000-000000000000"


async def email(front: Front, email_id: str) -> Email:
    found = await front.store.get(email_id)
    assert found is not None
    return found


async def test_a_failed_email_is_retried(front: Front) -> None:
    failed = await front.stock.failed()
    said = await front.ask("POST", f"/v1/emails/{failed}/retry")
    assert (200, {"id": failed, "status": "READY"}) == (said.status, said.json)
    assert (await email(front, failed)).status is Status.READY


async def test_a_dead_letter_is_retried_resolved_and_discarded(front: Front) -> None:
    refused, doubtful, old = (
        await front.stock.failed(),
        await front.stock.in_doubt(),
        await front.stock.failed(),
    )

    retried = await front.ask("POST", f"/v1/dlq/{refused}/retry")
    resolved = await front.ask("POST", f"/v1/dlq/{doubtful}/resolve", body={"delivered": True})
    discarded = await front.ask("DELETE", f"/v1/dlq/{old}")

    assert [(200, "READY"), (200, "SENT")] == [
        (retried.status, retried.json["status"]), (resolved.status, resolved.json["status"]),
    ]  # fmt: skip
    assert (204, b"") == (discarded.status, discarded.body)
    assert (404, 404) == (
        (await front.ask("GET", f"/v1/dlq/{old}")).status, (await front.ask("DELETE", f"/v1/dlq/{old}")).status,
    )  # fmt: skip
    assert (await email(front, old)).status is Status.FAILED


async def test_a_waiting_email_is_cancelled_once(front: Front) -> None:
    ready = await front.stock.ready()
    first, second = [await front.ask("POST", f"/v1/emails/{ready}/cancel") for _ in range(2)]
    assert (200, "FAILED") == (first.status, first.json["status"])
    assert (409, "wrong-status") == (second.status, second.kind)
    assert "FAILED" in second.json["detail"]


async def test_content_is_erased_and_the_record_stays(front: Front) -> None:
    sent = await front.stock.sent()
    said = await front.ask("DELETE", f"/v1/emails/{sent}/content")
    assert (204, b"") == (said.status, said.body)
    assert await front.store.content(sent) is None
    assert (await front.ask("GET", f"/v1/emails/{sent}")).json["status"] == "SENT"


async def test_a_stuck_email_is_requeued_when_its_worker_is_dead(front: Front) -> None:
    stuck = await front.stock.ready()
    await front.stock.alive("w1")
    await front.stock.processing(stuck, "w1")
    alive = await front.ask("POST", f"/v1/emails/{stuck}/requeue")
    front.clock.turn(60_000)
    dead = await front.ask("POST", f"/v1/emails/{stuck}/requeue")
    assert (409, 200) == (alive.status, dead.status)
    assert {"id": stuck, "status": "READY"} == dead.json


@pytest.mark.parametrize("path", ["/v1/emails/{}/retry", "/v1/emails/{}/cancel", "/v1/emails/{}/requeue",
                                  "/v1/dlq/{}/retry", "/v1/dlq/{}/resolve"])  # fmt: skip
async def test_what_the_status_does_not_allow_is_409_or_unknown_and_changes_nothing(
    front: Front, path: str
) -> None:
    sent = await front.stock.sent()
    before = await front.store.history(sent)
    said = await front.ask("POST", path.format(sent))
    assert ((404, "not-found") if "dlq" in path else (409, "wrong-status")) == (said.status, said.kind)
    assert before == await front.store.history(sent)


async def test_failed_emails_are_retried_by_filter_after_a_dry_run(front: Front) -> None:
    failed = [await front.stock.failed("acme") for _ in range(3)]
    await front.stock.failed("globex")
    wish = {"company_id": "acme", "status": ["FAILED"], "limit": 2}

    dry = (await front.ask("POST", "/v1/emails/retry", body={**wish, "dry_run": True})).json
    assert [Status.FAILED] * 3 == [(await email(front, each)).status for each in failed]
    done = (await front.ask("POST", "/v1/emails/retry", body=wish)).json

    assert {"dry_run": True, "count": 2, "ids": failed[:0:-1], "skipped": [], "more": True} == dry
    assert {**dry, "dry_run": False} == done
    assert [Status.FAILED, Status.READY, Status.READY] == [(await email(front, each)).status for each in failed]


async def test_dead_letters_are_retried_by_code(front: Front) -> None:
    await front.stock.failed(code=550)
    full = await front.stock.failed(code=552)
    done = (await front.ask("POST", "/v1/dlq/retry", body={"code": "552"})).json
    assert (1, [full]) == (done["count"], done["ids"])


@pytest.mark.parametrize("path", ["/v1/emails/retry", "/v1/dlq/retry"])
async def test_retrying_all_must_be_said(front: Front, path: str) -> None:
    """An empty object means all; a call without a body is a slip."""
    failed = await front.stock.failed()
    slip = await front.ask("POST", path)
    assert (400, "malformed") == (slip.status, slip.kind)
    assert (await email(front, failed)).status is Status.FAILED
    assert (await front.ask("POST", path, body={})).json["ids"] == [failed]


async def test_every_wrong_field_of_a_filter_is_named_and_nothing_is_done(front: Front) -> None:
    failed = await front.stock.failed()
    wrong = {"status": ["LOST"], "company_id": 7, "recipient": "x", "since": 5, "until": "soon", "limit": "5",
             "dry_run": "yes", "colour": "red"}  # fmt: skip
    said = await front.ask("POST", "/v1/emails/retry", body=wrong)
    assert (422, "wrong-fields") == (said.status, said.kind)
    assert set(wrong) == said.fields
    assert (await email(front, failed)).status is Status.FAILED


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"[]", 400),
        (b'"x"', 400),
        (b"null", 400),
        (b"{", 400),
        (b"", 400),
        (b"\xff", 400),
        (b'{"limit": NaN}', 400),
        (b'{"limit": 1e999}', 422),
        (b'{"limit": true}', 422),
        (b'{"limit": 1, "limit": 2}', 422),
        (b'{"status": [{}]}', 422),
        (b'{"status": []}', 422),
        (b'{"status": [["FAILED"]]}', 422),
        (b'{"company_id": "a\\u0000b"}', 422),
        (b'{"company_id": "\\ud800"}', 422),
        (b'{"recipient": "\\ud800@example.com"}', 422),
        (b'{"since": "2026-13-01T00:00:00Z"}', 422),
        (b'{"dry_run": null}', 422),
        (b"[" * 100_000 + b"]" * 100_000, 413),
        (b"[" * 30_000 + b"]" * 30_000, 400),
        (b'{"limit": ' + b"9" * 10_000 + b"}", 400),
    ],
)
async def test_a_hostile_small_body_is_refused(front: Front, raw: bytes, status: int) -> None:
    failed = await front.stock.failed()
    said = await front.ask("POST", "/v1/emails/retry", raw=raw)
    assert status == said.status, said.body
    assert status == said.json["status"]
    assert (await email(front, failed)).status is Status.FAILED


@pytest.mark.parametrize(
    "path", [f"/v1/emails/{UNKNOWN}/retry", f"/v1/dlq/{UNKNOWN}/resolve", "/v1/pause", "/v1/resume"]
)
async def test_a_body_where_none_is_expected_is_named(front: Front, path: str) -> None:
    said = await front.ask("POST", path, body={"force": True})
    assert (422, {"force"}) == (said.status, said.fields)
    assert [] == await front.store.pauses()


async def test_only_delivered_is_a_way_to_resolve(front: Front) -> None:
    doubtful = await front.stock.in_doubt()
    said = await front.ask("POST", f"/v1/dlq/{doubtful}/resolve", body={"delivered": False})
    assert (422, {"delivered"}) == (said.status, said.fields)
    assert (await email(front, doubtful)).status is Status.FAILED


async def test_pausing_everything_a_transport_and_a_company(front: Front) -> None:
    await front.ask("POST", "/v1/pause")
    await front.ask("POST", "/v1/pause", body={"transport": "relay"})
    said = await front.ask("POST", "/v1/pause", body={"company_id": "acme"})
    assert {("all", ""), ("transport", "relay"), ("company", "acme")} == {
        (pause["scope"], pause["name"]) for pause in said.json["pauses"]
    }
    for wish in ({}, {"transport": "relay"}, {"company_id": "acme"}):
        said = await front.ask("POST", "/v1/resume", body=wish)
    assert {"pauses": []} == said.json


async def test_a_transport_and_a_company_at_once_cannot_be_paused(front: Front) -> None:
    said = await front.ask("POST", "/v1/pause", body={"transport": "relay", "company_id": "acme"})
    assert (422, {"transport", "company_id"}) == (said.status, said.fields)
    assert [] == await front.store.pauses()


async def test_operators_changes_are_told_to_this_process(front: Front) -> None:
    """So that a retry is sent at once, not at the next look into the store."""
    failed = await front.stock.failed()
    await front.ask("POST", f"/v1/emails/{failed}/retry")
    assert [failed] == [event.id for event in front.told if isinstance(event, Moved)]
