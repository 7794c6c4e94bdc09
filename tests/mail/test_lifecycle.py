"""The table of moves is the contract's, row by row; what is not in it is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.errors import MoveNotAllowed
from staffetta.mail import lifecycle
from staffetta.mail.lifecycle import FINISHED, IN_WORK, MOVES, Cause, Status

# SPEC.md, section 3, in its own words: sources -> targets, causes.
TABLE = """
    -                                                        -> ACCEPTED    | accepted
    ACCEPTED                                                 -> INTAKING    | claimed
    INTAKING                                                 -> READY       | composed
    INTAKING                                                 -> INVALID     | invalid
    READY                                                    -> PROCESSING  | claimed
    PROCESSING                                               -> SENT        | delivered
    PROCESSING                                               -> READY       | deferred, held, stopped, in-doubt
    PROCESSING, READY                                        -> SENT        | ended in part
    PROCESSING                                               -> FAILED      | refused, exhausted, in-doubt, crashed
    ACCEPTED, READY                                          -> FAILED      | expired, cancelled
    SENT                                                     -> CALLING-SENT-CALLBACK   | reporting
    FAILED                                                   -> CALLING-FAILED-CALLBACK | reporting
    CALLING-SENT-CALLBACK                                    -> SENT-ACKNOWLEDGED       | acknowledged
    CALLING-FAILED-CALLBACK                                  -> FAILED-ACKNOWLEDGED     | acknowledged
    INTAKING                                                 -> ACCEPTED    | restored
    PROCESSING                                               -> READY       | restored
    CALLING-SENT-CALLBACK                                    -> SENT        | restored
    CALLING-FAILED-CALLBACK                                  -> FAILED      | restored
    FAILED, FAILED-ACKNOWLEDGED, CALLING-FAILED-CALLBACK     -> READY       | retried
    FAILED, FAILED-ACKNOWLEDGED, CALLING-FAILED-CALLBACK     -> SENT        | resolved
"""


def named(words: str) -> list[str]:
    return [word.strip() for word in words.split(",")]


def moves_of_the_contract() -> set[tuple[Status | None, Status, Cause]]:
    found = set()
    for line in TABLE.strip().splitlines():
        sources, _, rest = line.partition("->")
        target, _, causes = rest.partition("|")
        for source, cause in itertools.product(named(sources), named(causes)):
            found.add((None if source == "-" else Status(source), Status(target.strip()), Cause(cause)))
    return found


def test_the_table_is_the_contracts() -> None:
    assert moves_of_the_contract() == set(MOVES)


def test_there_are_eleven_statuses_spelt_so_everywhere() -> None:
    expected = [
        "ACCEPTED", "INTAKING", "READY", "PROCESSING", "SENT", "FAILED", "INVALID", "CALLING-SENT-CALLBACK",
        "CALLING-FAILED-CALLBACK", "SENT-ACKNOWLEDGED", "FAILED-ACKNOWLEDGED",
    ]  # fmt: skip
    assert sorted(expected) == sorted(str(status) for status in Status)


@pytest.mark.parametrize("source", [None, *Status])
def test_what_is_in_the_table_passes_and_all_else_is_refused(source: Status | None) -> None:
    for target, cause in itertools.product(Status, Cause):
        if (source, target, cause) in moves_of_the_contract():
            lifecycle.check(source, target, cause)
        else:
            with pytest.raises(MoveNotAllowed, match=f"from {source} to {target} as '{cause}'"):
                lifecycle.check(source, target, cause)


def test_in_work_is_what_restore_takes_back() -> None:
    """`restored` leads out of every in-work status and out of nothing else."""
    assert {source for source, _, cause in MOVES if cause is Cause.RESTORED} == IN_WORK


@pytest.mark.parametrize("status", sorted(IN_WORK))
def test_restored_falls_back_one_step(status: Status) -> None:
    assert (status, lifecycle.restored_to(status), Cause.RESTORED) in MOVES


def test_in_work_statuses_are_entered_by_a_claim_only() -> None:
    causes = {cause for _, target, cause in MOVES if target in IN_WORK}
    assert causes == {Cause.CLAIMED, Cause.REPORTING}


@given(st.lists(st.sampled_from(sorted(MOVES - {lifecycle.FIRST}, key=str)), max_size=60))
def test_no_walk_leaves_a_final_status_but_by_an_operators_hand(
    walk: list[tuple[Status, Status, Cause]],
) -> None:
    """INVALID and SENT-ACKNOWLEDGED are never left; a failed e-mail only by retried or resolved."""
    status = Status.ACCEPTED
    for source, target, cause in walk:
        if source is not status:
            continue
        assert source not in (Status.INVALID, Status.SENT_ACKNOWLEDGED)
        if source is Status.FAILED_ACKNOWLEDGED:
            assert cause in (Cause.RETRIED, Cause.RESOLVED)
        if source in FINISHED and target in (Status.READY, Status.PROCESSING):
            assert cause is Cause.RETRIED
        status = target


def test_from_everywhere_an_end_can_be_reached() -> None:
    """No status is a trap: from each there is a way to one that is finished."""
    reached = set(FINISHED)
    while True:
        more = {s for s, t, _ in MOVES if s is not None and t in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(Status)
