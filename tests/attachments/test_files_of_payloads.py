"""Files that a payload names: only those inside their folder, only plain ones, whatever a path says."""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from staffetta.attachments import FileRefused, FileUnreadable, Folder

MOST = 1_000
SECRET = b"nobody may read this"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The folder that is open to payloads, and a secret beside it."""
    folder = tmp_path / "open"
    (folder / "in" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"a")
    (folder / "in" / "deep" / "b.txt").write_bytes(b"b")
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "openly").mkdir()
    (tmp_path / "openly" / "secret").write_bytes(SECRET)
    return folder


def read(base: Path, path: str, most: int = MOST) -> bytes:
    return Folder(base, setting="attachments.base_path").read(path, most_bytes=most)


def refused(base: Path, path: str) -> str:
    with pytest.raises(FileRefused) as error:
        read(base, path)
    assert SECRET.decode() not in str(error.value)
    return str(error.value)


def test_what_lies_inside_is_read(base: Path) -> None:
    """By a relative path, by an absolute one, around corners, and through links that stay inside."""
    (base / "link").symlink_to("in/deep")
    (base / "whole").symlink_to(base / "a.txt")

    assert b"a" == read(base, "a.txt") == read(base, str(base / "a.txt")) == read(base, "in/../a.txt")
    assert b"a" == read(base, "./a.txt") == read(base, "in//deep/../../a.txt") == read(base, "whole")
    assert b"b" == read(base, "link/b.txt")


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "in/../../secret",
        "in/deep/../../../secret",
        "/etc/passwd",
        "../openly/secret",
        "..",
        ".",
        "",
        "/",
        "//etc/passwd",
        "~/.ssh/id_rsa",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file:a.txt",
        "http://example.com/a.txt",
        "data:text/plain,x",
        "%2e%2e/secret",
        "..%2fsecret",
        "a.txt%00.pdf",
        "a.txt\0",
        "a.txt\n",
        "..\\secret",
        "in\\..\\..\\secret",
        "/proc/self/environ",
        "/proc/self/cwd/a.txt",
        "/proc/self/fd/0",
        "/dev/zero",
        "/dev/stdin",
        "/sys/kernel/notes",
        "missing",
        "a.txt/b",
        "in",
        "x" * 5_000,
        "/".join(["in", ".."] * 3_000),
    ],
)
def test_what_does_not_is_refused(base: Path, path: str) -> None:
    assert refused(base, path)


@pytest.mark.parametrize(
    "target", ["../secret", "/etc/passwd", "../../etc/passwd", "/proc/self/environ", "/dev/zero"]
)
def test_a_link_that_leads_out_is_refused(base: Path, target: str) -> None:
    (base / "in" / "link").symlink_to(target if target.startswith("/") else "../" + target)

    assert refused(base, "in/link")


def test_a_folder_that_is_a_link_out_is_refused(base: Path) -> None:
    (base / "out").symlink_to(base.parent)

    assert "outside" in refused(base, "out/secret")
    assert "outside" in refused(base, "out/openly/secret")


def test_a_circle_of_links_is_refused(base: Path) -> None:
    (base / "one").symlink_to("two")
    (base / "two").symlink_to("one")

    assert refused(base, "one")


def test_a_second_name_of_a_file_elsewhere_is_refused(base: Path) -> None:
    """A hard link needs no right to read its file: who may write here could reach what he may not read."""
    os.link(base.parent / "secret", base / "hard")

    assert "more than one name" in refused(base, "hard")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def door(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize("make", [fifo, door, Path.mkdir])
def test_what_is_no_plain_file_is_refused_without_waiting(base: Path, make: Callable[[Path], None]) -> None:
    """Opening a pipe would wait for whoever writes it, for ever."""
    make(base / "thing")

    assert "is not a regular file" in refused(base, "thing")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make devices")
def test_a_device_is_refused_before_it_is_opened(base: Path) -> None:
    try:
        os.mknod(base / "zero", 0o20666, os.makedev(1, 5))
    except OSError as error:
        pytest.skip(f"this machine makes no devices: {error}")

    assert "is not a regular file" in refused(base, "zero")


def test_size_is_bounded_before_reading(base: Path) -> None:
    (base / "large").write_bytes(b"x" * (MOST + 1))
    with (base / "huge").open("wb") as sparse:
        sparse.truncate(1 << 40)

    assert f"at most {MOST}" in refused(base, "large")
    assert "at most" in refused(base, "huge")
    assert b"x" * (MOST + 1) == read(base, "large", MOST + 1)


def test_a_swap_between_looking_and_opening_reads_nothing_from_outside(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: a folder becomes a link after the path was resolved. It is opened without following any."""
    resolve = os.path.realpath

    def swapping(path: str | Path, *, strict: bool = False) -> str:
        found = resolve(path, strict=strict)
        if str(path).endswith("b.txt"):
            (base / "in" / "deep").rename(base / "in" / "was")
            (base / "in" / "deep").symlink_to(base.parent)
            (base.parent / "b.txt").write_bytes(SECRET)
        return found

    monkeypatch.setattr(os.path, "realpath", swapping)

    assert refused(base, "in/deep/b.txt")


def test_without_a_folder_no_file_is_read() -> None:
    folder = Folder(None, setting="attachments.base_path")

    with pytest.raises(FileRefused, match="set attachments.base_path"):
        folder.read("a.txt", most_bytes=MOST)


def test_a_folder_that_is_away_is_no_fault_of_the_payload(tmp_path: Path) -> None:
    """A disk that is not mounted yet: tried again later."""
    with pytest.raises(FileUnreadable, match="is not there"):
        read(tmp_path / "gone", "a.txt")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_refused(base: Path) -> None:
    (base / "a.txt").chmod(0)

    assert refused(base, "a.txt")


PIECES = st.sampled_from(
    [
        "..",
        ".",
        "in",
        "deep",
        "a.txt",
        "b.txt",
        "",
        "/",
        "link",
        "secret",
        "open",
        "openly",
        "~",
        "%2e%2e",
        "\\",
    ]
)


@settings(deadline=None)
@given(pieces=st.lists(PIECES, min_size=1, max_size=9), absolute=st.booleans())
def test_no_path_reads_what_lies_outside(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], absolute: bool
) -> None:
    """Whatever is put together: what comes back is a file of the folder, or nothing."""
    folder = tmp_path_factory.mktemp("law")
    base = folder / "open"
    (base / "in" / "deep").mkdir(parents=True)
    (base / "a.txt").write_bytes(b"a")
    (base / "in" / "deep" / "b.txt").write_bytes(b"b")
    (base / "in" / "link").symlink_to(folder)
    (folder / "openly").mkdir()
    for secret in (folder / "secret", folder / "openly" / "secret", folder / "a.txt"):
        secret.write_bytes(SECRET)
    path = ("/" if absolute else "") + "/".join(pieces)
    found = b""
    with suppress(FileRefused):
        found = read(base, path)

    assert SECRET not in found


def test_the_content_of_an_attachment_can_be_anything(base: Path) -> None:
    """Bytes are bytes: nothing is looked into, unpacked or followed."""
    bomb = base64.b64decode("H4sIAAAAAAAAA+3BMQEAAADCoPVPbQwfoAAAAAAAAAAAAAAAAAAAAIC3AYbSVKsAQAAA")
    (base / "bomb.gz").write_bytes(bomb)

    assert bomb == read(base, "bomb.gz")
