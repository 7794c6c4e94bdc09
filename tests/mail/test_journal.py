"""What the journal says of recipients, parts and late replies: the same for every store."""

from __future__ import annotations

import msgspec
import pytest

from staffetta.errors import MoveNotAllowed
from staffetta.mail import journal, parts
from staffetta.mail.lifecycle import IN_WORK, MOVES, Cause, Status
from staffetta.mail.message import (
    Attempt,
    Claim,
    Delivery,
    HistoryEntry,
    NewEmail,
    RecipientReply,
    RecipientState,
    Reply,
    Transition,
)
from staffetta.mail.verdict import judge

A, B, D = "a@example.org", "b@example.org", "d@example.org"
OK = Reply(stage="dot", code=250, text="Ok", committed=True)
BUSY = Reply(stage="rcpt", code=450, text="busy")
NEVER = Reply(stage="rcpt", code=550, text="no")
MANY = Reply(stage="rcpt", code=452, enhanced="4.5.3", text="4.5.3 too many recipients")
MANY_5 = Reply(stage="rcpt", code=552, enhanced="5.5.3", text="5.5.3 too many recipients")
DOWN = Reply(stage="connect", name="refused")
LOST = Reply(stage="dot", name="eof", committed=True)


def answers(**replies: Reply) -> tuple[RecipientReply, ...]:
    return tuple(RecipientReply(address=f"{name}@example.org", reply=reply) for name, reply in replies.items())


def a_claim(*recipients: str, settled: tuple[RecipientState, ...] = ()) -> Claim:
    return Claim(
        id="e1", ref=1, token="w1.1", company_id="acme", at=5, attempt=2, created_at=0, expires_at=9,
        sender="s@example.com", recipients=recipients, settled=settled,
    )  # fmt: skip


def delivery(*pairs: RecipientReply) -> Delivery:
    return Delivery(transport="relay", replies=pairs, committed=any(one.reply.committed for one in pairs))


# ------------------------------------------------------------------------------------------ who is left


def test_who_is_left_is_the_envelope_without_those_who_are_finished() -> None:
    done = [RecipientState(address=A, state="accepted")]

    assert journal.to_try((A, B), (), None) == (A, B)
    assert journal.to_try((A, B), done, None) == (B,)
    assert journal.to_try((A, B, D), done, (D,)) == (D,)
    assert journal.to_try((A, B), (), ()) == ()


def test_states_are_told_for_the_whole_envelope_in_its_order() -> None:
    done = [RecipientState(address=D, state="refused", reply="550 no")]

    found = journal.states((A, B, D), done, Status.SENT, answers(a=OK, b=BUSY))

    assert [(one.address, one.state) for one in found] == [(A, "accepted"), (B, "waiting"), (D, "refused")]


def test_a_yes_counts_only_in_an_email_that_was_sent() -> None:
    assert [one.state for one in journal.states((A,), (), Status.READY, answers(a=OK))] == ["waiting"]


def test_the_owner_is_told_of_those_who_did_not_get_it() -> None:
    states = [
        RecipientState(address=name, state=name)
        for name in ("waiting", "accepted", "refused", "given-up", "in-doubt")
    ]

    assert [one.state for one in journal.without_it(states)] == ["refused", "given-up", "in-doubt"]


# ------------------------------------------------------------------------------------------ parts


def test_after_a_part_only_a_yes_and_a_5yz_are_final() -> None:
    claim = a_claim(A, B, D, settled=(RecipientState(address="x@example.org", state="accepted"),))
    closed = Attempt(attempt=2, replies=answers(a=OK, b=NEVER))

    settled, left = journal.after_part(claim, closed)

    assert [(one.address, one.state) for one in settled] == [
        ("x@example.org", "accepted"),
        (A, "accepted"),
        (B, "refused"),
    ]
    assert left == (D,)


def test_split_goes_on_only_when_somebody_was_accepted() -> None:
    for many in (MANY, MANY_5):
        some = delivery(*answers(a=OK, b=many))
        none = delivery(*answers(a=many, b=many))
        assert parts.next_part(some, [judge(one.reply) for one in some.replies], another=False) == "split"
        assert parts.next_part(none, [judge(one.reply) for one in none.replies], another=True) == ""


def test_the_next_transport_is_tried_only_when_nothing_was_committed() -> None:
    down, lost = delivery(*answers(a=DOWN)), delivery(*answers(a=LOST))
    committed = msgspec.structs.replace(down, committed=True)

    assert parts.next_part(down, [judge(DOWN)], another=True) == "fallback"
    assert parts.next_part(down, [judge(DOWN)], another=False) == ""
    assert parts.next_part(committed, [judge(DOWN)], another=True) == ""
    assert parts.next_part(lost, [judge(LOST)], another=True) == ""


@pytest.mark.parametrize("reply", [BUSY, NEVER])
def test_a_no_to_the_email_is_no_reason_for_another_transport(reply: Reply) -> None:
    assert parts.next_part(delivery(*answers(a=reply)), [judge(reply)], another=True) == ""


def test_nobody_is_split_off_while_somebody_is_in_doubt() -> None:
    found = delivery(*answers(a=OK, b=MANY, d=LOST))

    assert parts.next_part(found, [judge(one.reply) for one in found.replies], another=False) == ""


@pytest.mark.parametrize("many", [MANY, MANY_5])
def test_a_closed_part_keeps_final_replies_and_leaves_the_rest_to_try(many: Reply) -> None:
    """552 for too many recipients is no refusal, though it begins with 5."""
    claim = a_claim(A, B, D)
    found = delivery(*answers(a=OK, b=many, d=NEVER))

    closed = parts.close_part(claim, found, [judge(one.reply) for one in found.replies], now=9, committed_at=7)
    settled, left = journal.after_part(claim, closed)

    assert left == (B,)
    assert [(one.address, one.state) for one in settled] == [(A, "accepted"), (D, "refused")]
    assert (closed.part, closed.counted, closed.committed_at, closed.closed_at) == (1, False, 7, 9)


def test_while_no_transport_is_open_the_transports_trouble_counts_nothing() -> None:
    verdicts = [judge(reply) for reply in (DOWN, BUSY, NEVER, LOST)]

    assert [one.action for one in parts.held(verdicts)] == ["HOLD", "RETRY", "FAIL", "RETRY"]


# ------------------------------------------------------------------------------------------ late replies


def late(number: int, **replies: Reply) -> Attempt:
    return Attempt(attempt=number, token=f"w1.{number}", replies=answers(**replies))


def test_of_late_replies_an_acceptance_is_told_first() -> None:
    assert journal.choose_late([late(1, a=NEVER), late(2, a=OK)], [A]) == late(2, a=OK)
    assert journal.choose_late([late(1, a=BUSY), late(2, a=NEVER)], [A]) == late(1, a=BUSY)


def test_a_late_reply_about_nobody_who_is_left_tells_nothing() -> None:
    assert journal.choose_late([late(1, a=OK)], [B]) is None
    assert journal.choose_late([late(1, a=OK, b=BUSY)], [B]) == late(1, a=OK, b=BUSY)
    assert journal.choose_late([], [A]) is None


def test_a_part_is_known_by_attempt_part_and_token() -> None:
    one = Attempt(attempt=1, part=2, token="w1.1")

    assert journal.is_this_part(one, msgspec.structs.replace(one, committed_at=9))
    for other in ({"attempt": 2}, {"part": 1}, {"token": "w2.1"}):
        assert not journal.is_this_part(one, msgspec.structs.replace(one, **other))


# ------------------------------------------------------------------------------------------ what is refused


def a_new(*steps: tuple[Status, Cause]) -> NewEmail:
    history = tuple(HistoryEntry(status=status, cause=cause, reason="", at=0) for status, cause in steps)
    return NewEmail(id="e1", company_id="acme", history=history, created_at=0, due_at=0, expires_at=9)


def test_a_new_email_has_walked_through_the_table() -> None:
    accepted, claimed, composed = (
        (Status.ACCEPTED, Cause.ACCEPTED), (Status.INTAKING, Cause.CLAIMED), (Status.READY, Cause.COMPOSED),
    )  # fmt: skip
    journal.check_new(a_new(accepted))
    journal.check_new(a_new(accepted, claimed, composed))
    for wrong in ((), (claimed,), (accepted, composed), (accepted, claimed), (composed,)):
        with pytest.raises(MoveNotAllowed):
            journal.check_new(a_new(*wrong))


@pytest.mark.parametrize("move", sorted((m for m in MOVES if m[0] is not None), key=str))
def test_a_move_into_work_is_a_claims_alone(move: tuple[Status, Status, Cause]) -> None:
    source, target, cause = move
    made = Transition(id="e1", source=source, target=target, cause=cause, at=0)
    if target in IN_WORK:
        with pytest.raises(MoveNotAllowed, match="entered by a claim"):
            journal.check_move(made)
    else:
        journal.check_move(made)


@pytest.mark.parametrize(
    ("status", "due", "exhausted", "over"),
    [
        (Status.SENT, False, False, True),
        (Status.SENT, True, False, False),
        (Status.FAILED, True, False, False),
        (Status.INVALID, False, False, True),
        (Status.SENT_ACKNOWLEDGED, False, False, True),
        (Status.CALLING_SENT_CALLBACK, True, False, False),
        (Status.CALLING_SENT_CALLBACK, True, True, True),
        (Status.READY, False, False, False),
        (Status.ACCEPTED, False, False, False),
        (Status.PROCESSING, False, False, False),
        (Status.INTAKING, False, False, False),
    ],
)
def test_over_is_when_nothing_will_be_done_by_itself(
    status: Status, due: bool, exhausted: bool, over: bool
) -> None:
    assert journal.is_over(status, callback_due=due, callback_exhausted=exhausted) is over
