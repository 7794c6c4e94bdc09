"""What moves to another store beside what the reading calls tell."""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.store.contract import Unlisted
from staffetta.store.sqlite import codes, latecomers
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.rows import Db

_FACTS = """
    SELECT w.value, m.ref, t.fingerprint, b.batch, EXISTS (SELECT 1 FROM late l WHERE l.ref = m.ref)
    FROM json_each(?) w CROSS JOIN mail m ON m.id = w.value CROSS JOIN contents t ON t.ref = m.ref
    LEFT JOIN batches b ON b.ref = m.ref
"""


class Leaving:
    _browser: Reader

    async def unlisted(self, ids: Sequence[str]) -> list[Unlisted]:
        def look(connection: Db) -> list[Unlisted]:
            found = {
                id: Unlisted(
                    fingerprint=fingerprint,
                    late=tuple(latecomers.waiting(connection, ref)) if late else (),
                    batch=batch,
                )
                for id, ref, fingerprint, batch, late in connection.execute(
                    _FACTS, (codes.to_json(ids),)
                ).fetchall()
            }
            return [found.get(id) or Unlisted() for id in ids]

        return await self._browser.read(look)

    async def settings(self) -> dict[str, bytes]:
        return await self._browser.read(
            lambda connection: dict(connection.execute("SELECT name, value FROM settings").fetchall())
        )
