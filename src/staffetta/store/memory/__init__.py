"""The store in memory: the contract in plain Python, for tests and for the simulation.

Deterministic, without threads, clocks or chance: every call is done when it is made. Its `State` outlives it,
so that a crash of the process can be played: `MemoryStore(state)` goes on where the dropped one stood.
"""

from __future__ import annotations

from staffetta.store.memory.listings import Listings
from staffetta.store.memory.moves import Moves
from staffetta.store.memory.rows import State
from staffetta.store.memory.upkeep import Upkeep


class MemoryStore(Moves, Upkeep, Listings):
    """Holds everything in one `State`."""

    resolution_ms = 1
    has_clock = False
    owned = True
    keeps_version = True

    def __init__(self, state: State | None = None, *, owner: bool = True) -> None:
        self.state = State() if state is None else state
        self.owner = owner
        """False: another process beside the owner, who hears of what this one makes due."""

    async def open(self) -> None:
        """Nothing to connect to."""

    async def migrate(self) -> list[str]:
        return []

    async def close(self) -> None:
        """Nothing to let go of: the state is the caller's."""


__all__ = ["MemoryStore", "State"]
