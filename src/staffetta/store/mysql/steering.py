"""What operators set and processes tell: pauses, figures, keys, settings."""

from __future__ import annotations

from staffetta.errors import Conflict, NotFound
from staffetta.mail.message import Millis
from staffetta.mail.operators import ApiKey, Pause
from staffetta.store.mysql import faults
from staffetta.store.mysql.pool import Pool
from staffetta.store.mysql.session import Session

_PAUSES = "SELECT scope, name, since FROM staffetta_pauses ORDER BY scope, name"
_PUBLISH = "REPLACE INTO staffetta_figures (worker_id, at, told) VALUES (%s, %s, %s)"
_FIGURES = "SELECT worker_id, told FROM staffetta_figures WHERE at >= %s ORDER BY worker_id"
_KEYS = """
    SELECT id, sha256, role, company_id, note, created_at, revoked_at FROM staffetta_keys ORDER BY created_at, id
"""
_ADD_KEY = """
    INSERT INTO staffetta_keys (id, sha256, role, company_id, note, created_at, revoked_at)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""


class Steering:
    _pool: Pool

    async def _write(self, statement: str, *facts: object) -> int:
        return await self._pool.write(lambda session: session.run(statement, *facts))

    # --- pauses -----------------------------------------------------------------------------------

    async def pause(self, pause: Pause) -> None:
        async def write(session: Session) -> None:
            known = "SELECT 1 FROM staffetta_pauses WHERE scope = %s AND name = %s FOR UPDATE"
            if not await session.one(known, pause.scope, pause.name):
                into = "REPLACE INTO staffetta_pauses (scope, name, since) VALUES (%s, %s, %s)"
                await session.run(into, pause.scope, pause.name, pause.since)

        await self._pool.write(write)

    async def resume(self, pause: Pause) -> None:
        await self._write(
            "DELETE FROM staffetta_pauses WHERE scope = %s AND name = %s", pause.scope, pause.name
        )

    async def pauses(self) -> list[Pause]:
        rows = await self._pool.read(lambda session: session.rows(_PAUSES))
        return [Pause(scope=scope, name=name, since=since) for scope, name, since in rows]

    # --- figures ----------------------------------------------------------------------------------

    async def publish(self, worker_id: str, figures: bytes, now: Millis) -> None:
        await self._write(_PUBLISH, worker_id, now, figures)

    async def figures(self, *, newer_than: Millis) -> dict[str, bytes]:
        return dict(await self._pool.read(lambda session: session.rows(_FIGURES, newer_than)))

    # --- keys -------------------------------------------------------------------------------------

    async def add_key(self, key: ApiKey) -> None:
        facts = (key.id, key.sha256, key.role, key.company_id, key.note, key.created_at, key.revoked_at)

        async def write(session: Session) -> None:
            try:
                await session.run(_ADD_KEY, *facts)
            except Exception as error:
                if faults.number_of(error) != faults.DUPLICATE:
                    raise
                raise Conflict(f"there is a key {key.id} already") from error

        await self._pool.write(write)

    async def keys(self) -> list[ApiKey]:
        rows = await self._pool.read(lambda session: session.rows(_KEYS))
        return [
            ApiKey(id=id, sha256=sha256, role=role, company_id=company_id, note=note, created_at=created_at,
                   revoked_at=revoked_at)
            for id, sha256, role, company_id, note, created_at, revoked_at in rows
        ]  # fmt: skip

    async def revoke_key(self, id: str, *, now: Millis) -> None:
        async def revoke(session: Session) -> None:
            revoked_at = await session.one("SELECT revoked_at FROM staffetta_keys WHERE id = %s FOR UPDATE", id)
            if revoked_at is None:
                raise NotFound(f"there is no key {id}")
            if not revoked_at:
                await session.run("UPDATE staffetta_keys SET revoked_at = %s WHERE id = %s", now, id)

        await self._pool.write(revoke)

    # --- settings ---------------------------------------------------------------------------------

    async def setting(self, name: str) -> bytes | None:
        found: bytes | None = await self._pool.read(
            lambda session: session.one("SELECT value FROM staffetta_settings WHERE name = %s", name)
        )
        return found

    async def put_setting(self, name: str, value: bytes | None) -> None:
        if value is None:
            await self._write("DELETE FROM staffetta_settings WHERE name = %s", name)
        else:
            await self._write("REPLACE INTO staffetta_settings (name, value) VALUES (%s, %s)", name, value)
