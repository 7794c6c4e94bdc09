"""How to reach and use one relay: host, security, limits and timeouts, checked once."""

from __future__ import annotations

import re
import socket
import ssl
from ipaddress import ip_address
from typing import Final, Literal, TypeAlias

from staffetta.mail.message import Value
from staffetta.transport import wire

Tls: TypeAlias = Literal["required", "starttls", "opportunistic", "none"]
TLS_MODES: Final[tuple[Tls, ...]] = ("required", "starttls", "opportunistic", "none")


class Timeouts(Value, frozen=True, kw_only=True):
    """How long each step may take, in seconds: the least that RFC 5321 4.5.3.2 asks for.

    A short one at the dot makes duplicates: the server has the message, and we did not wait to hear so.
    """

    connect: float = 30.0
    greeting: float = 300.0
    ehlo: float = 300.0
    tls: float = 60.0
    auth: float = 120.0
    mail: float = 300.0
    rcpt: float = 300.0
    data: float = 120.0
    block: float = 180.0
    dot: float = 600.0
    goodbye: float = 5.0
    """RSET and QUIT: nothing hangs on them but a connection."""

    def each(self, seconds: float) -> Timeouts:
        """All alike, for tests and for impatient people."""
        return Timeouts(**dict.fromkeys(self.__struct_fields__, seconds))

    @property
    def least(self) -> float:
        return float(min(getattr(self, name) for name in self.__struct_fields__))


class Credentials(Value, frozen=True, kw_only=True):
    """User and password. Never shown: not by repr, not in an error."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Credentials(user=…, password=…)"

    __str__ = __repr__


class SmtpSettings(Value, frozen=True, kw_only=True):
    """One relay. Check with `checked`; what is in here is trusted afterwards."""

    host: str
    port: int
    implicit_tls: bool = False
    tls: Tls = "opportunistic"
    credentials: Credentials | None = None
    ehlo_name: str | None = None
    connections_max: int = 20
    messages_per_connection: int = 0
    """0: no limit."""
    messages_per_second: float = 0.0
    """0: no limit."""
    idle_seconds: float = 30.0
    timeouts: Timeouts = Timeouts()

    def checked(self) -> SmtpSettings:
        """Itself, or ValueError with a sentence that tells what to change."""
        if not self.host or wire.unsafe(self.host) or " " in self.host:
            raise ValueError("the relay's host name is empty or has characters that no host name has")
        if not 0 < self.port < 65_536:
            raise ValueError(f"port {self.port} is not between 1 and 65535")
        if self.tls not in TLS_MODES:
            raise ValueError(f"tls={self.tls} is not one of {', '.join(TLS_MODES)}")
        if self.implicit_tls and self.tls != "required":
            raise ValueError(f"smtps is TLS from the first byte: leave tls={self.tls} out, or write smtp://")
        if self.credentials is not None and self.tls in ("opportunistic", "none") and not loopback(self.host):
            raise ValueError(f"tls={self.tls} would show the password to anyone on the way: use tls=required")
        if self.ehlo_name is not None and not _GREETABLE.fullmatch(self.ehlo_name):
            raise ValueError("the EHLO name must be a host name, or an address in brackets such as [192.0.2.1]")
        if self.connections_max < 1 or self.messages_per_connection < 0 or self.messages_per_second < 0:
            raise ValueError("limits of connections and messages cannot be negative; at least one connection")
        if self.timeouts.least <= 0 or self.idle_seconds <= 0:
            raise ValueError("timeouts must be longer than nothing")
        return self


_GREETABLE = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?|\[[A-Za-z0-9:.-]{2,60}\]")


def loopback(host: str) -> bool:
    """True where bytes never leave this machine."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.lower().rstrip(".") in ("localhost", "localhost.localdomain", "ip6-localhost")
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def own_name(local_address: str) -> str:
    """The name to greet with where none is set: this host's full name, else the address we come from."""
    name = socket.gethostname()
    if "." in name and _GREETABLE.fullmatch(name):
        return name
    return f"[IPv6:{local_address}]" if ":" in local_address else f"[{local_address}]"


def verified_context() -> ssl.SSLContext:
    """Certificates and host names are checked, TLS 1.2 at least. Never smtplib's own, which checks nothing."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def unverified_context() -> ssl.SSLContext:
    """For `opportunistic` only: better than clear text, no shield against one who stands between (RFC 7435)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def default_tls(*, credentials: Credentials | None) -> Tls:
    """Verified as soon as there is a password to protect."""
    return "opportunistic" if credentials is None else "required"


__all__ = [
    "TLS_MODES", "Credentials", "SmtpSettings", "Timeouts", "Tls", "default_tls", "loopback", "own_name",
    "unverified_context", "verified_context",
]  # fmt: skip
