"""Bodies that are too large, too deep, too slow, grow too much or are not what they say: refused while being read."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubles.front import Front, Said, front_door
from staffetta.web.server import Patience

MIB = 2**20
PAYLOAD: dict[str, Any] = {
    "from": "shop@example.com",
    "to": "ada@example.com",
    "subject": "x",
    "body_text": "x",
}
HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{more}\r\n\r\n"


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Front]:
    """A door that takes a megabyte at a time and two in all."""
    async with front_door(tmp_path, body_bytes_max=MIB, bodies_bytes_max=2 * MIB) as front:
        yield front


async def nothing_was_kept(front: Front) -> None:
    assert 0 == sum((await front.store.counts()).values())
    assert [] == front.told


async def answer(reader: asyncio.StreamReader) -> Said:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head.split("\r\n")[1:-2])}
    body = await reader.readexactly(int(headers["content-length"]))
    return Said(status=int(head[9:12]), headers=headers, body=body)


@pytest.mark.parametrize("path", ["/v1/emails", "/v1/emails/batch"])
async def test_ten_gigabytes_announced_are_refused_before_one_is_read(narrow: Front, path: str) -> None:
    reader, writer = await narrow.wire()
    writer.write(HEAD.format(path=path, more=f"Content-Length: {10 * 2**30}\r\nExpect: 100-continue").encode())
    said = await answer(reader)
    assert (413, "too-large", "close") == (said.status, said.kind, said.headers["connection"])
    writer.close()
    await nothing_was_kept(narrow)


@pytest.mark.parametrize("path", ["/v1/emails", "/v1/emails/batch", "/v1/emails/retry", "/v1/pause"])
async def test_ten_gigabytes_that_just_come_are_refused_on_the_way(narrow: Front, path: str) -> None:
    """Chunked: nobody says how much it will be. The caller still gets to read the answer."""
    reader, writer = await narrow.wire()
    writer.write(HEAD.format(path=path, more="Transfer-Encoding: chunked").encode())
    piece = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    sent = 0
    answered = asyncio.create_task(answer(reader))
    while not answered.done() and sent < 10 * 2**30:
        writer.write(piece)
        sent += 2**16
        await asyncio.wait(
            (answered, asyncio.ensure_future(writer.drain())), return_when=asyncio.FIRST_COMPLETED
        )
        await asyncio.sleep(0)
    said = await answered
    assert (413, "too-large") == (said.status, said.kind)
    assert sent < 64 * MIB
    writer.close()
    await nothing_was_kept(narrow)


@pytest.mark.parametrize("path", ["/v1/emails", "/v1/emails/batch"])
async def test_a_bomb_of_gzip_is_refused_by_what_it_grows_to(narrow: Front, path: str) -> None:
    bomb = zlib.compressobj(9, wbits=31)
    raw = b"".join(bomb.compress(bytes(16 * MIB)) for _ in range(64)) + bomb.flush()
    assert len(raw) < 2 * MIB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = await narrow.ask("POST", path, raw=raw[: MIB - 1], headers={"Content-Encoding": "gzip"})
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (413, "too-large") == (said.status, said.kind)
    assert grown_kib < 32 * 1024
    await nothing_was_kept(narrow)


@pytest.mark.parametrize(
    ("raw", "encoding", "status"),
    [
        (b"not gzip", "gzip", 400),
        (gzip.compress(b"{}", mtime=0)[:-4], "gzip", 400),
        (gzip.compress(b"{}", mtime=0) + b"more", "gzip", 400),
        (gzip.compress(b"{}", mtime=0) + gzip.compress(b"{}", mtime=0), "gzip", 400),
        (gzip.compress(b"", mtime=0), "gzip", 400),
        (b"{}", "br", 415),
        (b"{}", "gzip, gzip", 415),
        (b"{}", "deflate", 415),
    ],
)
async def test_what_is_not_gzip_as_it_says_is_refused(
    front: Front, raw: bytes, encoding: str, status: int
) -> None:
    said = await front.ask("POST", "/v1/emails", raw=raw, headers={"Content-Encoding": encoding})
    assert status == said.status, said.body
    await nothing_was_kept(front)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"metadata":', b'[{"a":['])
@pytest.mark.parametrize("path", ["/v1/emails", "/v1/emails/batch"])
async def test_nesting_a_hundred_thousand_deep_is_refused(front: Front, path: str, opening: bytes) -> None:
    said = await front.ask("POST", path, raw=opening * 100_000)
    assert said.status in (400, 422)
    await nothing_was_kept(front)


async def test_depth_inside_metadata_is_named(front: Front) -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    said = await front.ask("POST", "/v1/emails", body={**PAYLOAD, "metadata": {"a": deep}})
    assert 422 == said.status
    assert any(field.startswith("metadata") for field in said.fields)
    await nothing_was_kept(front)


async def test_a_million_recipients_are_refused(front: Front) -> None:
    said = await front.ask("POST", "/v1/emails", body={**PAYLOAD, "to": ["a@example.com"] * 1_000_000})
    assert (422, {"to"}) == (said.status, said.fields)
    await nothing_was_kept(front)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"from": NaN}', b'{"from": Infinity}', b'{"from": 1e999}', b'{"to": "a@b.example", "to": "c@d.example"}',
        b'{"from": "\xff"}', b'{"from": "\\ud800@example.com"}', b"\xef\xbb\xbf{}", b"\x00", b"{} {}", b"{}\x00",
        b'{"subject": ' + b"9" * 100_000 + b"}", "{}".encode("utf-16"),
    ],
)  # fmt: skip
async def test_what_is_not_json_of_one_meaning_is_refused(front: Front, raw: bytes) -> None:
    for path, body in (("/v1/emails", raw), ("/v1/emails/batch", b"[" + raw + b"]")):
        said = await front.ask("POST", path, raw=body)
        assert said.status in (400, 422, 202)
        if said.status == 202:
            assert all("error" in result for result in said.json["results"])
    await nothing_was_kept(front)


async def test_bodies_of_many_callers_at_once_are_bounded_in_all(narrow: Front) -> None:
    """Two megabytes are being read; the third caller is told to come again, and comes in when one has gone."""
    half = MIB // 2
    open_ones = []
    for _ in range(4):
        reader, writer = await narrow.wire()
        writer.write(HEAD.format(path="/v1/emails", more="Transfer-Encoding: chunked").encode())
        writer.write(b"%x\r\n" % half + b" " * half + b"\r\n")
        await writer.drain()
        open_ones.append((reader, writer))
    large = {**PAYLOAD, "body_text": "x" * (MIB - 1000)}
    said = await narrow.ask("POST", "/v1/emails", body=large)
    while said.status == 202:  # the four had not all been read yet
        said = await narrow.ask("POST", "/v1/emails", body=large)
    assert (503, "busy", "1") == (said.status, said.kind, said.headers["Retry-After"])
    assert 202 == (await narrow.ask("POST", "/v1/emails", body=PAYLOAD)).status, "small ones are not hurt"
    for _, writer in open_ones:
        writer.close()
        await writer.wait_closed()
    said = await narrow.ask("POST", "/v1/emails", body=large)
    while said.status != 202:  # the server has not heard yet that all four are gone
        said = await narrow.ask("POST", "/v1/emails", body=large)


async def test_a_caller_who_hangs_up_in_the_middle_leaves_nothing(front: Front) -> None:
    _, writer = await front.wire()
    body = json.dumps(PAYLOAD).encode()
    writer.write(HEAD.format(path="/v1/emails", more=f"Content-Length: {len(body)}").encode() + body[:-1])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert 200 == (await front.ask("GET", "/healthz")).status
    await nothing_was_kept(front)


async def test_a_trickled_body_is_given_up(tmp_path: Path) -> None:
    patience = Patience(body_seconds=0.05, body_bytes_per_second=10_000, look_seconds=0.01)
    async with front_door(tmp_path, patience=patience) as front:
        reader, writer = await front.wire()
        writer.write(HEAD.format(path="/v1/emails", more="Content-Length: 100000").encode() + b"{")
        said = await answer(reader)
        assert (408, "too-slow") == (said.status, said.kind)
        writer.close()
        await nothing_was_kept(front)


async def test_more_requests_than_can_be_held_are_told_to_come_again(tmp_path: Path) -> None:
    async with front_door(tmp_path, requests_max=3) as front:
        waiting = []
        for _ in range(3):
            reader, writer = await front.wire()
            writer.write(HEAD.format(path="/v1/emails", more="Content-Length: 100").encode() + b"{")
            await writer.drain()
            waiting.append((reader, writer))
        said = await front.ask("GET", "/v1/dlq")
        while said.status == 200:  # the three had not all arrived yet
            said = await front.ask("GET", "/v1/dlq")
        assert (503, "busy") == (said.status, said.kind)
        assert 200 == (await front.ask("GET", "/healthz")).status
        for _, writer in waiting:
            writer.close()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    "id", "company_id", "from", "to", "reply_to", "cc", "bcc", "subject", "body_html", "body_text", "attachments",
    "custom_headers", "priority", "send_at", "expires_in", "max_attempts", "retry_delay", "max_retry_delay",
    "callback_url", "tags", "metadata", "in_doubt", "colour",
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, min_size=1, max_size=4))
async def test_whatever_stands_in_a_field_is_kept_or_named(front: Front, changes: dict[str, Any]) -> None:
    """No value of any field ends in anything but 202, 409 or a 4xx that names one of the fields that were changed."""
    before = sum((await front.store.counts()).values())
    said = await front.ask("POST", "/v1/emails", raw=json.dumps({**PAYLOAD, **changes}).encode())
    kept = sum((await front.store.counts()).values()) - before
    if said.status == 202:
        assert kept in (0, 1)
        return
    assert said.status in (400, 409, 422), (said.status, said.body)
    assert 0 == kept
    if said.status == 422:
        named = {field.partition(".")[0].partition("[")[0] for field in said.fields}
        assert named & {*changes, "payload", "body_text"} or any(
            field in json.dumps(changes) for field in said.fields
        )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.binary(max_size=200)
    | st.text(alphabet='[]{}",:0123456789.eE+-truefalsn\\u \n', max_size=60).map(str.encode)
)
async def test_whatever_bytes_come_the_answer_is_a_4xx(front: Front, raw: bytes) -> None:
    for path in ("/v1/emails", "/v1/emails/batch"):
        said = await front.ask("POST", path, raw=raw)
        assert said.status in (400, 422, 202), (said.status, said.body)
        if said.status == 202:
            assert all("error" in result for result in said.json["results"])
    assert 0 == sum((await front.store.counts()).values())
