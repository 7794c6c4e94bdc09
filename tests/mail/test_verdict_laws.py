"""Laws of the verdict, for replies that nobody has thought of: hostile ones too, they come from anybody's server."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles import replies
from staffetta.errors import SettingsError
from staffetta.mail import hints
from staffetta.mail.attempt import words
from staffetta.mail.backoff import HINT_MAX_MS
from staffetta.mail.explain import as_explained, explain, judge_text
from staffetta.mail.message import Reply
from staffetta.mail.reply_rows import STAGES, Action, Category, Reach
from staffetta.mail.verdict import DEFAULT, READ_MAX, Table, judge, packaged, plain

SAID = [one.said for one in replies.of_servers()]
TWIN = Table.parse(packaged())
"""Has judged other replies before, or none."""
EVENTS = (
    "refused", "unreachable", "connect-timeout", "timeout", "reset", "eof", "dns-notfound", "dns-temporary",
    "tls-absent", "tls-handshake", "tls-certificate", "tls-reset", "auth-absent", "utf8-unsupported", "bad-address",
    "too-large", "protocol", "unexpected", "stopped",
)  # fmt: skip
"""All that a transport tells without a code (see `Reply.name`)."""

texts = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(SAID), max_size=4).map(" ".join),
    st.lists(st.sampled_from([w for said in SAID for w in said.split()]), max_size=40).map(" ".join),
)
codes = st.integers(min_value=0, max_value=999)
enhanced_codes = st.one_of(
    st.just(""),
    st.builds("{}.{}.{}".format, st.sampled_from([2, 4, 5]), st.integers(0, 9), st.integers(0, 999)),
)
some_replies = st.builds(
    Reply,
    stage=st.sampled_from([*STAGES, ""]),
    code=codes,
    enhanced=enhanced_codes,
    text=texts,
    name=st.one_of(st.just(""), st.sampled_from([*EVENTS, *sorted(DEFAULT.names)]), st.text(max_size=30)),
    committed=st.booleans(),
)


@given(reply=some_replies)
@settings(max_examples=400, deadline=None)
def test_every_reply_has_a_meaning_and_always_the_same(reply: Reply) -> None:
    verdict = judge(reply)

    assert verdict == judge(reply) == TWIN.judge(reply)
    if verdict.action != "DELIVERED":
        assert verdict.category in get_args(Category)
        assert verdict.action in get_args(Action)
        assert verdict.reach in get_args(Reach)
    assert as_explained(verdict)["retry"] == (verdict.action in ("RETRY", "RETRY_SLOW", "SPLIT"))
    assert 0 <= verdict.min_delay_ms <= HINT_MAX_MS
    assert not any(ord(sign) < 32 for sign in words(reply))


@given(
    code=st.integers(500, 599).filter(lambda code: code != 550),
    enhanced=enhanced_codes,
    text=texts,
    stage=st.sampled_from(["mail", "rcpt", "data", "dot"]),
)
@settings(max_examples=400, deadline=None)
def test_no_words_turn_a_5yz_into_a_retry(code: int, enhanced: str, text: str, stage: str) -> None:
    """But for 550, and "too many recipients" at RCPT, where fewer are tried at once."""
    action = judge(Reply(stage=stage, code=code, enhanced=enhanced, text=text)).action

    assert action in ({"FAIL", "HOLD", "SPLIT"} if (code, stage) == (552, "rcpt") else {"FAIL", "HOLD"})


@given(
    code=st.integers(400, 499),
    enhanced=enhanced_codes,
    text=texts,
    stage=st.sampled_from(["connect", "ehlo", "starttls", "mail", "rcpt", "data", "dot"]),
)
@settings(max_examples=400, deadline=None)
def test_no_words_turn_a_4yz_into_a_no(code: int, enhanced: str, text: str, stage: str) -> None:
    assert judge(Reply(stage=stage, code=code, enhanced=enhanced, text=text)).action != "FAIL"


@given(text=texts, name=st.sampled_from(["timeout", "reset", "eof", "protocol", "stopped", "unexpected", ""]))
def test_handed_over_without_an_answer_is_in_doubt_whatever_is_known(text: str, name: str) -> None:
    verdict = judge(Reply(stage="dot", name=name, text=text, committed=True))

    assert (verdict.in_doubt, verdict.rule) == (True, "in-doubt")


@given(text=texts, code=codes, stage=st.sampled_from(["quit", "rset"]))
def test_nothing_said_while_leaving_takes_a_delivery_back(text: str, code: int, stage: str) -> None:
    assert judge(Reply(stage=stage, code=code, text=text, committed=True)).action == "DELIVERED"


@given(start=texts, rest=st.text(min_size=1, max_size=200))
def test_only_the_first_two_kibibytes_are_read(start: str, rest: str) -> None:
    """So that no server can make us read for long."""
    start = (start + " x" * READ_MAX)[:READ_MAX]

    for code in (0, 450, 550, 554):
        assert judge(Reply(stage="rcpt", code=code, text=start)) == judge(
            Reply(stage="rcpt", code=code, text=start + rest)
        )
    assert judge_text(start) == judge_text(start + rest)


@given(text=st.text(max_size=3_000))
def test_any_text_can_be_explained(text: str) -> None:
    assert explain(text)["action"]


@given(text=texts)
def test_a_hint_asks_for_an_hour_at_most(text: str) -> None:
    assert 0 <= hints.wait_asked_for(plain(text)) <= HINT_MAX_MS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("450 4.2.0 Greylisted, please try again in 5 minutes", 300),
        ("451 4.7.1 Try again in 900 seconds", 900),
        ("450 Please retry after 120 seconds", 120),
        ("451 wait 2 hours and try again", 3_600),
        ("450 4.7.1 please come back in 00:10:30", 630),
        ("451 4.7.1 Try again in ten minutes", 600),
        ("421 4.7.0 try again later", 0),
        ("451 4.3.0 timeout after 30 seconds", 0),
        ("452 4.2.2 quota of 500 mb exceeded, try again in 1 hour", 3_600),
        ("450 greylisted for 7 minutes", 420),
        ("429 slow (Retry-After: 77 seconds)", 77),
    ],
)
def test_a_servers_own_hint_is_a_least_delay(text: str, seconds: int) -> None:
    """It raises the policy's delay and never lowers it; greylisting and "slow down" have least delays of their own."""
    verdict = judge_text(text, "request" if text.startswith("429") else "rcpt")

    assert verdict.retry
    least = {"greylist": 300}.get(verdict.label, 60 if verdict.action == "RETRY_SLOW" else 0)
    assert verdict.min_delay_ms == max(seconds, least) * 1_000


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("stage", ["connect", "ehlo", "starttls", "auth", "mail", "rcpt", "data", "request"])
def test_no_event_of_ours_is_unknown(name: str, stage: str) -> None:
    """An event without a row would fail every e-mail it meets, for good."""
    verdict = judge(Reply(stage=stage, name=name, text=""))

    assert verdict.rule != "unknown"
    assert verdict.category != "UNKNOWN" or name == "unexpected"


OWN = """
[[rule]]
rule = "ours"
code = ["554"]
text = ["our relay says no"]
category = "TRANSIENT"
action = "RETRY"
reach = "destination"
least = 30
"""


def test_an_operators_own_rules_come_first_and_leave_the_others_alone() -> None:
    table = Table.parse(packaged(), first=OWN)

    ours = judge_text("554 5.0.0 Our relay says NO today", "dot", table=table)
    assert ("ours", "RETRY", "destination", 30_000) == (ours.rule, ours.action, ours.reach, ours.min_delay_ms)
    for one in replies.of_servers():
        assert one.judged(table) == one.judged()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[rule]\n", "is no TOML"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\n', "asks for nothing"),
        ('[[rule]]\nrule = "x"\ncategory = "SOFT"\ncode = ["450"]\n', "category"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\ncode = ["45"]\n', "code"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\ncode = ["450"]\naction = "BOUNCE"\n', "action"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\ntext = ["*"]\n', "text"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\nstage = ["rctp"]\n', "stage"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\ncode = ["450"]\ncolour = "red"\n', "colour"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\nenhanced = ["5.7"]\n', "enhanced"),
        ('[[rule]]\nrule = "x"\ncategory = "PERMANENT"\ncode = ["450"]\nleast = 86400\n', "least"),
        ("[other]\nx = 1\n", "only"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_named_with_what_to_write(text: str, named: str) -> None:
    """At the start, not at three in the morning when the first such reply comes."""
    with pytest.raises(SettingsError, match=named) as refused:
        Table.parse(packaged(), first=text)
    assert all(problem.field.startswith("rules file") for problem in refused.value.problems)


@pytest.mark.parametrize("settings_of", [{"slow_ms": 120_000}, {"greylist_ms": 600_000}])
def test_the_least_delays_are_those_of_the_settings(settings_of: dict[str, Any]) -> None:
    table = Table.parse(packaged(), **settings_of)

    assert table.judge(Reply(stage="mail", code=452)).min_delay_ms == settings_of.get("slow_ms", 60_000)
    assert table.judge(Reply(stage="rcpt", code=450, text="Greylisted")).min_delay_ms == settings_of.get(
        "greylist_ms", 300_000
    )
