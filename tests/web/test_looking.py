"""Looking: one e-mail's story, listings page by page, filters that name every mistake, dead letters and their counts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubles.front import Front, front_door
from staffetta.mail.deadletter import validate_dead_letter
from staffetta.mail.message import Reply
from staffetta.mail.shapes import rfc3339
from staffetta.web.parts import PartHealth

UNKNOWN = "0198f0a0-ffff-7000-8000-000000000000"


async def test_one_emails_story_is_told_whole(front: Front) -> None:
    email_id = await front.stock.failed(recipient="ada@example.com")

    said = await front.ask("GET", f"/v1/emails/{email_id}")

    assert said.status == 200
    story = said.json
    assert (email_id, "FAILED", "acme") == (story["id"], story["status"], story["company_id"])
    statuses = ["ACCEPTED", "INTAKING", "READY", "PROCESSING", "FAILED"]
    assert statuses == [entry["status"] for entry in story["history"]]
    (recipient,) = story["recipients"]
    assert ("ada@example.com", "refused") == (recipient["address"], recipient["state"])
    (attempt,) = story["attempts"]
    assert (1, "550", "PERMANENT", False, False) == (
        attempt["attempt"], attempt["code"], attempt["category"], attempt["retry"], attempt["committed"],
    )  # fmt: skip
    history = await front.ask("GET", f"/v1/emails/{email_id}/history")
    assert {"id": email_id, "history": story["history"]} == history.json


@pytest.mark.parametrize("path", ["/v1/emails/{}", "/v1/emails/{}/history", "/v1/dlq/{}"])
@pytest.mark.parametrize(
    "strange", [UNKNOWN, "x", "%00", "%ff", "..%2f..%2fetc%2fpasswd", "a" * 300, "%F0%9F%92%A3", "' OR 1=1 --"]
)
async def test_what_is_no_id_of_ours_is_not_found(front: Front, path: str, strange: str) -> None:
    said = await front.ask("GET", path.format(quote(strange, safe="%")))
    assert (404, "not-found") == (said.status, said.kind)


async def test_pages_bring_every_email_once_and_in_order_while_others_arrive(front: Front) -> None:
    made = []
    for _ in range(23):
        made.append(await front.stock.ready())
        front.clock.turn(1)
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await front.ask("GET", f"/v1/emails?limit=5{cursor}")).json
        seen += [email["id"] for email in page["items"]]
        await front.stock.ready()  # newer than all that is being walked
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert made[::-1] == seen


async def test_filters_narrow_by_status_company_recipient_and_time(front: Front) -> None:
    sent = await front.stock.sent("acme")
    front.clock.turn(1_000)
    failed = await front.stock.failed("acme", recipient="bob@example.com")
    other = await front.stock.failed("globex")
    noon = quote(rfc3339(front.clock()))

    async def ids(query: str) -> set[str]:
        said = await front.ask("GET", f"/v1/emails?{query}")
        assert said.status == 200, said.body
        return {email["id"] for email in said.json["items"]}

    assert {failed, other} == await ids("status=FAILED")
    assert {sent, failed, other} == await ids("status=FAILED&status=SENT")
    assert {sent, failed, other} == await ids("status=FAILED,SENT")
    assert {sent, failed} == await ids("company_id=acme")
    assert {failed} == await ids("recipient=bob%40example.com")
    assert {failed, other} == await ids(f"since={noon}")
    assert {sent} == await ids(f"until={noon}")
    assert {sent} == await ids(f"until={rfc3339(front.clock()).replace('Z', '+00:00')}"), (
        "a + that became a space"
    )
    assert set() == await ids("company_id=nobody")


async def test_every_wrong_parameter_is_named_at_once(front: Front) -> None:
    wrong = "status=LOST&company_id=&recipient=nobody&since=yesterday&until=2026-02-30T00:00:00Z&limit=0&cursor=x&page=2"
    said = await front.ask("GET", f"/v1/emails?{wrong}")
    assert (400, "wrong-query") == (said.status, said.kind)
    assert {"status", "company_id", "recipient", "since", "until", "limit", "page"} == said.fields


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=501", "limit"),
        ("limit=1e3", "limit"),
        ("limit=-1", "limit"),
        ("limit=5&limit=6", "limit"),
        ("limit=", "limit"),
        ("status=", "status"),
        ("status=failed", "status"),
        ("cursor=bm8", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=" + "A" * 3_000, "cursor"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("since=2026-01-01T00:00:00", "since"),
        ("since=2026-01-01", "since"),
        ("since=99999999999", "since"),
        ("company_id=" + "a" * 65, "company_id"),
        ("company_id=a%0Ab", "company_id"),
        ("company_id=%FF", "query"),
        ("&".join(f"a{n}=1" for n in range(200)), "query"),
    ],
)
async def test_a_wrong_parameter_is_named(front: Front, query: str, field: str) -> None:
    said = await front.ask("GET", f"/v1/emails?{query}")
    assert said.status == 400
    assert field in said.fields


async def test_a_cursor_is_good_for_its_own_listing_only(front: Front) -> None:
    for _ in range(3):
        await front.stock.failed()
    cursor = (await front.ask("GET", "/v1/emails?limit=1")).json["next_cursor"]
    assert (await front.ask("GET", f"/v1/emails?limit=2&cursor={cursor}")).status == 200
    for elsewhere in (f"/v1/emails?status=FAILED&cursor={cursor}", f"/v1/dlq?cursor={cursor}"):
        said = await front.ask("GET", elsewhere)
        assert (400, {"cursor"}) == (said.status, said.fields)


async def test_a_cursor_of_one_process_is_good_in_the_next(front: Front, tmp_path: Path) -> None:
    for _ in range(3):
        await front.stock.ready()
    cursor = (await front.ask("GET", "/v1/emails?limit=1")).json["next_cursor"]
    async with front_door(tmp_path / "next", store=front.store) as following:
        assert (await following.ask("GET", f"/v1/emails?limit=1&cursor={cursor}")).status == 200


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cursor=st.text(alphabet="abcXYZ019-_", max_size=60) | st.binary(max_size=40).map(lambda b: b.hex()))
async def test_no_invented_cursor_gets_further_than_a_400(front: Front, cursor: str) -> None:
    said = await front.ask("GET", f"/v1/emails?cursor={quote(cursor)}")
    assert said.status == 400
    assert {"cursor"} == said.fields


async def test_dead_letters_are_listed_without_their_content_and_shown_with_it(front: Front) -> None:
    email_id = await front.stock.failed(code=550)
    await front.stock.failed("globex", code=552)

    listed = (await front.ask("GET", "/v1/dlq?company_id=acme&code=550")).json["items"]
    whole = (await front.ask("GET", f"/v1/dlq/{email_id}")).json

    assert [email_id] == [entry["outboxId"] for entry in listed]
    assert "originalData" not in listed[0]
    assert {**listed[0], "originalData": {"subject": "hello"}} == whole
    assert whole == validate_dead_letter(whole)


async def test_dead_letters_are_counted_by_code_and_company(front: Front) -> None:
    for company, code in (("acme", 550), ("acme", 552), ("globex", 550)):
        await front.stock.failed(company, code=code)
    stats = (await front.ask("GET", "/v1/dlq/stats")).json
    assert {
        "size": 3, "by_code": {"550": 2, "552": 1}, "by_company": {"acme": 2, "globex": 1},
        "oldest_at": rfc3339(front.clock()),
    } == stats  # fmt: skip


async def test_a_company_counts_only_its_own_dead_letters(front: Front) -> None:
    for company, code in (("acme", 550), ("acme", 552), ("globex", 550)):
        await front.stock.failed(company, code=code)
    key = await front.key("read", "acme")
    stats = (await front.ask("GET", "/v1/dlq/stats", key=key)).json
    assert {"size": 2, "by_code": {"550": 1, "552": 1}, "by_company": {"acme": 2}} == {
        name: stats[name] for name in ("size", "by_code", "by_company")
    }


async def test_stale_names_what_a_dead_worker_left(front: Front) -> None:
    stuck = await front.stock.ready()
    await front.stock.alive("w1")
    await front.stock.processing(stuck, "w1")
    assert [] == (await front.ask("GET", "/v1/emails/stale")).json["items"]
    front.clock.turn(60_000)
    (item,) = (await front.ask("GET", "/v1/emails/stale")).json["items"]
    assert (stuck, "PROCESSING", "w1") == (item["id"], item["status"], item["worker"])


async def test_what_a_server_said_is_shown_as_text_whatever_it_holds(front: Front) -> None:
    email_id = await front.stock.ready()
    nasty = "5.1.1 <script>alert(1)</script> \x1b[31m \u202e"
    reply = Reply(stage="rcpt", code=550, enhanced="5.1.1", text=nasty)
    await front.stock.answered(await front.stock.processing(email_id), reply, committed=False)
    said = await front.ask("GET", f"/v1/emails/{email_id}")
    assert said.headers["Content-Type"] == "application/json"
    assert said.headers["X-Content-Type-Options"] == "nosniff"
    assert "\x1b" not in said.json["reason"]


async def test_alive_says_so_without_asking_anything(front: Front) -> None:
    said = await front.ask("GET", "/healthz")
    assert (200, {"status": "ok"}) == (said.status, said.json)


@pytest.mark.parametrize(
    ("store", "queue", "status", "word"),
    [("ok", "ok", 200, "ok"), ("ok", "down", 200, "degraded"), ("ok", "degraded", 200, "degraded"),
     ("degraded", "ok", 200, "degraded"), ("down", "ok", 503, "down"), ("down", "down", 503, "down")],
)  # fmt: skip
async def test_ready_names_each_part_and_is_degraded_while_hand_in_works(
    tmp_path: Path, store: str, queue: str, status: int, word: str
) -> None:
    health = [
        PartHealth(name="store", state=store, needed=True, detail="why"),  # type: ignore[arg-type]  # from the table
        PartHealth(name="queue", state=queue),  # type: ignore[arg-type]  # from the table
    ]
    async with front_door(tmp_path, health=health) as front:
        said = await front.ask("GET", "/readyz")
        assert (status, word) == (said.status, said.json["status"])
        assert {"store": {"status": store, "detail": "why"}, "queue": {"status": queue, "detail": ""}} == (
            said.json["parts"]
        )


async def test_figures_alerts_and_metrics_come_from_the_engine(tmp_path: Path) -> None:
    async def tenants() -> list[dict[str, object]]:
        return [{"company_id": "acme", "totalProcessed": 3}, {"company_id": "globex", "totalProcessed": 1}]

    async def alerts() -> list[dict[str, object]]:
        return [
            {"name": "dlq-size", "state": "ok"},
            {"name": "company-dlq", "company_id": "acme", "state": "firing"},
        ]

    async def metrics() -> str:
        return "dlq_size 3\n"

    async with front_door(tmp_path, tenants=tenants, alerts=alerts, metrics=metrics) as front:
        assert 2 == len((await front.ask("GET", "/v1/tenants")).json["items"])
        assert 2 == len((await front.ask("GET", "/v1/alerts")).json["items"])
        said = await front.ask("GET", "/metrics")
        assert b"dlq_size 3\n" == said.body
        assert said.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        key = await front.key("read", "acme")
        assert [{"company_id": "acme", "totalProcessed": 3}] == (
            await front.ask("GET", "/v1/tenants", key=key)
        ).json["items"]
        assert ["company-dlq"] == [
            alert["name"] for alert in (await front.ask("GET", "/v1/alerts", key=key)).json["items"]
        ]
        assert (await front.ask("GET", "/metrics", key=key)).status == 403
