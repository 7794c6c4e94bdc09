"""What is not an e-mail: workers, pauses, keys, figures, settings, batches. Small items in the engine's own table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from staffetta.errors import Conflict, NotFound
from staffetta.mail.message import Millis, ReportClaim
from staffetta.mail.operators import ApiKey, Pause, Worker
from staffetta.store.dynamodb.beats import Beats
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.wire import Refused, Wire

if TYPE_CHECKING:
    from staffetta.store.dynamodb.parts import Parts

_TRIES_MAX = 5


class EngineTable:
    """Items by family and member."""

    def __init__(self, place: Place, wire: Wire) -> None:
        self._wire = wire
        self._table = f'"{place.engine_table}"'

    async def all(self, family: str) -> list[Item]:
        text = f"SELECT * FROM {self._table} WHERE Family=?"
        return await self._wire.execute(text, family, consistent=True)

    async def one(self, family: str, member: str) -> Item | None:
        text = f"SELECT * FROM {self._table} WHERE Family=? AND Member=?"
        found = await self._wire.execute(text, family, member, consistent=True)
        return found[0] if found else None

    async def add(self, family: str, member: str, **told: object) -> bool:
        """False: it is there already."""
        fields = ", ".join(f"'{name}': ?" for name in ("Family", "Member", *told))
        try:
            # A transaction, for its token: a repeat after a lost answer must not meet what itself put there.
            text = f"INSERT INTO {self._table} VALUE {{{fields}}}"
            await self._wire.transact([(text, (family, member, *told.values()))])
        except Refused as refused:
            if refused.duplicate:
                return False
            raise
        return True

    async def change(self, family: str, member: str, changes: str, *parameters: object) -> bool:
        """False: it is not there."""
        text = f"UPDATE {self._table} SET {changes} WHERE Family=? AND Member=?"
        try:
            await self._wire.execute(text, *parameters, family, member)
        except Refused as refused:
            if refused.lost:
                return False
            raise
        return True

    async def put(self, family: str, member: str, **told: object) -> None:
        """PartiQL has no word for "whether it is there or not"."""
        changes = ", ".join(f"{name}=?" for name in told)
        for _ in range(_TRIES_MAX):
            if await self.change(family, member, changes, *told.values()):
                return
            if await self.add(family, member, **told):
                return

    async def remove(self, family: str, member: str) -> None:
        await self._wire.execute(f"DELETE FROM {self._table} WHERE Family=? AND Member=?", family, member)


class Steering:
    engine: EngineTable
    ledger: Ledger
    beats: Beats
    parts: Parts

    # --- workers ---------------------------------------------------------------------------------------------

    async def heartbeat(self, worker: Worker) -> None:
        told = msgspec.msgpack.encode(worker)
        if not await self.engine.change("WORKER", worker.id, "Told=?, Beats=Beats+?", told, 1):
            await self.engine.put("WORKER", worker.id, Told=told, Beats=1)
        self.beats.wrote(worker.id)
        if worker.feeds:
            await self.parts.join(worker)

    async def workers(self) -> list[Worker]:
        return [told_worker(item) for item in await self.engine.all("WORKER")]

    async def forget_worker(self, worker_id: str) -> None:
        self.parts.leave(worker_id)
        await self.engine.remove("WORKER", worker_id)
        await self.engine.remove("FIGURES", worker_id)

    async def publish(self, worker_id: str, figures: bytes, now: Millis) -> None:
        await self.engine.put("FIGURES", worker_id, Told=figures, SavedAt=now)

    async def figures(self, *, newer_than: Millis) -> dict[str, bytes]:
        return {
            item["Member"]: item["Told"]
            for item in await self.engine.all("FIGURES")
            if item["SavedAt"] >= newer_than
        }

    # --- pauses, keys, settings --------------------------------------------------------------------------------

    async def pause(self, pause: Pause) -> None:
        await self.engine.add("PAUSE", _pause_name(pause), Told=msgspec.msgpack.encode(pause))

    async def resume(self, pause: Pause) -> None:
        await self.engine.remove("PAUSE", _pause_name(pause))

    async def pauses(self) -> list[Pause]:
        found = [_told(item, Pause) for item in await self.engine.all("PAUSE")]
        return sorted(found, key=lambda pause: (pause.scope, pause.name))

    async def add_key(self, key: ApiKey) -> None:
        if not await self.engine.add("KEY", key.id, Told=msgspec.msgpack.encode(key)):
            raise Conflict(f"there is a key {key.id} already")

    async def keys(self) -> list[ApiKey]:
        found = [_key(item) for item in await self.engine.all("KEY")]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke_key(self, id: str, *, now: Millis) -> None:
        item = await self.engine.one("KEY", id)
        if item is None:
            raise NotFound(f"there is no key {id}")
        if not _key(item).revoked_at:
            await self.engine.change("KEY", id, "RevokedAt=?", now)

    async def setting(self, name: str) -> bytes | None:
        item = await self.engine.one("SETTING", name)
        return item["Told"] if item is not None else None

    async def put_setting(self, name: str, value: bytes | None) -> None:
        if value is None:
            await self.engine.remove("SETTING", name)
        else:
            await self.engine.put("SETTING", name, Told=value)

    # --- batches ---------------------------------------------------------------------------------------------

    async def bind_batch(self, batch: str, claims: Sequence[ReportClaim]) -> None:
        await self.engine.put("BATCH", batch, Members=list(dict.fromkeys(claim.id for claim in claims)))
        await asyncio.gather(*(self._bind(batch, claim) for claim in claims))

    async def _bind(self, batch: str, claim: ReportClaim) -> None:
        text = f"UPDATE {self.ledger.table} SET ToldWith=? WHERE Id=? AND Status='_META'"
        try:
            await self.ledger.wire.execute(text, batch, claim.id)
        except Refused as refused:
            if not refused.lost:  # its record is gone: nobody is told of it any more
                raise

    async def batch_members(self, batch: str) -> list[str]:
        item = await self.engine.one("BATCH", batch)
        return list(item["Members"]) if item is not None else []


def told_worker(item: Item) -> Worker:
    worker: Worker = _told(item, Worker)
    return worker


def _pause_name(pause: Pause) -> str:
    return f"{pause.scope}\x01{pause.name}"


def _told(item: Item, kind: type[Any]) -> Any:
    return msgspec.msgpack.decode(item["Told"], type=kind)


def _key(item: Item) -> ApiKey:
    key: ApiKey = _told(item, ApiKey)
    return msgspec.structs.replace(key, revoked_at=item.get("RevokedAt", 0))
