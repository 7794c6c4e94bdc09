"""Hands messages to a relay by SMTP: pooled connections, pipelining, one reply for each recipient.

Knows nothing of e-mails, attempts or verdicts, repeats nothing that was handed over, and falls back to nobody.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from staffetta.errors import TransportError
from staffetta.mail.message import Delivery, Reply
from staffetta.transport.smtp_connection import Connection
from staffetta.transport.smtp_letter import SMALL_BYTES, Letter
from staffetta.transport.smtp_opening import Contexts, NotOpened, open_connection
from staffetta.transport.smtp_pool import Pool
from staffetta.transport.smtp_settings import (
    Credentials,
    SmtpSettings,
    Timeouts,
    Tls,
    default_tls,
    unverified_context,
    verified_context,
)


class SmtpTransport:
    """One relay. See `transport/contract.py` for what is promised."""

    def __init__(
        self,
        host: str,
        port: int = 25,
        *,
        name: str | None = None,
        implicit_tls: bool = False,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        ehlo_name: str | None = None,
        connections_max: int = 20,
        messages_per_connection: int = 0,
        messages_per_second: float = 0.0,
        idle_seconds: float = 30.0,
        timeouts: Timeouts | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: required (the default with credentials), starttls, opportunistic (else the default), none.

        `ssl_context` replaces the verified one, to trust a private authority or to show a certificate of ours.
        """
        self.settings = SmtpSettings(
            host=host,
            port=port,
            implicit_tls=implicit_tls or (port == 465 and tls == "required"),
            tls=tls or ("required" if implicit_tls else default_tls(credentials=credentials)),
            credentials=credentials,
            ehlo_name=ehlo_name,
            connections_max=connections_max,
            messages_per_connection=messages_per_connection,
            messages_per_second=messages_per_second,
            idle_seconds=idle_seconds,
            timeouts=timeouts or Timeouts(),
        ).checked()
        self.name = name or f"{host}:{port}"
        self._ssl_context = ssl_context
        self._unverified: ssl.SSLContext | None = None
        self._contexts = Contexts(verified=self._verified_context, unverified=self._unverified_context)
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        ehlo_name: str | None = None,
        connections_max: int = 20,
        messages_per_connection: int = 0,
        messages_per_second: float = 0.0,
        idle_seconds: float = 30.0,
        timeouts: Timeouts | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> SmtpTransport:
        """Read `smtp://user:pw@host:587?tls=starttls#name` or `smtps://host:465`.

        The query may also set `ehlo`, `connections`, `messages_per_connection`, `messages_per_second`, `idle`
        (seconds) and `ca` (a PEM file to trust instead of the system's); it wins over the arguments. User and
        password are percent-encoded. Raises ValueError with a sentence that never shows them.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("the transport's address cannot be read: write smtp://user:pw@host:port") from None
        if parts.scheme not in ("smtp", "smtps") or not host:
            raise ValueError("the transport's address must be smtp://host:port or smtps://host:port")
        if parts.path not in ("", "/"):
            raise ValueError("the transport's address has a path: a password with / is written with %2F")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = set(query) - _QUERY
        if unknown:
            raise ValueError(
                f"'{min(unknown)}' is no setting of a transport: known are {', '.join(sorted(_QUERY))}"
            )
        tls = query.get("tls")
        if tls is not None and tls not in _TLS:
            raise ValueError(f"tls={tls} is not one of {', '.join(_TLS)}")
        credentials = None
        if parts.username is not None:
            credentials = Credentials(user=unquote(parts.username), password=unquote(parts.password or ""))
        implicit = parts.scheme == "smtps"
        port = port or (465 if implicit else 25 if credentials is None else 587)
        return cls(
            host,
            port,
            name=unquote(parts.fragment) or None,
            implicit_tls=implicit,
            tls=_TLS[tls] if tls is not None else None,
            credentials=credentials,
            ehlo_name=query.get("ehlo", ehlo_name),
            connections_max=int(_number(query, "connections", connections_max)),
            messages_per_connection=int(_number(query, "messages_per_connection", messages_per_connection)),
            messages_per_second=_number(query, "messages_per_second", messages_per_second),
            idle_seconds=_number(query, "idle", idle_seconds),
            timeouts=timeouts,
            ssl_context=_trusting(query["ca"]) if "ca" in query else ssl_context,
        )

    def __repr__(self) -> str:
        return f"SmtpTransport({self.name!r})"

    @property
    def connections(self) -> int:
        """Open ones, for whoever watches."""
        return self._pool.connections if self._pool else 0

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(self.settings, self._contexts, self._loop)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def send(
        self,
        sender: str,
        recipients: Sequence[str],
        message: bytes | memoryview,
        *,
        before_dot: Callable[[], Awaitable[None]],
        tags: Sequence[str] = (),  # noqa: ARG002  # SMTP has no place for them
    ) -> Delivery:
        pool, loop = self._pool, self._loop
        if pool is None or loop is None or not recipients:
            raise TransportError("a transport must be open, and a message needs a recipient, before it is sent")
        letter = Letter(loop, sender, recipients, message)
        marked = False
        pool.submit(letter)
        try:
            await letter.go
            if not letter.settled:
                connection = letter.connection
                assert connection is not None
                if len(letter.content) > SMALL_BYTES:
                    await connection.send_ahead(letter)
                if not letter.settled and letter.early is None:
                    await before_dot()
                    marked = True
                connection.finish(letter)
                if letter.done is not None:
                    await letter.done
        except BaseException:
            pool.withdraw(letter)
            raise
        return letter.delivery(self.name, committed=marked)

    async def probe(self) -> Reply:
        settings, loop = self.settings, asyncio.get_running_loop()
        owner = _Nobody()
        try:
            connection, said = await open_connection(
                settings, self._contexts, lambda: Connection(owner, settings.timeouts, loop)
            )
        except NotOpened as refused:
            return refused.reply
        connection.leave()
        try:
            async with asyncio.timeout(settings.timeouts.goodbye):
                await connection.closed()
        except TimeoutError:
            connection.abort("timeout")
        return said

    def _verified_context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = verified_context()
        return self._ssl_context

    def _unverified_context(self) -> ssl.SSLContext:
        if self._unverified is None:
            self._unverified = unverified_context()
        return self._unverified


class _Nobody:
    """Owns the connection of a probe: it carries nothing."""

    def next_for(self, connection: Connection) -> Letter | None: ...
    def rider_for(self, connection: Connection) -> Letter | None: ...
    def idle(self, connection: Connection) -> None: ...
    def give_back(self, letter: Letter) -> None: ...
    def lost(self, connection: Connection) -> None: ...


_TLS: dict[str, Tls] = {
    "required": "required", "starttls": "starttls", "opportunistic": "opportunistic", "none": "none",
}  # fmt: skip
_QUERY = {"tls", "ehlo", "connections", "messages_per_connection", "messages_per_second", "idle", "ca"}


def _number(query: dict[str, str], key: str, default: float) -> float:
    if key not in query:
        return default
    try:
        number = float(query[key])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key}={query[key]} in the transport's address is not a number")
    return number


def _trusting(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"ca={path}: no certificates could be read from it") from error
