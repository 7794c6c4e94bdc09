"""What one group does inside its transaction: claims, marks and moves of many e-mails as sets.

Every order has its own result. One that loses its compare-and-set hears `LockNotAcquired`, and nothing of it is
written; a reply that it brought is kept with its attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from staffetta.errors import LockNotAcquired, StaffettaError
from staffetta.store.sqlite import claims, handin, moves, statements
from staffetta.store.sqlite.orders import Add, Mark, Move, Order, Take, Work
from staffetta.store.sqlite.rows import Db

PURGE_EVERY = 2_000
"""E-mails that may end before their places in the lines are taken out."""

_numbers = msgspec.json.Decoder(list[int])

_PURGE = """
    DELETE FROM line WHERE (company, priority, due_at, ref) IN (
        SELECT m.company, m.priority, m.due_at, m.ref FROM journal j CROSS JOIN mail m ON m.ref = j.ref
        WHERE j.n > (SELECT n FROM marks WHERE name = 'purged') AND j.status IN (2, 12) AND m.status <> 1
    )
"""
_PURGED = "UPDATE marks SET n = (SELECT coalesce(max(n), 0) FROM journal) WHERE name = 'purged'"


class Group:
    """Executes orders on one connection. The caller holds the transaction."""

    def __init__(self, connection: Db, *, owner: bool) -> None:
        self.connection = connection
        self.owner = owner
        self.batches = statements.prepare(connection)
        self.companies: dict[str, int] = {}
        self.tallies: dict[int, int] = {}
        """By status: how many e-mails more, or fewer, rest in it because of this group."""
        self.ended = 0
        """E-mails that ended since the lines were last purged."""

    def forget(self) -> None:
        """After a rollback: what was learnt inside it may not be so."""
        self.companies.clear()
        self.tallies.clear()

    def run(self, orders: Sequence[Order]) -> list[Any]:
        """One result for each order, in order."""
        results: list[Any] = [None] * len(orders)
        adds = [(place, order) for place, order in enumerate(orders) if isinstance(order, Add)]
        if adds:
            for (place, _), result in zip(adds, handin.add(self, [order for _, order in adds]), strict=True):
                results[place] = result
        for round_ in _rounds(orders):
            self._round(orders, round_, results)
        self._tally()
        return results

    def _round(self, orders: Sequence[Order], places: Sequence[int], results: list[Any]) -> None:
        """Orders that concern different e-mails, kind by kind."""
        moving: dict[int, Move] = {}
        marking: dict[int, Mark] = {}
        taking: dict[int, Take] = {}
        for place in places:
            order = orders[place]
            if isinstance(order, Take):
                taking[place] = order
            elif isinstance(order, Mark):
                marking[place] = order
            elif isinstance(order, Move):
                moving[place] = order
            elif isinstance(order, Work):
                results[place] = self._work(order)
        if moving:
            moves.make(self, moving)
        if marking:
            self._marks(marking)
        if moving or marking:
            lost = self._losers()
            for place in lost:
                results[place] = LockNotAcquired()
            if moving:
                moves.follow_up(self, moving, lost, results)
        if taking:
            for place, claim in claims.take(self, taking).items():
                results[place] = claim

    def _work(self, order: Work) -> Any:
        """Work of another kind, under its own savepoint: what it refuses concerns nobody else."""
        before = dict(self.tallies)
        self.connection.execute("SAVEPOINT work")
        try:
            result = order.do(self)
        except StaffettaError as error:
            self.connection.execute("ROLLBACK TO work")
            self.forget()
            self.tallies = before
            result = error
        self.connection.execute("RELEASE work")
        return result

    def _marks(self, marking: dict[int, Mark]) -> None:
        refs = self.refs(mark.id for mark in marking.values() if not mark.ref)
        self.batches["mark"].run(
            self.connection,
            [
                (place, mark.ref or refs.get(mark.id, 0), mark.token, mark.part, mark.transport, mark.now)
                for place, mark in marking.items()
            ],
        )

    def _losers(self) -> set[int]:
        found = self.connection.execute("SELECT json_group_array(k) FROM lost").get
        if found == "[]":
            return set()
        self.connection.execute("DELETE FROM lost")
        return set(_numbers.decode(found))

    def _tally(self) -> None:
        rows = [(code, more) for code, more in self.tallies.items() if more]
        self.tallies.clear()
        if rows:
            self.batches["tally"].run(self.connection, rows)
        if self.ended >= PURGE_EVERY:
            self.purge()

    def purge(self) -> None:
        """Take out of the lines the places of e-mails that ended since this was done last."""
        self.connection.execute(_PURGE)
        self.connection.execute(_PURGED)
        self.ended = 0

    # --- what the parts share ---------------------------------------------------------------------

    def count(self, code: int, more: int = 1) -> None:
        self.tallies[code] = self.tallies.get(code, 0) + more

    def refs(self, ids: Iterable[str]) -> dict[str, int]:
        """The rows of e-mails that are known by their ids only."""
        wanted = list(ids)
        if not wanted:
            return {}
        found = self.connection.execute(
            "SELECT json_group_object(m.id, m.ref) FROM json_each(?) w CROSS JOIN mail m ON m.id = w.value",
            (msgspec.json.encode(wanted).decode(),),
        ).get
        return msgspec.json.decode(found, type=dict[str, int])

    def company(self, name: str) -> int:
        """A company's number; made when it is met first."""
        known = self.companies.get(name)
        if known is None:
            self.connection.execute("INSERT INTO companies (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
            known = self.connection.execute("SELECT company FROM companies WHERE name = ?", (name,)).get
            self.companies[name] = known
        return known

    def tell_owner(self, refs: Sequence[int]) -> None:
        """What is due and the owner's queue cannot know of yet. What is due later stands on the agenda."""
        self.connection.execute(
            "INSERT INTO tidings (ref) SELECT value FROM json_each(?)", (msgspec.json.encode(refs).decode(),)
        )


def _rounds(orders: Sequence[Order]) -> list[list[int]]:
    """Places of the orders, cut so that no round has two of one e-mail; other work stands alone."""
    rounds: list[list[int]] = [[]]
    seen: set[str] = set()
    for place, order in enumerate(orders):
        if isinstance(order, Add):
            continue
        key = "" if isinstance(order, Work) else order.id
        if key in seen or "" in seen or (not key and seen):
            rounds.append([])
            seen = set()
        rounds[-1].append(place)
        seen.add(key)
    return rounds
