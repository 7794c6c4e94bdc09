"""The one HTTP client keeps its bounds, and reaches nothing private for a URL that came with a payload."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import pytest
import trustme

from doubles.receiver import DROP, HANG, Receiver, Say
from staffetta.errors import NoAnswer
from staffetta.http import Http, parse


def row(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))


class Names:
    """A name server of ours: each look-up gets the next set of addresses, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, name: str, port: int, family: int) -> Sequence[tuple[Any, ...]]:
        self.asked.append(name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [row(address, port) for address in answer]


async def test_an_answer_comes_back_whole_with_its_status_and_headers() -> None:
    async with Receiver() as receiver:
        receiver.answer("/", Say(418, b"short and stout", (("x-kettle", "yes"),)))
        http = Http()
        answer = await http.request("POST", receiver.url(), body=b"water", headers={"webhook-id": "1"})
        await http.close()

    assert (418, b"short and stout", True) == (answer.status, answer.body, answer.whole)
    assert answer.headers["X-Kettle"] == "yes"
    assert receiver.calls[0].body == b"water"


async def test_connections_are_kept_for_the_next_request() -> None:
    async with Receiver() as receiver:
        receiver.answer("/", Say(200, b"some words"))
        http = Http()
        for _ in range(5):
            await http.request("POST", receiver.url(), body=b"x")
        await http.close()

    assert receiver.connections == 1


async def test_a_redirect_is_an_answer_and_nobody_follows_it() -> None:
    """A receiver could otherwise send us on to an address that it may not name itself."""
    async with Receiver() as receiver, Receiver() as inside:
        receiver.answer("/", Say(302, headers=(("location", inside.url("/secret")),)))
        http = Http()
        answer = await http.request("POST", receiver.url(), body=b"x")
        await http.close()

    assert answer.status == 302
    assert inside.calls == []


async def test_a_cookie_is_not_kept() -> None:
    """One company's receiver would else mark the calls that another one's gets."""
    async with Receiver() as receiver:
        receiver.answer("/", Say(200, headers=(("set-cookie", "who=me; path=/"),)))
        http = Http()
        await http.request("POST", receiver.url(), body=b"x")
        await http.request("POST", receiver.url(), body=b"x")
        await http.close()

    assert "cookie" not in receiver.calls[1].headers


async def test_the_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with Receiver() as receiver:
        http = Http()
        answer = await http.request("GET", receiver.url())
        await http.close()

    assert answer.status == 204


async def test_an_answer_without_end_is_cut_and_its_connection_closed() -> None:
    async with Receiver() as receiver:
        endless = (
            b"HTTP/1.1 500 Said\r\ntransfer-encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        )
        receiver.answer("/", Say(raw=endless + b"3e8\r\n" + b"y" * 1000 + b"\r\n", then="stay"))
        http = Http(answer_bytes=1_500)
        answer = await http.request("POST", receiver.url(), body=b"x")
        await http.request("POST", receiver.url(), body=b"x")
        await http.close()

    assert (500, 1_500, False) == (answer.status, len(answer.body), answer.whole)
    assert receiver.connections == 2


async def test_compressed_answers_are_not_unpacked() -> None:
    """A small answer must not become a large one here."""
    async with Receiver() as receiver:
        receiver.answer("/", Say(200, b"\x1f\x8b\x08 whatever", (("content-encoding", "gzip"),)))
        http = Http()
        answer = await http.request("POST", receiver.url(), body=b"x")
        await http.close()

    assert answer.body == b"\x1f\x8b\x08 whatever"


@pytest.mark.parametrize(
    ("say", "kind"),
    [
        (HANG, "timeout"),
        (DROP, "lost"),
        (Say(raw=b"HTTP/1.1 200 Fine\r\ncontent-length: 9\r\n\r\nhalf", then="close"), "lost"),
        (Say(raw=b"220 smtp.example.com ESMTP\r\n\r\n", then="close"), "protocol"),
        (Say(raw=b"HTTP/1.1 200 Fine\r\nx-long: " + b"y" * 100_000 + b"\r\n\r\n", then="close"), "protocol"),
    ],
    ids=["hangs", "hangs up", "breaks off", "speaks SMTP", "floods headers"],
)
async def test_what_is_no_answer_tells_its_kind(say: Say, kind: str) -> None:
    async with Receiver() as receiver:
        receiver.answer("/", say)
        http = Http(timeout_seconds=0.3)
        with pytest.raises(NoAnswer) as raised:
            await http.request("POST", receiver.url("/"), body=b"x")
        await http.close()

    assert raised.value.kind == kind
    assert "127.0.0.1" in str(raised.value)


async def test_a_port_where_nobody_listens_refuses() -> None:
    async with Receiver() as receiver:
        url = receiver.url("/hidden?token=secret")
    http = Http()
    with pytest.raises(NoAnswer) as raised:
        await http.request("POST", url, body=b"x")
    await http.close()

    assert raised.value.kind == "refused"
    assert "secret" not in str(raised.value)


async def test_a_name_that_is_not_known_is_no_answer() -> None:
    def unknown(name: str, port: int, family: int) -> Sequence[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    http = Http(lookup=unknown)
    with pytest.raises(NoAnswer) as raised:
        await http.request("POST", "http://nowhere.example.com/", body=b"x")
    await http.close()

    assert raised.value.kind == "dns"


async def test_a_certificate_that_nobody_vouches_for_is_no_answer() -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    known = ssl.create_default_context()
    authority.configure_trust(known)
    async with Receiver(tls=context) as receiver:
        stranger, friend = Http(), Http(tls=known)
        with pytest.raises(NoAnswer) as raised:
            await stranger.request("POST", receiver.url(), body=b"x")
        answer = await friend.request("POST", receiver.url(), body=b"x")
        await stranger.close()
        await friend.close()

    assert (raised.value.kind, answer.status) == ("tls", 204)


# ------------------------------------------------------------------------------------------ a lost connection


async def test_a_connection_closed_while_idle_is_no_failure_where_a_repeat_is_known() -> None:
    """The other side may close an idle connection at the very moment in which we take it up again."""
    async with Receiver() as receiver:
        receiver.answer("/", Say(204), DROP, Say(204))
        http = Http()
        await http.request("POST", receiver.url(), body=b"first")
        answer = await http.request("POST", receiver.url(), body=b"second", repeat_lost=True)
        await http.close()

    assert answer.status == 204
    assert [call.body for call in receiver.calls] == [b"first", b"second", b"second"]
    assert receiver.connections == 2


async def test_a_lost_connection_is_not_repeated_unasked() -> None:
    """What must not be done twice is done twice by nobody beneath."""
    async with Receiver() as receiver:
        receiver.answer("/", Say(204), DROP, Say(204))
        http = Http()
        await http.request("POST", receiver.url(), body=b"first")
        with pytest.raises(NoAnswer):
            await http.request("POST", receiver.url(), body=b"second")
        await http.close()

    assert len(receiver.calls) == 2


async def test_a_new_connection_that_is_lost_is_not_repeated() -> None:
    async with Receiver() as receiver:
        receiver.answer("/", DROP)
        http = Http()
        with pytest.raises(NoAnswer):
            await http.request("POST", receiver.url(), body=b"x", repeat_lost=True)
        await http.close()

    assert len(receiver.calls) == 1


# ------------------------------------------------------------------------------------------ what may be called


@pytest.mark.parametrize(
    "url",
    [
        "", "nonsense", "/path", "//host/path", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
        "http://", "http:///path", "https://user@example.com/", "https://user:word@example.com/",
        "http://:word@example.com/", "http://[fe80::1%25eth0]/", "http://example.com:99999/", "http://example.com:x/",
        "http://[::1", "javascript:alert(1)", "http+unix://socket/",
    ],
)  # fmt: skip
def test_only_plain_http_urls_are_called(url: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        parse(url)

    assert raised.value.kind == "address"


SPELT_DIFFERENTLY = [
    "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0.0.1", "0177.0.0.1",
    "017700000001", "127.0.0.1.", "localhost", "localhost.", "LOCALHOST", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
    "①②⑦.⓪.⓪.①", "１２７.０.０.１", "127。0。0。1",
]  # fmt: skip


@pytest.mark.parametrize("host", SPELT_DIFFERENTLY)
async def test_this_machine_is_not_reached_however_it_is_spelt(host: str) -> None:
    """A payload may name any URL; the real look-up of this machine decides here, and the socket's own address."""
    async with Receiver() as receiver:
        http = Http(guarded=True, timeout_seconds=5)
        with pytest.raises(NoAnswer) as raised:
            await http.request("POST", f"http://{host}:{receiver.port}/", body=b"x")
        await http.close()

    assert receiver.connections == 0
    assert raised.value.kind in ("forbidden", "address", "dns")


async def test_the_operators_own_url_may_be_this_machine() -> None:
    async with Receiver() as receiver:
        http = Http()
        answer = await http.request("POST", f"http://localhost:{receiver.port}/", body=b"x")
        await http.close()

    assert answer.status == 204


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["10.0.0.7"], ["::1"], ["93.184.216.34", "127.0.0.1"], ["127.0.0.1", "93.184.216.34"]],
    ids=["own", "private", "own in IPv6", "public first", "private first"],
)
async def test_every_address_of_a_name_is_checked(addresses: list[str]) -> None:
    """One public address beside a private one must not open the way to the other."""
    async with Receiver() as receiver:
        http = Http(guarded=True, lookup=Names(addresses))
        with pytest.raises(NoAnswer) as raised:
            await http.request("POST", f"http://hooks.example.com:{receiver.port}/", body=b"x")
        await http.close()

    assert (raised.value.kind, receiver.connections) == ("forbidden", 0)


async def test_a_name_is_looked_up_once_and_the_checked_address_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: the second answer is private. There must be no second look-up between check and call."""
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    connected: list[Any] = []

    async def connect(self: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None:
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(type(asyncio.get_running_loop()), "sock_connect", connect)
    http = Http(guarded=True, lookup=names)
    with pytest.raises(NoAnswer) as raised:
        await http.request("POST", "http://rebind.example.com:8080/", body=b"x")
    await http.close()

    assert raised.value.kind == "refused"
    assert (names.asked, connected) == (["rebind.example.com"], ["93.184.216.34"])


async def test_a_look_up_by_someone_elses_slow_name_server_ends_in_time() -> None:
    """Names chosen by others are looked up apart: they may be slow on purpose."""
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(name: str, port: int, family: int) -> Sequence[tuple[Any, ...]]:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return []

    guarded, trusted = Http(guarded=True, lookup=slow, timeout_seconds=0.2), Http()
    async with Receiver() as receiver:
        calls = [guarded.request("POST", f"http://n{n}.example.com/", body=b"x") for n in range(50)]
        under_way = asyncio.gather(*calls, return_exceptions=True)
        answer = await trusted.request("POST", f"http://localhost:{receiver.port}/", body=b"x")
        results = await under_way
    release.set()
    await guarded.close()
    await trusted.close()

    assert answer.status == 204
    assert {result.kind for result in results if isinstance(result, NoAnswer)} == {"timeout"}


async def test_behind_an_egress_proxy_names_are_still_checked_first() -> None:
    async with Receiver() as proxy:
        http = Http(guarded=True, proxy=proxy.url("/"), lookup=Names(["169.254.169.254"]))
        with pytest.raises(NoAnswer) as raised:
            await http.request("POST", "http://metadata.example.com/", body=b"x")
        await http.close()
        open_http = Http(guarded=True, proxy=proxy.url("/"), lookup=Names(["93.184.216.34"]))
        answer = await open_http.request("POST", "http://hooks.example.com/", body=b"x")
        await open_http.close()

    assert (raised.value.kind, answer.status) == ("forbidden", 204)
    assert [call.path for call in proxy.calls] == ["http://hooks.example.com/"]
