"""The clock jumps by an hour, forward or back, under load: nothing is taken from who works on it, nothing is lost.

The engine runs under `libfaketime`, which reads from a file how far the wall clock is off. Its monotonic clock goes
on as ever, as it does when somebody sets a machine's time.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from doubles.engines import missing, program
from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of
from staffetta.mail.lifecycle import Cause

HOUR = 3_600
LIBRARIES = ("/usr/lib", "/usr/local/lib")


def faketime() -> Path:
    program("faketime", package="faketime")
    found = [path for folder in LIBRARIES for path in Path(folder).rglob("libfaketime.so.1")]
    if not found:
        missing("libfaketime.so.1 is missing: `make engines` installs it (Debian's faketime)")
    return found[0]


@pytest.mark.service
@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_hour_forward_and_back_takes_nothing_from_who_works_on_it(tmp_path: Path, processes: str) -> None:
    """What is due by the clock may wait as long as the clock was turned back: that is all that may happen."""
    seed, _ = chance_of()
    off = tmp_path / "off"
    off.write_text("+0")
    with Ordeal(tmp_path, seed=seed, expires_in=24 * HOUR, STAFFETTA_WORKER__DEAD_AFTER="60s") as ordeal:
        ordeal.start(
            "--processes", processes,
            LD_PRELOAD=str(faketime()), FAKETIME_TIMESTAMP_FILE=str(off), FAKETIME_CACHE_DURATION="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1", DONT_FAKE_MONOTONIC="1",
        )  # fmt: skip
        with ordeal.calling(100):
            for seconds in (HOUR, 0, -HOUR, HOUR + 600):
                ordeal.until_done_with(ordeal.answered + 60)
                off.write_text(f"{seconds:+d}")
                until_off_by(ordeal, seconds)
        facts = ordeal.finish()
        check(facts)
    causes = [entry.cause for one in facts.records.values() for entry in one.history]
    assert Cause.RESTORED not in causes
    assert Cause.EXPIRED not in causes
    assert "shows no life" not in ordeal.log.read_text()


def until_off_by(ordeal: Ordeal, seconds: int) -> None:
    """Until its own clock says so: the library looks into the file now and then."""
    ends = time.monotonic() + 10
    while True:
        said = parsedate_to_datetime(ordeal.get_header("/healthz", "date"))
        if abs(said.timestamp() - time.time() - seconds) < 60:
            return
        assert time.monotonic() < ends, f"its clock says {said}"
        time.sleep(0.1)
