"""The command `staffetta` in a folder of its own: a real process, or `main()` here where a process adds nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30.0
"""Longer than anything here takes on a busy machine; a test that waits so long has failed."""


@dataclasses.dataclass(frozen=True)
class Said:
    """What one command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def jsonl(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class Shell:
    """Runs commands in one folder, with nothing of the outer environment's settings."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        outer = {
            name: value for name, value in os.environ.items() if not name.startswith(("STAFFETTA_", "EMAIL_"))
        }
        self.environment = {**outer, **settings}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "staffetta", *args]

    def process(self, *args: str, stdin: str = "", code: int = 0, **settings: str) -> Said:
        """A real process; its exit code must be `code`."""
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env={**self.environment, **settings},
            input=stdin.encode(),
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return _checked(Said(done.returncode, done.stdout.decode(), done.stderr.decode()), code, args)

    def __call__(self, *args: str, stdin: str = "", code: int = 0, **settings: str) -> Said:
        """The same in this process: the whole of `main`, from the arguments to the exit code."""
        from staffetta.cli.main import main

        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        before = (sys.argv, sys.stdin, Path.cwd(), dict(os.environ))
        sys.argv, sys.stdin = ["staffetta", *args], io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        os.chdir(self.folder)
        _environ({**self.environment, **settings})
        ended: Any = None
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as end:
            ended = end.code
        finally:
            sys.argv, sys.stdin, folder, environ = before
            os.chdir(folder)
            _environ(environ)
            out.flush()
            err.flush()
        texts = [stream.detach() for stream in (out, err)]
        assert all(isinstance(one, io.BytesIO) for one in texts)
        said, complained = (one.getvalue().decode() for one in texts if isinstance(one, io.BytesIO))
        return _checked(Said(ended, said, complained), code, args)


def _environ(wanted: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(wanted)


def _checked(said: Said, code: int, args: tuple[str, ...]) -> Said:
    assert said.code == code, f"staffetta {' '.join(args)} ended with {said.code}\n{said.out}\n{said.err}"
    assert "Traceback" not in said.err, said.err
    return said


class Program:
    """A command that runs until it is told to stop; its lines are read as they come."""

    def __init__(self, shell: Shell, *args: str, **settings: str) -> None:
        self._process = subprocess.Popen(
            shell.command(*args),
            cwd=shell.folder,
            env={**shell.environment, **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self.heard: list[str] = []
        """Every line taken so far, of both streams."""
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line.decode())

    def line(self, fits: Callable[[str], bool], *, patience_seconds: float = PATIENCE_SECONDS) -> str:
        """The next line that fits."""
        ends = time.monotonic() + patience_seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, ends - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"it never said so; it said:\n{''.join(self.heard)}") from None
            self.heard.append(line)
            if fits(line):
                return line

    def told(self, message: str, **facts: Any) -> dict[str, Any]:
        """The next line of the log with this message and these facts."""

        def fits(line: str) -> bool:
            if not line.startswith("{"):
                return False
            said = json.loads(line)
            return said["message"] == message and all(said.get(name) == value for name, value in facts.items())

        found: dict[str, Any] = json.loads(self.line(fits))
        return found

    def receives(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"it did not end; it said:\n{''.join(self.heard)}") from None
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)
        while not self._lines.empty():
            self.heard.append(self._lines.get())
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code


@contextlib.contextmanager
def program(shell: Shell, *args: str, **settings: str) -> Iterator[Program]:
    """Run it for a while; it must end well when it is told to."""
    running = Program(shell, *args, **settings)
    try:
        yield running
    except BaseException:
        running.stop(signal.SIGKILL)
        print("".join(running.heard))
        raise
    assert running.stop() == 0, "".join(running.heard)


@contextlib.contextmanager
def sink(shell: Shell, *args: str) -> Iterator[tuple[str, Program]]:
    """`staffetta sink` on a free port: the address of a transport, and the process."""
    with program(shell, "sink", "--port", "0", *args) as running:
        port = int(running.line(lambda line: line.strip().isdigit()))
        yield f"smtp://127.0.0.1:{port}?tls=none#relay", running


@contextlib.contextmanager
def serve(shell: Shell, *args: str, **settings: str) -> Iterator[tuple[str, Program]]:
    """`staffetta serve` on a free port: the API's address, and the process."""
    with program(shell, "serve", *args, **{"STAFFETTA_LISTEN": "127.0.0.1:0", **settings}) as running:
        ready = running.told("Staffetta is ready")
        yield str(ready["api"]), running
