"""Where a DynamoDB store lies, read from its URL: region, table, endpoint, credentials, connections."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from staffetta.mail.message import Millis, Value

TABLE = "outbox"
_QUERY = ("endpoint", "profile", "connections")
_REGION = re.compile(r"[a-z]{2}(-[a-z]{2,12}){1,3}-\d{1,2}")
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,248}")
_ENDPOINT = re.compile(r"https?://[^/?#@\s]+/?")


class Place(Value, frozen=True, kw_only=True):
    """One table in one region, and how to speak to it."""

    region: str
    table: str = TABLE
    endpoint: str
    profile: str | None = None
    access_key: str | None = None
    secret_key: str = ""
    connections: int = 64
    """Requests in flight at most."""
    life_ms: Millis | None = None
    """How long after its expiry an e-mail's records are kept at least, before DynamoDB's TTL takes them;
    None: for ever."""
    shared: bool = False
    """Other programs write to the table: what they bring and move is looked for too."""

    @property
    def engine_table(self) -> str:
        """Workers, keys, pauses, counts and kept answers: nothing that the index of the outbox should copy."""
        return f"{self.table}-engine"

    def __repr__(self) -> str:
        return f"Place({self.region!r}, {self.table!r})"

    __str__ = __repr__


def read(url: str, *, table: str | None = None, life_ms: Millis | None = None, shared: bool = False) -> Place:
    """`dynamodb://eu-south-1/outbox?endpoint=http://127.0.0.1:8000&profile=x&connections=64`.

    `table` wins over the one in the URL. `dynamodb://KEY:SECRET@region/…` gives credentials of its own
    (percent-encoded); otherwise they are found where AWS's own tools look.
    :raises ValueError: with a sentence that tells what to change and never shows a secret.
    """
    try:
        parts = urlsplit(url)
        region, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("cannot be read: write dynamodb://eu-south-1/outbox") from None
    if not _REGION.fullmatch(region) or port is not None:
        raise ValueError("must name a region: dynamodb://eu-south-1/outbox")
    if parts.username is not None and not parts.password:
        raise ValueError("credentials in it are a key and a secret: dynamodb://KEY:SECRET@region/outbox")
    name = table or parts.path.strip("/") or TABLE
    if not _TABLE.fullmatch(name):
        raise ValueError(f"'{name[:40]}' is no table's name: 3 to 248 of A-Z, a-z, 0-9, _ - and .")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(query) - set(_QUERY))
    if unknown:
        raise ValueError(f"'{unknown[0]}' is no setting of DynamoDB: known are {', '.join(_QUERY)}")
    endpoint = query.get("endpoint") or _endpoint_of(region)
    if not _ENDPOINT.fullmatch(endpoint):
        raise ValueError("its endpoint must be http(s)://host:port without a path")
    connections = query.get("connections", "64")
    if not (connections.isascii() and connections.isdigit() and 1 <= int(connections) <= 1_000):
        raise ValueError("connections must be a whole number from 1 to 1000")
    return Place(
        region=region,
        table=name,
        endpoint=endpoint.rstrip("/") + "/",
        profile=query.get("profile") or None,
        access_key=unquote(parts.username) if parts.username is not None else None,
        secret_key=unquote(parts.password or ""),
        connections=int(connections),
        life_ms=life_ms,
        shared=shared,
    )


def _endpoint_of(region: str) -> str:
    return f"https://dynamodb.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}/"
