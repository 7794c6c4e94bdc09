"""SIGSTOP past the heartbeat, then SIGCONT: who was away sends nothing twice and moves nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of


def test_a_process_that_slept_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    """It owns the file: nobody could take anything over. It does not take over from itself either."""
    seed, chance = chance_of()
    with Ordeal(tmp_path, seed=seed, STAFFETTA_WORKER__DEAD_AFTER="1s") as ordeal:
        with ordeal.calling(300):
            ordeal.start()
            for _ in range(2):
                ordeal.until_done_with(ordeal.answered + 100)
                ordeal.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(1.2, 2.0))
                ordeal.process.send_signal(signal.SIGCONT)
        facts = ordeal.finish()
        check(facts)
        assert not any(one.email.crashes for one in facts.records.values())


def test_all_of_them_asleep_at_once_wake_to_the_same_work(tmp_path: Path) -> None:
    """A suspended machine: keeper and sending processes stand still together."""
    seed, chance = chance_of()
    with Ordeal(tmp_path, seed=seed, STAFFETTA_WORKER__DEAD_AFTER="1s") as ordeal:
        with ordeal.calling(300):
            ordeal.start("--processes", "2")
            ordeal.until_done_with(ordeal.answered + 100)
            ordeal.signal_all(signal.SIGSTOP)
            time.sleep(chance.uniform(1.2, 2.0))
            ordeal.signal_all(signal.SIGCONT)
            ordeal.until_done_with(ordeal.answered + 100)
        facts = ordeal.finish()
        check(facts)
        assert not any(one.email.crashes for one in facts.records.values())
