"""Cursors as callers see them: opaque, signed, and good only for the listing that they came from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

import msgspec

from staffetta.errors import FieldProblem
from staffetta.mail.operators import Filter
from staffetta.store.contract import Store
from staffetta.web.problems import Problem, wrong_query

SETTING = "http.cursor-secret"
LENGTH_MAX = 2_000
_MAC_BYTES = 12


class Cursors:
    """Signs with a secret kept in the store, so that every process on it, and the next start, can check."""

    def __init__(self, store: Store, random: Callable[[int], bytes]) -> None:
        self._store = store
        self._random = random
        self._secret = b""

    async def seal(self, cursor: str | None, listing: str, filter: Filter) -> str | None:
        if cursor is None:
            return None
        secret = self._secret or await self._read()
        return (
            base64.urlsafe_b64encode(_mac(secret, cursor, listing, filter) + cursor.encode())
            .decode()
            .rstrip("=")
        )

    async def open(self, sealed: str | None, listing: str, filter: Filter) -> str | None:
        """:raises Problem: not one of ours, or from another listing."""
        if sealed is None:
            return None
        try:
            raw = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
            mac, cursor = raw[:_MAC_BYTES], raw[_MAC_BYTES:].decode()
        except (binascii.Error, ValueError):
            raise _strange() from None
        known = bool(self._secret)
        secret = self._secret or await self._read()
        if hmac.compare_digest(mac, _mac(secret, cursor, listing, filter)):
            return cursor
        # Two processes that made the first secret at once: the one in the store holds.
        again = await self._read() if known else secret
        if again != secret and hmac.compare_digest(mac, _mac(again, cursor, listing, filter)):
            return cursor
        raise _strange()

    async def _read(self) -> bytes:
        found = await self._store.setting(SETTING)
        if found is None:
            await self._store.put_setting(SETTING, self._random(32))
            found = await self._store.setting(SETTING)
        assert found, "a setting that was put can be read"
        self._secret = found
        return found


def _mac(secret: bytes, cursor: str, listing: str, filter: Filter) -> bytes:
    bound = msgspec.json.encode((listing, cursor, filter))
    return hmac.digest(secret, bound, hashlib.sha256)[:_MAC_BYTES]


def _strange() -> Problem:
    return wrong_query([FieldProblem("cursor", "take `next_cursor` of the page before, with the same filters")])
