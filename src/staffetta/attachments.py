"""The one resolver of files that a payload names: attachments, and payloads that arrive as files.

A name may hold `..` and symbolic links; where it leads is found out first and must lie inside the base folder.
Then the file is opened from the base downwards, folder by folder, following no link, so that nothing can be
swapped in between: only a regular file with one name is ever read, and no more of it than was allowed.
"""

from __future__ import annotations

import os
import re
import stat
from errno import EACCES, ELOOP, ENAMETOOLONG, ENXIO, EPERM
from pathlib import Path

PATH_MAX = 4_096
_BLOCK = 1 << 20
_ESCAPED = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:file|data):", re.IGNORECASE)
_NEVER = ("/proc/", "/sys/", "/dev/")
"""What looks like files there is the machine itself."""


_REFUSING = frozenset({EACCES, EPERM, ELOOP, ENAMETOOLONG, ENXIO})


class FileRefused(ValueError):
    """This file is not read; the message says why, and nothing about what lies outside the base folder."""


class FileUnreadable(OSError):
    """The file may be right, but the disk does not give it now; trying again later may work."""


class Folder:
    """A base folder and what lies beneath it."""

    def __init__(self, base: str | Path | None, *, setting: str) -> None:
        """`setting` names where the base folder is set, for whoever must set it."""
        self._base = None if base is None else Path(base)
        self._setting = setting

    def read(self, path: str, *, most_bytes: int) -> bytes:
        """The bytes of one file.

        :raises FileRefused: it must not be read, is missing, or has more than `most_bytes`.
        :raises FileUnreadable: the disk failed.
        """
        if self._base is None:
            raise FileRefused(f"names a file, but no folder is open to files: set {self._setting}")
        _look_at_name(path)
        try:
            base = os.path.realpath(self._base, strict=True)
        except OSError as error:
            raise FileUnreadable(f"{self._setting} is not there: {error.strerror}") from error
        return _read_beneath(base, _inside(base, path), most_bytes)


def _look_at_name(path: str) -> None:
    if not path or len(path) > PATH_MAX:
        raise FileRefused(f"must have 1 to {PATH_MAX} characters")
    if "\0" in path or "\\" in path or not path.isprintable():
        raise FileRefused("has characters that are not taken in a path")
    if _ESCAPED.search(path) or _URL.match(path):
        raise FileRefused("is not a plain path: no URLs and no percent-escapes")


def _inside(base: str, path: str) -> list[str]:
    """The names from the base folder down to the file, links and dots resolved."""
    real = os.path.realpath(os.path.join(base, path))  # noqa: PTH118  # realpath and join are one idea here
    prefix = base if base.endswith("/") else f"{base}/"
    if not real.startswith(prefix) or real.startswith(_NEVER):
        raise FileRefused("lies outside the base folder")
    return real[len(prefix) :].split("/")


def _read_beneath(base: str, names: list[str], most_bytes: int) -> bytes:
    *folders, name = names
    opened: list[int] = []
    try:
        at = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        opened.append(at)
        for folder in folders:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            opened.append(at)
        # Looked at before it is opened, for opening a device can do something; and again after.
        _fit(os.stat(name, dir_fd=at, follow_symlinks=False), most_bytes)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        opened.append(file)
        _fit(os.fstat(file), most_bytes)
        return _all_of(file, most_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileRefused("does not exist") from error
    except OSError as error:
        if error.errno in _REFUSING:
            raise FileRefused(f"cannot be read: {error.strerror}") from error
        raise FileUnreadable(error.errno, f"the disk does not give it: {error.strerror}") from error
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)


def _fit(status: os.stat_result, most_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused("is not a regular file")
    if status.st_nlink > 1:
        raise FileRefused("has more than one name (hard links), one of which may lie elsewhere")
    if status.st_size > most_bytes:
        raise FileRefused(f"has {status.st_size} bytes, at most {most_bytes} are taken")


def _all_of(file: int, most_bytes: int) -> bytes:
    blocks: list[bytes] = []
    size = 0
    while block := os.read(file, _BLOCK):
        blocks.append(block)
        size += len(block)
        if size > most_bytes:
            raise FileRefused(f"grew while it was read, at most {most_bytes} bytes are taken")
    return b"".join(blocks)
