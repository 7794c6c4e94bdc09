"""Files for content too large for the store: whole, synced and under their names before any row names them.

    write: temporary file → fsync → rename → fsync of the folder → (then the row)

A crash in between leaves a file that no row names: `strays` finds it a day later. Every call blocks: whoever
runs in an event loop makes it from a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from staffetta import failpoints
from staffetta.errors import NotFound, StoreUnavailable
from staffetta.mail.message import Millis, Value

LARGE_BYTES = 256 * 1024
"""Content up to this size lives in the store."""
STRAY_AGE_MS = 86_400_000
PATH_MAX = 500
"""What the stores' columns take."""

_NAME = re.compile(r"(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[A-Za-z0-9._-]*")
_TEMPORARY = ".part"


class SpooledFile(Value, frozen=True, kw_only=True):
    """A file that has lain here for a while."""

    path: str
    id: str
    """Of the e-mail it was written for; empty for a file that was never finished."""


class Spool:
    """One folder, on a disk that all hosts share."""

    def __init__(self, path: Path) -> None:
        self._root = path.absolute()

    def write(self, name: str, data: bytes) -> str:
        """Make a file durable; its path for the row. `name` begins with the e-mail's id and is used once.

        :raises StoreUnavailable: the disk is full or failed; nothing is left behind.
        """
        assert _NAME.fullmatch(name), "a spooled file's name begins with the e-mail's id"
        folder = self._root / name[34:36]
        final, temporary = folder / name, folder / f"{name}{_TEMPORARY}"
        if len(str(final)) > PATH_MAX:
            raise StoreUnavailable(
                f"spool.path {self._root} is too long: the store keeps paths of {PATH_MAX} characters"
            )
        try:
            self._make(folder)
            try:
                _write_synced(temporary, data)
                if failpoints.armed:
                    failpoints.reach("spool.before-rename")
                temporary.rename(final)
                if failpoints.armed:
                    failpoints.reach("spool.after-rename")
                _sync_folder(folder)
            except OSError:
                for left in (temporary, final):
                    with suppress(OSError):
                        left.unlink()
                raise
        except OSError as error:
            raise StoreUnavailable(
                f"the spool {self._root} cannot be written ({error.strerror}): make room or mend spool.path"
            ) from error
        return str(final)

    def _make(self, folder: Path) -> None:
        """Folders come into being from the top, each entry synced before anything is put inside."""
        if folder.is_dir():
            return
        missing = [folder]
        while not missing[-1].parent.is_dir():
            missing.append(missing[-1].parent)
        for one in reversed(missing):
            one.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(one.parent)

    def read(self, path: str) -> bytes:
        """The content of one file.

        :raises NotFound: there is no such file in this spool.
        :raises StoreUnavailable: the disk failed.
        """
        inside = self._inside(path)
        if inside is None:
            raise NotFound(f"{path} does not lie in the spool {self._root}")
        try:
            return inside.read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"{path} is not in the spool any more") from error
        except OSError as error:
            raise StoreUnavailable(f"the spool {self._root} cannot be read ({error.strerror})") from error

    def holds(self, path: str) -> bool:
        """Whether this path lies in the spool. Ours are absolute: a bare name is some other folder's."""
        return path.startswith("/") and self._inside(path) is not None

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files that no row names any more; missing ones are no error, foreign ones stay."""
        for path in paths:
            inside = self._inside(path)
            if inside is not None:
                with suppress(OSError):
                    inside.unlink()

    def strays(
        self, *, now: Millis, limit: int, after: str = "", age_ms: int = STRAY_AGE_MS
    ) -> list[SpooledFile]:
        """Up to `limit` files older than `age_ms`, in the order of their paths behind `after`.

        Whether a row names them is for the caller to find out; files that are not ours are never listed.
        """
        found: list[SpooledFile] = []
        for path in self._files(after):
            try:
                written_ms = path.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
            except FileNotFoundError:
                continue
            if written_ms <= now - age_ms:
                unfinished = path.name.endswith(_TEMPORARY)
                found.append(SpooledFile(path=str(path), id="" if unfinished else path.name[:36]))
                if len(found) == limit:
                    break
        return found

    def _files(self, after: str) -> Iterator[Path]:
        if not self._root.is_dir():
            return
        for folder in sorted(self._root.iterdir()):
            if len(folder.name) == 2 and folder.is_dir() and str(folder) >= after[: len(str(folder))]:
                for path in sorted(folder.iterdir()):
                    if str(path) > after and _NAME.fullmatch(path.name) and not path.is_symlink():
                        yield path

    def _inside(self, path: str) -> Path | None:
        """The file that a row names, where it lies in this spool: links and dots lead nowhere else."""
        real, root = os.path.realpath(self._root / path), os.path.realpath(self._root)
        return Path(real) if real.startswith(f"{root}/") else None


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
