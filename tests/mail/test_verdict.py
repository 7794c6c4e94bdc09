"""How a reply is read: the contract's own lists, the order of its signs, and texts that try to mislead.

Every row of the table has its example in `test_replies.py`; here stand the rules that hold for all rows.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staffetta.errors import SettingsError
from staffetta.mail.explain import is_retryable
from staffetta.mail.message import Reply, Verdict
from staffetta.mail.verdict import DEFAULT, Table, judge, packaged, read_codes

CATEGORIES = {"", "VALIDATION", "PERMANENT", "TRANSIENT", "QUOTA", "CONFIGURATION", "TIMEOUT", "UNKNOWN"}
ACTIONS = {"DELIVERED", "RETRY", "RETRY_SLOW", "SPLIT", "HOLD", "FAIL"}
REACHES = {"recipient", "message", "destination", "transport"}
STAGES = ("connect", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "dot", "rset", "quit", "request")


def said(code: int, stage: str = "rcpt", text: str = "", enhanced: str = "", **more: object) -> Verdict:
    return judge(Reply(stage=stage, code=code, enhanced=enhanced, text=text, **more))  # type: ignore[arg-type]  # names of its fields


# SPEC.md, section 7, word by word.
@pytest.mark.parametrize("code", [421, 450, 451, 452, 454, 422, 431, 441, 449, 471, 499])
@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "dot"])
def test_retry_421_450_451_452_454_and_every_other_4xx(code: int, stage: str) -> None:
    assert said(code, stage).retry


@pytest.mark.parametrize("code", [500, 501, 502, 503, 504, 550, 551, 552, 553, 554, 555])
@pytest.mark.parametrize("stage", ["mail", "rcpt", "data", "dot"])
def test_no_retry_5xx(code: int, stage: str) -> None:
    assert not said(code, stage).retry


@pytest.mark.parametrize(
    "name",
    [
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "ServiceUnavailable",
        "MaxSendRateExceeded",
    ],
)
def test_retry_of_ses_names(name: str) -> None:
    assert judge(Reply(stage="request", code=400, name=name)).retry
    assert is_retryable(name)
    assert is_retryable(f"AWS.SimpleEmailService.{name}")


@pytest.mark.parametrize(
    "name",
    ["MessageRejected", "MailFromDomainNotVerified", "MailFromDomainNotVerifiedException",
     "ConfigurationSetDoesNotExist", "NotFoundException"],
)  # fmt: skip
def test_no_retry_of_ses_names(name: str) -> None:
    assert judge(Reply(stage="request", code=400, name=name)).action == "FAIL"
    assert not is_retryable(name)


@pytest.mark.parametrize("name", ["refused", "reset", "connect-timeout", "timeout", "dns-temporary"])
def test_retry_of_what_the_road_does(name: str) -> None:
    assert judge(Reply(stage="connect", name=name)).retry


def test_a_recipients_domain_that_does_not_exist_is_never_tried_again() -> None:
    assert not said(550, text="5.1.2 domain not found", enhanced="5.1.2").retry
    assert not said(556, text="5.1.10 null MX", enhanced="5.1.10").retry


# 002: in both lists. 004's lists.
@pytest.mark.parametrize(
    ("error", "again"),
    [(421, True), (450, True), (451, True), (452, True), ("421", True), ("Throttling", True),
     ("ServiceUnavailable", True), (500, False), (550, False), (554, False), ("MessageRejected", False),
     ("MailFromDomainNotVerified", False), ("SMTP Error 421: closing", True),
     ("SMTP 550: Mailbox not found", False), ("nothing that anybody knows", False), ("", False)],
)  # fmt: skip
def test_is_retryable_answers_as_the_seeds_lists(error: str | int, again: bool) -> None:
    assert is_retryable(error) is again


@pytest.mark.parametrize(
    ("enhanced", "text", "again"),
    [
        ("4.2.1", "4.2.1 mailbox busy", True),
        ("", "greylisted, come back later", True),
        ("", "mailbox unavailable, try again later", True),
        ("", "temporarily blocked for too many messages", True),
        ("5.1.1", "5.1.1 no such user", False),
        ("", "mailbox unavailable", False),
        ("", "", False),
    ],
)
def test_550_goes_by_the_enhanced_code_then_the_text_then_it_is_permanent(
    enhanced: str, text: str, again: bool
) -> None:
    assert said(550, enhanced=enhanced, text=text).retry is again


@pytest.mark.parametrize("code", [451, 452, 421, 450])
@pytest.mark.parametrize(
    "text", ["user unknown", "spam detected, permanently rejected", "message too large", "550 5.1.1"]
)
def test_no_text_turns_a_4yz_into_a_refusal(code: int, text: str) -> None:
    assert said(code, text=text).retry


@pytest.mark.parametrize("code", [551, 552, 553, 554, 555])
@pytest.mark.parametrize(
    "text", ["try again later", "temporarily deferred", "greylisted, wait 5 minutes", "450 4.2.0"]
)
def test_no_text_turns_a_5yz_other_than_550_into_a_retry(code: int, text: str) -> None:
    assert not said(code, "data", text=text).retry


def test_too_many_recipients_splits_whatever_the_first_digit() -> None:
    for code, enhanced in ((452, "4.5.3"), (552, "5.5.3"), (452, ""), (552, "")):
        verdict = said(code, text=f"{enhanced} too many recipients".strip(), enhanced=enhanced)
        assert verdict.action == "SPLIT", (code, enhanced)
        assert verdict.retry


@pytest.mark.parametrize(
    "reply",
    [
        Reply(stage="auth", code=535, enhanced="5.7.8", text="5.7.8 authentication failed"),
        Reply(stage="starttls", name="tls-absent"),
        Reply(stage="starttls", name="tls-certificate"),
        Reply(stage="request", code=400, name="AccountSuspendedException"),
        Reply(stage="request", code=400, name="SendingPausedException"),
        Reply(stage="request", code=429, name="ThrottlingException", text="Daily message quota exceeded."),
    ],
    ids=lambda reply: reply.name or str(reply.code),
)
def test_hold_is_not_the_emails_fault(reply: Reply) -> None:
    """HOLD and FAIL have `retry` false; only HOLD keeps the e-mail."""
    verdict = judge(reply)

    assert (verdict.action, verdict.reach, verdict.retry) == ("HOLD", "transport", False)


@pytest.mark.parametrize("name", ["eof", "timeout", "reset", "protocol", "unexpected", ""])
def test_after_the_dot_without_an_answer_it_is_in_doubt_whatever_else_is_known(name: str) -> None:
    verdict = judge(Reply(stage="dot", name=name, text="550 5.1.1 said nobody", committed=True))

    assert (verdict.in_doubt, verdict.retry, verdict.category) == (True, True, "TIMEOUT")


@pytest.mark.parametrize("code", [451, 550, 554, 421])
def test_an_answer_to_the_dot_is_no_doubt(code: int) -> None:
    assert not said(code, "dot", committed=True).in_doubt


@pytest.mark.parametrize("code", [250, 251, 200, 299])
def test_a_yes_to_the_dot_is_delivered_whatever_its_words(code: int) -> None:
    assert said(code, "dot", text="rejected as spam, 550 5.7.1", committed=True).action == "DELIVERED"


def test_a_yes_before_the_dot_is_no_delivery() -> None:
    assert said(250, "rcpt").action != "DELIVERED"


def test_an_unknown_text_without_a_code_is_unknown_and_not_tried_again() -> None:
    verdict = judge(Reply(stage="", text="something odd happened"))

    assert (verdict.category, verdict.action, verdict.rule) == ("UNKNOWN", "FAIL", "unknown")


@pytest.mark.parametrize(
    ("code", "enhanced", "counts"),
    [
        (450, "4.2.0", ("4", 450, "4.2.0")),
        (450, "5.1.1", ("4", 450, "")),  # Postfix: another class than the reply's is dropped
        (554, "4.7.1", ("5", 554, "")),
        (550, "4.2.1", ("4", 450, "4.2.1")),  # 550's own rule
        (550, "5.1.1", ("5", 550, "5.1.1")),
        (0, "4.4.1", ("4", 0, "4.4.1")),
        (0, "", ("", 0, "")),
        (199, "", ("5", 199, "")),  # outside 2-5: fatal for the transaction
        (700, "", ("5", 700, "")),
    ],
)
def test_an_enhanced_code_counts_only_with_the_replys_own_class(
    code: int, enhanced: str, counts: tuple[str, int, str]
) -> None:
    assert read_codes(code, enhanced) == counts


@given(
    stage=st.sampled_from(STAGES), code=st.sampled_from([0, *range(200, 600, 7), 421, 450, 550, 552]),
    enhanced=st.sampled_from(["", "4.7.1", "5.7.1", "5.1.1", "4.5.3", "2.0.0", "9.9.9"]), text=st.text(max_size=200),
    name=st.sampled_from(["", "eof", "timeout", "Throttling", "x"]), committed=st.booleans(),
)  # fmt: skip
def test_any_reply_has_a_verdict_and_the_first_digit_decides(
    stage: str, code: int, enhanced: str, text: str, name: str, committed: bool
) -> None:
    reply = Reply(stage=stage, code=code, enhanced=enhanced, text=text, name=name, committed=committed)

    verdict = judge(reply)

    assert verdict == judge(reply)
    assert (verdict.category in CATEGORIES, verdict.action in ACTIONS, verdict.reach in REACHES) == (True,) * 3
    assert verdict.rule
    assert (verdict.action == "DELIVERED") <= (reply.delivered or (committed and stage in ("quit", "rset")))
    if 400 <= code < 500 and not name and stage in ("mail", "rcpt", "data", "dot"):
        assert verdict.action in ("RETRY", "RETRY_SLOW", "SPLIT") or (committed and stage in ("quit", "rset"))
    assert 0 <= verdict.min_delay_ms <= 3_600_000


@given(st.text(alphabet="aA0.- \r\n\x00é\U0001f600", max_size=5_000))
def test_only_the_first_2_kib_and_no_control_signs_are_read(text: str) -> None:
    assert said(450, text=text) == said(450, text=text[:2048])


@pytest.mark.parametrize("piece", ["too many ", "try again try ", "block ", "5.7.1 ", "a" * 50, "spam haus "])
def test_a_hostile_reply_of_64_kib_takes_no_time(piece: str) -> None:
    text = piece * (65_536 // len(piece))
    reply = Reply(stage="rcpt", code=550, text=text)
    began = time.process_time()
    for _ in range(10):
        DEFAULT._weigh(reply)

    assert (time.process_time() - began) / 10 < 0.05


def test_many_different_replies_are_not_remembered_for_ever() -> None:
    table = Table.parse(packaged())
    for number in range(10_000):
        table.judge(Reply(stage="rcpt", code=450, enhanced=f"4.{number}.0", text=f"number {number}"))
        table.judge(Reply(stage="dot", code=250, enhanced=f"2.{number}.0", committed=True))

    assert len(table._judged) <= 4_096
    assert len(table._known) <= 4_096
    assert len(table._delivered) <= 4_096


OWN = """
[[rule]]
rule = "our-relay"
code = ["554"]
text = ["come another day"]
category = "QUOTA"
action = "RETRY_SLOW"
attempts = 7
"""


def test_own_rules_come_before_the_packaged_ones() -> None:
    table = Table.parse(packaged(), first=OWN)

    verdict = table.judge(Reply(stage="dot", code=554, text="5.7.1 Come another day, please"))

    assert (verdict.rule, verdict.action, verdict.max_attempts) == ("our-relay", "RETRY_SLOW", 7)
    assert table.judge(Reply(stage="dot", code=554, text="no")).rule != "our-relay"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ('rule = "x"\ncategory = "ODD"', "category"),
        ('rule = "x"\ncategory = "QUOTA"\naction = "MAYBE"', "action"),
        ('rule = "x"\ncategory = "QUOTA"\nreach = "moon"', "reach"),
        ('rule = "x"\ncategory = "QUOTA"\nstage = ["nowhere"]', "stage"),
        ('rule = "x"\ncategory = "QUOTA"\ncode = ["99"]', "code"),
        ('rule = "x"\ncategory = "QUOTA"\nenhanced = ["7.1"]', "enhanced"),
        ('rule = "x"\ncategory = "QUOTA"\nodd = 1', "odd"),
        ('category = "QUOTA"', "rule"),
    ],
)
def test_a_wrong_row_of_ones_own_is_named(wrong: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Table.parse(packaged(), first=f"[[rule]]\n{wrong}\n")


def test_a_file_that_is_no_table_is_named() -> None:
    with pytest.raises(SettingsError):
        Table.parse(packaged(), first="this is = not [ toml")


def test_the_settings_own_times_hold() -> None:
    table = Table.parse(packaged(), slow_ms=7_000, greylist_ms=9_000)

    assert table.judge(Reply(stage="mail", code=452)).min_delay_ms == 7_000
    assert (
        table.judge(Reply(stage="rcpt", code=450, enhanced="4.7.1", text="4.7.1 greylisted")).min_delay_ms
        == 9_000
    )
