"""What operators and processes leave for each other: pauses, figures, keys, settings."""

from __future__ import annotations

from staffetta.errors import Conflict, NotFound
from staffetta.mail.message import Millis
from staffetta.mail.operators import ApiKey, Pause
from staffetta.store.sqlite.group import Group
from staffetta.store.sqlite.reader import Reader
from staffetta.store.sqlite.writer import Writer

_PAUSES = "SELECT scope, name, since FROM pauses ORDER BY scope, name"
_FIGURES = "SELECT worker_id, told FROM figures WHERE at >= ? ORDER BY worker_id"
_KEYS = (
    "SELECT id, sha256, role, company_id, note, created_at, revoked_at FROM api_keys ORDER BY created_at, id"
)


class Steering:
    _writer: Writer
    _reader: Reader

    async def _write(self, statement: str, *facts: object) -> None:
        await self._writer.do(lambda group: group.connection.execute(statement, facts))

    # --- pauses -----------------------------------------------------------------------------------

    async def pause(self, pause: Pause) -> None:
        await self._write("INSERT OR IGNORE INTO pauses VALUES (?, ?, ?)", pause.scope, pause.name, pause.since)

    async def resume(self, pause: Pause) -> None:
        await self._write("DELETE FROM pauses WHERE scope = ? AND name = ?", pause.scope, pause.name)

    async def pauses(self) -> list[Pause]:
        rows = await self._reader.read(lambda connection: connection.execute(_PAUSES).fetchall())
        return [Pause(scope=scope, name=name, since=since) for scope, name, since in rows]

    # --- figures ----------------------------------------------------------------------------------

    async def publish(self, worker_id: str, figures: bytes, now: Millis) -> None:
        await self._write("INSERT OR REPLACE INTO figures VALUES (?, ?, ?)", worker_id, now, figures)

    async def figures(self, *, newer_than: Millis) -> dict[str, bytes]:
        rows = await self._reader.read(
            lambda connection: connection.execute(_FIGURES, (newer_than,)).fetchall()
        )
        return dict(rows)

    # --- keys -------------------------------------------------------------------------------------

    async def add_key(self, key: ApiKey) -> None:
        def add(group: Group) -> None:
            group.connection.execute(
                "INSERT OR IGNORE INTO api_keys VALUES (?, ?, ?, ?, ?, ?, ?)",
                (key.id, key.sha256, key.role, key.company_id, key.note, key.created_at, key.revoked_at),
            )
            if group.connection.changes() == 0:
                raise Conflict(f"there is a key {key.id} already")

        await self._writer.do(add)

    async def keys(self) -> list[ApiKey]:
        rows = await self._reader.read(lambda connection: connection.execute(_KEYS).fetchall())
        return [
            ApiKey(id=id, sha256=sha256, role=role, company_id=company_id, note=note, created_at=created_at,
                   revoked_at=revoked_at)
            for id, sha256, role, company_id, note, created_at, revoked_at in rows
        ]  # fmt: skip

    async def revoke_key(self, id: str, *, now: Millis) -> None:
        def revoke(group: Group) -> None:
            group.connection.execute(
                "UPDATE api_keys SET revoked_at = iif(revoked_at, revoked_at, ?) WHERE id = ?", (now, id)
            )
            if group.connection.changes() == 0:
                raise NotFound(f"there is no key {id}")

        await self._writer.do(revoke)

    # --- settings ---------------------------------------------------------------------------------

    async def setting(self, name: str) -> bytes | None:
        return await self._reader.read(
            lambda connection: connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).get
        )

    async def put_setting(self, name: str, value: bytes | None) -> None:
        if value is None:
            await self._write("DELETE FROM settings WHERE name = ?", name)
        else:
            await self._write("INSERT OR REPLACE INTO settings VALUES (?, ?)", name, value)
