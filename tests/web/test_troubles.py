"""What the overview says is wrong: nothing on a good day, the worst first on a bad one, and what to do each time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from staffetta.mail import alerts
from staffetta.mail.lifecycle import Status
from staffetta.mail.operators import Pause
from staffetta.mail.trend import Step
from staffetta.store.contract import DeadLetterCounts
from staffetta.web.dashboard import troubles
from staffetta.web.dashboard.troubles import State
from staffetta.web.parts import PartHealth

NOW = 1_800_000_000_000
GOOD = State(
    health=(PartHealth(name="store", state="ok", needed=True), PartHealth(name="queue", state="ok")),
    breakers=({"transport": "relay", "state": "closed", "reason": ""},),
    pauses=(),
    alerts=[
        alerts.shown(alerts.State(name=one.name, firing=False, value="", since=NOW)) for one in alerts.ALERTS
    ],
    letters=DeadLetterCounts(size=0, by_code={}, by_company={}),
    counts=dict.fromkeys(Status, 0),
    queue=(0, 0, 0),
    senders=1,
    minute=Step(since=NOW - 60_000, sent=5),
    began=NOW - 3_600_000,
    now=NOW,
)


def bad(**facts: Any) -> list[str]:
    found = troubles.of(msgspec.structs.replace(GOOD, **facts))
    assert all(one.remedy for one in found), "each says what to do"
    return [one.title for one in found]


def firing(*names: str) -> list[dict[str, Any]]:
    return [alerts.shown(alerts.State(name=name, firing=True, value="7", since=NOW)) for name in names]


def test_on_a_good_day_nothing_is_wrong() -> None:
    assert bad() == []
    assert bad(queue=(500, 20, 30)) == []
    assert bad(letters=DeadLetterCounts(size=3, by_code={"550": 3}, by_company={"acme": 3})) == []


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        ({"senders": 0}, "No worker sends"),
        ({"health": (PartHealth(name="queue", state="down", detail="refused"),)}, "The queue is down"),
        ({"breakers": ({"transport": "relay", "state": "open", "reason": "535 no"},)}, "Transport relay does not take mail"),
        ({"breakers": ({"transport": "relay", "state": "half-open", "reason": ""},)}, "Transport relay does not take mail"),
        ({"pauses": (Pause(scope="all", name="", since=NOW),)}, "All sending is paused"),
        ({"pauses": (Pause(scope="company", name="acme", since=NOW),)}, "Company acme is paused"),
        ({"counts": {**dict.fromkeys(Status, 0), Status.INVALID: 1}}, "1 payload could not be used"),
        ({"letters": DeadLetterCounts(size=1, by_code={"IN-DOUBT": 1}, by_company={"a": 1})}, "1 e-mail in doubt"),
        ({"letters": DeadLetterCounts(size=40, by_code={"550": 40}, by_company={"a": 40})}, "40 dead letters with code 550"),
        ({"alerts": firing("callbacks-failing")}, "A callback receiver is down"),
        ({"alerts": (), "queue": (9, 0, 0), "minute": Step(since=NOW - 60_000)}, "Nothing is sent while work waits"),
    ],
)  # fmt: skip
def test_each_trouble_is_told(facts: dict[str, Any], title: str) -> None:
    assert [title] == bad(**facts)


@pytest.mark.parametrize("name", [one.name for one in alerts.ALERTS])
def test_no_alert_is_lost_or_told_twice(name: str) -> None:
    """Those that this page tells in better words are told when what they speak of is there."""
    facts: dict[str, Any] = {
        "alerts": firing(name),
        "breakers": ({"transport": "relay", "state": "open", "reason": "refused"},)
        if name == "breaker-open"
        else (),
        "letters": DeadLetterCounts(
            size=2, by_code={"IN-DOUBT": 2} if name == "in-doubt" else {}, by_company={}
        ),
        "health": (PartHealth(name="store", state="down", needed=True),) if name == "store-down" else (),
    }
    assert len(bad(**facts)) == 1


def test_the_worst_comes_first_and_one_cause_is_told_once() -> None:
    found = bad(
        alerts=firing("failure-rate", "dlq-rate", "dlq-size"),
        pauses=(Pause(scope="company", name="acme", since=NOW),),
        letters=DeadLetterCounts(size=200, by_code={"550": 200}, by_company={"a": 200}),
    )
    assert found == [
        "Many e-mails fail", "Dead letters pile up", "Company acme is paused", "200 dead letters with code 550",
    ]  # fmt: skip
