"""What servers said when they did not take an e-mail: remembered within bounds, laid together over processes."""

from __future__ import annotations

from typing import Any

from doubles.stocked import START
from staffetta.flow.gathering import Sight
from staffetta.mail.counting import REPLIES_MAX, WORDS_MAX, Counting
from staffetta.mail.events import Attempted
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Decision, Reply
from staffetta.mail.tally import Tally
from staffetta.mail.verdict import judge


def refused(
    code: int, *, at: int = START, text: str = "5.1.1 no such user", transport: str = "relay"
) -> Attempted:
    reply = Reply(stage="rcpt", code=code, text=text)
    return Attempted(
        at=at, id="x", company_id="acme", attempt=1, attempts=1, max_attempts=5, counted=True, transport=transport,
        committed=False, target=Status.FAILED, cause=Cause.REFUSED, decision=Decision(reply=reply, verdict=judge(reply)),
        opened_at=at, accepted_at=at,
    )  # fmt: skip


def test_the_latest_comes_first_with_its_words_and_how_often() -> None:
    counting = Counting()
    for at, code in ((1, 550), (2, 554), (3, 550)):
        counting(refused(code, at=START + at, text=f"said at {at}"))
    found = [(row["code"], row["times"], row["at"] - START, row["words"]) for row in counting.replies()]
    assert found == [("550", 2, 3, "550 said at 3"), ("554", 1, 2, "554 said at 2")]


def test_what_servers_invent_fills_no_memory() -> None:
    counting = Counting()
    for number in range(500, 600):
        counting(refused(number, text="x" * 5_000))
    assert len(counting.replies()) == REPLIES_MAX
    assert all(len(row["words"]) <= WORDS_MAX for row in counting.replies())


def test_several_processes_are_told_as_one() -> None:
    def process(times: int, at: int) -> dict[str, Any]:
        row = {"transport": "relay", "action": "FAIL", "code": "550", "rule": "r", "words": f"at {at}",
               "times": times, "at": at}  # fmt: skip
        return {"replies": [row]}

    sight = Sight(at=START, processes=(process(2, 10), process(3, 20), {}), sums=Tally(), processed={})
    assert [(5, 20, "at 20")] == [(row["times"], row["at"], row["words"]) for row in sight.replies()]
