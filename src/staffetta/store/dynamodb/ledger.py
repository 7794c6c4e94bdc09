"""Reads e-mails' records and writes their moves: one transaction of one e-mail, a compare-and-set on what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from staffetta.errors import LockNotAcquired, StoreUnavailable
from staffetta.mail import journal
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Attempt, HistoryEntry, Millis
from staffetta.store.dynamodb import keys, values
from staffetta.store.dynamodb.counting import Counting
from staffetta.store.dynamodb.keys import Kind
from staffetta.store.dynamodb.place import Place
from staffetta.store.dynamodb.rows import Row
from staffetta.store.dynamodb.values import Item
from staffetta.store.dynamodb.wire import DUPLICATE, LOST, Refused, Statement, Wire

Part: TypeAlias = tuple[str, Statement]
"""What a statement is for, and the statement."""

REBUILDS_MAX = 5
"""How often a move is put together anew where a record beside the meta record was not as we thought."""
_ATTRIBUTES = frozenset(
    {
        "Latest", "UpdatedAt", "Reason", "CompanyId", "CreatedAt", "DueAt", "ExpiresAt", "Moves", "Ours", "Entered",
        "EmlFilePath", "PayloadFilePath", "Priority", "Attempts", "Opened", "Doubts", "Crashes", "AloneCrashes",
        "Outcomes", "Recipients", "Composed", "ReachedAt", "CallbackDue", "CallbackExhausted", "Claim", "TTL",
    }
)  # fmt: skip
_ROOT = frozenset(
    {
        "MailFrom", "EnvelopeTo", "SettledTo", "AskedFor", "Fingerprint", "OpenPart", "OpenedAt", "MarkedAt",
        "MarkedBy", "SentAlone", "LateReplies", "ToldWith", "Erased", "LeftTo", "TTL", "Todo", "TodoAt", "Line",
        "LineAt", "Listed", "ListedAt",
    }
)  # fmt: skip
"""Names that are ours to change; whatever else another program keeps there stays."""
_HEAD = (
    "Id, Status, Attributes, TTL, MailFrom, EnvelopeTo, SettledTo, AskedFor, Fingerprint, OpenPart, OpenedAt,"
    " MarkedAt, MarkedBy, SentAlone, LateReplies, ToldWith, Erased, LeftTo, Todo, TodoAt, Line,"
    " LineAt, Listed, ListedAt"
)


class Stale(Exception):  # never leaves this package
    """Something beside the record was not as it was read: read all of it again."""


class Held:
    """An e-mail as it was read, with whatever of its content was asked for."""

    __slots__ = ("content", "row")

    def __init__(self, row: Row, content: Item) -> None:
        self.row = row
        self.content = content


class Ledger:
    """The records of e-mails in one table."""

    def __init__(self, place: Place, wire: Wire, counting: Counting) -> None:
        self.place = place
        self.wire = wire
        self.counting = counting
        self.stirred: Callable[[Kind | None], None] = lambda _: None
        """Told what this process itself has given somebody to do."""
        table = self.table = f'"{place.table}"'
        self._held = {
            what: f"SELECT {_HEAD}{more} FROM {table} WHERE Id=? AND Status BETWEEN '{keys.CONTENT}' AND '{keys.META}'"
            for what, more in (("", ""), ("Message", ", Message"), ("Payload", ", Payload"))
        }

    # --- reading ---------------------------------------------------------------------------------------------

    async def held(self, id: str, content: str = "") -> Held | None:
        """One e-mail's record as it is now; `content`: with its `Message` or `Payload`."""
        items = await self.wire.execute(self._held[content], id, consistent=True)
        return self._held_of(items)

    @staticmethod
    def _held_of(items: Sequence[Item]) -> Held | None:
        found = {item["Status"]: item for item in items}
        meta = found.get(keys.META)
        if meta is None:
            return None
        try:
            row = Row.read(meta)
        except ValueError:
            return None  # a status that is none of ours: another program's business
        row.has_letter = keys.DEAD in found
        row.has_content = keys.CONTENT in found
        content = dict(found.get(keys.CONTENT) or {})
        content.update(found.get(keys.PAYLOAD) or {})
        return Held(row, content)

    async def rows(self, ids: Sequence[str]) -> dict[str, Row]:
        """Many records at once; those that are there."""
        found: dict[str, Row] = {}
        text = f"SELECT * FROM {self.table} WHERE Id=? AND Status='{keys.META}'"
        for item in await self.wire.pick(text, [(id,) for id in dict.fromkeys(ids)]):
            try:
                found[item["Id"]] = Row.read(item)
            except ValueError:
                continue
        return found

    async def names(self, id: str) -> list[str]:
        """The sort keys of everything that is kept of one e-mail."""
        text = f"SELECT Status FROM {self.table} WHERE Id=?"
        return [item["Status"] for item in await self.wire.execute(text, id, consistent=True)]

    async def attempt(self, id: str, item: str) -> Attempt | None:
        text = f"SELECT Journal FROM {self.table} WHERE Id=? AND Status=?"
        found = await self.wire.execute(text, id, item, consistent=True)
        return values.attempt_of(found[0]["Journal"]) if found else None

    async def late(self, row: Row) -> Attempt | None:
        """The reply that came too late for its own claim and that this claim must be told of."""
        if not row.late:
            return None
        kept = [await self.attempt(row.id, item) for item in row.late]
        return journal.choose_late([one for one in kept if one is not None], row.to_try)

    # --- moving ----------------------------------------------------------------------------------------------

    def enter(
        self, row: Row, status: Status, cause: Cause, *, at: Millis, reason: str = "", token: str = ""
    ) -> HistoryEntry:
        """The row stands in another status from here on; its history entry."""
        row.status, row.updated_at, row.token = status, at, token
        row.moves += 1
        return HistoryEntry(status=status, cause=cause, reason=reason, at=at)

    async def move(
        self,
        row: Row,
        entry: HistoryEntry,
        build: Callable[[], Sequence[Part]] = tuple,
        *,
        token: str = "",
    ) -> None:
        """One move, durably, with whatever goes with it.

        :raises LockNotAcquired: the record is no longer as it was read; nothing changed.
        """
        before, row.ours = row.ours, entry.status
        if row.entered is None:
            await self._count_entries(row)
        for _ in range(REBUILDS_MAX):
            entered = dict(row.entered or {})
            entered[entry.status] = entered.get(entry.status, 0) + 1
            known, row.entered = row.entered, entered
            parts: list[Part] = [
                ("meta", self.update(row)),
                ("history", self.history(row, entry, entered[entry.status], token)),
                *build(),
            ]
            if before is None:
                parts.append(("listed", self.listed(row)))
            try:
                await self.transact(parts, before, entry.status)
            except Refused as refused:
                row.entered = known
                await self._look_again(row, parts, refused, before)
            else:
                self.settled(row)
                self.stirred(row.kind)
                return
        raise StoreUnavailable(
            f"e-mail {row.id}: its records are being changed by others all the time; try again"
        )

    async def transact(self, parts: Sequence[Part], before: Status | None, after: Status | None) -> None:
        """One transaction, the counts of both statuses kept in it."""
        statements = [statement for _, statement in parts]
        if before is after:
            await self.wire.transact(statements)
            return
        async with self.counting.slot() as slot:
            await self.wire.transact([*statements, self.counting.statement(slot, before, after)])

    @staticmethod
    def settled(row: Row) -> None:
        """What `update` was asked to write is what the record has now."""
        attributes, root = row.kept
        row.kept = (
            {name: value for name, value in attributes.items() if name not in _ATTRIBUTES} | row.written[0],
            {name: value for name, value in root.items() if name not in _ROOT} | row.written[1],
        )

    async def _look_again(
        self, row: Row, parts: Sequence[Part], refused: Refused, before: Status | None
    ) -> None:
        """What stood in the way, and whether the move can be put together anew."""
        why = dict(zip((what for what, _ in parts), refused.reasons, strict=False))
        if why.get("meta", LOST) == LOST:
            row.ours = before
            raise LockNotAcquired from refused
        if why.get("history") == DUPLICATE:
            await self._count_entries(row)
        if why.get("letter") in (LOST, DUPLICATE):
            raise Stale from refused
        if why.get("listed") in (LOST, DUPLICATE):
            row.begun = not row.begun
        if why.get("content") in (LOST, DUPLICATE):
            row.has_content = not row.has_content

    async def _count_entries(self, row: Row) -> None:
        """An older record does not tell how often each status was entered, or another program entered one."""
        entered: dict[str, int] = {}
        for name in await self.names(row.id):
            if not name.startswith("_"):
                status = name.partition("#")[0]
                entered[status] = entered.get(status, 0) + 1
        row.entered = entered

    async def note(self, row: Row) -> None:
        """Write what changed without a move.

        :raises LockNotAcquired: the record is no longer as it was read; nothing changed.
        """
        text, parameters = self.update(row)
        try:
            if row.moment_kept:
                # The condition still holds after it took effect: a single statement, safe to run again.
                await self.wire.execute(text, *parameters)
            else:
                await self.wire.transact([(text, parameters)])
        except Refused as refused:
            if not refused.lost:
                raise
            raise LockNotAcquired from refused
        self.settled(row)

    # --- statements --------------------------------------------------------------------------------------------

    def update(self, row: Row) -> Statement:
        """What changed since the record was read, on the condition that nobody else changed it."""
        changes: list[str] = []
        parameters: list[object] = []
        gone: list[str] = []
        row.written = (row.attributes(), row.root())
        for prefix, names, now, kept in (
            ("Attributes.", _ATTRIBUTES, row.written[0], row.kept[0]),
            ("", _ROOT, row.written[1], row.kept[1]),
        ):
            for name, value in now.items():
                if name not in kept or kept[name] != value:
                    changes.append(f"{prefix}{name}=?")
                    parameters.append(value)
            gone += [prefix + name for name in kept if name in names and name not in now]
        if not changes:
            changes, parameters = ["Attributes.Latest=?"], [str(row.status)]  # an UPDATE must change something
        text = f"UPDATE {self.table} SET {', '.join(changes)}" + "".join(f" REMOVE {name}" for name in gone)
        where, values_ = self.unchanged(row)
        if "LateReplies=?" in changes or "LateReplies" in gone:
            # What was late is added by whoever hears it, without a move: here none of it may get lost.
            late = row.kept[1].get("LateReplies")
            where += " AND LateReplies IS MISSING" if late is None else " AND LateReplies=?"
            values_ = values_ if late is None else (*values_, late)
        return f"{text} WHERE {where}", (*parameters, *values_)

    def unchanged(self, row: Row) -> Statement:
        """The condition: still as it was read."""
        where, parameters = f"Id=? AND Status='{keys.META}'", [row.id]
        for name in ("Latest", "UpdatedAt", "Moves", "Claim"):
            if row.kept[0].get(name) is not None:
                where += f" AND Attributes.{name}=?"
                parameters.append(row.kept[0][name])
            elif name in ("UpdatedAt", "Moves"):
                where += f" AND Attributes.{name} IS MISSING"
        return where, parameters

    def insert(self, row: Row, status: str, told: Item) -> Statement:
        """A record of this e-mail, with its TTL at the root."""
        item = {"Id": row.id, "Status": status, **told}
        if row.ttl is not None:
            item["TTL"] = row.ttl
        fields = ", ".join(f"'{name}': ?" for name in item)
        return f"INSERT INTO {self.table} VALUE {{{fields}}}", tuple(item.values())

    def history(self, row: Row, entry: HistoryEntry, entered: int, token: str) -> Statement:
        told: Item = {
            "UpdatedAt": values.moment(entry.at), "Reason": values.reason(entry.reason), "Cause": str(entry.cause),
            "Nth": row.moves,
        }  # fmt: skip
        if token:
            told["Claim"] = token
        return self.insert(row, keys.history_item(entry.status, entered), {"Attributes": told})

    def insert_attempt(self, row: Row, attempt: Attempt) -> Statement:
        told = {"Journal": values.pack_attempt(attempt), "Claim": attempt.token}
        return self.insert(row, keys.attempt_item(attempt.attempt, attempt.part), told)

    def listed(self, row: Row) -> Statement:
        """The keys by which listings find an e-mail that another program brought."""
        told: Item = {
            "Listed": keys.listing(keys.EVERY, row.id),
            "ListedAt": keys.listed_at(row.created_at, row.id),
            "Company": keys.listing(row.company_id, row.id),
        }
        if not row.begun:
            return self.insert(row, keys.SEEN, told)
        changes = ", ".join(f"{name}=?" for name in told)
        text = f"UPDATE {self.table} SET {changes} WHERE Id=? AND Status='{Status.ACCEPTED}'"
        return text, (*told.values(), row.id)

    def delete(self, id: str, status: str) -> Statement:
        return f"DELETE FROM {self.table} WHERE Id=? AND Status=?", (id, status)
