"""Brings a database's tables up to date by plain numbered SQL, and knows tables of ours from any others.

The database commits every change of a table by itself, so each statement must bear being run again: what it says is
done already counts as done. A named lock keeps two from doing it at once.
"""

from __future__ import annotations

import re
from importlib import resources

from staffetta.errors import StoreUnavailable, StoreUnusable
from staffetta.store.mysql import adoption, faults
from staffetta.store.mysql.address import Address
from staffetta.store.mysql.session import Session

LOCK_SECONDS = 600
DONE_ALREADY = frozenset({1050, 1060, 1061, 1091, 1826})
"""The table, column, index or key is there already (or gone already)."""

_BLANKS_COUNT = "utf8mb4_bin /* blanks count */"
_NO_PADDING = "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN (%s, %s)"

_KEPT = """
    CREATE TABLE IF NOT EXISTS staffetta_schema (
        number INT NOT NULL PRIMARY KEY, name VARCHAR(100) NOT NULL,
        done_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""


def migrations() -> list[tuple[int, str, list[str]]]:
    """Number, name and statements of each migration, in order."""
    folder = resources.files("staffetta.store") / "schema" / "mysql"
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted(
        (int(one.name[:4]), one.name.removesuffix(".sql"), statements(one.read_text("utf-8"))) for one in found
    )


def statements(text: str) -> list[str]:
    """What stands between semicolons at the ends of lines, comments left out."""
    bare = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return [one.strip() for one in re.split(r";\s*$", bare, flags=re.MULTILINE) if one.strip()]


async def number_of(session: Session) -> int:
    """The number of the last migration that this database has had; 0: none."""
    try:
        return int(await session.one("SELECT COALESCE(MAX(number), 0) FROM staffetta_schema"))
    except Exception as error:
        if faults.number_of(error) != 1146:
            raise
        return 0


async def check(session: Session, address: Address) -> None:
    """:raises StoreUnusable: `migrate` is needed, a later release has been here, or the tables have other keys."""
    await adoption.check_keys(session, address)
    newest = migrations()[-1][0]
    found = await number_of(session)
    if found == 0:
        raise StoreUnusable(f"{address}: it has no tables of ours yet; run `staffetta migrate`")
    if found < newest:
        raise StoreUnusable(
            f"{address} has schema {found}, this release needs {newest}; run `staffetta migrate`"
        )


async def migrate(session: Session, address: Address) -> list[str]:
    """Run what is missing; the names of what was run. Waits while somebody else does it."""
    lock = f"staffetta migrate {address.database}"[:64]
    if await session.one("SELECT GET_LOCK(%s, %s)", lock, LOCK_SECONDS) != 1:
        raise StoreUnavailable(
            f"{address}: somebody else has been migrating it for {LOCK_SECONDS} s; see what he does"
        )
    try:
        await adoption.check_keys(session, address)
        await session.run(_KEPT)
        no_padding = str(await session.one(_NO_PADDING, "utf8mb4_nopad_bin", "utf8mb4_0900_bin"))
        found = await number_of(session)
        done: list[str] = []
        for number, name, texts in migrations():
            if number > found:
                for text in texts:
                    await _run(session, text.replace(_BLANKS_COUNT, no_padding))
                if number == 1:
                    await adoption.adopt(session, address)
                await session.run("REPLACE INTO staffetta_schema (number, name) VALUES (%s, %s)", number, name)
                done.append(name)
        return done
    finally:
        await session.run("DO RELEASE_LOCK(%s)", lock)


async def _run(session: Session, text: str) -> None:
    try:
        await session.run(text)
    except Exception as error:
        if faults.number_of(error) not in DONE_ALREADY:
            raise
