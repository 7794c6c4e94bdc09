"""Files for large content: whole, durable and under their names before any row names them, and nobody else's."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from staffetta.errors import NotFound, StoreUnavailable
from staffetta.spool import Spool

ID = "01a1f587-6ac1-76b1-a0a5-71bb1360af7e"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "deep" / "spool")
    path = spool.write(f"{ID}-1.eml", b"content")

    assert b"content" == spool.read(path)
    assert Path(path).is_absolute(), "a command in another folder finds it, too"
    assert 0o600 == stat.S_IMODE(Path(path).stat().st_mode)
    assert 0o700 == stat.S_IMODE((tmp_path / "deep" / "spool").stat().st_mode)


def test_a_name_is_used_once(tmp_path: Path) -> None:
    """The row of another e-mail may name what is there."""
    spool = Spool(tmp_path)
    spool.write(f"{ID}-1.eml", b"first")
    (tmp_path / "7e" / f"{ID}-2.eml.part").write_bytes(b"being written by somebody")

    with pytest.raises(StoreUnavailable):
        spool.write(f"{ID}-2.eml", b"second")


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "7e/../../secret", "7e/link", "missing", ""])
def test_only_what_lies_inside_is_read_or_removed(tmp_path: Path, path: str) -> None:
    """The row may have been written by another program."""
    spool = Spool(tmp_path / "spool")
    spool.write(f"{ID}-1.eml", b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "spool" / "7e" / "link").symlink_to(tmp_path / "secret")

    with pytest.raises((NotFound, StoreUnavailable)):
        spool.read(path)
    spool.remove([path])

    assert b"secret" == (tmp_path / "secret").read_bytes()


def test_a_bare_name_is_another_folders(tmp_path: Path) -> None:
    """A payload file called p.json was once looked for here, and its e-mail ended as INVALID."""
    assert not Spool(tmp_path).holds("p.json")


def test_a_disk_that_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half a file under its name would be sent as half a message."""
    program = """
import resource, signal, sys
from pathlib import Path
from staffetta.errors import StoreUnavailable
from staffetta.spool import Spool
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
try:
    Spool(Path(sys.argv[1])).write(sys.argv[2], b"x" * 5_000)
except StoreUnavailable as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), f"{ID}-1.eml"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "make room" in done.stdout
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_order_of_its_system_calls_survives_a_power_cut(tmp_path: Path) -> None:
    """Written, synced, renamed, and the folder synced: a name never stands for less than the whole."""
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("strace is missing: `make engines` installs it")
        pytest.skip("strace is missing; see `make engines`")
    program = "import sys; from pathlib import Path; from staffetta.spool import Spool; Spool(Path(sys.argv[1])).write(sys.argv[2], b'whole')"
    log = tmp_path / "strace"
    traced = subprocess.run(
        ["strace", "-f", "-y", "-o", str(log), "-e", "trace=openat,write,fsync,rename,renameat,renameat2",
         sys.executable, "-c", program, str(tmp_path / "spool"), f"{ID}-1.eml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if traced.returncode and "ptrace" in traced.stderr:
        pytest.skip("this machine lets nobody trace")
    calls = [line for line in log.read_text().splitlines() if str(tmp_path / "spool" / "7e") in line]
    order = [
        next(index for index, line in enumerate(calls) if all(word in line for word in words))
        for words in (("write(", ".part", '"whole"'), ("fsync(", ".part"), ("rename", ".part", "-1.eml"))
    ]

    assert sorted(order) == order
    assert any("fsync(" in line and "/7e>" in line for line in calls[order[-1] :])
