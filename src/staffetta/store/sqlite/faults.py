"""SQLite's errors in our words: what may pass, what someone must mend first, what no store could keep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from staffetta.errors import StoreError, StoreUnavailable, StoreUnusable, Unstorable

BAD_ROW = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, TypeError, ValueError, OverflowError)
"""One value is at fault, not the database: the others of its group go on without it."""

FULL = "the disk is full; free some space, work goes on by itself"
READ_ONLY = "it cannot be written; make the file and its folder writable for this user"
ROOM_BYTES = 1 << 16
"""With less there is no room for the smallest of the files that SQLite keeps beside a database."""
_PASSING: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, FULL),
    (apsw.ReadOnlyError, READ_ONLY),
    (apsw.BusyError, "another process has kept it locked for too long; see what it does"),
    (apsw.LockedError, "another process has kept it locked for too long; see what it does"),
    (apsw.CantOpenError, "it cannot be opened; see that the folder exists and this user may write in it"),
    (apsw.IOError, "the disk failed; see the system's log, work goes on when it answers again"),
    (apsw.NoMemError, "there was not enough memory; work goes on when there is"),
    (apsw.InterruptError, "the work was interrupted"),
)
_LASTING: tuple[tuple[type[apsw.Error], str], ...] = (
    (
        apsw.CorruptError,
        "the file is damaged; stop, keep a copy, and restore a backup or use `sqlite3 FILE .recover`",
    ),
    (apsw.NotADBError, "the file is not an SQLite database; name another file or move this one away"),
    (apsw.SQLError, "its tables are not ours; run `staffetta doctor`"),
)


def translate(error: Exception, path: Path) -> Exception:
    """The same trouble as one of our own errors; the driver's stays as its cause."""
    if isinstance(error, StoreError):
        return error
    for kind, words in _LASTING:
        if isinstance(error, kind):
            return StoreUnusable(f"{path}: {words} ({error})")
    for kind, words in _PASSING:
        if isinstance(error, kind):
            return StoreUnavailable(f"{path}: {_of_the_disk(error, path) or words} ({error})")
    if isinstance(error, BAD_ROW):
        return Unstorable(f"{path}: a value cannot be kept ({type(error).__name__}: {error})")
    if isinstance(error, apsw.Error):
        return StoreUnavailable(f"{path}: SQLite failed ({type(error).__name__}: {error})")
    return error


def _of_the_disk(error: Exception, path: Path) -> str | None:
    """A full or read-only disk has many names in SQLite: which it is, the disk itself is asked."""
    if not isinstance(error, apsw.IOError | apsw.CantOpenError):
        return None
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return None
    if disk.f_flag & os.ST_RDONLY:
        return READ_ONLY
    return FULL if disk.f_bavail * disk.f_frsize < ROOM_BYTES else None


def needs_new_connection(error: Exception) -> bool:
    """After such an error a connection may keep what was true then (read-only, a file that is gone)."""
    return isinstance(error, apsw.IOError | apsw.ReadOnlyError | apsw.CantOpenError | apsw.NotADBError)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error
