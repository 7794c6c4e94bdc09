"""Replies that came after their claim was gone: kept with their attempt until a move believes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from staffetta.mail import journal
from staffetta.mail.message import Attempt, Transition
from staffetta.store.sqlite import codes
from staffetta.store.sqlite.rows import Db

if TYPE_CHECKING:
    from staffetta.store.sqlite.group import Group

# From the newest row of an e-mail back to its first. The chain is the index: rows of one e-mail are never sought.
CHAIN = """
    WITH RECURSIVE chain (n, prev, status, cause, at, reason, token, attempt, marked) AS (
        SELECT n, prev, status, cause, at, reason, token, attempt, marked FROM journal
        WHERE n = (SELECT coalesce(c.entry, m.last) FROM mail m LEFT JOIN claims c ON c.ref = m.ref WHERE m.ref = ?)
        UNION ALL
        SELECT j.n, j.prev, j.status, j.cause, j.at, j.reason, j.token, j.attempt, j.marked
        FROM chain JOIN journal j ON j.n = chain.prev
    )
"""
_ATTEMPTS = CHAIN + "SELECT n, attempt, marked FROM chain WHERE attempt IS NOT NULL ORDER BY n"
_MINE = (
    CHAIN
    + """
    SELECT count(*) FROM chain c JOIN journal held ON held.n = c.prev
    WHERE held.token = ? AND c.status = ? AND c.cause = ? AND c.at = ?
"""
)
"""The row before a move out of a claim is the claim's own, or that of its last part: there the token stands."""


def attempts(connection: Db, ref: int) -> Iterator[tuple[int, Attempt]]:
    """The closed attempts of one e-mail, oldest first, with their rows."""
    for n, packed, marked in connection.execute(_ATTEMPTS, (ref,)).fetchall():
        yield n, codes.read_attempt(packed, marked)


def was_made(connection: Db, ref: int, move: Transition) -> bool:
    """This very move was made already under this very claim: its answer was lost on the way."""
    if not move.token:
        return False
    facts = (ref, move.token, codes.STATUS[move.target], codes.CAUSE[move.cause], move.at)
    return bool(connection.execute(_MINE, facts).get)


def keep(group: Group, ref: int, attempt: Attempt) -> None:
    """The claim is gone, the reply is not lost: it goes to its attempt, and the next claim will read it."""
    if not attempt.replies:
        return
    for n, kept in attempts(group.connection, ref):
        if journal.is_this_part(kept, attempt) and not kept.replies:
            told = msgspec.structs.replace(
                kept,
                replies=attempt.replies,
                decision=attempt.decision,
                committed_at=kept.committed_at or attempt.committed_at,
            )
            group.connection.execute(
                "UPDATE journal SET attempt = ? WHERE n = ?", (codes.attempt_bytes(told), n)
            )
            group.connection.execute("INSERT OR IGNORE INTO late VALUES (?, ?)", (ref, n))


def waiting(connection: Db, ref: int) -> list[Attempt]:
    """Late replies of one e-mail that no move has believed yet, oldest first."""
    rows = connection.execute(
        "SELECT j.attempt, j.marked FROM late l CROSS JOIN journal j ON j.n = l.n WHERE l.ref = ? ORDER BY l.n",
        (ref,),
    ).fetchall()
    return [codes.read_attempt(packed, marked) for packed, marked in rows]


def believe(group: Group, ref: int, believed: Attempt) -> None:
    """This one was taken at its word: nobody is given it again."""
    rows = group.connection.execute(
        "SELECT j.n, j.attempt, j.marked FROM late l CROSS JOIN journal j ON j.n = l.n WHERE l.ref = ?", (ref,)
    ).fetchall()
    for n, packed, marked in rows:
        if journal.is_this_part(codes.read_attempt(packed, marked), believed):
            group.connection.execute("DELETE FROM late WHERE ref = ? AND n = ?", (ref, n))
