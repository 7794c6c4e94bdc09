"""Takes over tables that another program of the seed's design made, with every row in them and none changed.

Ids must compare byte for byte. Tables made elsewhere compare them as the server's default has it, so their two id
columns are converted, once: the tables are rewritten, no value, time or version with them.
"""

from __future__ import annotations

from staffetta.errors import StoreUnusable
from staffetta.store.mysql.address import Address
from staffetta.store.mysql.session import Session

BYTE_FOR_BYTE = "utf8mb4_bin"
_NEEDED = {
    "emails": {
        "id",
        "status",
        "eml_file_path",
        "payload_file_path",
        "reason",
        "version",
        "created_at",
        "updated_at",
    },
    "email_statuses": {"id", "email_id", "status", "reason", "created_at"},
}

_COLUMNS = """
    SELECT LOWER(TABLE_NAME), LOWER(COLUMN_NAME) FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('emails', 'email_statuses')
"""
_PRIMARY = """
    SELECT LOWER(COLUMN_NAME) FROM information_schema.KEY_COLUMN_USAGE
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND CONSTRAINT_NAME = 'PRIMARY' ORDER BY ORDINAL_POSITION
"""
_ENGINE = """
    SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s
"""
_COLLATION = """
    SELECT COLLATION_NAME FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %s AND COLUMN_NAME = %s
"""
_REFERENCES = """
    SELECT TABLE_NAME, CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE
    WHERE TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME = 'emails'
      AND REFERENCED_COLUMN_NAME = 'id'
"""


async def check_keys(session: Session, address: Address) -> None:
    """:raises StoreUnusable: there is a table of one of these names that is not the seed's."""
    known: dict[str, set[str]] = {}
    for table, column in await session.rows(_COLUMNS):
        known.setdefault(table, set()).add(column)
    for table, columns in known.items():
        missing = sorted(_NEEDED[table] - columns)
        if missing:
            raise StoreUnusable(
                f"{address}: its table {table} is another program's (it has no {', '.join(missing)}); "
                "name another database in store.url"
            )
        key = [column for (column,) in await session.rows(_PRIMARY, table)]
        if key != ["id"]:
            raise StoreUnusable(
                f"{address}: the key of its table {table} is ({', '.join(key) or 'none'}), not (id); make id its "
                "primary key, or name another database in store.url"
            )
        engine = str(await session.one(_ENGINE, table))
        if engine.lower() != "innodb":
            raise StoreUnusable(
                f"{address}: its table {table} is kept by {engine}, which knows no transactions; "
                f"ALTER TABLE {table} ENGINE=InnoDB"
            )


async def adopt(session: Session, address: Address) -> None:
    """Convert what needs it. Interrupted anywhere, it goes on where it stopped."""
    references = await session.rows(_REFERENCES)
    others = sorted({table for table, _ in references if table != "email_statuses"})
    if await _is_other(session, "emails", "id") or await _is_other(session, "email_statuses", "email_id"):
        if others:
            raise StoreUnusable(
                f"{address}: {', '.join(others)} refers to emails(id), whose collation must become {BYTE_FOR_BYTE}; "
                "drop those foreign keys, run `staffetta migrate`, and add them again with that collation"
            )
        for table, name in references:
            await session.run(f"ALTER TABLE {table} DROP FOREIGN KEY `{name}`")
        as_it_is = f"CHAR(36) CHARACTER SET utf8mb4 COLLATE {BYTE_FOR_BYTE} NOT NULL"
        await session.run(f"ALTER TABLE emails MODIFY id {as_it_is}")
        await session.run(f"ALTER TABLE email_statuses MODIFY email_id {as_it_is}")
    if not [table for table, _ in await session.rows(_REFERENCES) if table == "email_statuses"]:
        await session.run(
            "ALTER TABLE email_statuses ADD FOREIGN KEY (email_id) REFERENCES emails (id) ON DELETE CASCADE"
        )


async def _is_other(session: Session, table: str, column: str) -> bool:
    return bool(await session.one(_COLLATION, table, column) != BYTE_FOR_BYTE)
