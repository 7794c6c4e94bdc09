"""Around the lives of e-mails in memory: reminding the queue, who is dead, what is over, what is steered."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import msgspec

from staffetta.errors import Conflict, MoveNotAllowed, NotFound
from staffetta.mail import journal
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email, InWork, Job, Millis
from staffetta.mail.operators import ApiKey, Pause, Worker
from staffetta.mail.rescue import worker_of
from staffetta.store.contract import Dropped, RetireCount
from staffetta.store.memory.rows import Row, State


class Upkeep:
    state: State

    # --- reminding the queue ------------------------------------------------------------

    async def waiting_companies(self, *, now: Millis) -> list[str]:
        return sorted(
            company
            for company, line in self.state.ready.items()
            if any(row.due_at <= now for row in line.values())
        )

    async def waiting(self, company_id: str, *, now: Millis, limit: int, after: Job | None = None) -> list[Job]:
        line = self.state.ready.get(company_id, {}).values()
        due = [row for row in line if row.due_at <= now]
        if after is not None:
            known = self.state.rows.get(after.id)
            place = (after.priority, after.due_at, known.number if known else after.ref)
            due = [row for row in due if row.place > place]
        return [row.job() for row in sorted(due, key=lambda row: row.place)[:limit]]

    async def news(self, *, now: Millis, limit: int) -> list[Job]:
        told: list[Job] = []
        while self.state.tidings and len(told) < limit:
            row = self.state.rows.get(self.state.tidings.pop(0))
            if row is not None and row.status is Status.READY and row.due_at <= now:
                told.append(row.job())
        agenda = self.state.agenda
        while agenda and agenda[0][0] <= now and len(told) < limit:
            due_at, _, due = heapq.heappop(agenda)
            row = self.state.rows.get(due)
            if row is not None and row.status is Status.READY and row.due_at == due_at:
                told.append(row.job())
        return told

    async def next_due(self, *, now: Millis) -> Millis | None:
        ahead = (row.due_at for line in self.state.ready.values() for row in line.values() if row.due_at > now)
        return min(ahead, default=None)

    # --- who is dead, what is stuck, what is over ------------------------------------------------------------

    async def heartbeat(self, worker: Worker) -> None:
        self.state.workers[worker.id] = worker

    async def workers(self) -> list[Worker]:
        return sorted(self.state.workers.values(), key=lambda worker: worker.id)

    async def forget_worker(self, worker_id: str) -> None:
        self.state.workers.pop(worker_id, None)
        self.state.figures.pop(worker_id, None)

    async def stuck(
        self,
        *,
        now: Millis,
        dead_after_ms: int | None,
        timeout_ms: int,
        workers: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[InWork]:
        def is_stuck(row: Row) -> bool:
            if row.callback_exhausted:
                return False
            if row.updated_at + timeout_ms <= now:
                return True
            if not row.token:
                return False
            if dead_after_ms is None or worker_of(row.token) in workers:
                return True
            worker = self.state.workers.get(worker_of(row.token))
            return worker is not None and worker.seen_at + dead_after_ms <= now

        found = sorted(
            filter(is_stuck, self.state.in_work.values()), key=lambda row: (row.updated_at, row.number)
        )
        return [row.in_work() for row in found[:limit]]

    async def expired(self, *, now: Millis, limit: int) -> list[Email]:
        unfinished = [*self.state.accepted.values()]
        unfinished += [row for line in self.state.ready.values() for row in line.values()]
        over = sorted((row for row in unfinished if row.expires_at <= now), key=lambda row: row.number)
        return [row.email() for row in over[:limit]]

    async def held(self, id: str) -> InWork | None:
        row = self.state.in_work.get(id)
        return row.in_work() if row is not None else None

    async def retire(
        self, *, now: Millis, content_ms: int, record_ms: int | None, dead_letter_max: int, limit: int
    ) -> RetireCount:
        dropped = self._drop_dead_letters(now, dead_letter_max, limit)
        files: list[str] = []
        old = self._ended(lambda row: not row.erased and row.updated_at <= now - content_ms)[:limit]
        for row in old:
            files += row.erase()
        gone = [] if record_ms is None else self._ended(lambda row: row.updated_at <= now - record_ms)[:limit]
        for row in gone:
            files += row.erase()
            self.state.remove(row)
        answers = [k for k, kept in self.state.answers.items() if kept.at <= now - journal.KEPT_ANSWER_MS]
        for key in answers[:limit]:
            del self.state.answers[key]
        return RetireCount(
            contents=len(old), dead_letters=len(dropped), records=len(gone), dropped=tuple(dropped),
            files=self._unnamed(files),
        )  # fmt: skip

    def _ended(self, also: Callable[[Row], bool]) -> list[Row]:
        rows = (
            row for row in self.state.rows.values() if row.over and row.id not in self.state.dead and also(row)
        )
        return sorted(rows, key=lambda row: (row.updated_at, row.number))

    def _unnamed(self, paths: Sequence[str]) -> tuple[str, ...]:
        named = {path for row in self.state.rows.values() for path in row.file_paths()}
        return tuple(path for path in paths if path not in named)

    def _drop_dead_letters(self, now: Millis, most: int, limit: int) -> list[Dropped]:
        dead = self.state.dead
        oldest = sorted(dead.values(), key=lambda letter: letter.moved_at)
        aged = [letter for letter in oldest if letter.moved_at + letter.ttl_ms <= now]
        left = [letter for letter in oldest if letter.moved_at + letter.ttl_ms > now]
        beyond = left[: max(0, len(left) - most)]
        why = [*((letter, "age") for letter in aged), *((letter, "cap") for letter in beyond)]
        for letter, _ in why[:limit]:
            del dead[letter.outbox_id]
        return [
            Dropped(id=letter.outbox_id, company_id=letter.company_id, why=word) for letter, word in why[:limit]
        ]

    async def discard(self, ids: Sequence[str]) -> int:
        return sum(self.state.dead.pop(one, None) is not None for one in dict.fromkeys(ids))

    async def erase_content(self, id: str) -> tuple[str, ...]:
        row = self.state.rows.get(id)
        if row is None:
            raise NotFound(f"there is no e-mail {id}")
        if not row.over:
            raise MoveNotAllowed(
                f"e-mail {id} is {row.status}: only the content of a finished one can be erased"
            )
        if id in self.state.dead:
            raise MoveNotAllowed(f"e-mail {id} has a dead letter: discard that first")
        return self._unnamed(row.erase())

    # --- steering ------------------------------------------------------------

    async def pause(self, pause: Pause) -> None:
        self.state.pauses.setdefault((pause.scope, pause.name), pause)

    async def resume(self, pause: Pause) -> None:
        self.state.pauses.pop((pause.scope, pause.name), None)

    async def pauses(self) -> list[Pause]:
        return sorted(self.state.pauses.values(), key=lambda pause: (pause.scope, pause.name))

    async def publish(self, worker_id: str, figures: bytes, now: Millis) -> None:
        self.state.figures[worker_id] = (now, figures)

    async def figures(self, *, newer_than: Millis) -> dict[str, bytes]:
        return {worker: told for worker, (at, told) in sorted(self.state.figures.items()) if at >= newer_than}

    async def add_key(self, key: ApiKey) -> None:
        if key.id in self.state.keys:
            raise Conflict(f"there is a key {key.id} already")
        self.state.keys[key.id] = key

    async def keys(self) -> list[ApiKey]:
        return sorted(self.state.keys.values(), key=lambda key: (key.created_at, key.id))

    async def revoke_key(self, id: str, *, now: Millis) -> None:
        key = self.state.keys.get(id)
        if key is None:
            raise NotFound(f"there is no key {id}")
        if not key.revoked_at:
            self.state.keys[id] = msgspec.structs.replace(key, revoked_at=now)

    async def setting(self, name: str) -> bytes | None:
        return self.state.settings.get(name)

    async def put_setting(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.state.settings.pop(name, None)
        else:
            self.state.settings[name] = value
