"""Hands an e-mail in within the caller's own database transaction: it exists if, and only if, the caller commits.

    with transaction.atomic():                                     # Django; see docs/guides/transactional.md
        order.save()
        outbox.add(connection, {"from": …, "to": …, "subject": …, "body_text": …})

For MySQL and MariaDB stores. It writes one ACCEPTED row with its payload; workers take it in within a second of the
commit. Nothing else of Staffetta is needed in that process: no settings, no connection, no loop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from staffetta.errors import Conflict, FieldProblem, PayloadError, StaffettaError
from staffetta.mail import handin, identity
from staffetta.mail import payload as payloads
from staffetta.spool import LARGE_BYTES, Spool

_NOW_MS = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)"
_KNOWN = """
    SELECT e.company_id, c.fingerprint FROM emails e LEFT JOIN contents c ON c.email_id = e.id WHERE e.id = %s
"""
_EMAIL = f"""
    INSERT INTO emails (id, status, version, payload_file_path, company_id, accepted_ms, moved_ms, our_version)
    VALUES (%s, 'ACCEPTED', 1, %s, %s, {_NOW_MS}, {_NOW_MS}, 1)
"""  # noqa: S608  # a constant of ours
_HISTORY = f"""
    INSERT INTO email_statuses (email_id, status, cause, at_ms) VALUES (%s, 'ACCEPTED', 'accepted', {_NOW_MS})
"""  # noqa: S608  # a constant of ours
_CONTENT = "INSERT INTO contents (email_id, recipients, fingerprint, payload) VALUES (%s, '[]', %s, %s)"


class NoTransaction(StaffettaError):
    """There is no transaction that this e-mail could be part of: begin one first (Django: `transaction.atomic()`)."""


class _Checked(NamedTuple):
    id: str
    company_id: str
    raw: bytes
    fingerprint: str


def add(
    cursor: Any,
    payload: Mapping[str, Any] | bytes | str,
    *,
    spool: str | os.PathLike[str] | None = None,
) -> str:
    """Write the e-mail in the transaction of `cursor`; its id.

    `cursor` is a DB-API cursor (PyMySQL, mysqlclient, mysql-connector), a SQLAlchemy Connection or Session, or Django's
    `connection`. `payload` is as for `POST /v1/emails`. `spool` is the folder that `spool.path` names, on a disk that
    the workers share: needed for payloads over 256 KiB and on a shared store (`store.shared`). The file is written and
    synced before the row; where the transaction is rolled back it is swept after 24 hours.

    :raises PayloadError: fields are wrong; each is named. Nothing was written.
    :raises Conflict: this id is known with another payload.
    :raises NoTransaction: the connection commits every statement by itself.
    """
    found = _check(payload, most_bytes=None if spool is not None else LARGE_BYTES)
    door = _door_of(cursor)
    try:
        known = door.ask(_KNOWN, (found.id,))
        if known is not None:
            if (_text(known[0]), _text(known[1])) == (found.company_id, found.fingerprint):
                return found.id
            raise Conflict(f"e-mail {found.id} is known with another content")
        path = None if spool is None else _spooled(Path(spool), found)
        door.run(_EMAIL, (found.id, path, found.company_id))
        door.run(_HISTORY, (found.id,))
        door.run(_CONTENT, (found.id, found.fingerprint, found.raw if path is None else None))
    finally:
        door.close()
    return found.id


def _check(payload: Mapping[str, Any] | bytes | str, *, most_bytes: int | None) -> _Checked:
    raw = payload.encode() if isinstance(payload, str) else payload
    if not isinstance(raw, bytes):
        raw = msgspec.json.encode(dict(raw))
    read = payloads.read(raw)
    if most_bytes is not None and len(raw) > most_bytes:
        told = (
            f"has {len(raw)} bytes; over {most_bytes} it goes to a file: give spool=, the workers' spool.path"
        )
        raise PayloadError([FieldProblem("payload", told)])
    now = time.time_ns() // 1_000_000
    name = read.id or identity.uuid7(now, os.urandom(identity.RANDOM_BYTES))
    return _Checked(name, read.company_id, raw, handin.fingerprint(read.company_id, raw))


def _spooled(folder: Path, found: _Checked) -> str:
    return Spool(folder).write(f"{found.id}-{os.urandom(6).hex()}.json", found.raw)


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes | bytearray) else value


# ------------------------------------------------------------------------------------------------ whose connection


class _Door:
    """The caller's connection, by a DB-API cursor."""

    def __init__(self, cursor: Any, *, own: bool = False) -> None:
        self._cursor = cursor
        self._own = own

    def run(self, sql: str, facts: tuple[Any, ...]) -> None:
        self._cursor.execute(sql, facts)

    def ask(self, sql: str, facts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        self._cursor.execute(sql, facts)
        row = self._cursor.fetchone()
        if row is None:
            return None
        return tuple(row.values()) if isinstance(row, Mapping) else tuple(row)

    def close(self) -> None:
        if self._own:
            self._cursor.close()


class _SqlAlchemy(_Door):
    """A SQLAlchemy connection: its own driver's statements, in its own transaction."""

    def run(self, sql: str, facts: tuple[Any, ...]) -> None:
        self._cursor.exec_driver_sql(sql, facts)

    def ask(self, sql: str, facts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        row = self._cursor.exec_driver_sql(sql, facts).fetchone()
        return None if row is None else tuple(row)


def _door_of(given: Any) -> _Door:
    if hasattr(given, "exec_driver_sql"):
        return _SqlAlchemy(given)
    if hasattr(given, "get_bind") and callable(getattr(given, "connection", None)):
        return _SqlAlchemy(given.connection())  # a Session
    if hasattr(given, "execute") and hasattr(given, "fetchone"):
        _check_transaction(getattr(given, "db", None) or getattr(given, "connection", None))
        return _Door(given)
    if callable(getattr(given, "cursor", None)):
        _check_transaction(given)
        return _Door(given.cursor(), own=True)
    raise TypeError(
        f"outbox.add takes a DB-API cursor, a SQLAlchemy Connection or Session, or Django's connection, not "
        f"{type(given).__name__}"
    )


def _check_transaction(connection: Any) -> None:
    """Where the driver can tell: a connection that commits by itself would keep half an e-mail, whatever follows."""
    if hasattr(connection, "in_atomic_block"):
        outside = connection.get_autocommit() and not connection.in_atomic_block
    elif hasattr(connection, "get_autocommit") and hasattr(connection, "server_status"):
        outside = connection.get_autocommit() and not connection.server_status & 1
    else:
        outside = False
    if outside:
        raise NoTransaction
