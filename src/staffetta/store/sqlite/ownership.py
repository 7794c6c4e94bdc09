"""Who owns the file: the first of serve, work and api. The lock dies with its process, however that ends.

Beside the database lies `FILE.owner` with the owner's process id. The lock on its first byte is the ownership; on its
second byte knocks whoever wants to write beside the owner, who then lets him in between two groups.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from staffetta.errors import StoreOwned, StoreUnavailable

_OWNED_HERE: set[str] = set()
"""Files that this process owns: the system's lock tells processes apart, not two stores of one process."""

_OWNER_BYTE, _DOOR_BYTE = 0, 1
_FLOCK = "hhqqi4x"
"""struct flock: type, whence, start, length, process id."""


class Ownership:
    """The side file and its locks."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".owner")
        self._key = str(self._path.absolute())
        self._file = -1
        self._mine = False

    def take(self) -> None:
        """:raises StoreOwned: another process (or another store of this one) owns the file."""
        if self._key in _OWNED_HERE:
            raise StoreOwned(
                f"{self._path.stem} is owned by process {os.getpid()}, this one: close that store first"
            )
        self._open()
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _OWNER_BYTE)
        except OSError as error:
            holder = self._holder()
            self.release()
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise StoreUnavailable(f"{self._path} cannot be locked: {error}") from error
            raise StoreOwned(
                f"{self._path.stem} is owned by process {holder}: only one process serves a store;"
                " stop that one first, or give this one a store of its own"
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        _OWNED_HERE.add(self._key)
        self._mine = True

    def _open(self) -> None:
        if self._file < 0:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise StoreUnavailable(
                    f"{self._path} cannot be opened ({error.strerror}); make its folder writable for this user"
                ) from error

    def _holder(self) -> str:
        return os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"

    # --- the door: one who wants to write beside the owner ----------------------------------------

    def knock(self) -> None:
        """Tell the owner that somebody waits to write."""
        if self._key not in _OWNED_HERE:
            self._open()
            try:
                fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _DOOR_BYTE)
            except OSError:
                return  # the knock is a courtesy: without it one waits a little longer

    def go_in(self) -> None:
        """The knocking is over."""
        if self._file >= 0 and not self._mine and self._key not in _OWNED_HERE:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _DOOR_BYTE)

    def somebody_knocks(self) -> bool:
        if not self._mine:
            return False
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _DOOR_BYTE, 1, 0)
        answer = fcntl.fcntl(self._file, fcntl.F_GETLK, asked)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def release(self) -> None:
        if self._file >= 0 and (self._mine or self._key not in _OWNED_HERE):
            os.close(self._file)  # closing it drops every lock that this process has on the side file
        self._file = -1
        if self._mine:
            _OWNED_HERE.discard(self._key)
            self._mine = False
