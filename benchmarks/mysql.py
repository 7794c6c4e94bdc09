"""How fast is a full outbox on MariaDB sent, what does a second worker cost, and does asking for work stay flat?

READY to SENT with every commit synced, against `smtp-sink`, over 100 connections; the server is a private instance on
the disk that is measured. CPU of engine, server and sink shown apart, with lock waits and lost claims.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pymysql
import uvloop

from benchmarks import parts
from staffetta.app.engine import engine
from staffetta.app.wiring import store_for
from staffetta.config import Config, sections
from staffetta.logs import Listeners
from staffetta.mail.events import Event, LockLost
from staffetta.mail.operators import Pause
from staffetta.store.mysql import MysqlStore

STAGES = frozenset({"deliver", "restore"})
ALL = Pause(scope="all", name="", since=0)
DURABLE = (
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-log-file-size=256M",
    "--innodb-buffer-pool-size=512M",
)
LOOK_SECONDS = 0.005
IDLE_LOOKS = 20
DATABASE = "bench"
UNFINISHED = f"SELECT 1 FROM {DATABASE}.emails WHERE status IN ('READY', 'PROCESSING') LIMIT 1"


class Database:
    """A private MariaDB, durable as `docs/guides/mysql.md` wants it."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.pid = process.pid
        self.url = f"mysql://root@127.0.0.1:{port}/{DATABASE}"

    def ask(self, sql: str) -> list[Any]:
        with (
            contextlib.closing(
                pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            return list(cursor.fetchall())

    def status(self, name: str) -> int:
        return int(self.ask(f"SHOW GLOBAL STATUS LIKE '{name}'")[0][1])


@contextlib.contextmanager
def database(folder: Path) -> Iterator[Database]:
    data, port = folder / "data", parts.free_port()
    data.mkdir()
    command = [
        "/usr/sbin/mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--port={port}",
        "--bind-address=127.0.0.1", f"--socket={folder}/socket", f"--pid-file={folder}/pid", *DURABLE,
    ]  # fmt: skip
    names = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
    texts = "".join(Path("/usr/share/mysql", name).read_text("utf-8") for name in names)
    made = f"CREATE DATABASE mysql;\nUSE mysql;\n{texts}"
    subprocess.run([*command, "--bootstrap"], input=made.encode(), check=True, capture_output=True)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        parts._until_listening(port, 30.0)
        here = Database(port, process)
        here.ask(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        yield here
    finally:
        process.terminate()
        process.wait(60)


def settings(folder: Path, url: str, port: int) -> Config:
    whole = parts.settings(folder, port=port, retry=sections.Retry(policy="patient"))
    return msgspec.structs.replace(whole, store=sections.Store(url=url))


# ------------------------------------------------------------------------------------------ in other processes


async def fill(folder: Path, url: str, count: int, *, by_company: bool) -> None:
    config = settings(folder, url, 1)
    store = store_for(config, owner=True)
    await store.migrate()
    await store.open()
    await parts.hand_in(config, store, count, by_company=by_company)
    await store.close()


async def work(folder: Path, url: str, port: int, count: int) -> dict[str, Any]:
    """Send until nothing is left; what this process took for its share."""
    lost = 0

    def hear(event: Event) -> None:
        nonlocal lost
        lost += isinstance(event, LockLost)

    listeners = Listeners()
    listeners.add(hear)
    async with engine(settings(folder, url, port), stages=STAGES, listeners=listeners) as running:
        print(json.dumps({"ready": True}), flush=True)
        while await running.store.pauses():
            await asyncio.sleep(LOOK_SECONDS)
        before = parts.cpu_seconds()
        idle = 0
        while idle < IDLE_LOOKS:  # nothing in hand for a while: the others may have some yet
            await asyncio.sleep(LOOK_SECONDS * 20)
            idle = 0 if running.worker.riders.in_flight or (await running.queue.depth()).waiting else idle + 1
        done, cpu = running.worker.riders.done, parts.cpu_seconds() - before
        store = running.store
        retries = store._pool.retries if isinstance(store, MysqlStore) else 0
    return {"done": done, "cpu": cpu, "lost": lost, "retries": retries}


# ------------------------------------------------------------------------------------------ the measurement


def once(count: int, *, workers: int, by_company: bool = False) -> dict[str, Any]:
    with parts.folder() as folder, database(folder) as here, parts.sink() as sink:
        _run("fill", folder, here.url, sink.port, count, *(["--by-company"] if by_company else []))
        here.ask(f"ANALYZE TABLE {DATABASE}.emails")
        here.ask(f"INSERT INTO {DATABASE}.staffetta_pauses (scope, name, since) VALUES ('all', '', 0)")
        processes = [_start("work", folder, here.url, sink.port, count) for _ in range(workers)]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        waits, server, sinks = here.status("Innodb_row_lock_waits"), _cpu(here.pid), sink.cpu_seconds
        began = time.perf_counter()
        here.ask(f"DELETE FROM {DATABASE}.staffetta_pauses")
        while here.ask(UNFINISHED):
            time.sleep(LOOK_SECONDS * 4)
        ended = time.perf_counter()
        figures = {
            "server_us": (_cpu(here.pid) - server) / count * 1e6,
            "sink_us": (sink.cpu_seconds - sinks) / count * 1e6,
            "waits": here.status("Innodb_row_lock_waits") - waits,
        }
        told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
        sent = here.ask(f"SELECT COUNT(*) FROM {DATABASE}.emails WHERE status = 'SENT'")[0][0]
        assert sent == count, f"{sent} of {count} were sent"
        return {
            "rate": count / (ended - began),
            "cpu_us": sum(one["cpu"] for one in told) / count * 1e6,
            "lost": (sum(one["done"] for one in told) - count) / count,
            "retries": sum(one["retries"] for one in told),
            **figures,
        }


def _cpu(pid: int) -> float:
    return parts.cpu_seconds_of(pid)


def _command(what: str, folder: Path, url: str, port: int, count: int, *more: str) -> list[str]:
    given = ["--folder", str(folder), "--url", url, "--port", str(port), "--count", str(count), *more]
    return [sys.executable, "-m", "benchmarks.mysql", what, *given]


def _run(what: str, folder: Path, url: str, port: int, count: int, *more: str) -> None:
    subprocess.run(_command(what, folder, url, port, count, *more), check=True)


def _start(what: str, folder: Path, url: str, port: int, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(_command(what, folder, url, port, count), stdout=subprocess.PIPE, text=True)


def measure(count: int = 20_000, repeats: int = 3) -> None:
    """Interleaved runs, medians."""
    cases: dict[str, dict[str, Any]] = {
        "one worker, mixed order": {"workers": 1},
        "one worker, company by company": {"workers": 1, "by_company": True},
        "two workers, mixed order": {"workers": 2},
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, how in cases.items():
            found[name].append(once(count, **how))

    def middle(runs: Sequence[dict[str, Any]], key: str) -> float:
        return parts.middle([run[key] for run in runs])

    rows = [
        (
            name, f"{middle(runs, 'rate'):,.0f}", f"{middle(runs, 'cpu_us'):.0f}", f"{middle(runs, 'server_us'):.0f}",
            f"{middle(runs, 'sink_us'):.0f}", f"{middle(runs, 'waits'):.0f}", f"{middle(runs, 'lost'):.3%}",
        )
        for name, runs in found.items()
    ]  # fmt: skip
    columns = (
        "READY to SENT on MariaDB",
        "e-mails/s",
        "engine µs",
        "server µs",
        "sink µs",
        "lock waits",
        "lost claims",
    )
    parts.table(f"MariaDB: {count:,} e-mails", columns, rows)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("what", nargs="?", choices=("measure", "fill", "work"), default="measure")
    reader.add_argument("--folder", type=Path)
    reader.add_argument("--url", default="")
    reader.add_argument("--port", type=int, default=0)
    reader.add_argument("--count", type=int, default=20_000)
    reader.add_argument("--repeats", type=int, default=3)
    reader.add_argument("--by-company", action="store_true")
    asked = reader.parse_args()
    if asked.what == "measure":
        measure(asked.count, asked.repeats)
    elif asked.what == "fill":
        uvloop.run(fill(asked.folder, asked.url, asked.count, by_company=asked.by_company))
    else:
        print(json.dumps(uvloop.run(work(asked.folder, asked.url, asked.port, asked.count))))


if __name__ == "__main__":
    main()
