"""What the measurements share: a sink, e-mails, an outbox that is full, and what a process has used."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from staffetta.app import wiring
from staffetta.config import Config, sections
from staffetta.logs import Listeners
from staffetta.store.contract import Store

TICKS = os.sysconf("SC_CLK_TCK")
COMPANIES = 100
BATCH = 500


# ------------------------------------------------------------------------------------------- the other side


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Sink:
    """Debian's `smtp-sink` on a free port of this machine: takes everything, as fast as it can."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.pid = process.pid
        self._process = process

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.pid)


@contextlib.contextmanager
def sink(*options: str) -> Iterator[Sink]:
    """`options`: of smtp-sink, such as `-r .` to answer every dot with "not now"."""
    program = shutil.which("smtp-sink", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if program is None:
        raise SystemExit("smtp-sink is missing: `make engines` installs it (Debian's postfix)")
    port = free_port()
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    process = subprocess.Popen(
        [program, *user, *options, f"127.0.0.1:{port}", "1000"], stdout=subprocess.DEVNULL
    )
    try:
        _until_listening(port)
        yield Sink(port, process)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def own_sink(script: str) -> Iterator[Sink]:
    """Our scripted sink in a process of its own: unlike `smtp-sink`, it goes on pipelining while it says no."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as rules:
        rules.write(script)
        rules.flush()
        port = free_port()
        command = [sys.executable, "-m", "staffetta", "sink", "--port", str(port), "--script", rules.name]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until_listening(port)
            yield Sink(port, process)
        finally:
            process.terminate()
            process.wait()


def _until_listening(port: int, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 0.5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


# ------------------------------------------------------------------------------------------- what was used


def cpu_seconds_of(pid: int) -> float:
    """User and system time of one process, ended threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def children() -> list[int]:
    """Process ids of this process's children."""
    told = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(pid) for pid in told.split()]


def writes(pid: int, folder: Path) -> bool:
    """Whether a process has a file of this folder open for writing."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        told = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text(encoding="ascii")
        flags = int(told.split("flags:")[1].split()[0], 8)
        if link.readlink().is_relative_to(folder) and flags & (os.O_WRONLY | os.O_RDWR):
            return True
    return False


def bytes_written() -> int:
    """What this process has had written to the disk so far."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


# ------------------------------------------------------------------------------------------- e-mails


def payload(company: int, number: int) -> dict[str, Any]:
    """A notice of 2 KiB, text and HTML."""
    name = f"company-{company:03d}"
    words = f"Your order {number:08d} was shipped on Tuesday and should reach you within two days. "
    return {
        "company_id": name,
        "from": f"noreply@{name}.example",
        "to": f"user{number}@example.org",
        "subject": f"Order {number:08d} shipped",
        "body_text": "Hello,\n\n" + (words + "\n") * 7,
        "body_html": "<html><body><h1>Hello</h1>\n" + f"<p>{words}</p>\n" * 10 + "</body></html>\n",
    }


def payloads(count: int, *, by_company: bool = False) -> Iterator[dict[str, Any]]:
    """Of a hundred companies: in mixed order, or one company after the other."""
    for number in range(count):
        company = number * COMPANIES // count if by_company else (number * 7919) % COMPANIES
        yield payload(company, number)


def batches(count: int, *, by_company: bool = False) -> Iterator[bytes]:
    held: list[dict[str, Any]] = []
    for one in payloads(count, by_company=by_company):
        held.append(one)
        if len(held) == BATCH:
            yield json.dumps(held).encode()
            held = []
    if held:
        yield json.dumps(held).encode()


# ------------------------------------------------------------------------------------------- the outbox


def settings(folder: Path, *, port: int, **more: Any) -> Config:
    return Config(
        store=sections.Store(url=f"sqlite:///{folder / 'outbox.db'}"),
        transport=sections.Transport(url=(f"smtp://127.0.0.1:{port}?tls=none#sink",), connections=100),
        spool=sections.Spool(path=str(folder / "spool")),
        log=sections.Log(level="error"),
        **more,
    )


async def hand_in(config: Config, store: Store, count: int, *, by_company: bool = False) -> None:
    """Through the desk, as the API does."""
    desk = wiring.desk_for(
        config,
        store=store,
        rulebook=wiring.rulebook_for(config),
        emit=Listeners(),
        queue=None,
        spool=wiring.spool_for(config),
    )
    for batch in batches(count, by_company=by_company):
        for answer in await desk.accept_batch(batch):
            if isinstance(answer, Exception):
                raise answer


def filled(folder: Path, count: int, *, by_company: bool = False) -> None:
    """An outbox of so many READY e-mails. In a process of its own, so that nothing of it stays in this one."""
    code = f"from benchmarks.parts import fill; fill({str(folder)!r}, {count}, {by_company})"
    subprocess.run([sys.executable, "-c", code], check=True)


def fill(folder: str, count: int, by_company: bool) -> None:  # noqa: FBT001  # called by `filled`
    async def run() -> None:
        config = settings(Path(folder), port=1)
        store = wiring.store_for(config, owner=True)
        await store.open()
        await hand_in(config, store, count, by_company=by_company)
        await store.close()

    asyncio.run(run())


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """On a real file system: what is measured must reach a disk."""
    with tempfile.TemporaryDirectory(prefix="staffetta-bench-", dir="/var/tmp") as name:
        yield Path(name)


def child(module: str, *arguments: str) -> dict[str, Any]:
    """Run one measurement in a process of its own; the JSON of its last line."""
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table for people, as Markdown."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    sys.stdout.flush()
