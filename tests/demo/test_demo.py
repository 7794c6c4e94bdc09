"""The demonstration as a newcomer meets it, and the counting that its last line rests on."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from doubles import pages
from doubles.shell import PATIENCE_SECONDS, Program, Shell
from staffetta.demo import plan, summary
from staffetta.demo.heard import Heard
from staffetta.demo.summary import Outcome
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email, RecipientState

TOTAL = len(list(plan.payloads()))
AT_MOST_SECONDS = 30.0


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """With a folder of its own for what is temporary, so that a test can see what is left in it."""
    (tmp_path / "tmp").mkdir()
    return Shell(tmp_path, TMPDIR=str(tmp_path / "tmp"), TERM="xterm-256color")


def test_it_ends_by_itself_with_nothing_lost_and_stays_to_be_looked_at(shell: Shell) -> None:
    """The first five minutes: all is sent past every trouble, counted from the relay's log; `--keep` leaves a door."""
    demo = Program(shell, "demo", "--keep")
    try:
        door = demo.line(lambda line: line.startswith("Dashboard and API: "), patience_seconds=60)
        demo.line(lambda line: line.startswith("Ctrl-C ends it"))
        said = "".join(demo.heard)
        with urllib.request.urlopen(door.split()[3] + "/healthz", timeout=10) as answer:
            assert 200 == answer.status
    finally:
        code = demo.stop(signal.SIGINT)

    assert 0 == code, said
    assert "lost 0, doubled 0   counted from the relay's own log" in said
    counted = {
        name: int(count.replace(",", ""))
        for count, name in re.findall(r"^ +([\d,]+)  ([A-Z-]+)$", said, re.MULTILINE)
    }
    assert {"SENT-ACKNOWLEDGED": TOTAL - 5, "FAILED-ACKNOWLEDGED": 5} == counted
    ended = re.search(rf"^{TOTAL:,} e-mails handed in, ([\d,]+) attempts, ([\d.]+) s$", said, re.MULTILINE)
    assert ended
    assert int(ended[1].replace(",", "")) > TOTAL, "troubles cost further attempts"
    assert float(ended[2]) < AT_MOST_SECONDS
    assert "5 × 550: 550 5.1.1 No such user here" in said
    assert f"{TOTAL:,}  outcomes called back, 0 without a true signature" in said
    waits = {
        name: float(median)
        for name, median in re.findall(r"^  ([a-z-]+) +([\d.]+) s +[\d.]+ s$", said, re.MULTILINE)
    }
    assert set(plan.COMPANIES) == set(waits)
    assert all(waits[name] < waits[plan.FLOOD] for name in plan.COMPANIES if name != plan.FLOOD)
    for happened in ("the relay goes away", "the relay is back", "breaker open", "Greylisted", "slow down"):
        assert happened in said
    (shown,) = (block for block in pages.blocks(pages.ROOT / "README.md") if "demo" in block.words)
    assert pages.pattern(shown.text).search(said), "the README shows what it looks like"
    assert "\x1b" not in said, "plain lines where there is no terminal"
    assert [] == list((shell.folder / "tmp").iterdir()), "what was temporary is gone"


def test_on_a_terminal_it_is_a_picture_and_stops_when_asked(shell: Shell) -> None:
    """Bars that move, and Ctrl-C ends it in order: exit code 1, nothing left behind, no traceback."""
    leader, follower = pty.openpty()
    demo = subprocess.Popen(
        shell.command("demo"), cwd=shell.folder, env={**shell.environment, "COLUMNS": "100", "LINES": "40"},
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    seen = _seen_until(leader, "sent  dead  last waited")
    demo.send_signal(signal.SIGINT)
    seen += _seen_until(leader, "")
    os.close(leader)

    assert 1 == demo.wait(PATIENCE_SECONDS)
    assert f"of {TOTAL:,} ended" in seen
    assert "flood-inc" in seen
    assert "Traceback" not in seen
    assert "stopped" in seen
    assert [] == list((shell.folder / "tmp").iterdir())


def _seen_until(terminal: int, words: str) -> str:
    """What a terminal shows until these words; without words: until its program ends."""
    seen, ends = "", time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends and not (words and words in re.sub(r"\x1b\[[0-9;]*m", "", seen)):
        if not select.select([terminal], [], [], 0.5)[0]:
            continue
        try:
            seen += os.read(terminal, 65_536).decode(errors="replace")
        except OSError:  # the other side is closed
            break
    return re.sub(r"\x1b\[[0-9;]*m", "", seen)


# ------------------------------------------------------------------------------------------ the counting


def counted(taken: dict[str, int], *statuses: Status, handed_in: int | None = None, folder: Path) -> Outcome:
    """The outcome of e-mails in these statuses, `one@…`, `two@…` …, by a server's log that took so many of each."""
    log = folder / "taken.jsonl"
    lines = [json.dumps({"recipients": [address], "size": 1}) for address, n in taken.items() for _ in range(n)]
    log.write_text("".join(f"{line}\n" for line in lines))
    names = ("one@x.example", "two@x.example", "three@x.example")
    emails = [
        Email(
            id=f"00000000-0000-7000-8000-{number:012d}", status=status, company_id="acme", reason="", version=1,
            created_at=1_000, updated_at=3_000, due_at=1_000, expires_at=9_000, reached_at=3_000,
            recipients=(RecipientState(address=address, state="accepted"),),
        )
        for number, (status, address) in enumerate(zip(statuses, names, strict=False))
    ]  # fmt: skip
    return summary.outcome(
        emails,
        [],
        summary.read_log(log),
        handed_in=handed_in or len(emails),
        heard=Counter(),
        forged=0,
        seconds=1.0,
    )


def test_what_was_taken_once_is_neither_lost_nor_doubled(tmp_path: Path) -> None:
    found = counted(
        {"one@x.example": 1, "two@x.example": 1}, Status.SENT, Status.SENT_ACKNOWLEDGED, folder=tmp_path
    )

    assert (0, 0, 0, True) == (found.lost, found.doubled, found.unfinished, found.good)


def test_one_that_the_server_never_took_is_seen(tmp_path: Path) -> None:
    """The log of the other side is the judge: a record that says SENT is no proof."""
    found = counted({"one@x.example": 1}, Status.SENT, Status.SENT_ACKNOWLEDGED, folder=tmp_path)

    assert (1, 0, False) == (found.lost, found.doubled, found.good)


def test_one_that_was_taken_twice_is_seen(tmp_path: Path) -> None:
    found = counted({"one@x.example": 3, "two@x.example": 1}, Status.SENT, Status.SENT, folder=tmp_path)

    assert (0, 2, False) == (found.lost, found.doubled, found.good)


def test_one_whose_record_is_gone_is_lost(tmp_path: Path) -> None:
    found = counted({"one@x.example": 1}, Status.SENT, handed_in=2, folder=tmp_path)

    assert (1, False) == (found.lost, found.good)


def test_one_that_has_not_ended_is_named_as_that(tmp_path: Path) -> None:
    """A busy machine is no loss; and it is no success either."""
    found = counted({"one@x.example": 1}, Status.SENT, Status.READY, folder=tmp_path)

    assert (0, 1, False) == (found.lost, found.unfinished, found.good)
    assert "1  still on their way" in "\n".join(summary.lines(found))


def test_a_forged_callback_is_no_success(tmp_path: Path) -> None:
    found = summary.outcome([], [], Counter(), handed_in=0, heard=Counter(), forged=1, seconds=1.0)

    assert not found.good


def test_what_happens_often_is_told_once() -> None:
    """Twenty lines of the same failure tell less than one."""
    heard = Heard()
    heard.note("the relay goes away")

    assert ("the relay goes away",) == heard.news()
    assert () == heard.news()
