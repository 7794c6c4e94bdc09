"""The database's errors in our words: what passes by itself, what someone must mend, what no store could keep.

The number decides, never the class: below 1000 the driver calls everything internal, and one number may come in
several classes. A lost connection has many faces; at COMMIT it leaves the outcome unknown.
"""

from __future__ import annotations

import ssl

from asyncmy import errors as driver

from staffetta.errors import StaffettaError, StoreUnavailable, StoreUnusable, Unstorable
from staffetta.store.mysql.address import Address

PASSING = frozenset({1205, 1213, 1040, 1203, 1020})
"""The seed's list, and MariaDB's newer name for a conflict of snapshots."""
LOST = frozenset(
    {
        2002, 2003, 2006, 2013, 2014, 2055,  # the client's: not reached, gone, lost, out of step
        1053, 1077, 1078, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184,  # shutdown, network, aborted
        1317, 1927, 3168, 3169, 4031,  # interrupted, killed, idle for too long
        1290, 1792, 1836,  # read-only: a replica, or a server being moved
    }
)  # fmt: skip
BAD_ROW = frozenset({1048, 1153, 1264, 1265, 1292, 1300, 1301, 1366, 1406, 3140, 3141, 4025, 4038})
"""One value is at fault, not the database: the others of its group go on without it."""
DUPLICATE = 1062

_LASTING = {
    1044: "this user may not use the database: GRANT the rights of docs/guides/mysql.md",
    1045: "user or password is wrong: see store.url (STAFFETTA_STORE)",
    1049: "there is no such database: CREATE DATABASE it, or correct the name in store.url",
    1054: "its tables are not those of this release: run `staffetta migrate`",
    1130: "the server takes no connections from this host: GRANT this user access from here",
    1142: "this user lacks a right: GRANT the rights of docs/guides/mysql.md",
    1143: "this user lacks a right: GRANT the rights of docs/guides/mysql.md",
    1146: "a table is missing: run `staffetta migrate`",
    1227: "this user lacks a right: GRANT the rights of docs/guides/mysql.md",
    1251: "the server asks for a way to sign in that we do not know",
    1370: "this user lacks a right: GRANT the rights of docs/guides/mysql.md",
    1524: "the server asks for a way to sign in that it does not have",
    1665: "set binlog_format=ROW on the server: READ COMMITTED cannot be written as statements",
    1698: "this user signs in by the system only: give it a password, see docs/guides/mysql.md",
}


def number_of(error: BaseException) -> int:
    """The server's or the client's number; 0: it has none."""
    if isinstance(error, driver.MySQLError) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return 0


def is_lost(error: BaseException) -> bool:
    """The connection is of no use any more, whatever had been done on it."""
    if isinstance(error, driver.MySQLError):
        number = number_of(error)
        return number in LOST or (
            number < 1000 and isinstance(error, driver.InterfaceError | driver.InternalError)
        )
    return isinstance(error, OSError | EOFError | TimeoutError) and not isinstance(
        error, ssl.SSLCertVerificationError
    )


def passes(error: BaseException) -> bool:
    """A transaction that ended so is run again from its start."""
    return number_of(error) in PASSING or is_lost(error)


def is_bad_row(error: BaseException) -> bool:
    return number_of(error) in BAD_ROW or isinstance(error, UnicodeError | OverflowError | TypeError)


def translate(error: Exception, address: Address) -> Exception:
    """The same trouble as one of our own errors; the driver's stays as its cause."""
    if isinstance(error, StaffettaError):
        return error
    number = number_of(error)
    told = error.args[1] if number and len(error.args) > 1 else f"{type(error).__name__}: {error}"
    numbered = f"({number}: {told})" if number else f"({told})"
    if number in _LASTING:
        return StoreUnusable(f"{address}: {_LASTING[number]} {numbered}")
    if isinstance(_root(error), ssl.SSLCertVerificationError):
        return StoreUnusable(f"{address}: its certificate is not trusted {numbered}; see ca in store.url")
    if is_bad_row(error):
        return Unstorable(f"{address}: a value cannot be kept {numbered}")
    passing = _passing_words(error, number)
    return StoreUnavailable(f"{address}: {passing} {numbered}") if passing else error


def _passing_words(error: Exception, number: int) -> str:
    if number in (1040, 1203):
        return "it takes no more connections; raise its limit, or lower `connections` in store.url"
    if is_lost(error):
        return "it does not answer; see that it is up and can be reached"
    if passes(error):
        return "it is busy; work goes on when it is less so"
    return "the database failed" if isinstance(error, driver.MySQLError) else ""


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
