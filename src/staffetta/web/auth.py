"""Who calls, and what they may: API keys where there are any, loopback alone where there are none.

A key is looked up in a copy of the store's list that is never older than a second, so that a revoked key dies
within one. Without keys the door is open to programs on this machine, and shut to the pages in its browser.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
from collections.abc import Callable, Mapping, Sequence

from staffetta.errors import FieldProblem, SettingsError
from staffetta.mail import keys
from staffetta.mail.keys import Role
from staffetta.mail.message import Value
from staffetta.mail.operators import ApiKey
from staffetta.store.contract import Store
from staffetta.web.parts import Scope
from staffetta.web.problems import Headers, Problem

FRESH_SECONDS = 0.4
"""Younger than this, the copy of the keys is used as it is."""
STALE_SECONDS = 0.9
"""Older than this, nobody is let in by it."""

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE: Headers = ((b"www-authenticate", b'Bearer realm="staffetta"'),)


class Caller(Value, frozen=True, kw_only=True):
    """Who asks. `company_id` None: for all companies."""

    role: str
    company_id: str | None
    key_id: str = ""


ANYONE_HERE = Caller(role="operate", company_id=None)
"""A program on this machine while there are no keys."""


class Keyring:
    """The store's keys, copied at most `STALE_SECONDS` ago."""

    def __init__(self, store: Store, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._by_id: Mapping[str, ApiKey] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def by_id(self) -> Mapping[str, ApiKey]:
        """:raises StoreError: the store is away and the copy too old to let anybody in."""
        age = self._seconds() - self._read_at
        if age > FRESH_SECONDS:
            reading = self._refresh()
            if age > STALE_SECONDS:
                await asyncio.shield(reading)
        return self._by_id

    async def newest(self) -> Mapping[str, ApiKey]:
        """Read again now: for a key that somebody has just made. :raises StoreError: the store does not answer."""
        await asyncio.shield(self._refresh())
        return self._by_id

    def _refresh(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(_heard)
        return self._reading

    async def _read(self) -> None:
        started = self._seconds()
        self._by_id = {key.id: key for key in await self._store.keys()}
        self._read_at = started


def _heard(reading: asyncio.Task[None]) -> None:
    """A refresh that failed is told to whoever waits for it; with nobody waiting the next one tries again."""
    if not reading.cancelled():
        reading.exception()


async def caller(keyring: Keyring, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller:
    """:raises Problem: nobody we know, or not from where they may call. :raises StoreError: nobody can tell."""
    known = await keyring.by_id()
    if not known:
        only_this_machine(scope, headers)
        return ANYONE_HERE
    scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not text:
        raise Problem("no-key", "send the header `Authorization: Bearer sk_…`", headers=_CHALLENGE)
    key = known.get(keys.public_id(text) or "")
    if not keys.opens(text, key) or key is None:
        raise Problem("no-key", "this key is unknown or revoked", headers=_CHALLENGE)
    return Caller(role=key.role, company_id=key.company_id, key_id=key.id)


def check_role(who: Caller, needed: Role) -> None:
    if not keys.allows(who.role, needed):
        raise Problem(
            "not-allowed", f"this needs a key with the role {needed}; this one has the role {who.role}"
        )


def check_origin(method: str, headers: Mapping[bytes, bytes]) -> None:
    """A page of another site may not make a browser change things here."""
    if method in _SAFE:
        return
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site")
    if origin is not None and origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower():
        raise Problem("not-allowed", "requests from pages of other sites are refused")
    if site is not None and site not in (b"same-origin", b"none"):
        raise Problem("not-allowed", "requests from pages of other sites are refused")


def only_this_machine(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    peer = scope.get("client")
    if peer is not None and not is_loopback(peer[0]):
        raise Problem("no-key", "without API keys only this machine is answered (`staffetta keys create`)",
                      headers=_CHALLENGE)  # fmt: skip
    # A page whose name was made to point at this machine still tells its own name in Host.
    host = headers.get(b"host", b"").decode("latin-1")
    if not is_loopback(host_of(host)):
        raise Problem(
            "wrong-host", "without API keys only localhost, 127.0.0.1 and [::1] are answered as host names"
        )


def host_of(address: str) -> str:
    """`127.0.0.1:8025`, `[::1]:8025`, `localhost` → the part without port and brackets."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0]


@functools.lru_cache(256)
def is_loopback(host: str) -> bool:
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def check_binding(listen: str, known: Sequence[ApiKey]) -> None:
    """Refuse to be reachable from elsewhere while there is no key to ask for.

    :raises SettingsError: with the remedy.
    """
    if is_loopback(host_of(listen)) or any(not key.revoked_at for key in known):
        return
    problem = (
        f"{listen} can be reached from other machines, and there is no API key: make one first"
        " (`staffetta keys create`), or listen on 127.0.0.1"
    )
    raise SettingsError([FieldProblem("api.listen", problem)])
