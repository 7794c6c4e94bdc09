"""Amazon's own DynamoDB Local for tests: one private server in memory, an empty table for whoever asks."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from doubles import engines
from staffetta.store.dynamodb import DynamoStore, Place, read

VERSION = "2.6.1"
KEYS = "LOCAL:secret"
"""Credentials: any do."""


class DynamoDBLocal:
    """A running one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._numbers = itertools.count(1)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, table: str, *, endpoint: str | None = None) -> str:
        return f"dynamodb://{KEYS}@eu-south-1/{table}?endpoint={endpoint or self.endpoint}"

    def table(self) -> str:
        """A name that nobody has used yet."""
        return f"outbox-{os.getpid()}-{next(self._numbers)}"

    def place(self, table: str | None = None, *, endpoint: str | None = None) -> Place:
        return read(self.url(table or self.table(), endpoint=endpoint))

    async def drop(self, place: Place) -> None:
        store = DynamoStore(place)
        for table in (place.table, place.engine_table):
            await store.wire.call("DeleteTable", {"TableName": table})
        await store.close()


def folder() -> Path:
    """Where `make engines` puts it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "staffetta" / f"dynamodb-local-{VERSION}"


@contextlib.contextmanager
def dynamodb_local() -> Iterator[DynamoDBLocal]:
    java = engines.program("java", package="openjdk-17-jre-headless")
    library = folder() / "lib"
    if not any(library.glob("DynamoDBLocal-*.jar")):
        engines.missing(f"DynamoDB Local is missing in {library}: `make engines` fetches it")
    port = engines.free_port()
    command = (
        java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.library.path={library}",
        "-cp", f"{library}/*", "com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
        "-inMemory", "-port", str(port),
    )  # fmt: skip
    with _running(command, port):
        yield DynamoDBLocal(port)


@contextlib.contextmanager
def _running(command: tuple[str, ...], port: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as cwd:  # it writes a file where it stands
        process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            engines.until_listening(port, 60.0)
            yield
        finally:
            process.kill()  # it keeps nothing that could be lost
            process.wait(20)
