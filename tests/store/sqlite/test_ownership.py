"""One process owns the file; a second is refused with the first one's id; commands write beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contracts.letters import Letters
from doubles.shell import PATIENCE_SECONDS, Shell, serve, sink
from staffetta.errors import StoreOwned
from staffetta.store.sqlite import SqliteStore

OWNS = """
import asyncio, sys
from pathlib import Path
from staffetta.store.sqlite import SqliteStore

async def own():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    print("owned", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await store.close()

asyncio.run(own())
"""


def another_process_owning(path: Path) -> subprocess.Popen[bytes]:
    running = subprocess.Popen(
        [sys.executable, "-c", OWNS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"owned\n"
    return running


async def test_a_second_owner_is_refused_with_the_first_ones_process_id(path: Path) -> None:
    first = another_process_owning(path)
    try:
        with pytest.raises(StoreOwned, match=str(first.pid)):
            await SqliteStore(path).open()
    finally:
        first.communicate(timeout=30)


async def test_two_owners_in_one_process_are_refused_as_well(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreOwned, match=str(os.getpid())):
        await SqliteStore(path).open()
    assert sum((await store.counts()).values()) == 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_ownership_ends_with_its_process_however_that_ends(path: Path, end: signal.Signals) -> None:
    first = another_process_owning(path)
    first.send_signal(end)
    first.communicate(timeout=30)

    store = SqliteStore(path)
    await store.open()
    await store.close()


async def test_a_command_that_fails_beside_the_owner_does_not_end_its_ownership(
    store: SqliteStore, path: Path
) -> None:
    """POSIX locks go when any descriptor of the file is closed by the process that holds them."""
    beside = SqliteStore(path, owner=False)
    await beside.open()
    await beside.put_setting("weights", b"1")
    await beside.counts()
    await beside.close()

    refused = subprocess.run(
        [sys.executable, "-c", OWNS, str(path)], input=b"", capture_output=True, timeout=30, check=False
    )

    assert refused.returncode != 0
    assert str(os.getpid()).encode() in refused.stderr


async def test_writers_beside_a_busy_owner_are_let_in(post: Letters, path: Path) -> None:
    """The owner writes group after group: whoever knocks gets his turn between two."""
    beside = SqliteStore(path, owner=False, busy_ms=5_000)
    await beside.open()
    there = post.beside(beside)
    done = False

    async def busy() -> None:
        while not done:
            await asyncio.gather(*(post.store.publish(f"w{n}", b"x" * 200, post.now) for n in range(50)))

    working = [asyncio.ensure_future(busy()) for _ in range(3)]
    try:
        ids = [await there.ready() for _ in range(5)]
    finally:
        done = True
        await asyncio.gather(*working)
        await beside.close()

    assert [job.id for job in await post.store.waiting("acme", now=post.now, limit=10)] == ids


# ------------------------------------------------------------------------------------------ beside a running `serve`


def test_commands_work_beside_a_running_serve_and_take_effect(tmp_path: Path) -> None:
    shell = Shell(tmp_path, STAFFETTA_STORE="sqlite:///mail.db")
    shell("pause", "--company", "acme")  # a pause survives restarts: it holds from the first moment
    with (
        sink(shell, "--log", "sink.jsonl") as (transport, _),
        serve(shell, STAFFETTA_TRANSPORT=transport) as (_, running),
    ):
        second = shell.process("work", code=1, STAFFETTA_TRANSPORT=transport)
        assert str(running.pid) in second.err

        (id,) = shell("send", "--company", "acme", "--from", "a@example.com", "--to", "b@example.com",
                      "--subject", "hello", "--text", "hello").lines  # fmt: skip
        (other,) = shell("send", "--company", "other", "--from", "a@example.com", "--to", "c@example.com",
                         "--subject", "hello", "--text", "hello").lines  # fmt: skip
        assert _ends(shell, other) == "SENT"
        assert shell("show", id, "--json").json["status"] == "READY"

        shell("resume", "--company", "acme")
        assert _ends(shell, id) == "SENT"
    assert len((tmp_path / "sink.jsonl").read_text().splitlines()) == 2


def _ends(shell: Shell, id: str) -> str:
    """Its status once nothing more is sent of it; a command asks each time, as a script would."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends:
        status: str = shell("show", id, "--json").json["status"]
        if status in ("SENT", "FAILED"):
            return status
    raise AssertionError(f"{id} is {status} still")
