"""Hand-in by HTTP: durable before it is answered, once under one key, every wrong field named, nothing kept of it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from doubles.front import Front, Said, front_door
from staffetta.errors import StoreUnavailable
from staffetta.mail.events import AcceptedEmail, Troubled
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Added, KeptAnswer, NewEmail
from staffetta.mail.operators import Filter
from staffetta.store.memory import MemoryStore

PAYLOAD = {"from": "Shop <shop@example.com>", "to": "ada@example.com", "subject": "hello", "body_text": "hello"}


async def kept(front: Front) -> int:
    return sum((await front.store.counts()).values())


async def test_an_email_is_ready_when_it_is_answered(front: Front) -> None:
    said = await front.ask("POST", "/v1/emails", body=PAYLOAD)
    assert said.status == 202
    story = (await front.ask("GET", f"/v1/emails/{said.json['id']}")).json
    assert {"id": story["id"], "status": "READY"} == said.json
    assert ["ACCEPTED", "INTAKING", "READY"] == [entry["status"] for entry in story["history"]]
    assert "default" == story["company_id"]
    content = await front.store.content(story["id"])
    assert content is not None
    assert content.message is not None
    assert b"Subject: hello\r\n" in content.message


async def test_a_key_brings_its_company_along(front: Front) -> None:
    key = await front.key("send", "acme")
    said = await front.ask("POST", "/v1/emails", body=PAYLOAD, key=key)
    email = await front.store.get(said.json["id"])
    assert email is not None
    assert "acme" == email.company_id


async def test_a_key_cannot_hand_in_for_another_company(front: Front) -> None:
    key = await front.key("send", "acme")
    for path, body in (("/v1/emails", {**PAYLOAD, "company_id": "globex"}),):
        said = await front.ask("POST", path, body=body, key=key)
        assert (422, {"company_id"}) == (said.status, said.fields)
    batch = await front.ask("POST", "/v1/emails/batch", body=[{**PAYLOAD, "company_id": "globex"}], key=key)
    assert {"company_id"} == {error["field"] for error in batch.json["results"][0]["error"]["errors"]}
    assert 0 == await kept(front)


@pytest.mark.parametrize(
    "smuggled", ["status", "tenant", "version", "attempts", "history", "role", "__proto__"]
)
async def test_what_is_ours_to_set_cannot_be_handed_in(front: Front, smuggled: str) -> None:
    said = await front.ask("POST", "/v1/emails", body={**PAYLOAD, smuggled: "SENT"})
    assert (422, {smuggled}) == (said.status, said.fields)
    assert 0 == await kept(front)


async def test_every_wrong_field_is_named_at_once_and_nothing_is_kept(front: Front) -> None:
    wrong = {
        "id": "x", "company_id": "", "from": "nobody", "to": ["a@example.com", "b"], "reply_to": 5, "cc": ["c"],
        "bcc": "d", "subject": "a\r\nBcc: e@example.com", "priority": 11, "send_at": "tomorrow", "expires_in": 0,
        "max_attempts": -1, "retry_delay": 1.5, "callback_url": "ftp://x", "tags": "t", "metadata": [],
        "in_doubt": "maybe", "custom_headers": {"X\r\nBcc": "f@example.com"}, "colour": "red",
    }  # fmt: skip
    said = await front.ask("POST", "/v1/emails", body=wrong)
    assert (422, "wrong-fields") == (said.status, said.kind)
    assert said.headers["Content-Type"] == "application/problem+json"
    named = {field.partition("[")[0].partition(".")[0] for field in said.fields}
    assert {*wrong, "body_text"} <= named
    assert 0 == await kept(front)


# --------------------------------------------------------------------------------------------------- idempotency


async def test_the_same_key_and_body_give_the_first_answer_and_one_email(front: Front) -> None:
    headers = {"Idempotency-Key": "order-7"}
    first, again = [await front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers) for _ in range(2)]
    assert (202, first.body) == (again.status, again.body)
    assert 1 == await kept(front)


async def test_the_first_answer_comes_again_after_the_email_moved_on(front: Front) -> None:
    headers = {"Idempotency-Key": "order-7"}
    first = await front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers)
    await front.ask("POST", f"/v1/emails/{first.json['id']}/cancel")
    assert first.body == (await front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers)).body


async def test_the_same_key_with_another_body_is_refused(front: Front) -> None:
    headers = {"Idempotency-Key": "order-7"}
    await front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers)
    other = await front.ask("POST", "/v1/emails", body={**PAYLOAD, "subject": "other"}, headers=headers)
    batch = await front.ask("POST", "/v1/emails/batch", body=[PAYLOAD], headers=headers)
    assert [(422, "key-reused")] * 2 == [(said.status, said.kind) for said in (other, batch)]
    assert 1 == await kept(front)


async def test_each_company_has_its_own_keys(front: Front) -> None:
    headers = {"Idempotency-Key": "order-7"}
    answers = [
        await front.ask(
            "POST", "/v1/emails", body=PAYLOAD, headers=headers, key=await front.key("send", company)
        )
        for company in ("acme", "globex")
    ]
    assert [202, 202] == [said.status for said in answers]
    assert 2 == len({said.json["id"] for said in answers})


async def test_a_key_is_forgotten_after_a_day(front: Front) -> None:
    headers = {"Idempotency-Key": "order-7"}
    await front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers)
    front.clock.turn(86_400_001)
    other = await front.ask("POST", "/v1/emails", body={**PAYLOAD, "subject": "other"}, headers=headers)
    assert 202 == other.status
    assert 2 == await kept(front)


class Slow(MemoryStore):
    """Keeps hand-ins waiting until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        self.asked.set()
        await self.go.wait()
        return await super().add(emails, keep=keep)


async def test_a_key_whose_first_request_still_runs_is_409(tmp_path: Path) -> None:
    store = Slow()
    async with front_door(tmp_path, store=store) as front:
        headers = {"Idempotency-Key": "order-7"}
        first = asyncio.create_task(front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers))
        await store.asked.wait()
        second = await front.ask("POST", "/v1/emails", body=PAYLOAD, headers=headers)
        store.go.set()
        assert (409, "still-running", "1") == (second.status, second.kind, second.headers["Retry-After"])
        assert 202 == (await first).status
        assert 1 == await kept(front)


@pytest.mark.parametrize("key", ["", " ", "ä", "a" * 256, "a\tb"])
async def test_a_strange_key_is_named(front: Front, key: str) -> None:
    said = await front.ask("POST", "/v1/emails", body=PAYLOAD, headers={"Idempotency-Key": key})
    assert (400, {"Idempotency-Key"}) == (said.status, said.fields)
    assert 0 == await kept(front)


async def test_a_key_may_be_words(front: Front) -> None:
    first, again = [
        await front.ask("POST", "/v1/emails", body=PAYLOAD, headers={"Idempotency-Key": "order 7, paid"})
        for _ in range(2)
    ]
    assert (202, first.json) == (again.status, again.json)
    assert 1 == await kept(front)


async def test_a_known_id_gives_the_first_answer_or_a_conflict(front: Front) -> None:
    chosen = {**PAYLOAD, "id": "0198f0a0-aaaa-7000-8000-000000000001"}
    first, again = [await front.ask("POST", "/v1/emails", body=chosen) for _ in range(2)]
    other = await front.ask("POST", "/v1/emails", body={**chosen, "subject": "other"})
    assert (202, 202, first.json) == (first.status, again.status, again.json)
    assert (409, "conflict") == (other.status, other.kind)
    assert 1 == await kept(front)


# --------------------------------------------------------------------------------------------------------- batches


async def test_a_batch_keeps_the_right_ones_and_names_the_wrong_ones_in_order(front: Front) -> None:
    batch: list[Any] = [PAYLOAD, {**PAYLOAD, "to": "nobody"}, 7, PAYLOAD, {}]
    said = await front.ask("POST", "/v1/emails/batch", body=batch)
    assert said.status == 202
    results = said.json["results"]
    assert [True, False, False, True, False] == ["id" in result for result in results]
    assert ["to"] == [error["field"] for error in results[1]["error"]["errors"]]
    assert {422, 400} >= {result["error"]["status"] for result in results if "error" in result}
    assert 2 == await kept(front)


async def test_a_batch_repeated_under_its_key_doubles_none(front: Front) -> None:
    batch = [{**PAYLOAD, "subject": f"hello {n}"} for n in range(20)] + [{"to": "x"}]
    headers = {"Idempotency-Key": "night-run"}
    first, again = [await front.ask("POST", "/v1/emails/batch", body=batch, headers=headers) for _ in range(2)]
    assert (202, first.json) == (again.status, again.json)
    assert 20 == await kept(front)


@pytest.mark.parametrize("raw", [b"{}", b"[1", b"null", b"[{}" + b",{}" * 1000 + b"]"])
async def test_what_is_no_batch_is_refused_whole(front: Front, raw: bytes) -> None:
    said = await front.ask("POST", "/v1/emails/batch", raw=raw)
    assert (400, "malformed") == (said.status, said.kind)
    assert 0 == await kept(front)


async def test_a_thousand_at_once_are_kept_in_order(front: Front) -> None:
    said = await front.ask(
        "POST", "/v1/emails/batch", body=[{**PAYLOAD, "subject": str(n)} for n in range(1000)]
    )
    results = said.json["results"]
    assert 1000 == len(results) == await kept(front)
    for number in (0, 500, 999):
        content = await front.store.content(results[number]["id"])
        assert content is not None
        assert f'"subject":"{number}"'.encode() in (content.payload or b"")


# ------------------------------------------------------------------------------------- when the store cannot take it


class Away(MemoryStore):
    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        raise StoreUnavailable("the disk of the store is full")


@pytest.mark.parametrize(("path", "body"), [("/v1/emails", PAYLOAD), ("/v1/emails/batch", [PAYLOAD, PAYLOAD])])
async def test_a_full_or_absent_store_is_503_and_nothing_is_half_written(
    tmp_path: Path, path: str, body: object
) -> None:
    large = {**PAYLOAD, "body_text": "x" * 400_000}
    async with front_door(tmp_path, store=Away()) as front:
        for sent in (body, large if isinstance(body, dict) else [large]):
            said = await front.ask("POST", path, body=sent)
            assert (503, "store-away", "1") == (said.status, said.kind, said.headers["Retry-After"])
        assert [] == [event for event in front.told if isinstance(event, AcceptedEmail)]
    # Whether the store kept a row it could not confirm nobody knows, so whole files wait for the sweep; parts never.
    assert [] == list((tmp_path / "spool").rglob("*.part"))


class Broken(MemoryStore):
    async def add(
        self, emails: Sequence[NewEmail], *, keep: KeptAnswer | None = None
    ) -> list[Added | Exception]:
        raise ZeroDivisionError("secret words of the program")


async def test_a_fault_of_ours_is_told_without_its_inside(tmp_path: Path) -> None:
    async with front_door(tmp_path, store=Broken()) as front:
        said = await front.ask("POST", "/v1/emails", body=PAYLOAD)
        assert (500, "our-fault") == (said.status, said.kind)
        assert b"secret" not in said.body
        (trouble,) = [event for event in front.told if isinstance(event, Troubled)]
        assert ("http", "ZeroDivisionError") == (trouble.part, trouble.error)
        assert "secret" not in trouble.message
        assert (await front.ask("GET", "/healthz")).status == 200


# ------------------------------------------------------------------------------------------------------ what is read


async def test_a_compressed_body_is_read(front: Front) -> None:
    said = await front.ask(
        "POST",
        "/v1/emails",
        raw=gzip.compress(json.dumps(PAYLOAD).encode()),
        headers={"Content-Encoding": "gzip"},
    )
    assert said.status == 202


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
async def test_json_is_known_by_its_type(front: Front, kind: str) -> None:
    raw = json.dumps(PAYLOAD).encode()
    assert (await front.ask("POST", "/v1/emails", raw=raw, headers={"Content-Type": kind})).status == 202


async def test_non_ascii_is_kept_as_it_came(front: Front) -> None:
    payload = {**PAYLOAD, "subject": "Grüße 💌", "body_text": "日本語"}
    said = await front.ask("POST", "/v1/emails", body=payload)
    content = await front.store.content(said.json["id"])
    assert content is not None
    assert payload == json.loads(content.payload or b"")


async def test_nothing_else_can_be_asked_of_hand_in(front: Front) -> None:
    said: Said = await front.ask("POST", "/v1/emails?dry_run=true", body=PAYLOAD)
    assert (400, {"dry_run"}) == (said.status, said.fields)
    assert () == (await front.store.emails(Filter(), limit=10)).items
    assert Status.READY not in [status for status, count in (await front.store.counts()).items() if count]
