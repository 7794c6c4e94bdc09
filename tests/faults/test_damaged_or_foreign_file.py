"""A file that is damaged, or somebody else's: it is said which, with the remedy; it is not touched; work stops."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from doubles.shell import Program, Shell, sink

EMAILS = 300
LINES = "".join(
    json.dumps({"from": "a@example.com", "to": f"b{n}@example.org", "subject": "x", "body_text": "y" * 2_000})
    + "\n"
    for n in range(EMAILS)
)
COMMANDS = (["serve"], ["work"], ["status"], ["migrate"], ["send", "--jsonl", "-"])


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(
        tmp_path,
        STAFFETTA_STORE=f"sqlite:///{tmp_path / 'outbox.db'}",
        STAFFETTA_TRANSPORT="sink://",
        STAFFETTA_LISTEN="127.0.0.1:0",
    )


def refuses(shell: Shell, words: str) -> None:
    """Every command says so, and leaves the file as it is."""
    before = (shell.folder / "outbox.db").read_bytes()
    for command in COMMANDS:
        assert words in shell(*command, stdin=LINES, code=1).err
    assert words in shell("doctor", code=1).out
    assert before == (shell.folder / "outbox.db").read_bytes()


def test_another_programs_database_is_left_alone(shell: Shell) -> None:
    with sqlite3.connect(shell.folder / "outbox.db") as other:
        other.execute("CREATE TABLE emails (id TEXT)")
    other.close()
    refuses(shell, "is a database of another program; name another file")


def test_what_is_no_database_is_left_alone(shell: Shell) -> None:
    (shell.folder / "outbox.db").write_text("Dear diary,\n" * 1_000)
    refuses(shell, "is not an SQLite database; name another file or move this one away")


def test_a_file_cut_in_half_is_not_worked_with(shell: Shell) -> None:
    """And the whole one in its place is, as if nothing had been."""
    shell("send", "--jsonl", "-", stdin=LINES)
    file = shell.folder / "outbox.db"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    refuses(shell, "is damaged; stop, keep a copy, and restore a backup")

    file.write_bytes(whole)
    assert EMAILS == shell("status", "--json").json["queue"]["waiting"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_damage_found_in_the_middle_of_the_work_ends_it(shell: Shell, processes: str) -> None:
    """Going on could only make it worse. With the backup in place nothing that it held was sent twice."""
    shell("send", "--jsonl", "-", stdin=LINES)
    file, backup = shell.folder / "outbox.db", shell.folder / "backup.db"
    shutil.copy(file, backup)
    damaged = bytearray(file.read_bytes())
    damaged[-30 * 4_096 :] = random.Random(1).randbytes(30 * 4_096)
    file.write_bytes(damaged)

    running = Program(shell, "work", "--processes", processes)
    assert 1 == running.ended()
    assert "Error: " in running.heard[-1]
    assert "is damaged; stop, keep a copy, and restore a backup" in running.heard[-1]

    shutil.copy(backup, file)
    for beside in ("outbox.db-wal", "outbox.db-shm"):
        (shell.folder / beside).unlink(missing_ok=True)
    with sink(shell) as (address, _):
        again = Program(shell, "work", "--processes", processes, STAFFETTA_TRANSPORT=address)
        while shell("status", "--json").json["emails"].get("SENT", 0) < EMAILS:
            time.sleep(0.1)
        assert 0 == again.stop()
