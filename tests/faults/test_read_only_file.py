"""The store cannot be written: whoever starts hears why and what to do, and nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.disks import small_disk
from doubles.shell import Shell

LINE = '{"from": "a@example.com", "to": "b@example.org", "subject": "Order", "body_text": "On its way."}\n'


@pytest.mark.service
def test_a_read_only_store_is_said_to_be_so_and_not_touched(tmp_path: Path) -> None:
    """A backup's disk, a volume mounted wrongly. Once it can be written, all goes on as if nothing had been."""
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        shell = Shell(
            tmp_path, STAFFETTA_STORE=f"sqlite:///{disk.path / 'outbox.db'}", STAFFETTA_TRANSPORT="sink://"
        )
        shell.process("send", "--jsonl", "-", stdin=LINE)
        before = (disk.path / "outbox.db").read_bytes()
        disk.set_read_only(read_only=True)

        for command in (["serve"], ["work"], ["send", "--jsonl", "-"]):
            said = shell.process(*command, stdin=LINE, code=1)
            assert "writable for this user" in said.err
        assert before == (disk.path / "outbox.db").read_bytes()

        disk.set_read_only(read_only=False)
        shell.process("send", "--jsonl", "-", stdin=LINE)
        assert 2 == shell.process("status", "--json").json["queue"]["waiting"]
