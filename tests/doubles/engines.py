"""Real programs that tests start for themselves: found, or the test is skipped at home and fails where CI is true."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def program(name: str, *, package: str) -> str:
    """Where it is. `package`: Debian's, for whoever must install it."""
    found = shutil.which(name, path=PATH)
    if found is None:
        missing(f"{name} is missing: `make engines` installs it (Debian's {package})")
    assert found is not None
    return found


def missing(why: str) -> None:
    """Skip loudly at home; fail where every engine must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def until_listening(port: int, seconds: float = 20.0) -> None:
    """Return when somebody takes connections there: a program that starts has no other way to tell."""
    until = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 0.5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def running(*command: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A program of our own until the end, once it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_listening(port)
        yield process
    finally:
        process.terminate()
        process.wait(20)
