"""Another program on the same tables: a faithful reading of the seed's own statements (000, 001), and nothing more.

It knows eight columns and eleven statuses, moves by status alone, writes a history row beside each move, and takes its
work with SKIP LOCKED. It has no claims, no tokens, no heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from doubles.databases import Server

_READ = """
    SELECT id, status, eml_file_path, payload_file_path, reason, version, updated_at
    FROM emails WHERE status = %s ORDER BY updated_at ASC LIMIT %s FOR UPDATE SKIP LOCKED
"""
_MOVE = "UPDATE emails SET status = %s, reason = %s, version = version + 1 WHERE id = %s AND status = %s"
_HISTORY = "INSERT INTO email_statuses (email_id, status, reason) VALUES (%s, %s, %s)"

SEEDS_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS emails (
        id CHAR(36) PRIMARY KEY,
        status ENUM(
            'ACCEPTED','INTAKING','READY','PROCESSING',
            'SENT','FAILED','INVALID',
            'CALLING-SENT-CALLBACK','CALLING-FAILED-CALLBACK',
            'SENT-ACKNOWLEDGED','FAILED-ACKNOWLEDGED'
        ) NOT NULL,
        eml_file_path VARCHAR(500),
        payload_file_path VARCHAR(500),
        reason TEXT,
        version INT NOT NULL DEFAULT 1,
        created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        INDEX idx_status (status),
        INDEX idx_status_updated (status, updated_at)
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
    """,
    """
    CREATE TABLE IF NOT EXISTS email_statuses (
        id BIGINT AUTO_INCREMENT PRIMARY KEY,
        email_id CHAR(36) NOT NULL,
        status VARCHAR(50) NOT NULL,
        reason TEXT,
        created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        INDEX idx_email_id (email_id),
        FOREIGN KEY (email_id) REFERENCES emails(id) ON DELETE CASCADE
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
    """,
)


class LockNotAcquired(Exception):
    """`affected_rows` was 0."""


class Row(NamedTuple):
    id: str
    status: str
    eml_file_path: str | None
    payload_file_path: str | None
    reason: str | None
    version: int
    updated_at: Any


class Seedling:
    """One connection of it."""

    def __init__(self, server: Server, database: str) -> None:
        self._connection = server.connect(database)

    def close(self) -> None:
        self._connection.close()

    def make_tables(self) -> None:
        with self._connection.cursor() as cursor:
            for text in SEEDS_TABLES:
                cursor.execute(text)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        self._connection.begin()
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def hand_in(self, id: str, payload_file_path: str) -> None:
        """The only columns that the program fills."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO emails (id, status, payload_file_path) VALUES (%s, 'ACCEPTED', %s)",
                (id, payload_file_path),
            )
            cursor.execute(_HISTORY, (id, "ACCEPTED", ""))

    def compose(self, id: str, eml_file_path: str) -> None:
        """Its own intake: INTAKING, and READY with the path of the message."""
        self.move(id, "ACCEPTED", "INTAKING")
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE emails SET status = 'READY', eml_file_path = %s, reason = '', version = version + 1"
                " WHERE id = %s AND status = 'INTAKING'",
                (eml_file_path, id),
            )
            if cursor.rowcount == 0:
                raise LockNotAcquired
            cursor.execute(_HISTORY, (id, "READY", ""))

    def move(self, id: str, source: str, target: str, reason: str = "") -> None:
        with self._transaction() as cursor:
            self._move(cursor, id, source, target, reason)

    def _move(self, cursor: Any, id: str, source: str, target: str, reason: str) -> None:
        cursor.execute(_MOVE, (target, reason, id, source))
        if cursor.rowcount == 0:
            raise LockNotAcquired
        cursor.execute(_HISTORY, (id, target, reason))

    def take(self, source: str, target: str, limit: int = 25) -> list[Row]:
        """Work: read and moved in one transaction."""
        with self._transaction() as cursor:
            cursor.execute(_READ, (source, limit))
            rows = [Row(*row) for row in cursor.fetchall()]
            for row in rows:
                self._move(cursor, row.id, source, target, "")
            return rows

    def row(self, id: str) -> Row:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, status, eml_file_path, payload_file_path, reason, version, updated_at FROM emails"
                " WHERE id = %s",
                (id,),
            )
            return Row(*cursor.fetchone())
