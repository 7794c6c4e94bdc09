"""SIGKILL at any moment, under load: nothing is lost, and nothing doubled but what was in doubt."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of, rounds

PER_SECOND = 300
KILLS = 25
"""Of one outbox; then everything must end, and the next one begins."""


def ordeal_of_kills(folder: Path, *, kills: int, policy: str, processes: int, seed: int | None = None) -> None:
    """From the very start of the process to well into its work."""
    seed, chance = chance_of(seed)
    with Ordeal(folder, seed=seed, STAFFETTA_DELIVERY__IN_DOUBT=policy) as ordeal:
        with ordeal.calling(PER_SECOND):
            for _ in range(kills):
                ordeal.start("--processes", str(processes), wait=False)
                time.sleep(chance.uniform(0.2, 1.6) + 0.3 * (processes > 1))
                ordeal.kill(whole=processes == 1 or chance.random() < 0.5)
            ordeal.start("--processes", str(processes))
        facts = ordeal.finish()
        check(facts)
        copies = sum(count - 1 for count in facts.delivered.values())
        print(f"{len(facts.records)} e-mails, {ordeal.kills} kills, {copies} copies after a doubt")
        if policy == "hold":
            assert 0 == copies


def test_nothing_is_lost_and_only_what_was_in_doubt_is_sent_again(tmp_path: Path) -> None:
    ordeal_of_kills(tmp_path, kills=6, policy="resend", processes=1)


def test_where_doubts_are_held_nothing_is_ever_sent_twice(tmp_path: Path) -> None:
    """With two sending processes: the keeper dies with them, or they after it."""
    ordeal_of_kills(tmp_path, kills=5, policy="hold", processes=2)


@pytest.mark.soak
def test_five_hundred_kills(tmp_path: Path) -> None:
    """One kill for every four of STAFFETTA_SEEDS, by both policies, in one process and in several."""
    for number in range(rounds(4 * KILLS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        policy = "hold" if number % 3 == 2 else "resend"
        ordeal_of_kills(folder, kills=KILLS, policy=policy, processes=1 + number % 2)
