"""The one HTTP client. Everything is bounded: time, connections, the answer's size. No redirect is followed, no
cookie kept, no proxy of the environment used.

With `guarded`, for URLs that came with a payload, nothing private is reached: every address of a name is
checked when it is looked up, and the address of every socket once more as the socket is made. Between the two
nothing is looked up again, so a name server that answers differently the second time gains nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from staffetta import failpoints
from staffetta.errors import NoAnswer
from staffetta.mail.message import Value
from staffetta.mail.private_addresses import why_closed

Lookup: TypeAlias = Callable[[str, int, int], Sequence[tuple[Any, ...]]]
"""(name, port, family) -> rows as `socket.getaddrinfo` gives them."""

_LOOKUP_THREADS = 8
_UNASKED_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")
_NEW_CONNECTION: contextvars.ContextVar[bool] = contextvars.ContextVar("new_connection", default=True)
_LOST = (aiohttp.ServerDisconnectedError, ConnectionResetError, BrokenPipeError)


class Answer(Value, frozen=True, kw_only=True):
    """What the other side answered, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool = True
    """False: the body was longer than `answer_bytes`; what was read of it is here, the connection is closed."""


class Http:
    """Owns one set of connections. Made anywhere, used inside one event loop, closed once."""

    def __init__(
        self,
        *,
        guarded: bool = False,
        timeout_seconds: float = 10.0,
        connect_seconds: float = 5.0,
        answer_bytes: int = 65_536,
        connections: int = 0,
        per_host: int = 0,
        idle_seconds: float = 15.0,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup | None = None,
    ) -> None:
        """`connections`, `per_host`: at most so many at a time (0: the caller bounds them). `proxy`: an egress
        proxy of the operator's; guarded URLs are checked before it is asked, but the last lookup is its own."""
        self._guarded = guarded
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=connect_seconds)
        self._answer_bytes = answer_bytes
        self._connections = connections
        self._per_host = per_host
        self._idle_seconds = idle_seconds
        self._proxy = proxy
        self._tls = tls
        self._names = _Names(lookup or _look_up, checked=guarded)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeat_lost: bool = False,
        before_body: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer:
        """One request, one answer.

        `before_body` is awaited once there is a connection, before a byte of the request leaves; what it raises
        goes up to the caller, and nothing was sent. Only from then on the time runs: connecting has its own.

        `repeat_lost`: a request that met an idle connection just as the other side closed it is sent once more
        on a new one. Only where the other side can tell a repeat, for now and then it was read after all.
        :raises NoAnswer: its `kind` tells why; its words name the host, never the whole URL.
        """
        target = parse(url)
        if self._proxy is not None and self._guarded:
            await self._check(target)
        if before_body is not None:
            return await self._gated(method, target, body or b"", headers, before_body)
        try:
            return await self._once(method, target, body, headers)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if not repeat_lost or _NEW_CONNECTION.get() or not isinstance(error, _LOST):
                raise _no_answer(error, target) from error
        try:
            return await self._once(method, target, body, headers)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _no_answer(error, target) from error

    async def _gated(
        self,
        method: str,
        target: URL,
        body: bytes,
        headers: Mapping[str, str] | None,
        before_body: Callable[[], Awaitable[None]],
    ) -> Answer:
        """The library writes nothing before the body's first piece: the gate stands before that one."""
        gate = _Gate(before_body, body, seconds=self._timeout.total)
        length = {"Content-Length": str(len(body)), **(headers or {})}
        try:
            async with gate.limit:
                return await self._once(
                    method, target, gate.pieces(), length, timeout=_without_total(self._timeout)
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if gate.broken is not None:
                raise gate.broken from None
            raise _no_answer(error, target) from error

    async def _once(
        self,
        method: str,
        target: URL,
        body: bytes | AsyncIterator[bytes] | None,
        headers: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109  # the library's own value, not a wait here
    ) -> Answer:
        session = self._session or self._open()
        if failpoints.armed:
            failpoints.reach("http.before-write")
        _NEW_CONNECTION.set(False)
        async with session.request(
            method, target, data=body, headers=headers, allow_redirects=False, proxy=self._proxy,
            timeout=timeout or self._timeout,
        ) as response:  # fmt: skip
            _NEW_CONNECTION.set(True)  # an answer has begun: whatever is lost now was read over there
            if failpoints.armed:
                failpoints.reach("http.read")
            pieces: list[bytes] = []
            size = 0
            while piece := await response.content.readany():
                pieces.append(piece)
                size += len(piece)
                if size > self._answer_bytes:
                    response.close()
                    break
            return Answer(
                status=response.status,
                headers=response.headers,
                body=b"".join(pieces)[: self._answer_bytes],
                whole=size <= self._answer_bytes,
            )

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=_Connections(
                limit=self._connections,
                limit_per_host=self._per_host,
                keepalive_timeout=self._idle_seconds,
                resolver=self._names,
                socket_factory=_checked_socket if self._guarded and self._proxy is None else None,
                ssl=self._tls or True,
            ),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_UNASKED_HEADERS,
        )
        return self._session

    async def _check(self, target: URL) -> None:
        """What a connection of our own would have checked, where a proxy makes it."""
        assert target.host is not None, "parse lets no URL without a host through"
        try:
            async with asyncio.timeout(self._timeout.sock_connect):
                await self._names.resolve(target.host, target.port or 0)
        except (OSError, TimeoutError) as error:
            raise _no_answer(error, target) from error

    async def close(self) -> None:
        """Close every connection. A second time does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self._names.close()


class _Gate:
    """Stands before a request's body: opened by the caller, and the time for the answer runs from there."""

    def __init__(
        self, before_body: Callable[[], Awaitable[None]], body: bytes, *, seconds: float | None
    ) -> None:
        self.limit = asyncio.timeout(None)
        self.broken: Exception | None = None
        """What kept it shut."""
        self._before_body = before_body
        self._body = body
        self._seconds = seconds

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            await self._before_body()
        except Exception as error:
            self.broken = error
            raise
        if self._seconds is not None:
            self.limit.reschedule(asyncio.get_running_loop().time() + self._seconds)
        yield self._body


def _without_total(timeout: aiohttp.ClientTimeout) -> aiohttp.ClientTimeout:
    """Waiting for a free connection and for the gate is not waiting for the other side."""
    return aiohttp.ClientTimeout(total=None, sock_connect=timeout.sock_connect)


# ----------------------------------------------------------------------------------------- URLs and addresses


@functools.lru_cache(maxsize=1_024)
def parse(url: str) -> URL:
    """A URL that may be called: http or https, a host, no user name or password in it.

    :raises NoAnswer: of kind `address`.
    """
    try:
        target = URL(url)
        port = target.port
    except ValueError as error:
        raise NoAnswer(f"this is not a URL: {error}", kind="address") from error
    if target.scheme not in ("http", "https") or not target.host or not port:
        raise NoAnswer("a URL to call begins with http:// or https:// and names a host", kind="address")
    if target.user is not None or target.password is not None:
        raise NoAnswer("a URL to call carries no user name or password", kind="address")
    if "%" in target.host:
        raise NoAnswer("a URL to call names no network interface", kind="address")
    return target


def _look_up(name: str, port: int, family: int) -> Sequence[tuple[Any, ...]]:
    return socket.getaddrinfo(name, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)


class _Forbidden(OSError):
    """An address that a payload's URL may not reach."""


class _Names(AbstractResolver):
    """Looks names up in threads of its own: names chosen by others, slow on purpose, hold up nobody else's."""

    def __init__(self, lookup: Lookup, *, checked: bool) -> None:
        self._lookup = lookup
        self._checked = checked
        self._threads: ThreadPoolExecutor | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="staffetta-names")
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(self._threads, self._lookup, host, port, int(family))
        found: list[ResolveResult] = []
        for row_family, _, proto, _, address in rows:
            # One private address among public ones is reason enough: whoever set that up means no good.
            why = why_closed(str(address[0])) if self._checked else None
            if why is not None:
                raise _Forbidden(why)
            found.append(
                {
                    "hostname": host,
                    "host": str(address[0]),
                    "port": port,
                    "family": row_family,
                    "proto": proto,
                    "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                }
            )
        return found

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def _checked_socket(row: tuple[Any, ...]) -> socket.socket:
    """The last line: numeric hosts are never looked up, so the socket's own address is what is checked."""
    family, kind, proto, _, address = row
    why = why_closed(str(address[0]))
    if why is not None:
        raise _Forbidden(why)
    return socket.socket(family, kind, proto)


class _Connections(aiohttp.TCPConnector):
    """Tells whoever asks for a connection whether it was made anew or had lain idle."""

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        _NEW_CONNECTION.set(True)
        return await super()._create_connection(*args, **kwargs)


# ----------------------------------------------------------------------------------- why there is no answer


def _no_answer(error: Exception, target: URL) -> NoAnswer:
    """One of our own errors for the many that a library and a network have."""
    place = f"{target.scheme}://{target.host}" + ("" if target.is_default_port() else f":{target.port}")
    kind, words = _kind(error)
    return NoAnswer(f"{place}: {words}", kind=kind)


_KINDS: tuple[tuple[tuple[type[BaseException], ...], str, str], ...] = (
    # the first that fits
    ((_Forbidden,), "forbidden", "its address may not be called ({})"),
    ((TimeoutError,), "timeout", "no answer in time"),
    ((socket.gaierror,), "dns", "its name could not be looked up ({})"),
    ((ssl.SSLError, ssl.CertificateError), "tls", "no trusted TLS connection ({})"),
    ((ConnectionRefusedError,), "refused", "the connection was refused"),
    ((aiohttp.InvalidURL,), "address", "this is not a URL that can be called"),
    ((aiohttp.ClientResponseError,), "protocol", "its answer is not HTTP"),
)


def _kind(error: BaseException) -> tuple[str, str]:
    """The kind, and what to say of it, by the network's own error where there is one beneath the library's."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    for classes, kind, words in _KINDS:
        if isinstance(cause, classes):
            return kind, words.format(_words(cause))
    if isinstance(error, aiohttp.ClientConnectorError):
        return "unreachable", f"not reached ({_words(cause)})"
    return "lost", "the connection was lost before the answer was read"


def _words(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(
        error
    ).__name__
