"""Both clients, over real HTTP: against the engine's own API, and against a server that misbehaves."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
import trustme

import staffetta
from doubles.front import front_door
from doubles.receiver import DROP, HANG, Receiver, Say
from staffetta import AsyncClient, Attachment, Client
from staffetta.client import talk
from staffetta.client.answers import Email, Receipt
from staffetta.client.messages import Message
from staffetta.errors import (
    ApiError,
    Conflict,
    KeyReused,
    MoveNotAllowed,
    NoAnswer,
    NotFound,
    PayloadError,
    SettingsError,
)
from staffetta.mail.lifecycle import Status

LETTER: Message = {"from_": "shop@example.com", "to": "ada@example.com", "subject": "Hi", "body_text": "Hi!"}
KEPT = Say(202, b'{"id":"1","status":"READY"}')


class Calls(Protocol):
    """Either client, called from a test's loop."""

    async def __call__(self, name: str, *args: Any, **fields: Any) -> Any: ...


class Plain:
    """The plain client, each call in a thread, as a web application's."""

    def __init__(self, url: str, key: str = "", **settings: Any) -> None:
        self.client = Client(url, key, **settings)

    async def __call__(self, name: str, *args: Any, **fields: Any) -> Any:
        return await asyncio.to_thread(getattr(self.client, name), *args, **fields)

    async def close(self) -> None:
        self.client.close()


class Asynchronous:
    def __init__(self, url: str, key: str = "", **settings: Any) -> None:
        self.client = AsyncClient(url, key, **settings)

    async def __call__(self, name: str, *args: Any, **fields: Any) -> Any:
        return await getattr(self.client, name)(*args, **fields)

    async def close(self) -> None:
        await self.client.close()


Opened = Callable[..., Calls]


@pytest.fixture(params=[Plain, Asynchronous], ids=["Client", "AsyncClient"])
async def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    monkeypatch.setattr(talk, "FIRST_WAIT_SECONDS", 0.001)
    made: list[Any] = []

    def one(url: str, key: str = "", **settings: Any) -> Calls:
        made.append(request.param(url, key, **settings))
        calls: Calls = made[-1]
        return calls

    yield one
    for client in made:
        await client.close()


# ------------------------------------------------------------------------------------------ the engine's own API


async def test_an_email_is_handed_in_looked_at_and_cancelled(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        client = opened(front.serving.url)
        receipt: Receipt = await client("send", **LETTER, tags=["welcome"], metadata={"order": 7})
        email: Email = await client("get", receipt.id)
        cancelled: Receipt = await client("cancel", receipt.id)
        after: Email = await client("get", receipt.id)

    assert receipt.status == "READY"
    assert (email.id, email.status, email.tags, email.metadata) == (
        receipt.id,
        "READY",
        ("welcome",),
        {"order": 7},
    )
    assert [entry.status for entry in email.history] == ["ACCEPTED", "INTAKING", "READY"]
    assert [recipient.address for recipient in email.recipients] == ["ada@example.com"]
    assert cancelled == Receipt(id=receipt.id, status="FAILED")
    assert after.reason.startswith("CANCELLED")
    assert after.created_at is not None
    assert after.created_at.tzinfo is not None


async def test_the_story_of_an_attempt_is_typed(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        made = await front.stock.failed()
        email: Email = await opened(front.serving.url)("get", made)

    (attempt,) = email.attempts
    assert (attempt.code, attempt.action, attempt.transport) == ("550", "FAIL", "relay")


async def test_every_wrong_field_is_named(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        wrong = {**LETTER, "to": "nobody", "subject": "two\nlines", "priority": 77}
        with pytest.raises(PayloadError) as raised:
            await opened(front.serving.url)("send", **wrong)
        counts = await front.store.counts()

    assert {problem.field for problem in raised.value.problems} == {"to", "subject", "priority"}
    assert sum(counts.values()) == 0


async def test_attachments_travel_with_their_content(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        attachment = Attachment(name="a.bin", content=bytes(range(256)))
        receipt: Receipt = await opened(front.serving.url)("send", **LETTER, attachments=[attachment])
        content = await front.store.content(receipt.id)

    assert content is not None
    assert content.message is not None
    assert b"a.bin" in content.message


async def test_the_same_key_and_message_is_the_same_email(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        client = opened(front.serving.url)
        first = await client("send", **LETTER, idempotency_key="order-7")
        second = await client("send", **LETTER, idempotency_key="order-7")
        with pytest.raises(KeyReused):
            await client("send", **{**LETTER, "subject": "Another"}, idempotency_key="order-7")
        counts = await front.store.counts()

    assert first == second
    assert counts[Status.READY] == 1


async def test_two_calls_are_two_emails(opened: Opened, tmp_path: Path) -> None:
    """A key is made for each call: the same words may be meant twice."""
    async with front_door(tmp_path) as front:
        client = opened(front.serving.url)
        first, second = await client("send", **LETTER), await client("send", **LETTER)

    assert first.id != second.id


async def test_an_id_of_another_email_is_a_conflict(opened: Opened, tmp_path: Path) -> None:
    name = "0198f0a0-0000-7000-8000-00000000abcd"
    async with front_door(tmp_path) as front:
        client = opened(front.serving.url)
        await client("send", **LETTER, id=name)
        with pytest.raises(Conflict):
            await client("send", **{**LETTER, "subject": "Another"}, id=name)


async def test_a_batch_keeps_the_right_ones_and_names_the_wrong(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        batch = [LETTER, {**LETTER, "to": "nobody"}, {**LETTER, "subject": "Third"}]
        results = await opened(front.serving.url)("send_batch", batch)
        counts = await front.store.counts()

    assert [type(result) for result in results] == [Receipt, PayloadError, Receipt]
    assert results[1].problems[0].field.endswith("to")
    assert counts[Status.READY] == 2


async def test_what_is_unknown_or_another_companys_is_not_found(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        made = await front.stock.ready("acme")
        client = opened(front.serving.url, await front.key("operate", "other"))
        for name in (made, "0198f0a0-0000-7000-8000-00000000abcd", "no uuid/../at all"):
            with pytest.raises(NotFound):
                await client("get", name)


async def test_a_wrong_key_is_told(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        await front.key("send")
        with pytest.raises(ApiError) as raised:
            await opened(front.serving.url, "sk_wrong")("send", **LETTER)

    assert raised.value.status == 401


async def test_cancelling_what_is_sent_is_refused(opened: Opened, tmp_path: Path) -> None:
    async with front_door(tmp_path) as front:
        made = await front.stock.sent()
        with pytest.raises(MoveNotAllowed):
            await opened(front.serving.url)("cancel", made)


# ------------------------------------------------------------------------------------------ a server in trouble


async def test_a_lost_answer_is_asked_for_again_with_the_same_key(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", DROP, Say(503, headers=(("retry-after", "0"),)), KEPT)
        receipt = await opened(server.url("").rstrip("/"))("send", **LETTER)

    assert receipt == Receipt(id="1", status="READY")
    assert len({call.headers["idempotency-key"] for call in server.calls}) == 1
    assert len({call.body for call in server.calls}) == 1
    assert len(server.calls) == 3


async def test_keys_differ_from_call_to_call(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", KEPT)
        client = opened(server.url(""))
        await client("send", **LETTER)
        await client("send", **LETTER)

    assert len({call.headers["idempotency-key"] for call in server.calls}) == 2


async def test_connections_are_kept(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", KEPT)
        client = opened(server.url(""))
        for _ in range(10):
            await client("send", **LETTER)

    assert server.connections == 1


async def test_a_connection_that_was_closed_meanwhile_costs_no_try(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", KEPT, DROP, KEPT)
        client = opened(server.url(""), tries=1)
        await client("send", **LETTER)
        receipt = await client("send", **LETTER)

    assert receipt.id == "1"
    assert [call.headers["idempotency-key"] for call in server.calls][1:] == [
        server.calls[1].headers["idempotency-key"]
    ] * 2


async def test_a_server_that_is_away_is_told_after_all_tries(opened: Opened) -> None:
    async with Receiver() as server:
        url = server.url("")
    with pytest.raises(NoAnswer) as raised:
        await opened(url)("send", **LETTER)

    assert raised.value.kind == "refused"


async def test_a_server_that_comes_back_is_found(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "FIRST_WAIT_SECONDS", 0.05)
    server = Receiver()
    async with server:
        url = server.url("")
    client = opened(url, tries=8)
    sending = asyncio.ensure_future(client("send", **LETTER))
    await asyncio.sleep(0)
    server.answer("/v1/emails", KEPT)
    async with server:
        receipt = await sending

    assert receipt.id == "1"


async def test_a_server_that_never_answers_is_waited_for_so_long(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", HANG)
        with pytest.raises(NoAnswer) as raised:
            await opened(server.url(""), timeout_seconds=0.1, tries=2)("send", **LETTER)

    assert raised.value.kind == "timeout"
    assert len(server.calls) == 2


async def test_an_answer_without_end_is_not_read_for_ever(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staffetta.client.door.Door.answer_bytes", 1_000)
    async with Receiver() as server:
        server.answer("/v1/emails", Say(200, b"x" * 100_000))
        with pytest.raises(ApiError, match="is this its address"):
            await opened(server.url(""))("send", **LETTER)


async def test_the_key_goes_in_the_header_and_nowhere_else(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", KEPT)
        client = opened(server.url(""), "sk_secret")
        await client("send", **LETTER)

    assert server.calls[0].headers["authorization"] == "Bearer sk_secret"
    assert b"sk_secret" not in server.calls[0].body
    assert "sk_secret" not in repr(vars(client))


async def test_a_path_before_the_api_is_kept(opened: Opened) -> None:
    async with Receiver() as server:
        server.answer("/mail/v1/emails", KEPT)
        receipt = await opened(server.url("/mail/"))("send", **LETTER)

    assert receipt.id == "1"


@pytest.mark.parametrize(
    "url", ["", "localhost:8025", "ftp://example.com", "http://", "http://me:pw@example.com"]
)
async def test_a_wrong_address_is_named_at_once(opened: Opened, url: str) -> None:
    with pytest.raises(SettingsError, match="url"):
        opened(url)


async def test_a_key_with_a_line_break_is_refused_at_once(opened: Opened) -> None:
    with pytest.raises(SettingsError, match="key"):
        opened("http://127.0.0.1:1", "sk_a\r\nx-evil: 1")


# ------------------------------------------------------------------------------------------ the plain client alone


async def test_threads_may_share_a_client() -> None:
    async with Receiver() as server:
        server.answer("/v1/emails", KEPT)
        client = Client(server.url(""))
        failures: list[BaseException] = []

        def many() -> None:
            try:
                for _ in range(20):
                    client.send(**LETTER)
            except BaseException as error:  # told to the test
                failures.append(error)

        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
        client.close()

    assert failures == []
    assert len({call.headers["idempotency-key"] for call in server.calls}) == 160
    assert server.connections <= 8


async def test_a_fork_does_not_speak_on_its_parents_connection() -> None:
    """A pre-forking web server would else mix the answers of two requests."""
    async with Receiver() as server:
        server.answer("/v1/emails", KEPT)
        client = Client(server.url(""))
        await asyncio.to_thread(client.send, **LETTER)
        kept = client._idle[0]
        client._process = os.getpid() + 1  # as if we were the child
        await asyncio.to_thread(client.send, **LETTER)
        client.close()

    assert kept.sock is None
    assert server.connections == 2


async def test_the_plain_client_works_inside_a_running_loop() -> None:
    """In a notebook, say, a loop is running already: no client of ours needs one."""
    received: list[str] = []

    async with Receiver() as server:
        server.answer("/v1/emails", KEPT)

        def in_another_loop() -> None:
            async def main() -> None:
                with Client(server.url("")) as client:
                    received.append(client.send(**LETTER).id)

            asyncio.run(main())

        await asyncio.to_thread(in_another_loop)

    assert received == ["1"]


async def test_the_plain_client_checks_certificates() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    known = ssl.create_default_context()
    authority.configure_trust(known)
    async with Receiver(tls=context) as server:
        server.answer("/v1/emails", KEPT)
        with pytest.raises(NoAnswer) as raised:
            await Plain(server.url(""))("send", **LETTER)
        friend = Plain(server.url(""), tls=known)
        receipt = await friend("send", **LETTER)
        await friend.close()

    assert (raised.value.kind, receipt.id) == ("tls", "1")


# ------------------------------------------------------------------------------------------ the public names


def test_importing_a_client_loads_no_server_and_no_http_library() -> None:
    """An application that only hands e-mails in starts as fast as before."""
    heavy = ("aiohttp", "pydantic", "apsw", "starlette", "uvicorn", "click", "rich", "staffetta.config")
    code = f"import sys, staffetta; staffetta.Client, staffetta.AsyncClient; print([m for m in {heavy} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_the_public_names_are_these() -> None:
    assert set(staffetta.__all__) <= set(dir(staffetta))
    assert {"AsyncClient", "Client"} <= set(staffetta.__all__)
    with pytest.raises(AttributeError):
        _ = staffetta.nothing_of_the_kind
