"""Names for e-mails: UUIDs that sort by time, and those that follow from an idempotency key."""

from __future__ import annotations

import hashlib
import re

from staffetta.mail.message import Millis

RANDOM_BYTES = 10
"""How much chance `uuid7` needs."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_uuid(text: str) -> bool:
    """A UUID as we write it: 36 characters, lower case."""
    return _UUID.fullmatch(text) is not None


def uuid7(now_ms: Millis, random: bytes) -> str:
    """A UUID of version 7 (RFC 9562): ids made later sort later, so that indexes grow at one end only."""
    assert len(random) >= RANDOM_BYTES, "uuid7 needs ten random bytes"
    chance = int.from_bytes(random[:RANDOM_BYTES], "big")
    variant = 0x8 | chance >> 66 & 0x3
    text = f"{now_ms & 0xFFFF_FFFF_FFFF:012x}7{chance >> 68:03x}{variant:x}{chance & _LOW_60:015x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_LOW_60 = (1 << 60) - 1


def body_fingerprint(kind: str, body: bytes) -> str:
    """What a request asked for: the same key with another one is refused."""
    return f"{kind}:{hashlib.sha256(body).hexdigest()}"


def keyed_id(company_id: str, key: str, fingerprint: str, index: int) -> str:
    """The id of the `index`-th e-mail of a request with an idempotency key: the same whenever it is repeated.

    The body is part of it, so that a key used again for another request, long after the first, meets no old id.
    """
    seed = f"{len(company_id)}:{company_id}:{len(key)}:{key}:{fingerprint}:{index}"
    digest = hashlib.sha256(seed.encode("utf-8")).hexdigest()
    # Version 8 of RFC 9562: made by a rule of our own.
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
