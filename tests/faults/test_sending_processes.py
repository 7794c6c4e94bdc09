"""`serve --processes N`: one process keeps store and queue, the others send, and any of them may die or hang."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

from doubles.invariants import check
from doubles.ordeal import Ordeal, chance_of
from staffetta.mail.lifecycle import IN_WORK, Status

PER_SECOND = 300


def holds_for_writing(pid: int, database: Path) -> bool:
    """Whether a process has the database, or what lies beside it, open for writing."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            flags = int(Path(f"/proc/{pid}/fdinfo/{link.name}").read_text().split("flags:")[1].split()[0], 8)
            if link.readlink().name.startswith(database.name) and flags & (os.O_WRONLY | os.O_RDWR):
                return True
    return False


def test_sending_processes_killed_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    """Each is started again, and what it held goes on at once: long before anybody would call it silent."""
    seed, chance = chance_of()
    with Ordeal(tmp_path, seed=seed, STAFFETTA_WORKER__DEAD_AFTER="1h") as ordeal:
        with ordeal.calling(PER_SECOND):
            ordeal.start("--processes", "3")
            for number in range(1, 6):
                time.sleep(chance.uniform(0.0, 0.6))
                os.kill(chance.choice(ordeal.helpers), signal.SIGKILL)
                ordeal.until_said("a sending process ended", number)
        facts = ordeal.finish()
        check(facts)
        assert any(one.email.crashes or one.email.doubts for one in facts.records.values())


def test_nobody_but_the_keeper_writes_the_file(tmp_path: Path) -> None:
    with Ordeal(tmp_path, seed=1) as ordeal, ordeal.calling(PER_SECOND):
        ordeal.start("--processes", "3")
        ordeal.until_done_with(300)
        helpers = ordeal.helpers
        assert 2 == len(helpers)
        assert holds_for_writing(ordeal.process.pid, tmp_path / "outbox.db")
        assert not any(holds_for_writing(pid, tmp_path / "outbox.db") for pid in helpers)


def test_one_that_hangs_is_killed_before_others_take_over_its_emails(tmp_path: Path) -> None:
    """Stopped past its heartbeat, it could wake and send: so it must not be able to wake."""
    with Ordeal(tmp_path, seed=2, STAFFETTA_WORKER__DEAD_AFTER="2s") as ordeal:
        with ordeal.calling(PER_SECOND):
            ordeal.start("--processes", "3")
            ordeal.until_done_with(200)
            (hanging, _) = ordeal.helpers
            os.kill(hanging, signal.SIGSTOP)
            ordeal.until_said(f"sending process {hanging} shows no life")
            ordeal.until_said("a sending process ended")
        check(ordeal.finish())


def test_a_keeper_that_stood_still_kills_nobody_when_it_wakes(tmp_path: Path) -> None:
    """It heard of nobody for a while, because it listened to nobody."""
    with Ordeal(tmp_path, seed=3, STAFFETTA_WORKER__DEAD_AFTER="1s") as ordeal:
        with ordeal.calling(PER_SECOND):
            ordeal.start("--processes", "3")
            ordeal.until_done_with(200)
            before = ordeal.helpers
            ordeal.process.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            ordeal.process.send_signal(signal.SIGCONT)
            ordeal.until_done_with(ordeal.answered + 200)
            assert before == ordeal.helpers
        check(ordeal.finish())
        assert "shows no life" not in ordeal.log.read_text()


def test_an_orderly_stop_under_load_leaves_nothing_in_work(tmp_path: Path) -> None:
    """And so does the stop of a single one, in whose place another is started."""
    with Ordeal(tmp_path, seed=4) as ordeal:
        with ordeal.calling(PER_SECOND):
            ordeal.start("--processes", "3")
            ordeal.until_done_with(200)
            os.kill(ordeal.helpers[0], signal.SIGTERM)
            ordeal.until_said("a sending process ended")
            ordeal.stop()
            left = ordeal.counts()
            assert not any(left.get(status) for status in IN_WORK - {Status.CALLING_SENT_CALLBACK}), left
            ordeal.start()
        facts = ordeal.finish()
        check(facts)
        assert not any(one.email.crashes for one in facts.records.values())


def test_what_all_of_them_counted_adds_up(tmp_path: Path) -> None:
    """Also what one counted that has ended since: a counter that falls is a counter nobody believes."""
    with Ordeal(tmp_path, seed=5) as ordeal:
        ordeal.start("--processes", "3")
        ordeal.call(300)
        ordeal.until_done()
        sent = ordeal.counts()[Status.SENT_ACKNOWLEDGED]
        until_counted(ordeal, sent)
        os.kill(ordeal.helpers[1], signal.SIGTERM)
        ordeal.until_said("a sending process ended")
        ordeal.call(200)
        ordeal.until_done()
        until_counted(ordeal, ordeal.counts()[Status.SENT_ACKNOWLEDGED])
        assert "3.0" == metric(ordeal, "staffetta_processes")
        check(ordeal.finish())


def until_counted(ordeal: Ordeal, sent: int) -> None:
    """Each process tells its figures once a second."""
    ends = time.monotonic() + 10
    while (told := metric(ordeal, 'staffetta_ended_total{status="SENT"}')) != f"{sent}.0":
        assert time.monotonic() < ends, f"{told} counted of {sent}"
        time.sleep(0.05)


def metric(ordeal: Ordeal, name: str) -> str:
    _, text = ordeal.get("/metrics")
    found = re.search(f"^{re.escape(name)} (.*)$", text, re.MULTILINE)
    return found[1] if found else "nothing"
