"""A caller whose answer was lost in a crash asks again, and neither loses nor doubles an e-mail. Real processes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from doubles.shell import Program, Shell

PAYLOAD = {"from": "shop@example.com", "to": "ada@example.com", "subject": "Order", "body_text": "On its way."}


@asynccontextmanager
async def api(shell: Shell) -> AsyncIterator[tuple[str, Program, aiohttp.ClientSession]]:
    """`staffetta api` until it is killed, or told to stop."""
    running = Program(shell, "api", STAFFETTA_LISTEN="127.0.0.1:0")
    try:
        url = (await asyncio.to_thread(running.told, "Staffetta is ready"))["api"]
        async with aiohttp.ClientSession() as session:
            yield url, running, session
    finally:
        await asyncio.to_thread(running.stop)


async def posted(
    session: aiohttp.ClientSession, url: str, body: object, key: str, path: str = "/v1/emails"
) -> tuple[int, Any]:
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    async with session.post(url + path, data=json.dumps(body), headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


def kept(shell: Shell) -> int:
    counts: dict[str, int] = shell.process("status", "--json").json["emails"]
    return sum(counts.values())


async def test_the_first_answer_comes_again_after_a_crash(tmp_path: Path) -> None:
    """The key is kept in the transaction that keeps the e-mail: what was answered is answered alike."""
    shell = Shell(tmp_path)
    async with api(shell) as (url, running, session):
        status, first = await posted(session, url, PAYLOAD, "order-1")
        assert status == 202
        await asyncio.to_thread(running.stop, signal.SIGKILL)
    async with api(shell) as (url, _, session):
        assert await posted(session, url, PAYLOAD, "order-1") == (202, first)
        status, problem = await posted(session, url, {**PAYLOAD, "subject": "Another"}, "order-1")
        assert (422, "/docs#key-reused") == (status, problem["type"])
    assert kept(shell) == 1


@pytest.mark.parametrize("after", [1, 40])
async def test_callers_cut_off_by_a_crash_ask_again_and_each_has_one_email(tmp_path: Path, after: int) -> None:
    """Killed with a hundred requests in flight: some were kept and not answered, some never came so far."""
    shell = Shell(tmp_path)
    answered: dict[str, str] = {}
    some = asyncio.Event()

    async def asked(session: aiohttp.ClientSession, url: str, key: str) -> None:
        _, said = await posted(session, url, {**PAYLOAD, "subject": key}, key)
        assert answered.setdefault(key, said["id"]) == said["id"]
        if len(answered) >= after:
            some.set()

    callers = [f"order-{number}" for number in range(100)]
    async with api(shell) as (url, running, session):
        asking = [asyncio.create_task(asked(session, url, key)) for key in callers]
        await some.wait()
        await asyncio.to_thread(running.stop, signal.SIGKILL)
        ends = await asyncio.gather(*asking, return_exceptions=True)
        strange = [end for end in ends if not isinstance(end, aiohttp.ClientError | OSError | None)]
        assert strange == []
    async with api(shell) as (url, _, session):
        await asyncio.gather(*(asked(session, url, key) for key in callers))
    assert len(set(answered.values())) == len(callers) == kept(shell)


async def test_a_batch_repeated_after_a_crash_doubles_none(tmp_path: Path) -> None:
    """Its ids follow from key and index, so it does not matter how far the first one came."""
    shell = Shell(tmp_path)
    batch = [{**PAYLOAD, "subject": f"Order {number}"} for number in range(999)] + [{"from": 7}]

    async def asked(url: str, session: aiohttp.ClientSession) -> Sequence[dict[str, Any]]:
        status, said = await posted(session, url, batch, "night", "/v1/emails/batch")
        assert status == 202, said
        results: Sequence[dict[str, Any]] = said["results"]
        return results

    async with api(shell) as (url, running, session):
        asking = asyncio.create_task(asked(url, session))
        status, beside = await posted(session, url, PAYLOAD, "beside it")
        assert status == 202, beside
        await asyncio.to_thread(running.stop, signal.SIGKILL)
        await asyncio.wait((asking,))
    async with api(shell) as (url, running, session):
        second = await asked(url, session)
        await asyncio.to_thread(running.stop, signal.SIGKILL)
    async with api(shell) as (url, _, session):
        third = await asked(url, session)
    assert second == third
    if (error := asking.exception()) is None:
        assert asking.result() == second
    else:
        assert isinstance(error, aiohttp.ClientError)
    assert len({result["id"] for result in second[:-1]}) == 999
    assert "error" in second[-1]
    assert kept(shell) == 1_000
