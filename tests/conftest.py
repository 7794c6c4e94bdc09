"""Real engines that many tests share: each started once by the process that needs it, and stopped at its end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest

from doubles.databases import mariadb_server, mysql_server
from doubles.dynamodb_local import DynamoDBLocal
from doubles.dynamodb_local import dynamodb_local as started

# Whoever runs the tests in the background may have told them to ignore Ctrl-C; the commands they start must not.
with contextlib.suppress(ValueError):  # not in the main thread: then nothing can be changed
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[DynamoDBLocal]:
    with started() as local:
        yield local


__all__ = ["dynamodb_local", "mariadb_server", "mysql_server"]
