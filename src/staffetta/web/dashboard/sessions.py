"""Who is signed in: a cookie that names a key, signed with a secret of the store; tokens for forms; patience.

The cookie is worth what its key is worth: it is looked up in the same copy of the keys as the API's, so that a
revoked key ends its sessions within a second. Nothing of the key itself is in it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping

import msgspec

from staffetta.mail.message import Millis, Value
from staffetta.mail.operators import ApiKey
from staffetta.store.contract import Store

SETTING = "http.session-secret"
COOKIE = "staffetta_session"
LIFETIME_MS = 12 * 3_600_000
COOKIE_LENGTH_MAX = 400
_MAC_BYTES = 32
_TOKEN_BYTES = 18


class Session(Value, frozen=True, kw_only=True, array_like=True):
    """What the cookie says."""

    key_id: str
    since: Millis
    nonce: str


class Sessions:
    """Makes and reads cookies and form tokens."""

    def __init__(self, store: Store, random: Callable[[int], bytes]) -> None:
        self._store = store
        self._random = random
        self._secret = b""

    async def secret(self) -> bytes:
        """Kept in the store, so that every process on it, and the next start, can check.

        :raises StoreError: the store does not answer.
        """
        if not self._secret:
            found = await self._store.setting(SETTING)
            if found is None:
                await self._store.put_setting(SETTING, self._random(32))
                found = await self._store.setting(SETTING)
            assert found, "a setting that was put can be read"
            self._secret = found
        return self._secret

    async def forget_secret(self) -> None:
        """Two processes may have made the first secret at once: the one in the store holds."""
        self._secret = b""
        await self.secret()

    async def begin(self, key: ApiKey, now: Millis) -> str:
        """The value of a new session's cookie."""
        session = Session(key_id=key.id, since=now, nonce=_text(self._random(12)))
        told = msgspec.json.encode(session)
        return f"{_text(told)}.{_text(_mac(await self.secret(), told, key))}"

    async def of(self, cookie: str, known: Mapping[str, ApiKey], now: Millis) -> ApiKey | None:
        """The key that this cookie stands for; None: forged, too old, or the key is gone."""
        told, dot, mac = cookie.partition(".")
        if not dot or len(cookie) > COOKIE_LENGTH_MAX:
            return None
        try:
            raw, seal = _bytes(told), _bytes(mac)
            session = msgspec.json.decode(raw, type=Session)
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            return None
        key = known.get(session.key_id)
        if key is None or key.revoked_at or not -60_000 <= now - session.since < LIFETIME_MS:
            return None
        if hmac.compare_digest(seal, _mac(await self.secret(), raw, key)):
            return key
        await self.forget_secret()
        return key if hmac.compare_digest(seal, _mac(await self.secret(), raw, key)) else None

    async def token(self, cookie: str) -> str:
        """What the forms of this session carry; of those without a session (this machine, no key) their own."""
        said = b"form\0" + (cookie.encode() or b"nobody")
        return _text(hmac.digest(await self.secret(), said, hashlib.sha256)[:_TOKEN_BYTES])


class Patience:
    """How often one address may try to sign in: `burst` at once, then one every `refill_seconds`."""

    def __init__(
        self, seconds: Callable[[], float], *, burst: int = 10, refill_seconds: float = 6.0, most: int = 1_000
    ) -> None:
        self._seconds = seconds
        self._burst = burst
        self._refill = refill_seconds
        self._most = most
        self._left: dict[str, tuple[float, float]] = {}

    def lets(self, address: str) -> bool:
        now = self._seconds()
        left, at = self._left.pop(address, (float(self._burst), now))
        left = min(self._burst, left + (now - at) / self._refill)
        if len(self._left) >= self._most:  # the one heard of longest ago
            self._left.pop(next(iter(self._left)))
        if left < 1:
            self._left[address] = (left, now)
            return False
        self._left[address] = (left - 1, now)
        return True


def cookie_of(headers: Mapping[bytes, bytes]) -> str:
    """The session's cookie as it came, or nothing."""
    for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def set_cookie(value: str, *, secure: bool) -> tuple[bytes, bytes]:
    """`Lax`: a link in an alert finds the operator signed in, a form of another site does not."""
    age = LIFETIME_MS // 1000 if value else 0
    safe = "; Secure" if secure else ""
    return b"set-cookie", f"{COOKIE}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{safe}".encode()


def _mac(secret: bytes, told: bytes, key: ApiKey) -> bytes:
    return hmac.digest(secret, b"session\0" + key.sha256.encode() + told, hashlib.sha256)[:_MAC_BYTES]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
