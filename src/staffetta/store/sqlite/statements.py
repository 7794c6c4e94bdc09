"""The set-based statements of the hot path.

Rows are inserted into temporary views; what such an insert does to one e-mail stands in the view's trigger. So a
whole group is one call into SQLite, compare-and-set is kept per e-mail, and a loser is a row in `lost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staffetta.store.sqlite.rows import Db

_VIEWS = {
    "take": "k ref id status cause token at alone",
    "mark": "k ref token part transport at",
    "leave": (
        "k ref version source token target cause at reason attempt committed_at"
        " due_at expires_at attempts doubts crashes alone_crashes settled remaining callback told ends"
        " priority company"
    ),
    "arrive": (
        "ref id company status version priority created_at updated_at due_at expires_at n moves"
        " sender recipients options fingerprint eml_file_path payload_file_path message payload"
    ),
    "compose": "ref sender recipients options message eml_file_path",
    "bury": "ref failed_attempts reason code failed_at enqueued_at moved_at ttl_ms",
    "tally": "code n",
}

# Claims. Taking back one's own claim (an answer that was lost on the way) changes nothing and is found afterwards.
_TAKE = """
    INSERT INTO journal (ref, prev, status, cause, at, token)
    SELECT m.ref, m.last, NEW.status, NEW.cause, NEW.at, NEW.token FROM mail m
    WHERE m.ref = NEW.ref AND m.id = NEW.id
      AND m.status = CASE NEW.status WHEN 4 THEN 1 WHEN 5 THEN 10 WHEN 6 THEN 2 ELSE 12 END
      AND (NEW.status <> 4 OR m.due_at <= NEW.at)
      AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref);
    SELECT RAISE(IGNORE) WHERE changes() = 0;
    INSERT INTO claims (ref, status, token, at, attempt, alone, entry)
    SELECT m.ref, NEW.status, NEW.token, NEW.at, iif(NEW.status = 4, m.opened + 1, 0), NEW.alone, last_insert_rowid()
    FROM mail m WHERE m.ref = NEW.ref;
    UPDATE mail SET callback = 3 WHERE ref = NEW.ref AND NEW.status IN (6, 7);
"""

_MARK = """
    UPDATE claims SET committed_at = NEW.at, transport = NEW.transport
    WHERE ref = NEW.ref AND token = NEW.token AND part = NEW.part AND status = 4;
    INSERT INTO lost SELECT NEW.k WHERE changes() = 0;
"""

_LOST = """
    INSERT INTO lost SELECT NEW.k WHERE changes() = 0;
    SELECT RAISE(IGNORE) WHERE changes() = 1;
"""

_ENTER = """
    UPDATE mail SET
        status = NEW.target, version = version + {versions}, updated_at = NEW.at,
        due_at = coalesce(NEW.due_at, due_at), expires_at = coalesce(NEW.expires_at, expires_at),
        attempts = coalesce(NEW.attempts, attempts), doubts = coalesce(NEW.doubts, doubts),
        crashes = coalesce(NEW.crashes, crashes), alone_crashes = coalesce(NEW.alone_crashes, alone_crashes),
        settled = coalesce(NEW.settled, settled), remaining = coalesce(NEW.remaining, remaining),
        callback = coalesce(NEW.callback, callback),
        sequence = sequence + NEW.ends, reached_at = iif(NEW.ends, NEW.at, reached_at),
        last = last_insert_rowid(), told = iif(NEW.told, last_insert_rowid(), told){more}
    WHERE ref = NEW.ref;
    DELETE FROM dead_letters WHERE ref = NEW.ref AND NEW.ends;
"""

# Out of an in-work status: the claim's token decides. The e-mail's place in its company's line is only changed where
# it goes on being READY or is so again; one that ended is taken out later, a thousand at a time.
_LEAVE = (
    """
    INSERT INTO journal (ref, prev, status, cause, at, reason, attempt, marked)
    SELECT c.ref, c.entry, NEW.target, NEW.cause, NEW.at, NEW.reason, NEW.attempt,
           nullif(c.committed_at, NEW.committed_at)
    FROM claims c WHERE c.ref = NEW.ref AND c.token = NEW.token AND c.status = NEW.source
      AND (NEW.version IS NULL OR NEW.version = 1 + (SELECT m.version FROM mail m WHERE m.ref = NEW.ref));
"""
    + _LOST
    + """
    DELETE FROM line WHERE NEW.target = 1 AND NEW.source <> 5 AND NEW.due_at IS NOT NULL
      AND (company, priority, due_at, ref)
        = (SELECT m.company, m.priority, m.due_at, m.ref FROM mail m WHERE m.ref = NEW.ref);
"""
    + _ENTER.format(
        versions=2,
        more=""",
        opened = max(opened, (SELECT c.attempt FROM claims c WHERE c.ref = NEW.ref))""",
    )
    # Apart: naming an indexed column rewrites its index for every e-mail that passes, changed or not.
    + """
    UPDATE mail SET priority = coalesce(NEW.priority, priority), company = coalesce(NEW.company, company)
    WHERE ref = NEW.ref AND NEW.source = 5 AND (NEW.priority IS NOT NULL OR NEW.company IS NOT NULL);
    DELETE FROM claims WHERE ref = NEW.ref;
"""
)

# Between statuses that nobody holds: status and version decide.
_MOVE = (
    """
    INSERT INTO journal (ref, prev, status, cause, at, reason)
    SELECT m.ref, m.last, NEW.target, NEW.cause, NEW.at, NEW.reason
    FROM mail m WHERE m.ref = NEW.ref AND m.status = NEW.source AND (NEW.version IS NULL OR m.version = NEW.version)
      AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.ref = m.ref);
"""
    + _LOST
    + """
    DELETE FROM line WHERE (NEW.source = 1 OR NEW.target = 1) AND (company, priority, due_at, ref)
        = (SELECT m.company, m.priority, m.due_at, m.ref FROM mail m WHERE m.ref = NEW.ref);
    DELETE FROM agenda WHERE NEW.source = 1 AND (due_at, ref)
        = (SELECT m.due_at, m.ref FROM mail m WHERE m.ref = NEW.ref);
"""
    + _ENTER.format(versions=1, more="")
)

# READY again: its place in the line, and on the agenda where it is not due yet.
_AGAIN = """
    INSERT OR IGNORE INTO line
    SELECT m.company, m.priority, m.due_at, m.ref, m.expires_at FROM mail m WHERE m.ref = NEW.ref;
    INSERT OR IGNORE INTO agenda
    SELECT m.due_at, m.ref FROM mail m WHERE m.ref = NEW.ref AND m.due_at > NEW.at;
    UPDATE dead_letters SET retrying_since = NEW.at WHERE ref = NEW.ref AND NEW.cause = 19;
"""

_ARRIVE = """
    INSERT INTO journal (n, ref, prev, status, cause, at, reason)
    SELECT NEW.n + key, NEW.ref, iif(key, NEW.n + key - 1, NULL), value ->> 0, value ->> 1, value ->> 2, value ->> 3
    FROM json_each(NEW.moves);
    INSERT INTO mail (ref, id, company, status, version, priority, created_at, updated_at, due_at, expires_at,
                      last, told)
    VALUES (NEW.ref, NEW.id, NEW.company, NEW.status, NEW.version, NEW.priority, NEW.created_at, NEW.updated_at,
            NEW.due_at, NEW.expires_at, NEW.n + NEW.version - 1, NEW.n + NEW.version - 1);
    INSERT INTO contents (ref, sender, recipients, options, fingerprint, eml_file_path, payload_file_path, message,
                          payload)
    VALUES (NEW.ref, NEW.sender, NEW.recipients, NEW.options, NEW.fingerprint, NEW.eml_file_path,
            NEW.payload_file_path, NEW.message, NEW.payload);
    INSERT OR IGNORE INTO recipients SELECT value, NEW.created_at, NEW.ref FROM json_each(NEW.recipients);
    INSERT INTO line SELECT NEW.company, NEW.priority, NEW.due_at, NEW.ref, NEW.expires_at WHERE NEW.status = 1;
    INSERT INTO agenda SELECT NEW.due_at, NEW.ref WHERE NEW.status = 1 AND NEW.due_at > NEW.created_at;
"""

# What intake made of a payload goes to the content; its recipients to their index.
_COMPOSE = """
    DELETE FROM recipients WHERE (address, created_at, ref) IN (
        SELECT w.value, m.created_at, m.ref
        FROM mail m CROSS JOIN contents t ON t.ref = m.ref CROSS JOIN json_each(t.recipients) w WHERE m.ref = NEW.ref
    );
    UPDATE contents SET sender = NEW.sender, recipients = NEW.recipients, options = NEW.options,
        message = NEW.message, eml_file_path = NEW.eml_file_path
    WHERE ref = NEW.ref;
    INSERT OR IGNORE INTO recipients
    SELECT w.value, m.created_at, m.ref FROM mail m CROSS JOIN json_each(NEW.recipients) w WHERE m.ref = NEW.ref;
"""

_BURY = """
    INSERT OR REPLACE INTO dead_letters
        (ref, company, failed_attempts, reason, code, failed_at, enqueued_at, moved_at, ttl_ms)
    SELECT m.ref, m.company, NEW.failed_attempts, NEW.reason, NEW.code, NEW.failed_at, NEW.enqueued_at,
           NEW.moved_at, NEW.ttl_ms
    FROM mail m WHERE m.ref = NEW.ref;
"""

_TALLY = "UPDATE statuses SET total = total + NEW.n WHERE code = NEW.code;"

_HELD = "NEW.source IN (4, 5, 6, 7)"
_TRIGGERS = (
    ("take", "", _TAKE),
    ("mark", "", _MARK),
    ("leave", f"AND {_HELD} AND NEW.target <> 1", _LEAVE),
    ("leave", f"AND {_HELD} AND NEW.target = 1", _LEAVE + _AGAIN),
    ("leave", f"AND NOT {_HELD} AND NEW.target <> 1", _MOVE),
    ("leave", f"AND NOT {_HELD} AND NEW.target = 1", _MOVE + _AGAIN),
    ("arrive", "", _ARRIVE),
    ("compose", "", _COMPOSE),
    ("bury", "", _BURY),
    ("tally", "", _TALLY),
)

ROWS_MAX = 256


def prepare(connection: Db) -> dict[str, Batch]:
    """Make the views and triggers of this connection; the batches by the view's name."""
    connection.execute("CREATE TEMP TABLE lost (k INTEGER)")
    for view, columns in _VIEWS.items():
        shown = ", ".join(f"NULL AS {column}" for column in columns.split())
        connection.execute(f"CREATE TEMP VIEW {view} AS SELECT {shown}")
    for number, (view, when, body) in enumerate(_TRIGGERS):
        first = _VIEWS[view].split()[0]
        connection.execute(
            f"CREATE TEMP TRIGGER {view}_{number} INSTEAD OF INSERT ON {view}"
            f" WHEN NEW.{first} IS NOT NULL {when} BEGIN {body} END"
        )
    return {view: Batch(view, len(columns.split())) for view, columns in _VIEWS.items()}


class Batch:
    """One INSERT for any number of rows: prepared for 1, 2, 4 … rows, filled up with empty ones."""

    def __init__(self, view: str, width: int) -> None:
        row = f"({','.join('?' * width)})"
        sizes = [1 << power for power in range(ROWS_MAX.bit_length())]
        self._statements = {size: f"INSERT INTO {view} VALUES{','.join([row] * size)}" for size in sizes}
        self._width = width

    def run(self, connection: Db, rows: Sequence[tuple[Any, ...]], *, most: int = ROWS_MAX) -> None:
        for start in range(0, len(rows), most):
            chunk = rows[start : start + most]
            size = 1 << (len(chunk) - 1).bit_length()
            values = [value for row in chunk for value in row]
            if size > len(chunk):
                values += (None,) * (self._width * (size - len(chunk)))
            connection.execute(self._statements[size], values)
