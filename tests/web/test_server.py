"""The server under callers that break the rules of HTTP or take all the time in the world."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator

import pytest

from staffetta.web.parts import AsgiApp, Receive, Scope, Send
from staffetta.web.server import Patience, Serving, serving

QUICK = Patience(
    headers_bytes_max=2_000, headers_max=20, address_bytes_max=500, connections_max=5, headers_seconds=0.05,
    body_seconds=0.05, body_bytes_per_second=1_000_000, answer_seconds=0.05, look_seconds=0.01,
)  # fmt: skip
UNHURRIED = Patience(headers_bytes_max=2_000, headers_max=20, address_bytes_max=500, look_seconds=0.01)


async def say(send: Send, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the size of the body, once it is there."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    await say(send, f"{scope['path']} {size}".encode())


@contextlib.asynccontextmanager
async def called(
    patience: Patience = QUICK, app: AsgiApp = echo, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[Serving, asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(app, host=host, port=0, patience=patience) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        try:
            yield server, reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head[9:12]), await reader.readexactly(length)


async def hung_up(reader: asyncio.StreamReader) -> bytes:
    """What still came until the server closed; a reset is a way of closing."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with called(UNHURRIED) as (_, reader, writer):
        for path in (b"/one", b"/two"):
            writer.write(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert (200, path + b" 0") == await answer(reader)


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with called(UNHURRIED) as (_, reader, writer):
        post = b"POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        writer.write(post + b"GET /two HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(200, b"/one 3"), (200, b"/two 0")] == [await answer(reader), await answer(reader)]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 3_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(30)) + b"\r\n", 431),
        (b"GET /" + b"a" * 600 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nBad\x00Name: x\r\n\r\n", 400),
        (b"CONNECT example.com:25 HTTP/1.1\r\n\r\n", 400),
    ],
)
async def test_a_request_that_breaks_the_rules_is_refused_and_hung_up_on(sent: bytes, status: int) -> None:
    async with called(UNHURRIED) as (_, reader, writer):
        writer.write(sent)
        told, body = await answer(reader)
        assert status == told
        assert status == json.loads(body)["status"]
        assert await hung_up(reader) == b""


@pytest.mark.parametrize("sent", [b"", b"GE", b"GET / HTTP/1.1\r\nHost: x\r\nX: "])
async def test_who_never_ends_the_headers_is_hung_up_on(sent: bytes) -> None:
    """Slowloris: a connection held open by a request that never becomes one."""
    async with called() as (_, reader, writer):
        writer.write(sent)
        status, body = await answer(reader)
        assert (408, "/docs#too-slow") == (status, json.loads(body)["type"])
        assert await hung_up(reader) == b""


async def test_who_trickles_a_body_is_hung_up_on() -> None:
    async with called() as (_, reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\na")
        status, _ = await answer(reader)
        assert status == 408
        assert await hung_up(reader) == b""


async def test_who_does_not_read_the_answer_is_hung_up_on() -> None:
    over = asyncio.Event()

    async def floods(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            for _ in range(1_000):
                await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            over.set()

    async with called(app=floods) as (_, reader, writer):
        reader._limit = 1  # type: ignore[attr-defined]  # this caller reads next to nothing
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            await over.wait()


async def test_a_handler_that_takes_long_is_not_the_callers_fault() -> None:
    """The server's own slowness is no slowness of the caller."""
    go_on = asyncio.Event()
    looked = asyncio.Event()

    async def ponders(_scope: Scope, _receive: Receive, send: Send) -> None:
        await asyncio.wait_for(looked.wait(), 10)
        go_on.set()
        await say(send, b"at last")

    async with called(app=ponders) as (_, reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        asyncio.get_running_loop().call_later(5 * QUICK.headers_seconds, looked.set)
        assert (200, b"at last") == await answer(reader)
        assert go_on.is_set()


async def test_a_body_that_keeps_its_pace_may_take_longer_than_the_first_wait() -> None:
    """Big uploads over slow lines are welcome as long as they go on."""
    patience = Patience(body_seconds=0.02, body_bytes_per_second=1_000, look_seconds=0.01)
    async with called(patience) as (_, reader, writer):
        writer.write(b"POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n")
        for _ in range(10):
            writer.write(b"a" * 2_000)
            await asyncio.sleep(0.01)
        assert (200, b"/big 20000") == await answer(reader)


async def test_more_connections_than_there_is_room_for_are_told_so() -> None:
    async with called(Patience(connections_max=2, look_seconds=0.01)) as (server, _, __):
        others = [await asyncio.open_connection(server.host, server.port) for _ in range(2)]
        try:
            status, body = await answer(others[1][0])
            assert (503, "/docs#busy") == (status, json.loads(body)["type"])
        finally:
            for _, writer in others:
                writer.close()


async def test_the_signals_stay_ours() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with called():
        during = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert before == during


async def test_leaving_waits_for_what_is_being_answered() -> None:
    asked, answering = asyncio.Event(), asyncio.Event()

    async def slowly(_scope: Scope, _receive: Receive, send: Send) -> None:
        asked.set()
        await answering.wait()
        await say(send, b"bye")

    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(slowly, host="127.0.0.1", port=0))
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asked.wait()
        asyncio.get_running_loop().call_later(0.05, answering.set)
    assert (200, b"bye") == await answer(reader)
    writer.close()


async def test_leaving_does_not_wait_for_ever() -> None:
    asked = asyncio.Event()

    async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
        asked.set()
        await asyncio.get_running_loop().create_future()

    async with asyncio.timeout(10), serving(never, host="127.0.0.1", port=0, grace_seconds=0.05) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asked.wait()
    writer.close()
    await hung_up(reader)


async def test_an_address_in_use_is_told_at_once() -> None:
    async with called() as (server, _, __):
        with pytest.raises(OSError, match="in use"):
            async with serving(echo, host="127.0.0.1", port=server.port):
                raise AssertionError("two servers on one port")


async def test_ipv6_is_spoken() -> None:
    async with called(UNHURRIED, host="::1") as (server, reader, writer):
        assert f"http://[::1]:{server.port}" == server.url
        writer.write(b"GET /six HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (200, b"/six 0") == await answer(reader)
