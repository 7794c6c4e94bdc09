"""Real engines that many tests share: each started once by the process that needs it, and stopped at its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from doubles.databases import mariadb_server, mysql_server
from doubles.dynamodb_local import DynamoDBLocal
from doubles.dynamodb_local import dynamodb_local as started


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[DynamoDBLocal]:
    with started() as local:
        yield local


__all__ = ["dynamodb_local", "mariadb_server", "mysql_server"]
