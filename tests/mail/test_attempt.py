"""What follows from one attempt: the move, what it counts, when it is due, who is left, what is buried."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import attempt, backoff, lifecycle
from staffetta.mail.attempt import Rules, after_attempt
from staffetta.mail.lifecycle import Cause, Status
from staffetta.mail.message import Claim, Delivery, RecipientReply, RecipientState, Reply, Transition
from staffetta.mail.verdict import judge

NOW = 1_800_000_000_000
OPENED = NOW - 5_000
MARK = NOW - 1_000
RULES = Rules(policy=backoff.GATEWAY, callback_due=True)
HOLD_RULES = msgspec.structs.replace(RULES, in_doubt="hold")

OK = Reply(stage="dot", code=250, enhanced="2.0.0", text="2.0.0 Ok: queued as 4711", committed=True)
LATER = Reply(stage="rcpt", code=450, enhanced="4.2.0", text="4.2.0 mailbox busy")
NEVER = Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no such user")
LOST = Reply(stage="dot", name="eof", text="connection lost", committed=True)
DOWN = Reply(stage="connect", name="refused", text="connection refused")
WRONG_PASSWORD = Reply(stage="auth", code=535, enhanced="5.7.8", text="5.7.8 authentication failed")
OURS = Reply(stage="data", name="unexpected", text="ValueError: a fault of ours")
ALL = (OK, LATER, NEVER, LOST, DOWN, WRONG_PASSWORD, OURS)


def a_claim(
    *recipients: str, attempts: int = 0, doubts: int = 0, tries: int | None = None,
    settled: Sequence[RecipientState] = (),
) -> Claim:  # fmt: skip
    return Claim(
        id="e1", ref=7, token="w1.1", company_id="acme", at=OPENED, attempt=tries or attempts + 1, attempts=attempts,
        doubts=doubts, created_at=NOW - 60_000, expires_at=NOW + 10**8, sender="us@example.com",
        recipients=recipients or ("a@example.org",), settled=tuple(settled),
    )  # fmt: skip


def after(
    claim: Claim, *replies: Reply, rules: Rules = RULES, draw: float = 0.5, mark: int | None = None
) -> Transition:
    pairs = zip(claim.recipients, replies, strict=True)
    committed = any(reply.committed for reply in replies)
    delivery = Delivery(
        transport="relay",
        replies=tuple(RecipientReply(address=a, reply=r) for a, r in pairs),
        committed=committed,
    )
    at = (MARK if committed else 0) if mark is None else mark
    move = after_attempt(
        claim, delivery, [judge(reply) for reply in replies], rules, now=NOW, draw=draw, committed_at=at
    )
    lifecycle.check(move.source, move.target, move.cause)
    return move


def ends(move: Transition) -> tuple[Status, Cause]:
    return move.target, move.cause


def states(move: Transition) -> dict[str, str]:
    return {one.address: one.state for one in move.settled or ()}


# ------------------------------------------------------------------------------------------ one recipient


def test_accepted_is_sent_with_the_servers_words() -> None:
    move = after(a_claim(), OK)

    assert (Status.SENT, Cause.DELIVERED) == ends(move)
    assert (move.reason, move.attempts, move.callback_due) == ("250 2.0.0 Ok: queued as 4711", 1, True)
    assert move.dead_letter is None
    assert move.attempt is not None
    assert (move.attempt.counted, move.attempt.committed_at, move.attempt.transport) == (True, MARK, "relay")
    assert (move.source, move.token, move.at) == (Status.PROCESSING, "w1.1", NOW)


@pytest.mark.parametrize(("failed", "delay"), [(0, 1_000), (1, 2_000), (2, 4_000), (3, 8_000)])
def test_deferred_is_due_again_by_the_policy_and_counts(failed: int, delay: int) -> None:
    move = after(a_claim(attempts=failed), LATER)

    assert (Status.READY, Cause.DEFERRED) == ends(move)
    assert (move.due_at, move.attempts) == (NOW + delay, failed + 1)
    assert move.reason == "450 4.2.0 mailbox busy"
    assert move.dead_letter is None


def test_out_of_attempts_is_a_dead_letter_with_all_of_them() -> None:
    move = after(a_claim(attempts=4), LATER)

    assert (Status.FAILED, Cause.EXHAUSTED) == ends(move)
    assert move.dead_letter is not None
    assert (move.dead_letter.failed_attempts, move.dead_letter.last_failure_code) == (5, "450")
    assert move.dead_letter.last_failure_reason == "450 4.2.0 mailbox busy"
    assert (move.dead_letter.enqueued_at, move.dead_letter.moved_at) == (NOW - 60_000, NOW)
    assert states(move) == {"a@example.org": "given-up"}


def test_refused_at_the_first_attempt_is_a_dead_letter_with_one() -> None:
    move = after(a_claim(), NEVER)

    assert (Status.FAILED, Cause.REFUSED) == ends(move)
    assert move.dead_letter is not None
    assert (move.dead_letter.failed_attempts, move.dead_letter.last_failure_code) == (1, "550")
    assert states(move) == {"a@example.org": "refused"}


@pytest.mark.parametrize("reply", [DOWN, WRONG_PASSWORD])
@pytest.mark.parametrize("failed", [0, 4])
def test_trouble_of_the_transport_before_mail_uses_up_no_attempt(reply: Reply, failed: int) -> None:
    """A relay that is down for an hour costs an hour, not a dead letter."""
    move = after(a_claim(attempts=failed, tries=9), reply)

    assert (Status.READY, Cause.HELD) == ends(move)
    assert move.attempts == failed
    assert move.attempt is not None
    assert not move.attempt.counted
    assert move.due_at is not None
    assert move.due_at > NOW


def test_held_until_the_breaker_asks_again_where_it_is_open() -> None:
    rules = msgspec.structs.replace(RULES, held_until=NOW + 42_000)

    assert after(a_claim(), WRONG_PASSWORD, rules=rules).due_at == NOW + 42_000


def test_an_error_of_our_own_is_tried_three_times() -> None:
    """An unexpected exception of our own: UNKNOWN, at most 3 attempts, then a dead letter with its words."""
    assert [after(a_claim(attempts=n), OURS).target for n in range(3)] == [
        Status.READY,
        Status.READY,
        Status.FAILED,
    ]
    letter = after(a_claim(attempts=2), OURS).dead_letter
    assert letter is not None
    assert "a fault of ours" in letter.last_failure_reason


def test_a_slow_retry_waits_at_least_a_minute_and_greylisting_five() -> None:
    slow = Reply(stage="mail", code=452, enhanced="4.3.1", text="4.3.1 insufficient system storage")
    grey = Reply(stage="rcpt", code=450, enhanced="4.7.1", text="4.7.1 Greylisted")

    assert after(a_claim(), slow, draw=0.0).due_at == NOW + 60_000
    assert after(a_claim(), grey, draw=0.0).due_at == NOW + 300_000


def test_a_servers_word_raises_the_delay_and_never_lowers_it() -> None:
    asked = msgspec.structs.replace(LATER, text="4.2.0 try again in 120 seconds")

    assert after(a_claim(), asked).due_at == NOW + 120_000
    rules = Rules(policy=backoff.PATIENT)
    assert after(a_claim(), asked, rules=rules).due_at == NOW + 300_000


# ------------------------------------------------------------------------------------------ in doubt


def test_in_doubt_is_sent_once_more_after_its_delay_from_the_mark() -> None:
    move = after(a_claim(), LOST)

    assert (Status.READY, Cause.IN_DOUBT) == ends(move)
    assert (move.due_at, move.attempts, move.doubts) == (MARK + 900_000, 1, 1)
    assert move.attempt is not None
    assert move.attempt.counted


def test_the_one_resend_is_allowed_past_the_last_attempt() -> None:
    assert ends(after(a_claim(attempts=4), LOST)) == (Status.READY, Cause.IN_DOUBT)


def test_in_doubt_twice_fails_as_in_doubt() -> None:
    move = after(a_claim(attempts=1, doubts=1), LOST)

    assert (Status.FAILED, Cause.IN_DOUBT) == ends(move)
    assert move.dead_letter is not None
    assert move.dead_letter.last_failure_code == "IN-DOUBT"
    assert states(move) == {"a@example.org": "in-doubt"}


def test_under_hold_a_human_decides_at_once() -> None:
    move = after(a_claim(), LOST, rules=HOLD_RULES)

    assert (Status.FAILED, Cause.IN_DOUBT) == ends(move)
    assert move.dead_letter is not None
    assert move.dead_letter.last_failure_code == "IN-DOUBT"


@pytest.mark.parametrize("reply", [NEVER, LATER])
def test_failed_with_an_attempt_in_doubt_always_says_in_doubt(reply: Reply) -> None:
    """The resend was refused, or nothing was left: the first copy may have arrived all the same."""
    move = after(a_claim(attempts=4, doubts=1), reply)

    assert move.target is Status.FAILED
    assert move.dead_letter is not None
    assert move.dead_letter.last_failure_code == "IN-DOUBT"


@pytest.mark.parametrize("name", ["eof", "timeout", "reset"])
def test_a_lost_line_before_the_dot_is_no_doubt(name: str) -> None:
    before_dot = Reply(stage="data", name=name, text="lost")

    move = after(a_claim(), before_dot)

    assert (Status.READY, Cause.DEFERRED) == ends(move)
    assert move.doubts in (None, 0)


@pytest.mark.parametrize("stage", ["quit", "rset"])
def test_an_error_while_leaving_cannot_undo_a_yes(stage: str) -> None:
    left = Reply(stage=stage, name="eof", text="closed", committed=True)

    assert ends(after(a_claim(), left)) == (Status.SENT, Cause.DELIVERED)


# ------------------------------------------------------------------------------------------ several recipients

A, B, D = "a@example.org", "b@example.org", "d@example.org"


def test_a_later_attempt_goes_only_to_those_not_yet_accepted() -> None:
    move = after(a_claim(A, B, D), OK, LATER, NEVER)

    assert (Status.READY, Cause.DEFERRED) == ends(move)
    assert move.recipients == (B,)
    assert states(move) == {A: "accepted", D: "refused"}
    assert (move.due_at, move.attempts) == (NOW + 1_000, 1)


def test_sent_when_somebody_accepted_and_none_is_left() -> None:
    move = after(a_claim(A, B), OK, NEVER)

    assert move.target is Status.SENT
    assert states(move) == {A: "accepted", B: "refused"}
    assert move.dead_letter is None


def test_failed_when_nobody_accepted() -> None:
    move = after(a_claim(A, B), NEVER, NEVER)

    assert (Status.FAILED, Cause.REFUSED) == ends(move)
    assert states(move) == {A: "refused", B: "refused"}


def test_attempts_over_with_somebody_accepted_ends_in_part_and_names_the_rest() -> None:
    claim = a_claim(B, D, attempts=4, settled=[RecipientState(address=A, state="accepted", reply="250")])

    move = after(claim, LATER, NEVER)

    assert (Status.SENT, Cause.ENDED_IN_PART) == ends(move)
    assert states(move) == {A: "accepted", B: "given-up", D: "refused"}
    assert move.dead_letter is None
    assert move.callback_due


def test_accepted_before_and_refused_now_is_sent_in_part() -> None:
    claim = a_claim(B, settled=[RecipientState(address=A, state="accepted", reply="250")])

    assert after(claim, NEVER).target is Status.SENT


def test_in_doubt_for_one_is_a_resend_for_him_and_those_who_wait() -> None:
    move = after(a_claim(A, B, D), LOST, LATER, NEVER)

    assert (Status.READY, Cause.IN_DOUBT) == ends(move)
    assert move.recipients == (A, B)
    assert states(move) == {D: "refused"}


def test_one_that_is_held_holds_those_that_are_left() -> None:
    later = Reply(stage="rcpt", code=421, enhanced="4.3.2", text="4.3.2 closing")

    move = after(a_claim(A, B), DOWN, later)

    assert (Status.READY, Cause.HELD) == ends(move)
    assert move.recipients is None
    assert move.attempts == 0


def test_the_slowest_of_those_left_sets_the_time() -> None:
    grey = Reply(stage="rcpt", code=450, enhanced="4.7.1", text="4.7.1 Greylisted")

    assert after(a_claim(A, B), LATER, grey).due_at == NOW + 300_000


# ------------------------------------------------------------------------------------------ laws


@given(
    replies=st.lists(st.sampled_from(ALL), min_size=1, max_size=5),
    attempts=st.integers(0, 6), doubts=st.integers(0, 2), hold=st.booleans(), draw=st.floats(0, 0.999),
    before=st.lists(st.sampled_from(("accepted", "refused")), max_size=2),
)  # fmt: skip
def test_whatever_was_answered_nobody_is_forgotten(
    replies: list[Reply], attempts: int, doubts: int, hold: bool, draw: float, before: list[str]
) -> None:
    """Every recipient is settled or left to try; what ends has an end; what was refused or accepted stays so."""
    names = [f"r{n}@example.org" for n in range(len(replies))]
    settled = [RecipientState(address=f"s{n}@example.org", state=state) for n, state in enumerate(before)]  # type: ignore[arg-type]  # two of its words
    claim = a_claim(*names, attempts=attempts, doubts=doubts, settled=settled)

    move = after(claim, *replies, rules=HOLD_RULES if hold else RULES, draw=draw)

    told = states(move) if move.settled is not None else {one.address: one.state for one in settled}
    left = move.recipients if move.recipients is not None else claim.recipients
    if len(replies) == 1 and move.target is Status.SENT and move.settled is None:
        told[names[0]] = "accepted"
    if move.target is Status.READY:
        assert set(told) | set(left) == {*names, *(one.address for one in settled)}
        assert not set(told) & set(left)
        assert left
        assert move.due_at is not None
        assert move.due_at >= NOW
        assert move.dead_letter is None
    else:
        assert {*names, *(one.address for one in settled)} == set(told)
        assert (move.target is Status.SENT) is ("accepted" in told.values())
        assert (move.dead_letter is not None) is (move.target is Status.FAILED)
        assert move.callback_due is True
        if move.dead_letter is not None and (doubts or LOST in replies):
            assert move.dead_letter.last_failure_code == "IN-DOUBT"
    for one in settled:
        assert told[one.address] == one.state
    for name, reply in zip(names, replies, strict=True):
        if reply is OK:
            assert told[name] == "accepted"
        if reply is NEVER:
            assert told[name] == "refused"
    assert claim.attempts <= (move.attempts or 0) <= claim.attempts + 1
    assert move.reason


# ------------------------------------------------------------------------------------------ without a reply


def test_an_orderly_stop_before_the_dot_counts_nothing_and_is_due_at_once() -> None:
    move = attempt.after_stop(a_claim(attempts=2), transport="relay", now=NOW, rules=RULES)

    assert (Status.READY, Cause.STOPPED) == ends(move)
    assert (move.due_at, move.attempts) == (NOW, 2)
    assert move.attempt is not None
    assert (move.attempt.counted, move.attempt.committed_at) == (False, 0)


def test_held_back_counts_nothing() -> None:
    move = attempt.after_hold(a_claim(attempts=2), reason="paused\x07", due_at=NOW + 9, now=NOW, rules=RULES)

    assert (Status.READY, Cause.HELD) == ends(move)
    assert (move.due_at, move.attempts, move.reason) == (NOW + 9, 2, "paused")


# ------------------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (NEVER, "550 5.1.1 no such user"),
        (Reply(stage="rcpt", code=550, enhanced="5.1.1", text="no such user"), "550 5.1.1 no such user"),
        (Reply(stage="rcpt", code=550), "550"),
        (LOST, "eof: connection lost"),
        (Reply(stage="dot", text="just words"), "just words"),
        (Reply(stage="rcpt", code=550, text="é «x» 无\x1b[31m\r\nred\ud83d"), "550 é «x» 无 [31m  red"),
    ],
)
def test_a_reason_keeps_the_servers_own_words_whole_without_controls(reply: Reply, told: str) -> None:
    assert told == attempt.words(reply)


def test_what_has_no_code_has_a_name_to_be_counted_by() -> None:
    assert [attempt.code_of(one) for one in (NEVER, LOST, Reply(stage="dot"))] == ["550", "eof", "unknown"]
