"""One outbox through crashes: real processes, callers who repeat what was not answered, and what each side saw.

with Ordeal(folder, seed=7) as ordeal:          # the sink is up, callers are waiting
    ordeal.start()                              # `staffetta serve`, killed and started as often as one likes
    ordeal.call(200)                            # hands in 200 e-mails, in the background
    ordeal.kill()
    ordeal.start()
    check(ordeal.finish())                      # all ended, stopped in order, every invariant holds
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import http.server
import itertools
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from doubles.invariants import DONE, DONE_UNTOLD, Facts, Record, Told
from doubles.shell import PATIENCE_SECONDS, Shell, sink
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email
from staffetta.mail.operators import Filter
from staffetta.store.sqlite import SqliteStore

CALLERS = 8
PAUSE_SECONDS = 0.02
ENDING_SECONDS = 90.0
"""Longer than it takes until all that a crash left behind has ended."""

SCRIPT = """
[[rule]]
at = "mail"
sender = "later@*"
per = "sender"
every = 3
reply = "451 4.3.2 not now, try again"

[[rule]]
at = "rcpt"
recipient = "nobody*"
reply = "550 5.1.1 no such user"

[[rule]]
at = "dot"
every = 97
accept = true
disconnect = true

[[rule]]
at = "dot"
every = 2
delay_ms = 50
"""
"""Some are deferred, some refused, some accepted without an answer, and some answers take a while."""

SETTINGS = {
    "STAFFETTA_DELIVERY__IN_DOUBT_DELAY": "300ms",
    "STAFFETTA_DELIVERY__CONCURRENCY": "60",
    "STAFFETTA_TRANSPORT__CONNECTIONS": "30",
    "STAFFETTA_RESTORE__INTERVAL": "500ms",
    "STAFFETTA_WORKER__HEARTBEAT": "500ms",
    "STAFFETTA_WORKER__DEAD_AFTER": "5s",
    "STAFFETTA_LOG__LEVEL": "warning",
}


class Ordeal:
    """Owns every process that it starts, and ends them all."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        callbacks: bool = True,
        script: str = SCRIPT,
        data: Path | None = None,
        expires_in: int = 3_600,
        **settings: str,
    ) -> None:
        """`data`: where the engine keeps what it keeps; left out, beside everything else."""
        self.folder = folder
        self.data = folder if data is None else data
        self.chance = random.Random(seed)
        self.shell = Shell(folder, **(SETTINGS | settings))
        self.kills = 0
        self.log = folder / "serve.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._callbacks = callbacks
        self._expires_in = expires_in
        self._script = script
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count(1)
        self._wanted: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._callers: list[threading.Thread] = []
        self._submitted: dict[str, list[str]] = {}
        self._answered: dict[str, set[str]] = {}
        self._refused: list[str] = []
        self._open = 0
        self._over = False
        self._lock = threading.Lock()
        self._told: list[Told] = []

    # --- coming and going --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        (self.folder / "script.toml").write_text(self._script)
        address, _ = self._stack.enter_context(
            sink(self.shell, "--log", str(self.folder / "taken.jsonl"), "--script", "script.toml")
        )
        self.shell.environment |= {
            "STAFFETTA_TRANSPORT": address,
            "STAFFETTA_LISTEN": f"127.0.0.1:{self._port}",
            "STAFFETTA_STORE": f"sqlite:///{self.data / 'outbox.db'}",
            "STAFFETTA_SPOOL__PATH": str(self.data / "spool"),
        }
        if self._callbacks:
            url = self._stack.enter_context(receiver(self._told))
            self.shell.environment["STAFFETTA_CALLBACK_URL"] = url
        for number in range(CALLERS):
            caller = threading.Thread(target=self._hand_in, name=f"caller {number}", daemon=True)
            caller.start()
            self._callers.append(caller)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        for _ in self._callers:
            self._wanted.put(None)
        self.kill()
        for caller in self._callers:
            caller.join()
        self._stack.close()
        if kind is not None and self.log.exists():
            print(self.log.read_text()[-6_000:])

    def start(self, *args: str, under: Sequence[str] = (), wait: bool = True, **settings: str) -> None:
        """`staffetta serve` in a group of its own, so that all of it can be killed at once.

        `under`: a command before the command.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*under, *self.shell.command("serve", *args)],
                cwd=self.folder,
                env={**self.shell.environment, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        if wait:
            self.until_ready()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "started"
        return self._process

    def until_ready(self) -> None:
        """Until its API answers, or it has ended."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
                with contextlib.closing(connection):
                    connection.request("GET", "/healthz")
                    if connection.getresponse().status == 200:
                        return
            assert time.monotonic() < ends, f"it never answered: {self.log.read_text()[-3_000:]}"
            time.sleep(PAUSE_SECONDS)

    def until_owned(self) -> None:
        """Until it has the store: its first act."""
        ends = time.monotonic() + PATIENCE_SECONDS
        owner = self.data / "outbox.db.owner"
        while not owner.exists() or owner.read_text().strip() != str(self.process.pid):
            assert self.process.poll() is None, self.log.read_text()[-3_000:]
            assert time.monotonic() < ends, "it never had the store"
            time.sleep(PAUSE_SECONDS / 4)

    def kill(self, *, whole: bool = True) -> None:
        """SIGKILL: to all its processes at once, or to the first alone."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if whole:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._process = None
        self.kills += 1

    def signal_all(self, number: signal.Signals) -> None:
        """To all its processes at once."""
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """In order; it must end well."""
        self.process.terminate()
        code = self.process.wait(PATIENCE_SECONDS)
        assert code == 0, f"it ended with {code}: {self.log.read_text()[-3_000:]}"
        self._process = None

    def until_dead(self) -> int:
        """Until the first process has died by itself, and all that it started after it; by which signal."""
        process = self.process
        try:
            code = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not die; it said {self.log.read_text()[-3_000:]}") from None
        ends = time.monotonic() + PATIENCE_SECONDS
        while group_lives(process.pid):
            assert time.monotonic() < ends, "a sending process outlives its keeper"
            time.sleep(PAUSE_SECONDS)
        self._process = None
        self.kills += 1
        return -code

    def until_said(self, words: str, count: int = 1) -> None:
        """Until its log has these words so often."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while self.log.read_text().count(words) < count:
            assert time.monotonic() < ends, f"it never said so; it said {self.log.read_text()[-3_000:]}"
            time.sleep(PAUSE_SECONDS)

    def get(self, path: str) -> tuple[int, str]:
        """One answer of its API."""
        connection = http.client.HTTPConnection(self.api, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def get_header(self, path: str, name: str) -> str:
        connection = http.client.HTTPConnection(self.api, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().headers[name]

    @property
    def api(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def helpers(self) -> list[int]:
        """Its sending processes."""
        told = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        return [int(pid) for pid in told.split()]

    # --- calling -----------------------------------------------------------------------------------------------

    def call(self, count: int) -> None:
        """Hand in so many e-mails, each again and again under its key until it is answered."""
        for _ in range(count):
            number = next(self._numbers)
            key, body = f"key-{number}", self._payload(number)
            self._submitted[key] = [*body["to"]]
            with self._lock:
                self._open += 1
            self._wanted.put((key, json.dumps(body).encode()))

    @contextlib.contextmanager
    def calling(self, per_second: int) -> Iterator[None]:
        """Goes on handing in at this pace."""
        ended = threading.Event()

        def go_on() -> None:
            while not ended.wait(0.05):
                if self.unanswered < per_second:
                    self.call(per_second // 20)

        thread = threading.Thread(target=go_on, name="calling")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @property
    def unanswered(self) -> int:
        return self._open

    def _payload(self, number: int) -> dict[str, Any]:
        chance = self.chance
        to = [f"user{number}@example.org"]
        if chance.random() < 0.1:
            to.append(f"nobody{number}@example.org")
        if chance.random() < 0.1:
            to.append(f"second{number}@example.org")
        if chance.random() < 0.03:
            to = [f"nobody{number}@example.org"]
        sender = f"later@{number}.example.com" if chance.random() < 0.1 else "us@example.com"
        body: dict[str, Any] = {
            "company_id": f"company-{number % 5}", "from": sender, "to": to, "subject": f"Order {number}",
            "body_text": "Your order is on its way.\n" * 20, "retry_delay": 200, "max_retry_delay": 400,
            "max_attempts": 5, "expires_in": self._expires_in,
        }  # fmt: skip
        if chance.random() < 0.02:
            content = base64.b64encode(chance.randbytes(300_000)).decode()
            body["attachments"] = [{"name": "large.bin", "content": content, "type": "application/x-large"}]
        return body

    def _hand_in(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        with contextlib.closing(connection):
            while (wanted := self._wanted.get()) is not None:
                while not self._over and not self._call_once(connection, *wanted):
                    time.sleep(PAUSE_SECONDS)

    def _call_once(self, connection: http.client.HTTPConnection, key: str, body: bytes) -> bool:
        """Whether it was answered. Else it is away, or an earlier try of the same call is still at work."""
        try:
            connection.request(
                "POST", "/v1/emails", body, {"Content-Type": "application/json", "Idempotency-Key": key}
            )
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            connection.close()  # it is opened anew by the next request
            return False
        if answer.status >= 500 or answer.status == 409:
            return False
        with self._lock:
            self._open -= 1
            if answer.status == 202:
                self._answered.setdefault(key, set()).add(said["id"])
            else:
                self._refused.append(f"{key}: {answer.status} {said}")
        return True

    @property
    def answered(self) -> int:
        return len(self._answered)

    # --- the end -----------------------------------------------------------------------------------------------

    def until_done(self, seconds: float = ENDING_SECONDS) -> None:
        """Until every caller has his answer and every e-mail has come to its end."""
        ends = time.monotonic() + seconds
        done = DONE if self._callbacks else DONE_UNTOLD
        while self.unanswered or any(n for status, n in self.counts().items() if status not in done):
            assert self._refused == []
            assert time.monotonic() < ends, (
                f"{self.unanswered} calls unanswered, {self.counts()}; it said {self.log.read_text()[-3_000:]}"
            )
            assert self.process.poll() is None, f"it ended: {self.log.read_text()[-3_000:]}"
            time.sleep(0.1)

    def until_done_with(self, answered: int) -> None:
        """Until so many calls were answered."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while self.answered < answered:
            assert time.monotonic() < ends, f"only {self.answered} calls were answered"
            time.sleep(PAUSE_SECONDS)

    def counts(self) -> dict[Status, int]:
        """E-mails by status, as a command beside it would read them."""

        async def read() -> dict[Status, int]:
            store = SqliteStore(self.data / "outbox.db", owner=False)
            await store.open()
            try:
                return {status: n for status, n in (await store.counts()).items() if n}
            finally:
                await store.close()

        return asyncio.run(read())

    def finish(self, *, max_attempts: int = 5) -> Facts:
        """Let everything end, stop in order, and gather what each side wrote down."""
        self.until_done()
        self.stop()
        records, left = asyncio.run(self._read())
        assert len(self._submitted) >= len(records)
        log = self.folder / "taken.jsonl"
        return Facts(
            submitted=self._submitted,
            answered={key: frozenset(ids) for key, ids in self._answered.items()},
            taken=[json.loads(line) for line in log.read_text().splitlines()],
            records=records,
            told=self._told if self._callbacks else None,
            max_attempts=max_attempts,
            left=left,
        )

    async def _read(self) -> tuple[dict[str, Record], Sequence[str]]:
        """As owner: what is left of another one keeps this from opening."""
        store = SqliteStore(self.data / "outbox.db")
        await store.open()
        try:
            left = [f"worker {one.id} is still known" for one in await store.workers()]
            left += [str(path) for path in self.data.rglob("*.tmp")]
            records: dict[str, Record] = {}
            cursor: str | None = None
            while True:
                page = await store.emails(Filter(), limit=500, cursor=cursor)
                for email in page.items:
                    records[email.id] = await _record(store, email)
                if (cursor := page.cursor) is None:
                    return records, left
        finally:
            await store.close()


async def _record(store: SqliteStore, email: Email) -> Record:
    return Record(
        email=email,
        history=await store.history(email.id),
        attempts=await store.attempts(email.id),
        dead_letter=await store.dead_letter(email.id),
    )


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def chance_of(seed: int | None = None) -> tuple[int, random.Random]:
    """This run's seed, printed, and the chance that follows from it. STAFFETTA_SEED repeats a run's draws."""
    asked = os.environ.get("STAFFETTA_SEED")
    drawn = seed if seed is not None else int(asked) if asked else random.SystemRandom().randrange(1 << 31)
    print(f"STAFFETTA_SEED={drawn}")
    return drawn, random.Random(drawn)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def receiver(told: list[Told]) -> Iterator[str]:
    """An owner who hears outcomes, and writes each call down before answering."""

    class Hears(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told.append(Told(webhook_id=self.headers["webhook-id"], body=body, status=204))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A caller that was killed is no error of ours."""

    server = Server(("127.0.0.1", 0), Hears)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/outcomes"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def rounds(share: int) -> int:
    """How many rounds a soaking test goes: one for every `share` seeds that are asked for."""
    return max(1, int(os.environ.get("STAFFETTA_SEEDS", "2000")) // share)


assert sys.platform != "win32", "signals, process groups and /proc"
