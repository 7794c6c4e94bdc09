"""What the log says: the seed's line to the letter, one id through all stages, as loud as each section is told to be."""

from __future__ import annotations

import asyncio
import io
import json
import pty
from collections import deque
from pathlib import Path
from typing import Any, Literal

import pytest

from doubles.clock import run
from doubles.rig import Rig, new_email
from doubles.transport import ScriptedTransport, accepts, refuses
from staffetta.logs import Level, Log, mask
from staffetta.mail import events
from staffetta.mail.lifecycle import Cause, Status

NOW = 1_760_869_800_000


class Pad(io.BytesIO):
    """Where a log is written."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


def written(
    *heard: events.Event,
    level: Level = "info",
    levels: dict[str, str] | None = None,
    form: Literal["auto", "json", "text"] = "json",
    terminal: bool = False,
) -> Pad:
    pad = Pad(terminal=terminal)
    log = Log(level=level, levels=levels, form=form, stream=pad)
    for event in heard:
        log(event)
    log.flush()
    return pad


def attempts(*answers: Any) -> list[events.Event]:
    """The events of one e-mail that these answers meet."""

    async def story() -> list[events.Event]:
        rig = Rig(transports=[ScriptedTransport(script=deque(answers))])
        (job,) = await rig.add(new_email(now=rig.clock()))
        for _ in answers:
            email = await rig.deliver(job)
            await asyncio.sleep(max(0, email.due_at - rig.clock()) / 1_000)  # the clock is turned
        return rig.events

    found: list[events.Event] = run(story)
    return found


def test_a_retry_is_told_as_the_seed_tells_it() -> None:
    """Who searches logs by the seed's names finds what he looks for."""
    (line,) = written(*attempts(refuses("dot", 421, "Service temporarily unavailable"))).lines
    decided = line.pop("nextRetryDelay")
    assert 750 <= decided <= 1_250
    assert {
        "level": "warn",
        "message": "Job failed, scheduling retry",
        "jobId": "00000000-0000-7000-8000-000000000001",
        "companyId": "acme",
        "attempt": 1,
        "maxAttempts": 5,
        "errorCode": "421",
        "errorReason": "Service temporarily unavailable",
        "isRetryable": True,
    }.items() <= line.items()
    assert line["timestamp"].endswith("Z")
    assert ("TRANSIENT", "relay") == (line["category"], line["transport"])


def test_the_end_of_the_road_is_told_as_an_error() -> None:
    (line,) = written(*attempts(refuses("rcpt", 550, "5.1.1 No such user"))).lines
    assert ("error", "Job failed permanently", "550", False) == (
        line["level"], line["message"], line["errorCode"], line["isRetryable"],
    )  # fmt: skip


def test_every_attempt_has_its_line_and_one_id_through_all_stages() -> None:
    """One search tells an e-mail's whole story."""
    heard: list[events.Event] = [
        events.AcceptedEmail(at=NOW, id="1", company_id="acme"),
        events.Moved(
            at=NOW, id="1", company_id="acme", source=Status.INTAKING, target=Status.READY, cause=Cause.COMPOSED
        ),
        events.LockLost(at=NOW, id="1", company_id="acme", step="deliver"),
        events.Reported(at=NOW, ids=("1",), company_id="acme", outcome="failed", status=500, body="no"),
    ]
    lines = written(*heard, level="debug").lines
    assert len(heard) == len(lines)
    assert all("1" in (line.get("jobId"), *line.get("jobIds", ())) for line in lines)
    told = written(*attempts(refuses("dot", 450, "wait"), accepts)).lines
    assert ["Job failed, scheduling retry", "Job sent"] == [line["message"] for line in told]


def test_the_step_that_lost_its_lock_says_so_in_the_seed_s_words() -> None:
    lost = events.LockLost(at=NOW, id="1", company_id="acme", step="deliver")
    (line,) = written(lost).lines
    assert ("warn", "failed to acquire processing lock") == (line["level"], line["message"])


def test_a_section_can_be_louder_or_quieter_than_the_rest() -> None:
    heard = attempts(refuses("dot", 450, "wait"), accepts)
    assert 2 == len(written(*heard).lines)
    assert 1 == len(written(*heard, levels={"deliver": "warning"}).lines)
    assert 2 == len(written(*heard, level="error", levels={"deliver": "info"}).lines)
    assert 0 == len(written(*heard, level="error").lines)


def test_on_a_terminal_it_reads_like_words() -> None:
    heard = attempts(refuses("dot", 450, "wait"))
    text = written(*heard, form="auto", terminal=True).getvalue().decode()
    assert "Job failed, scheduling retry" in text
    assert not text.lstrip().startswith("{")
    assert written(*heard, form="auto").lines


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("user@example.com", "u***@e***.com"),
        ("<ada.lovelace@mail.example.co.uk> unknown", "<a***@m***.uk> unknown"),
        ('"quoted name"@example.org refused', "q***@e***.org refused"),
        ("nobody@[192.0.2.1]", "n***@[***"),
        ("josé@exämple.it", "j***@e***.it"),
        ("no address at all", "no address at all"),
    ],
)
def test_addresses_are_masked_wherever_they_stand(said: str, shown: str) -> None:
    assert shown == mask(said)


@pytest.mark.parametrize("form", ["json", "text"])
def test_another_s_words_begin_no_line_and_move_no_cursor(form: Literal["json", "text"]) -> None:
    """A server's reply may hold anything: it must not write lines of its own into our log."""
    evil = 'x\r\n{"level":"error","message":"forged"}\x1b[2J\x9b31m\u2028y'
    pad = written(*attempts(refuses("dot", 450, evil)), form=form)
    assert 1 == len(pad.getvalue().splitlines())
    assert not any(byte < 32 and byte != 10 for byte in pad.getvalue())
    assert b"\x1b" not in pad.getvalue()


def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    """A closed pipe or a full disk is no reason to send no mail."""
    gone = (tmp_path / "log").open("wb")
    gone.close()
    log = Log(form="json", stream=gone)
    for event in attempts(accepts):
        log(event)
    log.flush()


def test_the_real_terminal_is_known() -> None:
    import os

    leader, follower = pty.openpty()
    with os.fdopen(follower, "wb", buffering=0) as stream:
        log = Log(form="auto", stream=stream)
        log.write("warning", "hello", {"a": 1}, at=NOW)
        log.flush()
        assert b"hello" in os.read(leader, 1_000)
    os.close(leader)
