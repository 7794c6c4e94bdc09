"""Replies that came after their claim was gone: kept with their attempt until a move believes them."""

from __future__ import annotations

import msgspec

from staffetta.mail import journal
from staffetta.mail.message import Attempt
from staffetta.store.mysql import codes, history
from staffetta.store.mysql.session import Session

_FLAG = "UPDATE emails SET late = %s, updated_at = updated_at WHERE id = %s"
_WAITING = "SELECT id, attempt FROM staffetta_late WHERE email_id = %s ORDER BY id"

_ABANDONED = """
    SELECT 1 FROM email_statuses h JOIN emails e ON e.id = h.email_id
    WHERE h.email_id = %s AND h.token = %s AND h.status = 'PROCESSING'
      AND NOT (e.status = 'PROCESSING' AND e.token = %s AND e.our_version = e.version) LIMIT 1
"""


async def keep(session: Session, id: str, attempt: Attempt) -> None:
    """The claim is gone, the reply is not lost: it goes to its attempt, and the next claim will read it."""
    if not attempt.replies:
        return
    closed = await history.closed(session, id)
    if not any(journal.is_this_part(kept, attempt) for _, _, kept in closed):
        if not await session.one(_ABANDONED, id, attempt.token, attempt.token):
            return
        # Another program took the e-mail out of our hands: this attempt was never closed.
        packed = codes.attempt_bytes(msgspec.structs.replace(attempt, replies=(), decision=None))
        await session.run("INSERT INTO staffetta_parts (email_id, attempt) VALUES (%s, %s)", id, packed)
        closed = await history.closed(session, id)
    for table, n, kept in closed:
        if journal.is_this_part(kept, attempt) and not kept.replies:
            told = codes.attempt_bytes(
                msgspec.structs.replace(
                    kept,
                    replies=attempt.replies,
                    decision=attempt.decision,
                    committed_at=kept.committed_at or attempt.committed_at,
                )
            )
            await session.run(f"UPDATE {table} SET attempt = %s WHERE id = %s", told, n)
            await session.run("INSERT INTO staffetta_late (email_id, attempt) VALUES (%s, %s)", id, told)
            await session.run(_FLAG, 1, id)


async def waiting(session: Session, id: str) -> list[Attempt]:
    """Late replies of one e-mail that no move has believed yet, oldest first."""
    return [codes.read_attempt(packed) for _, packed in await session.rows(_WAITING, id)]


async def believe(session: Session, id: str, believed: Attempt) -> None:
    """This one was taken at its word: nobody is given it again."""
    rows = await session.rows(_WAITING, id)
    done = [n for n, packed in rows if journal.is_this_part(codes.read_attempt(packed), believed)]
    for n in done:
        await session.run("DELETE FROM staffetta_late WHERE id = %s", n)
    if len(done) == len(rows):
        await session.run(_FLAG, 0, id)
