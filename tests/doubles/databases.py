"""Real MariaDB and MySQL servers for tests: private instances on free ports, gone with whoever started them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from doubles import engines
from staffetta.store.mysql import MysqlStore

MYSQL_ROOT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "staffetta" / "mysql"
"""Where `scripts/engines.sh` unpacks a system that has MySQL, apart from this one."""
_names = itertools.count(1)

QUICK = ("--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0")
"""For tests that are not about durability."""
SMALL = ("--innodb-buffer-pool-size=64M", "--performance-schema=OFF")

FILLED = (
    "emails", "staffetta_answers", "staffetta_workers", "staffetta_figures", "staffetta_pauses", "staffetta_keys",
    "staffetta_settings",
)  # fmt: skip
"""What is emptied between tests; the other tables follow `emails`."""


class Server:
    """One server process. It may be killed and started again on the same port and folder."""

    def __init__(self, *settings: str) -> None:
        self.port = engines.free_port()
        self.settings: Sequence[str] = settings or QUICK
        self._process: subprocess.Popen[bytes] | None = None
        self._kept = ""

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        self._process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            engines.until_listening(self.port, 60.0)
        except OSError:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was started"
        self._process.send_signal(number)

    def kill(self) -> None:
        """As a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    # --- what is in it ----------------------------------------------------------------------------

    def connect(self, database: str | None = None, **settings: Any) -> pymysql.connections.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True,
            charset="utf8mb4", **settings,
        )  # fmt: skip

    def ask(self, sql: str, *facts: object, database: str | None = None) -> list[tuple[Any, ...]]:
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(sql, facts or None)
            return list(cursor.fetchall())

    def url(self, database: str, *, user: str = "root", password: str = "", more: str = "") -> str:
        signed = f"{user}:{password}" if password else user
        return f"mysql://{signed}@127.0.0.1:{self.port}/{database}{more}"

    def emptied(self) -> str:
        """A database with all tables and nothing in them: one for all tests of a process, for making tables takes a
        while. Whoever changes tables takes a `database` of his own.
        """
        if not self._kept:
            self._kept = f"staffetta_{os.getpid()}"
            self.ask(f"CREATE DATABASE {self._kept} CHARACTER SET utf8mb4")
            with ThreadPoolExecutor(1) as aside:  # a test's own loop may be running here
                aside.submit(lambda: asyncio.run(_migrate(self.url(self._kept)))).result()
        with self.connect(self._kept) as connection, connection.cursor() as cursor:
            for table in FILLED:
                cursor.execute(f"DELETE FROM {table}")
        return self._kept

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """An empty one, dropped in the end."""
        name = f"staffetta_{os.getpid()}_{next(_names)}"
        self.ask(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        try:
            yield name
        finally:
            if self._process is not None:
                self.ask(f"DROP DATABASE IF EXISTS {name}")


async def _migrate(url: str) -> None:
    await MysqlStore(url).migrate()


class MariaDb(Server):
    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(*settings)
        self._program = engines.program("mariadbd", package="mariadb-server-core")
        self._folder = folder
        data = folder / "data"
        data.mkdir(parents=True)
        scripts = Path("/usr/share/mysql")
        names = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
        tables = "".join((scripts / name).read_text("utf-8") for name in names)
        subprocess.run(
            [*self.command(), "--bootstrap", "--log-warnings=0", "--silent-startup"],
            input=f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}".encode(),
            check=True, capture_output=True,
        )  # fmt: skip

    def command(self) -> list[str]:
        return [
            self._program, "--no-defaults", *(["--user=root"] if os.getuid() == 0 else []),
            f"--datadir={self._folder}/data", f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--socket={self._folder}/socket", f"--pid-file={self._folder}/pid", *SMALL, *self.settings,
        ]  # fmt: skip


class MySql(Server):
    """In a system of its own, for this one's packages have no MySQL."""

    def __init__(self, *settings: str) -> None:
        super().__init__(*settings)
        if not (MYSQL_ROOT / "usr/sbin/mysqld").exists() or os.getuid() != 0:
            engines.missing(
                "MySQL is missing: `make engines`, as root, unpacks it beside this system (debootstrap)"
            )
        self._folder = tempfile.mkdtemp(prefix="staffetta-", dir=MYSQL_ROOT / "srv")
        self._inside = f"/srv/{Path(self._folder).name}"
        subprocess.run([*self.command(), "--initialize-insecure"], check=True, capture_output=True)

    def command(self) -> list[str]:
        return [
            "chroot", str(MYSQL_ROOT), "/usr/sbin/mysqld", "--no-defaults", "--user=root",
            f"--datadir={self._inside}/data", "--secure-file-priv=NULL", "--mysqlx=OFF", "--bind-address=127.0.0.1",
            f"--port={self.port}", f"--socket={self._inside}/socket", f"--pid-file={self._inside}/pid", *SMALL,
            *self.settings,
        ]  # fmt: skip

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def mariadb(folder: Path, *settings: str) -> Iterator[MariaDb]:
    server = MariaDb(folder, *settings)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def mysql(*settings: str) -> Iterator[MySql]:
    server = MySql(*settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        server.remove()


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """One for all tests of a process; each test has a database of its own in it."""
    with mariadb(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySql]:
    with mysql() as server:
        yield server
