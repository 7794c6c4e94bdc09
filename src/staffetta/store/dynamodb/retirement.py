"""Lets go of what is over: old content, dead letters past their time or beyond the cap, old records."""

from __future__ import annotations

from collections.abc import Sequence

from staffetta.errors import LockNotAcquired, MoveNotAllowed, NotFound
from staffetta.mail.message import Millis
from staffetta.store.contract import DeadLetterCounts, Dropped, RetireCount
from staffetta.store.dynamodb import keys
from staffetta.store.dynamodb.answers import Answers
from staffetta.store.dynamodb.ledger import Ledger
from staffetta.store.dynamodb.letters import Letters
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.wire import Refused, Statement
from staffetta.store.dynamodb.work import Work

DELETES_MAX = 90
"""Records of one e-mail that go in one transaction."""


class Retirement:
    ledger: Ledger
    letters: Letters
    work: Work
    answers: Answers
    sparse: bool

    async def retire(
        self, *, now: Millis, content_ms: int, record_ms: int | None, dead_letter_max: int, limit: int
    ) -> RetireCount:
        dropped = await self._drop_dead_letters(now, dead_letter_max, limit)
        files: list[str] = []
        erased = gone = 0
        for entry in await self.work.oldest("ENDED", limit=limit, until=now - content_ms):
            row = await self._over(entry.id, until=now - content_ms)
            if row is not None and not row.erased and await self._erase(row, files):
                erased += 1
        if record_ms is not None:
            for kind in ("ENDED", "ERASED"):
                for entry in await self.work.oldest(kind, limit=limit - gone, until=now - record_ms):
                    row = await self._over(entry.id, until=now - record_ms)
                    if row is not None and await self._remove(row, files):
                        gone += 1
        await self.answers.forget(now=now, limit=limit)
        return RetireCount(
            contents=erased,
            dead_letters=len(dropped),
            records=gone,
            dropped=tuple(dropped),
            files=await self._unnamed(files),
        )

    async def _over(self, id: str, *, until: Millis) -> Row | None:
        """Its record, where nothing will ever be done with it any more and no dead letter asks for it."""
        held = await self.ledger.held(id)
        if held is None or held.row.has_letter or not held.row.over or held.row.updated_at > until:
            return None
        return held.row

    async def _erase(self, row: Row, files: list[str]) -> bool:
        paths = row.file_paths()
        row.eml_file_path = row.payload_file_path = None
        row.erased = True
        statements = [
            self.ledger.update(row),
            self.ledger.delete(row.id, keys.CONTENT),
            self.ledger.delete(row.id, keys.PAYLOAD),
            *(self.ledger.delete(row.id, keys.FILE + path) for path in dict.fromkeys(paths)),
        ]
        try:
            await self.ledger.wire.transact(statements)
        except Refused as refused:
            if not refused.lost:
                raise
            return False  # it moved meanwhile: whoever moved it has reasons
        self.ledger.settled(row)
        files += paths
        return True

    async def _unnamed(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Those that no other e-mail names. The index may still show whom they were just taken from."""
        text = f'SELECT Id FROM "{self.ledger.place.table}"."ListIndex" WHERE Listed=?'
        gone: list[str] = []
        for path in dict.fromkeys(paths):
            named = await self.ledger.wire.execute(text, keys.file_listing(path)) if self.sparse else []
            rows = await self.ledger.rows([item["Id"] for item in named])
            if not any(path in row.file_paths() for row in rows.values()):
                gone.append(path)
        return tuple(gone)

    async def _remove(self, row: Row, files: list[str]) -> bool:
        """Everything of one e-mail goes, its record last: what is left of a broken try is found again by it."""
        names = [name for name in await self.ledger.names(row.id) if name != keys.META]
        while len(names) > DELETES_MAX:
            some, names = names[:DELETES_MAX], names[DELETES_MAX:]
            await self.ledger.wire.transact([self.ledger.delete(row.id, name) for name in some])
        where, parameters = self.ledger.unchanged(row)
        last: Statement = (f"DELETE FROM {self.ledger.table} WHERE {where}", parameters)
        parts = [("meta", last), *((name, self.ledger.delete(row.id, name)) for name in names)]
        try:
            await self.ledger.transact(parts, row.ours, None)
        except Refused as refused:
            if not refused.lost:
                raise
            return False
        files += row.file_paths()
        return True

    async def erase_content(self, id: str) -> tuple[str, ...]:
        held = await self.ledger.held(id)
        if held is None:
            raise NotFound(f"there is no e-mail {id}")
        row = held.row
        if not row.over:
            raise MoveNotAllowed(
                f"e-mail {id} is {row.status}: only the content of a finished one can be erased"
            )
        if row.has_letter:
            raise MoveNotAllowed(f"e-mail {id} has a dead letter: discard that first")
        files: list[str] = []
        if not await self._erase(row, files):
            raise LockNotAcquired
        return await self._unnamed(files)

    # --- dead letters --------------------------------------------------------------------------------------------

    async def dead_letter_counts(self) -> DeadLetterCounts:
        return await self.letters.counts()

    async def _drop_dead_letters(self, now: Millis, most: int, limit: int) -> list[Dropped]:
        oldest = (await self.letters.listed())[::-1]
        aged = [one for one in oldest if one.at + one.ttl_ms <= now]
        left = [one for one in oldest if one.at + one.ttl_ms > now]
        beyond = left[: max(0, len(left) - most)]
        why = [*((one, "age") for one in aged), *((one, "cap") for one in beyond)][:limit]
        return [
            Dropped(id=one.id, company_id=one.company_id, why=word)
            for one, word in why
            if await self.discard([one.id])
        ]

    async def discard(self, ids: Sequence[str]) -> int:
        return await self.letters.discard(ids)
