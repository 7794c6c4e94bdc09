"""From a host name to a connection that may carry letters: look up, connect, greet, secure, sign in.

Whatever is said in clear before TLS is forgotten after it. A password leaves only under verified TLS, or to
this machine itself.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Awaitable, Callable
from itertools import chain, zip_longest

from staffetta.mail.message import Reply, Value
from staffetta.transport import smtp_settings, wire
from staffetta.transport.smtp_connection import Connection
from staffetta.transport.smtp_line import SAYS
from staffetta.transport.smtp_settings import Credentials, SmtpSettings
from staffetta.transport.wire import Features, Heard

ADDRESSES_MAX = 8
"""A name with more addresses than this is tried at the first ones only."""


class NotOpened(Exception):  # a "no" on the way in, carried up to where it becomes the letters' reply
    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        super().__init__(reply.text)


class _Refused(NotOpened):
    """This address does not serve us; another one of the same name may."""


class _ClearTextOnly(NotOpened):
    """Opportunistic: TLS was offered and does not work."""


class Contexts(Value, frozen=True, kw_only=True):
    """Makers of TLS contexts, called when first needed: loading the system's certificates takes a while."""

    verified: Callable[[], ssl.SSLContext]
    unverified: Callable[[], ssl.SSLContext]


async def open_connection(
    settings: SmtpSettings, contexts: Contexts, make: Callable[[], Connection]
) -> tuple[Connection, Reply]:
    """A connection ready to carry, and the reply that says so. Tries each address; raises NotOpened."""
    refusal: NotOpened | None = None
    for address in await _addresses(settings):
        try:
            return await _open_at(address, settings, contexts, make)
        except _Refused as refused:
            # The first one's words are kept: later addresses often are only there for other networks.
            refusal = refusal or refused
    assert refusal is not None, "a name that was found has an address"
    raise refusal


async def _addresses(settings: SmtpSettings) -> list[str]:
    """All addresses of the host, families by turns, so that a network without IPv6 costs one try at most."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(settings.timeouts.connect):
            found = await loop.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise NotOpened(_lookup("dns-temporary", settings, "the name server did not answer in time")) from None
    except socket.gaierror as error:
        known_not = error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
        name = "dns-notfound" if known_not else "dns-temporary"
        raise NotOpened(_lookup(name, settings, error.strerror or "")) from error
    except (OSError, UnicodeError) as error:
        raise NotOpened(_lookup("dns-temporary", settings, str(error))) from error
    by_family: dict[int, list[str]] = {}
    for family, _, _, _, address in found:
        by_family.setdefault(family, []).append(str(address[0]))
    turns = chain.from_iterable(zip_longest(*by_family.values()))
    return list(dict.fromkeys(one for one in turns if one is not None))[:ADDRESSES_MAX]


def _lookup(name: str, settings: SmtpSettings, why: str) -> Reply:
    return Reply(stage="connect", name=name, text=f"looking up {settings.host}: {why}")


async def _open_at(
    address: str, settings: SmtpSettings, contexts: Contexts, make: Callable[[], Connection]
) -> tuple[Connection, Reply]:
    try:
        return await _converse(address, settings, contexts, make, settings.tls)
    except _ClearTextOnly:
        return await _converse(address, settings, contexts, make, "none")


async def _converse(
    address: str,
    settings: SmtpSettings,
    contexts: Contexts,
    make: Callable[[], Connection],
    tls: smtp_settings.Tls,
) -> tuple[Connection, Reply]:
    connection = await _connect(address, settings, contexts, make)
    secure = settings.implicit_tls
    try:
        await _be_let_in(connection, settings)
        said = await _greet(connection, settings)
        if not secure and tls != "none":
            secure = await _secure(connection, settings, contexts, tls)
            if secure:
                said = await _greet(connection, settings)
        verified = secure and tls != "opportunistic"
        if settings.credentials is not None:
            said = await _sign_in(connection, settings, settings.credentials, verified=verified)
    except BaseException:
        connection.abort("stopped")
        raise
    connection.carry()
    return connection, said


async def _connect(
    address: str, settings: SmtpSettings, contexts: Contexts, make: Callable[[], Connection]
) -> Connection:
    loop = asyncio.get_running_loop()
    context = contexts.verified() if settings.implicit_tls else None
    try:
        async with asyncio.timeout(settings.timeouts.connect):
            _, connection = await loop.create_connection(
                make, address, settings.port, ssl=context, server_hostname=settings.host if context else None
            )
    except (OSError, ssl.SSLError) as error:
        raise _Refused(_no_connection(error, address, settings)) from error
    return connection


def _no_connection(error: OSError, address: str, settings: SmtpSettings) -> Reply:
    where = f"{address} port {settings.port}"
    if settings.implicit_tls and (name := _tls_event(error)):
        return Reply(stage="connect", name=name, text=f"TLS with {where}: {_words(error)}")
    if isinstance(error, TimeoutError):
        return Reply(stage="connect", name="connect-timeout", text=f"{where} did not answer")
    if isinstance(error, ConnectionRefusedError):
        return Reply(stage="connect", name="refused", text=f"{where} refused the connection")
    if isinstance(error, ConnectionError):
        return Reply(stage="connect", name="reset", text=f"{where}: {_words(error)}")
    return Reply(stage="connect", name="unreachable", text=f"{where}: {_words(error)}")


def _tls_event(error: BaseException) -> str:
    """The name of a failed handshake; empty where it was not one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "tls-certificate"
    if isinstance(error, ssl.SSLEOFError):
        return "tls-reset"
    if isinstance(error, ssl.SSLError):
        return "tls-handshake"
    refused_or_away = isinstance(error, ConnectionRefusedError | TimeoutError)
    return "tls-reset" if isinstance(error, ConnectionError) and not refused_or_away else ""


def _words(error: BaseException) -> str:
    reason = (
        getattr(error, "verify_message", "") or getattr(error, "reason", "") or getattr(error, "strerror", "")
    )
    return str(reason or error or type(error).__name__)


async def _expect(connection: Connection, stage: str, answer: Awaitable[Heard | None]) -> Heard:
    heard = await answer
    if heard is None:
        why = connection.why or "eof"
        raise _Refused(Reply(stage=stage, name=why, text=SAYS.get(why, why)))
    if not heard[0]:
        raise _Refused(wire.reply(stage, heard))
    return heard


async def _be_let_in(connection: Connection, settings: SmtpSettings) -> None:
    heard = await _expect(connection, "connect", connection.expect(settings.timeouts.greeting))
    if not 200 <= heard[0] < 300:
        raise _Refused(wire.reply("connect", heard))


async def _greet(connection: Connection, settings: SmtpSettings) -> Reply:
    """EHLO, or HELO where the server knows nothing newer. Replaces all that was known of the server."""
    name = settings.ehlo_name or smtp_settings.own_name(_local_address(connection))
    line = f"EHLO {name}\r\n".encode("ascii")
    seconds = settings.timeouts.ehlo
    heard = await _expect(connection, "ehlo", connection.ask(line, seconds))
    connection.features = wire.features(heard[1])
    if heard[0] in (500, 501, 502, 504):
        connection.features = Features()
        heard = await _expect(connection, "ehlo", connection.ask(f"HELO {name}\r\n".encode("ascii"), seconds))
    if not 200 <= heard[0] < 300:
        raise _Refused(wire.reply("ehlo", heard))
    return Reply(stage="ehlo", code=250, text=wire.reply("ehlo", (heard[0], heard[1][:1])).text)


def _local_address(connection: Connection) -> str:
    assert connection.transport is not None
    name = connection.transport.get_extra_info("sockname")
    return str(name[0]).partition("%")[0] if name else "127.0.0.1"


# ----------------------------------------------------------------------------------------------------- TLS


async def _secure(
    connection: Connection, settings: SmtpSettings, contexts: Contexts, tls: smtp_settings.Tls
) -> bool:
    """STARTTLS. True when the rest is encrypted; False only where `opportunistic` may go on in clear."""
    try_only = tls == "opportunistic"
    if not connection.features.starttls:
        if try_only:
            return False
        raise NotOpened(Reply(stage="starttls", name="tls-absent", text="the server does not offer STARTTLS"))
    heard = await _expect(connection, "starttls", connection.ask(b"STARTTLS\r\n", settings.timeouts.tls))
    if not 200 <= heard[0] < 300:
        if try_only and heard[0] != 421:
            return False
        raise NotOpened(wire.reply("starttls", heard))
    if connection.spoke_too_much:
        # Sent in clear after the 220, to be taken for words from inside the tunnel (CVE-2021-38371 and kin).
        raise NotOpened(_handshake("tls-handshake", "bytes in clear followed the answer to STARTTLS"))
    context = contexts.unverified() if try_only else contexts.verified()
    assert connection.transport is not None
    clear = connection.transport
    try:
        secured = await asyncio.get_running_loop().start_tls(
            clear, connection, context,
            server_hostname=settings.host, ssl_handshake_timeout=settings.timeouts.tls,
        )  # fmt: skip
    except (OSError, ssl.SSLError) as error:
        clear.abort()
        name = "timeout" if isinstance(error, TimeoutError) else _tls_event(error) or "tls-reset"
        failed = _handshake(name, _words(error))
        raise (_ClearTextOnly(failed) if try_only else NotOpened(failed)) from error
    if secured is None:
        raise NotOpened(_handshake("tls-reset", "the connection was lost in the handshake"))
    connection.transport = secured
    if connection.spoke_too_much:
        raise NotOpened(_handshake("tls-handshake", "the server spoke before it was asked"))
    return True


def _handshake(name: str, why: str) -> Reply:
    return Reply(stage="starttls", name=name, text=f"the TLS handshake failed: {why}")


# ------------------------------------------------------------------------------------------------- signing in


async def _sign_in(
    connection: Connection, settings: SmtpSettings, credentials: Credentials, *, verified: bool
) -> Reply:
    assert connection.transport is not None
    peer = connection.transport.get_extra_info("peername")
    if not verified and not (peer and smtp_settings.loopback(str(peer[0]))):
        raise NotOpened(
            Reply(stage="auth", name="tls-absent", text="the password is not sent without verified TLS")
        )
    offered = connection.features.mechanisms
    if "PLAIN" in offered:
        heard = await _plain(connection, settings, credentials)
        if heard[0] == 504 and "LOGIN" in offered:
            heard = await _login(connection, settings, credentials)
    elif "LOGIN" in offered:
        heard = await _login(connection, settings, credentials)
    else:
        what = ", ".join(sorted(offered)) or "none"
        raise NotOpened(
            Reply(
                stage="auth", name="auth-absent", text=f"the server offers neither PLAIN nor LOGIN, but {what}"
            )
        )
    if not 200 <= heard[0] < 300:
        raise NotOpened(wire.reply("auth", heard))
    said = wire.reply("auth", heard)
    return Reply(stage="auth", code=250, enhanced=said.enhanced, text=said.text)


async def _plain(connection: Connection, settings: SmtpSettings, credentials: Credentials) -> Heard:
    token = _b64(f"\0{credentials.user}\0{credentials.password}")
    heard = await _say(connection, settings, b"AUTH PLAIN " + token)
    # Some servers pass over the initial response and ask for it again.
    return await _say(connection, settings, token) if 300 <= heard[0] < 400 else heard


async def _login(connection: Connection, settings: SmtpSettings, credentials: Credentials) -> Heard:
    heard = await _say(connection, settings, b"AUTH LOGIN")
    for secret in (credentials.user, credentials.password):
        if not 300 <= heard[0] < 400:
            return heard
        heard = await _say(connection, settings, _b64(secret))
    return heard


async def _say(connection: Connection, settings: SmtpSettings, line: bytes) -> Heard:
    return await _expect(connection, "auth", connection.ask(line + b"\r\n", settings.timeouts.auth))


def _b64(text: str) -> bytes:
    return base64.b64encode(text.encode())
