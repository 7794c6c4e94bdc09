"""Why an e-mail waits, is given up, or was sent: kept decisions told in words and taken again."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.mail import backoff, explain
from staffetta.mail.attempt import decide, decide_resend
from staffetta.mail.backoff import POLICIES
from staffetta.mail.message import Decision, Reply
from staffetta.mail.verdict import judge

NOW = 1_800_000_000_000
BUSY = Reply(stage="rcpt", code=450, enhanced="4.2.0", text="4.2.0 mailbox busy")
REPLIES = (
    BUSY,
    Reply(stage="rcpt", code=451, enhanced="4.7.1", text="4.7.1 greylisted, try again in 300 seconds"),
    Reply(stage="mail", code=452),
    Reply(stage="data", name="timeout"),
    Reply(stage="request", code=429, name="TooManyRequestsException"),
    Reply(stage="data", name="unexpected", text="KeyError"),
)


@given(
    reply=st.sampled_from(REPLIES), policy=st.sampled_from(sorted(POLICIES)), attempt=st.integers(1, 30),
    draw=st.floats(0, 0.999), at=st.integers(0, 2 * NOW), wait=st.integers(0, 10**7),
)  # fmt: skip
def test_a_kept_decision_taken_again_gives_the_same(
    reply: Reply, policy: str, attempt: int, draw: float, at: int, wait: int
) -> None:
    """From what is kept alone: written to the journal and read again in between."""
    made = decide(
        reply, judge(reply), POLICIES[policy], attempt=attempt, draw=draw, at=at, not_before=at + wait
    )
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Decision)

    assert explain.same_decision(kept)
    assert explain.decide_again(kept) == made


def test_an_emails_own_figures_are_kept_with_its_decision() -> None:
    own = backoff.Policy(name="patient", first_ms=7, cap_ms=50, max_attempts=9, curve="plain")
    made = decide(BUSY, judge(BUSY), own, attempt=3, draw=0.1, at=NOW)

    assert (made.delay_ms, made.next_at) == (28, NOW + 28)
    assert explain.same_decision(made)
    assert explain.policy_of(made) == own


def test_a_resend_in_doubt_is_decided_again_from_its_mark() -> None:
    lost = Reply(stage="dot", name="eof", committed=True)
    made = decide_resend(lost, judge(lost), attempt=1, at=NOW, not_before=NOW + 900_000)

    assert explain.same_decision(made)
    assert "the in-doubt delay counts from the mark" in explain.tell(made)


def test_a_decision_by_other_rules_is_found_out() -> None:
    made = decide(BUSY, judge(BUSY), backoff.GATEWAY, attempt=1, draw=0.5, at=NOW)

    assert not explain.same_decision(msgspec.structs.replace(made, delay_ms=5))
    assert not explain.same_decision(msgspec.structs.replace(made, verdict=judge(REPLIES[1])))


def test_a_transport_that_was_closed_is_known_from_what_was_kept() -> None:
    """Held while no transport was open: the same reply alone would be a retry."""
    reset = Reply(stage="connect", name="refused")
    held = msgspec.structs.replace(judge(reset), action="HOLD")
    made = decide(reset, held, backoff.GATEWAY, attempt=1, draw=0.5, at=NOW)

    assert explain.same_decision(made)


# ------------------------------------------------------------------------------------------ in words


def test_a_retry_is_told_with_all_that_led_to_it() -> None:
    told = explain.tell(decide(BUSY, judge(BUSY), backoff.GATEWAY, attempt=2, draw=0.25, at=NOW))

    for part in (
        "450 4.2.0 mailbox busy",
        "TRANSIENT",
        "tried again",
        "rule ",
        "gateway",
        "attempt 2",
        "0.2500",
        "1.75 s",
    ):
        assert part in told, told


def test_a_least_delay_is_told() -> None:
    grey = REPLIES[1]

    assert "at least 300 s" in explain.tell(
        decide(grey, judge(grey), backoff.GATEWAY, attempt=1, draw=0.5, at=NOW)
    )


def test_the_last_attempt_is_told_as_such() -> None:
    made = Decision(
        reply=BUSY, verdict=judge(BUSY), policy="gateway", attempt=5, figures=(1_000, 60_000, 5), at=NOW
    )

    assert "no attempt is left: 5 of 5 by policy gateway" in explain.tell(made)
    assert explain.same_decision(made)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(stage="dot", code=250, text="Ok", committed=True), "delivered"),
        (Reply(stage="rcpt", code=550, enhanced="5.1.1", text="5.1.1 no such user"), "never tried again"),
        (Reply(stage="auth", code=535, text="no"), "held, nothing counts"),
        (
            Reply(stage="rcpt", code=452, text="4.5.3 too many recipients", enhanced="4.5.3"),
            "the rest goes at once",
        ),
        (Reply(stage="mail", code=452), "tried again, slowly"),
        (Reply(stage="dot", name="eof", committed=True), "in doubt"),
    ],
)
def test_every_outcome_has_its_words(reply: Reply, words: str) -> None:
    assert words in explain.tell(Decision(reply=reply, verdict=judge(reply), attempt=1))


# ------------------------------------------------------------------------------------------ a reply as text


@pytest.mark.parametrize(
    ("text", "stage", "expected"),
    [
        ("550 5.1.1 no such user", "rcpt", ("PERMANENT", False, "FAIL", "recipient", "550", "5.1.1")),
        ("421 4.3.2 closing", "", ("TRANSIENT", True, "RETRY", None, "421", "4.3.2")),
        ("SMTP Error 421: closing", "", ("TRANSIENT", True, "RETRY", None, "421", "")),
        ("AWS.SimpleEmailService.Throttling", "", ("QUOTA", True, None, "transport", None, "")),
        ("550 5.7.1 authentication required", "mail", (None, False, None, None, "550", "5.7.1")),
    ],
)
def test_a_reply_that_somebody_has_as_text_is_explained(
    text: str, stage: str, expected: tuple[str | bool | None, ...]
) -> None:
    found = explain.explain(text, stage)

    told = (
        found["category"],
        found["retry"],
        found["action"],
        found["reach"],
        found["code"],
        found["enhanced"],
    )
    assert all(want is None or want == one for want, one in zip(expected, told, strict=True)), found
    assert found["rule"]


def test_explained_has_the_fields_that_others_rely_on() -> None:
    assert {"category", "retry", "action", "reach", "rule", "code", "enhanced"} <= set(
        explain.explain("450 busy")
    )


@pytest.mark.parametrize("text", ["250 2.0.0 Ok: queued", "250 ok"])
def test_a_yes_is_a_delivery(text: str) -> None:
    assert explain.explain(text)["action"] == "DELIVERED"


def test_a_line_lost_after_the_dot_is_a_doubt() -> None:
    found = explain.explain(
        "lost connection with mx.example.org while sending end of data -- message may be sent more than once"
    )

    assert found["in_doubt"]


def test_an_error_while_quitting_is_a_delivery() -> None:
    assert explain.explain("connection reset by peer", "quit")["action"] == "DELIVERED"


@given(st.text(max_size=300), st.sampled_from(["", "connect", "rcpt", "dot", "request"]))
def test_any_text_is_explained(text: str, stage: str) -> None:
    found = explain.explain(text, stage)

    assert found["retry"] is (found["action"] in ("RETRY", "RETRY_SLOW", "SPLIT"))
    assert explain.is_retryable(text) in (True, False)
