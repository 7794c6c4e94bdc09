"""How long a process may hold a claim of its own stages, by a clock that nobody sets.

The store tells a claim's age by the wall clock. When that jumps, claims of this moment look half an hour old; taken
back from a stage that is at work on them, they would be worked on twice.
"""

from __future__ import annotations

from collections.abc import Callable


class Patience:
    """Claims that look too old are believed to be at work until they have looked so for as long again."""

    def __init__(self, monotonic: Callable[[], float], *, seconds: float) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._before: dict[str, float] = {}
        self._noticed: dict[str, float] = {}

    def look_again(self) -> None:
        """A new look begins: claims that it does not notice have ended."""
        self._before, self._noticed = self._noticed, {}

    def lasts(self, token: str) -> bool:
        """Whether this claim, which looks too old, may still be at work."""
        now = self._monotonic()
        since = self._noticed[token] = self._before.get(token, now)
        return now - since < self._seconds
