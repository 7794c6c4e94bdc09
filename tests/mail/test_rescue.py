"""What becomes of an e-mail whose worker is gone, by the mark, the journal and how often it happened."""

from __future__ import annotations

import msgspec
import pytest

from staffetta.mail import backoff, lifecycle, rescue
from staffetta.mail.attempt import Rules
from staffetta.mail.lifecycle import IN_WORK, Cause, Status
from staffetta.mail.message import Claim, InWork, RecipientState, Transition

NOW = 1_800_000_000_000
MARK = NOW - 60_000
RULES = Rules(policy=backoff.GATEWAY, callback_due=True)
HOLD = msgspec.structs.replace(RULES, in_doubt="hold")
IN_PART = (RecipientState(address="b@example.org", state="accepted", reply="250"),)


def found(
    *, committed: bool = False, crashes: int = 0, alone_crashes: int = 0, alone: bool = False, doubts: int = 0,
    attempts: int = 0, journal: bool = True, settled: tuple[RecipientState, ...] = (),
    status: Status = Status.PROCESSING, token: str = "w1.77",
) -> InWork:  # fmt: skip
    claim = Claim(
        id="e1", ref=3, token=token, company_id="acme", at=NOW - 90_000, attempt=1 if journal else 0,
        attempts=attempts, doubts=doubts, crashes=crashes, alone_crashes=alone_crashes, created_at=NOW - 10**6,
        expires_at=NOW + 10**8, sender="s@example.com", recipients=("a@example.org",), settled=settled,
    )  # fmt: skip
    return InWork(
        status=status, claim=claim, committed_at=MARK if committed else 0, transport="relay", alone=alone
    )


def after(one: InWork, rules: Rules = RULES) -> Transition:
    move = rescue.after_crash(one, rules, now=NOW)
    lifecycle.check(move.source, move.target, move.cause)
    return move


def ends(move: Transition) -> tuple[Status, Cause]:
    return move.target, move.cause


def test_not_committed_is_certainly_not_delivered_and_sent_again_at_once() -> None:
    move = after(found(attempts=2))

    assert (Status.READY, Cause.RESTORED) == ends(move)
    assert (move.due_at, move.attempts, move.crashes) == (NOW, 2, 1)
    assert "worker w1 died before" in move.reason
    assert move.attempt is not None
    assert not move.attempt.counted


def test_committed_without_a_reply_is_in_doubt_and_sent_once_more_after_the_delay() -> None:
    move = after(found(committed=True))

    assert (Status.READY, Cause.IN_DOUBT) == ends(move)
    assert (move.due_at, move.attempts, move.doubts) == (MARK + 900_000, 1, 1)
    assert move.attempt is not None
    assert move.attempt.committed_at == MARK


def test_found_long_after_its_mark_it_is_due_now_and_not_in_the_past() -> None:
    one = msgspec.structs.replace(found(committed=True), committed_at=NOW - 10**7)

    assert after(one).due_at == NOW


def test_in_doubt_a_second_time_it_fails_in_doubt() -> None:
    move = after(found(committed=True, doubts=1, attempts=1))

    assert (Status.FAILED, Cause.IN_DOUBT) == ends(move)
    assert move.dead_letter is not None
    assert (move.dead_letter.last_failure_code, move.dead_letter.failed_attempts) == ("IN-DOUBT", 2)
    assert move.callback_due


def test_under_hold_a_human_decides_at_once() -> None:
    move = after(found(committed=True), HOLD)

    assert (Status.FAILED, Cause.IN_DOUBT) == ends(move)
    assert move.dead_letter is not None
    assert move.dead_letter.last_failure_code == "IN-DOUBT"


def test_in_doubt_with_somebody_accepted_ends_in_part_and_names_the_doubt() -> None:
    move = after(found(committed=True, settled=IN_PART), HOLD)

    assert (Status.SENT, Cause.ENDED_IN_PART) == ends(move)
    assert {one.address: one.state for one in move.settled or ()} == {
        "b@example.org": "accepted",
        "a@example.org": "in-doubt",
    }
    assert move.dead_letter is None


@pytest.mark.parametrize("rules", [RULES, HOLD])
def test_a_row_found_in_work_without_our_journal_is_in_doubt_not_unsent(rules: Rules) -> None:
    """Another program had it: nobody knows how far it came."""
    move = after(found(journal=False), rules)

    assert move.cause is Cause.IN_DOUBT
    assert move.target is (Status.READY if rules is RULES else Status.FAILED)
    assert move.attempt is None
    assert "without a journal" in move.reason


def test_without_our_journal_it_is_due_the_whole_delay_from_now() -> None:
    assert after(found(journal=False)).due_at == NOW + 900_000


# ------------------------------------------------------------------------------------------ suspects


@pytest.mark.parametrize("crashes", [0, 1, 2, 3, 50])
def test_a_crash_among_others_uses_up_nothing_however_often(crashes: int) -> None:
    move = after(found(crashes=crashes, alone=False))

    assert (Status.READY, Cause.RESTORED) == ends(move)
    assert (move.crashes, move.alone_crashes, move.attempts) == (crashes + 1, 0, 0)


def test_in_three_crashes_it_is_a_suspect() -> None:
    assert rescue.SUSPECT_CRASHES == 3


@pytest.mark.parametrize("crashes", [0, 2])
def test_alone_by_chance_tells_nothing_before_it_is_a_suspect(crashes: int) -> None:
    assert after(found(crashes=crashes, alone=True)).alone_crashes == 0


def test_a_suspect_that_kills_its_worker_alone_twice_ends_as_crashed() -> None:
    once = after(found(crashes=3, alone=True))
    twice = after(found(crashes=4, alone_crashes=1, alone=True))

    assert (ends(once), once.alone_crashes) == ((Status.READY, Cause.RESTORED), 1)
    assert (Status.FAILED, Cause.CRASHED) == ends(twice)
    assert twice.dead_letter is not None
    assert (twice.dead_letter.last_failure_code, twice.dead_letter.failed_attempts) == ("CRASHED", 0)


def test_crashed_with_an_attempt_in_doubt_says_in_doubt() -> None:
    """FAILED with an attempt in doubt always has code IN-DOUBT."""
    move = after(found(crashes=4, alone_crashes=1, alone=True, doubts=1))

    assert move.dead_letter is not None
    assert move.dead_letter.last_failure_code == "IN-DOUBT"


def test_crashed_with_somebody_accepted_ends_in_part() -> None:
    move = after(found(crashes=4, alone_crashes=1, alone=True, settled=IN_PART))

    assert (Status.SENT, Cause.ENDED_IN_PART) == ends(move)


# ------------------------------------------------------------------------------------------ the other stages


@pytest.mark.parametrize("status", sorted(IN_WORK - {Status.PROCESSING}))
def test_what_other_stages_held_goes_back_one_step(status: Status) -> None:
    move = after(found(status=status))

    assert (lifecycle.restored_to(status), Cause.RESTORED) == ends(move)
    assert (move.attempt, move.dead_letter, move.callback_due) == (None, None, None)


@pytest.mark.parametrize(("token", "worker"), [("w1.77", "w1"), ("w1.7.7", "w1"), ("w1", "w1"), ("", "")])
def test_a_token_names_its_worker_before_the_first_dot(token: str, worker: str) -> None:
    assert rescue.worker_of(token) == worker


def test_a_claim_of_nobody_is_told_as_one() -> None:
    assert after(found(status=Status.CALLING_SENT_CALLBACK, token="")).reason == "its worker is gone"
