"""Where Redis is, from the URL: one server, a Cluster, or Sentinels that know the master.

    redis://[user:password@]host[:port][/db]                         rediss://… the same under TLS
    redis+cluster://[user:password@]host:port[,host:port…]           ?tls=true
    redis+sentinel://[user:password@]host:port[,host:port…]/name[/db]  ?tls=true&sentinel_username=…&sentinel_password=…

TLS is verified against the system's authorities or `?ca=FILE`; `cert=FILE` and `key=FILE` present our own.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from staffetta.errors import FieldProblem, SettingsError
from staffetta.mail.message import Value

Kind = Literal["server", "cluster", "sentinel"]
_OPTIONS = {"tls", "ca", "cert", "key", "sentinel_username", "sentinel_password", "timeout"}
_PORTS = {"server": 6379, "cluster": 6379, "sentinel": 26379}


class Address(Value, frozen=True, kw_only=True):
    kind: Kind
    hosts: tuple[tuple[str, int], ...]
    """Servers, or Sentinels, to begin with."""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    timeout_seconds: float = 5.0

    def __str__(self) -> str:
        """As it may be shown: no user, no password."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{hosts} ({self.service})" if self.service else hosts


def parse(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    kind: Kind = {"redis+cluster": "cluster", "redis+sentinel": "sentinel"}.get(scheme, "server")  # type: ignore[assignment]  # the two others
    parts = urlsplit(f"//{rest}")
    credentials, _, netloc = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise _wrong(f"knows no option {', '.join(unknown)}: there are {', '.join(sorted(_OPTIONS))}")
    path = [unquote(part) for part in parts.path.split("/") if part]
    service = ""
    if kind == "sentinel":
        if not path:
            raise _wrong(
                "names no service: write redis+sentinel://host:26379/NAME, as `sentinel monitor NAME` has it"
            )
        service = path.pop(0)
    db = path.pop(0) if path else "0"
    if path or not db.isdigit() or (kind == "cluster" and db != "0"):
        raise _wrong("ends in something that is not a database number (a Cluster has only 0)")
    try:
        timeout = float(options.get("timeout", "5"))
    except ValueError:
        raise _wrong("has a timeout that is no number of seconds") from None
    return Address(
        kind=kind,
        hosts=tuple(_host(text, _PORTS[kind]) for text in netloc.split(",")),
        service=service,
        db=int(db),
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=scheme == "rediss" or options.get("tls", "").lower() in ("true", "1", "yes"),
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        timeout_seconds=timeout,
    )


def _host(text: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port or default_port
    except ValueError:
        raise _wrong("has a host that cannot be read: write host:port, several with commas between") from None
    return parts.hostname or "127.0.0.1", port


def _wrong(problem: str) -> SettingsError:
    return SettingsError([FieldProblem("queue.url", problem)])
