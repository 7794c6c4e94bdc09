"""Reads the store's URL: `mysql://user:password@host:3306/database?tls=required&ca=/etc/ssl/ca.pem`."""

from __future__ import annotations

import ssl
from urllib.parse import parse_qsl, unquote, urlsplit

from staffetta.errors import StoreUnusable
from staffetta.mail.message import Value

CONNECTIONS = 6
OPTIONS = {
    "tls": "none or required",
    "ca": "a file with the certificates that are trusted",
    "cert": "a file with our own certificate",
    "key": "the file with its key",
    "connections": "how many connections one process may open",
    "socket": "the path of a Unix socket",
}


class Address(Value, frozen=True, kw_only=True):
    """Where the database is and how it is reached. Never shown with its password: `str` leaves it out."""

    host: str
    port: int
    user: str
    password: str
    database: str
    socket: str | None = None
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    connections: int = CONNECTIONS

    def __str__(self) -> str:
        where = self.socket or f"{self.host}:{self.port}"
        return f"mysql://{self.user}@{where}/{self.database}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def context(self) -> ssl.SSLContext | None:
        """Certificates and names are always checked: the driver's own `ssl=True` would check neither.

        :raises StoreUnusable: a file of certificates cannot be read.
        """
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as error:
            told = f"{self}: the certificates named in store.url cannot be used ({error}); see ca, cert and key"
            raise StoreUnusable(told) from error
        return context


def read(url: str) -> Address:
    """:raises ValueError: the URL is wrong; what and how is named, the password never."""
    parts = urlsplit(url)
    try:
        port = parts.port or 3306
    except ValueError as error:
        raise ValueError("the port is not a number from 1 to 65535") from error
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise ValueError("name the database after the host: mysql://user:password@host:3306/database")
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(told.keys() - OPTIONS.keys())
    if unknown:
        known = ", ".join(f"{name} ({what})" for name, what in OPTIONS.items())
        raise ValueError(f"{', '.join(unknown)} is unknown; there are {known}")
    tls = told.get("tls", "none")
    if tls not in ("none", "required"):
        raise ValueError(f"tls is {tls!r}; it may be none or required")
    if tls == "none" and told.keys() & {"ca", "cert", "key"}:
        raise ValueError("ca, cert and key have no use without tls=required")
    connections = told.get("connections", str(CONNECTIONS))
    if not connections.isascii() or not connections.isdigit() or not 3 <= int(connections) <= 200:
        raise ValueError("connections is a number from 3 to 200")
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=port,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=database,
        socket=told.get("socket"),
        tls=tls == "required",
        ca=told.get("ca"),
        cert=told.get("cert"),
        key=told.get("key"),
        connections=int(connections),
    )
