"""The connection as the store's statements use it. A row holds what its statement asked for, and the reader knows it:
the library can only say that any value may be of any of SQLite's types.
"""

from __future__ import annotations

from typing import Any, Protocol


class Rows(Protocol):
    @property
    def get(self) -> Any:
        """The only value of the only row, or None."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Db(Protocol):
    """An open connection."""

    def execute(self, statements: str, bindings: Any = None, *, can_cache: bool = True) -> Rows: ...

    def changes(self) -> int: ...

    def last_insert_rowid(self) -> int: ...

    @property
    def in_transaction(self) -> bool: ...

    def close(self) -> None: ...
