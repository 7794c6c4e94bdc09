"""SIGTERM while it still begins: it ends in order all the same, and leaves no claim and no process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of, group_lives


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_stop_while_it_begins_is_an_orderly_one(tmp_path: Path, processes: str) -> None:
    """Its first claims are made before anybody hears that it is ready."""
    seed, chance = chance_of()
    with Ordeal(tmp_path, seed=seed) as ordeal:
        ordeal.start()
        with ordeal.calling(200):
            ordeal.until_done_with(100)
            ordeal.stop()
            for _ in range(3):
                ordeal.start("--processes", processes, wait=False)
                ordeal.until_owned()
                time.sleep(chance.uniform(0.0, 0.5))
                group = ordeal.process.pid
                ordeal.stop()
                assert not group_lives(group)
            ordeal.start()
        facts = ordeal.finish()
        check(facts)
        assert not any(one.email.crashes for one in facts.records.values())
