"""How often and after which wait a database's transaction is run again, after an error that passes by itself.

The seed's figures (000), the same for every database: 8 attempts, and between them a uniform random time from 0 to
min(2^attempt x 30 ms, 1 s), attempts counted from 0. What passes by itself is each driver's own list.
"""

from __future__ import annotations

ATTEMPTS = 8
BASE_MS = 30
LONGEST_MS = 1_000


def longest_wait_ms(attempt: int) -> int:
    """The most that is waited after attempt number `attempt` (from 0) failed."""
    return min(BASE_MS << min(attempt, 16), LONGEST_MS)


def wait_ms(attempt: int, draw: float) -> float | None:
    """How long to wait after attempt number `attempt` (from 0); `draw` is uniform in [0, 1). None: it was the last."""
    return draw * longest_wait_ms(attempt) if attempt + 1 < ATTEMPTS else None
