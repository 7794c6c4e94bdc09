"""A small disk that can be filled, and made read-only: a file system in memory where root may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from doubles.engines import missing

FILLER = "filler"


class Disk:
    """One mounted folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """To the last byte."""
        with (self.path / FILLER).open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            for size in (1 << 20, 4_096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def make_room(self) -> None:
        (self.path / FILLER).unlink()

    def set_read_only(self, *, read_only: bool) -> None:
        _mount("-o", f"remount,{'ro' if read_only else 'rw'}", str(self.path))


@contextlib.contextmanager
def small_disk(path: Path, *, megabytes: int) -> Iterator[Disk]:
    """A disk of its own for a while."""
    path.mkdir()
    if os.getuid() != 0:
        missing("a disk that is full or read-only needs a mount: run this test as root")
    try:
        _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "staffetta-test", str(path))
    except subprocess.CalledProcessError as error:
        missing(f"no file system can be mounted here: {error.stderr}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
