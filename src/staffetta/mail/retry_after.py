"""Reads `Retry-After`: seconds or a date (RFC 9110, 10.2.3). Pure; what is not understood asks for nothing."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from staffetta.mail.message import Millis

MOST_MS = 300_000
"""Nobody is waited for longer than this on his word alone."""


def retry_after_ms(header: str, *, now: Millis) -> int:
    """How long to wait from `now`, between 0 and `MOST_MS`."""
    header = header.strip()
    if header.isascii() and header.isdigit():
        return min(int(header[:9]) * 1_000, MOST_MS)
    if not header or len(header) > 64:
        return 0
    try:
        at = parsedate_to_datetime(header).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0
    return min(max(0, int(at * 1_000) - now), MOST_MS)
