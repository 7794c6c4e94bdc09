"""The power goes: nothing was acknowledged, and no dot was sent, before its record was on the disk.

Everything that `serve` asked of the system is traced; then the disk is looked at as it may be found after a cut at
many moments: what was not synced is lost, or torn, or there. See `doubles/powercut.py` for the model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles import powercut
from doubles.engines import program
from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of, rounds
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Filter
from staffetta.store.sqlite import SqliteStore

EMAILS = 100
LARGE = 262_144
"""Content beyond this lies in files."""
_ANSWER = re.compile(rb'"id":"([0-9a-f-]{36})","status"')
_MESSAGE = re.compile(rb"\r\nMessage-ID: <([0-9a-f-]{36})@")
_DOT = b"\r\n.\r\n"


class Words:
    """What left by sockets: ids that were answered, ids whose final dot was sent."""

    def __init__(self) -> None:
        self.answered: set[str] = set()
        self.dotted: set[str] = set()
        self._said: dict[str, bytes] = {}

    def hear(self, call: powercut.Call) -> bool:
        """Whether this call told the world something."""
        if not call.path.startswith("socket:"):
            return False
        before = len(self.answered) + len(self.dotted)
        said = self._said.get(call.path, b"") + call.data
        if said.startswith(b"EHLO "):
            while (end := said.find(_DOT)) >= 0:
                self.dotted |= {found.decode() for found in _MESSAGE.findall(said[:end])[-1:]}
                said = b"EHLO " + said[end + len(_DOT) :]
            self._said[call.path] = said
        else:
            self.answered |= {found.decode() for found in _ANSWER.findall(call.data)}
            if call.data.startswith(b"EHLO "):
                self._said[call.path] = call.data
        return len(self.answered) + len(self.dotted) > before


def moments(trace: Path, folder: Path) -> Iterator[tuple[powercut.Disk, Words, bool]]:
    """The disk and what was told, call by call; whether something was told just now."""
    disk, words = powercut.Disk(folder), Words()
    for moment in powercut.read(trace):
        disk.see(moment)
        yield disk, words, moment.began and words.hear(moment.call)


async def found(folder: Path) -> tuple[set[str], set[str], list[str]]:
    """Ids there are, ids that an attempt is committed or ended for, files that are named and missing."""
    store = SqliteStore(folder / "outbox.db")
    await store.open()
    try:
        emails, committed, missing = set(), set(), []
        page = await store.emails(Filter(), limit=1_000)
        assert page.cursor is None
        for email in page.items:
            emails.add(email.id)
            attempts = await store.attempts(email.id)
            if any(one.committed_at for one in attempts):
                committed.add(email.id)
            if email.eml_file_path and email.status is not Status.INVALID:
                spooled = folder / "spool" / email.eml_file_path.rpartition("/spool/")[2]
                if not spooled.exists() or spooled.stat().st_size < LARGE:
                    missing.append(f"{email.id} names {email.eml_file_path}")
        return emails, committed, missing
    finally:
        await store.close()


def cut_again_and_again(tmp_path: Path, *, processes: int, cuts: int) -> None:
    seed, chance = chance_of()
    folder, trace = tmp_path / "engine", tmp_path / "trace"
    folder.mkdir()
    with Ordeal(folder, seed=seed) as ordeal:
        ordeal.start("--processes", str(processes), under=powercut.tracing(trace))
        ordeal.call(EMAILS)
        check(ordeal.finish())

    told = sum(1 for _, _, now in moments(trace, folder) if now)
    assert told >= 2 * EMAILS - 20
    share = cuts / told
    done = 0
    for disk, words, now in moments(trace, folder):
        # Just after something was told it must be there; at any other moment the file must at least be whole.
        if chance.random() < (share if now else share / 40):
            done += 1
            left = tmp_path / f"cut-{done}"
            left.mkdir()
            disk.cut(chance, left)
            emails, committed, missing = asyncio.run(found(left))
            assert words.answered <= emails, f"seed {seed}: answered and lost: {words.answered - emails}"
            assert words.dotted <= committed, f"seed {seed}: sent without a mark: {words.dotted - committed}"
            assert [] == missing
    assert done > cuts // 2
    print(f"{done} cuts, {len(words.answered)} answered, {len(words.dotted)} sent")


@pytest.mark.service
@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_told_is_found_after_a_power_cut(tmp_path: Path, processes: int) -> None:
    program("strace", package="strace")
    cut_again_and_again(tmp_path, processes=processes, cuts=40)


@pytest.mark.soak
@pytest.mark.service
@pytest.mark.parametrize("processes", [1, 2])
def test_after_hundreds_of_power_cuts(tmp_path: Path, processes: int) -> None:
    program("strace", package="strace")
    cut_again_and_again(tmp_path, processes=processes, cuts=rounds(5))
