"""API keys: made from 32 random bytes, shown once, stored only as a hash, compared in constant time.

    sk_Zr3kQ0aB…………………………………………………………………  `sk_`, 43 characters of the secret, 6 of a checksum
       └ public id: its first 8, by which a key is listed and revoked

The checksum lets a secret scanner, and us, tell a key from a typing error without asking the store.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from typing import Literal, TypeAlias

from staffetta.mail.message import Millis
from staffetta.mail.operators import ApiKey

Role: TypeAlias = Literal["send", "read", "operate"]
ROLES: tuple[Role, ...] = ("send", "read", "operate")

SECRET_BYTES = 32
ID_LENGTH = 8
_PREFIX = "sk_"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 43
_CHECK_LENGTH = 6
_SHAPE = re.compile(r"sk_[0-9A-Za-z]{49}", re.ASCII)
_NOBODY = hashlib.sha256(b"no such key").hexdigest()


def make(
    *, random: bytes, role: Role, company_id: str | None, now: Millis, note: str = ""
) -> tuple[str, ApiKey]:
    """A new key: its text, to be shown once, and what is stored of it."""
    assert len(random) == SECRET_BYTES, "a key is made of 32 random bytes"
    assert role in ROLES, "send, read or operate"
    secret = _base62(int.from_bytes(random), _SECRET_LENGTH)
    text = f"{_PREFIX}{secret}{_checksum(secret)}"
    stored = ApiKey(
        id=secret[:ID_LENGTH], sha256=sha256(text), role=role, company_id=company_id, note=note, created_at=now
    )  # fmt: skip
    return text, stored


def public_id(text: str) -> str | None:
    """The part by which a key is found; None when this cannot be a key of ours."""
    if _SHAPE.fullmatch(text) is None or _checksum(text[3:-_CHECK_LENGTH]) != text[-_CHECK_LENGTH:]:
        return None
    return text[3 : 3 + ID_LENGTH]


def sha256(text: str) -> str:
    """What is stored of a key. Its 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode()).hexdigest()


def opens(text: str, stored: ApiKey | None) -> bool:
    """Whether this text is that key, and not revoked. Takes as long for a key that does not exist."""
    known = hmac.compare_digest(sha256(text), stored.sha256 if stored else _NOBODY)
    return known and stored is not None and not stored.revoked_at


def same(said: bytes, expected: bytes) -> bool:
    """Whether two secrets are one, in a time that tells nothing of where they differ."""
    return hmac.compare_digest(said, expected)


def allows(role: str, needed: Role) -> bool:
    """`send` hands in, `read` looks, `operate` does both and everything else."""
    return role in ("operate", needed)


def _checksum(secret: str) -> str:
    return _base62(zlib.crc32(secret.encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
