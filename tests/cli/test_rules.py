"""`explain` and `backoff`: the rules asked for by hand or by a program. They need no store and make none."""

from __future__ import annotations

import json

import pytest

from doubles.shell import Shell

SHAPE = {"category", "retry", "action", "reach", "rule", "code", "enhanced"}


def test_a_reply_is_explained_in_words(shell: Shell) -> None:
    """Who has a bounce in hand learns what Staffetta would do, and by which rule."""
    said = shell.process("explain", "550 5.1.1 <nobody@example.com>: no such user")

    assert "never tried again" in said.lines[0]
    assert {
        "category   PERMANENT",
        "action     FAIL",
        "reach      recipient",
        "rule       user-unknown-550",
        "code       550",
        "enhanced   5.1.1",
    } == {line.strip() for line in said.lines[1:]}
    assert [] == list(shell.folder.iterdir()), "asking makes no store"


@pytest.mark.parametrize(
    ("reply", "stage", "told"),
    [
        ("450 4.2.0 Greylisted, please try again in 8 minutes", "rcpt", "waits      8m at least"),
        ("450 4.1.1 unverified address", "rcpt", "attempts   3 at most"),
        ("connection lost", "dot", "in doubt   the message may be out: it follows delivery.in_doubt"),
    ],
)
def test_what_is_asked_for_beyond_the_policy_is_said(
    shell: Shell, *, reply: str, stage: str, told: str
) -> None:
    assert told in {line.strip() for line in shell("explain", reply, "--stage", stage).lines}


@pytest.mark.parametrize(
    ("reply", "action", "retry"),
    [
        ("451 4.7.1 Greylisted, please try again later", "RETRY", True),
        ("SMTP Error 421: too busy", "RETRY", True),
        ("AWS.SimpleEmailService.Throttling: rate exceeded", "RETRY", True),
        ("535 5.7.8 bad credentials", "HOLD", False),
        ("554 5.7.1 spam", "FAIL", False),
        ("good morning", "FAIL", False),
    ],
)
def test_a_program_gets_the_verdict_as_json(shell: Shell, *, reply: str, action: str, retry: bool) -> None:
    """HOLD is no retry: the e-mail waits until the transport is well."""
    found = shell("explain", "--json", reply).json

    assert SHAPE <= set(found)
    assert (action, retry) == (found["action"], found["retry"])


def test_many_replies_are_explained_a_line_each(shell: Shell) -> None:
    """A day's log goes through in one call, in order; empty lines are nothing."""
    asked = [
        {"reply": "450 4.2.1 mailbox busy", "stage": "rcpt"},
        {"reply": "552 5.3.4 message too big", "stage": "data"},
        {"reply": "connection refused"},
    ]
    text = "\n\n".join(json.dumps(one) for one in asked) + "\n"

    said = shell.process("explain", "--jsonl", stdin=text)

    assert [True, False, True] == [found["retry"] for found in said.jsonl]
    assert ["450", "552", ""] == [found["code"] for found in said.jsonl]
    assert all(SHAPE <= set(found) for found in said.jsonl)


@pytest.mark.parametrize(
    "line", ["not json", '{"stage": "rcpt"}', '{"reply": 550}', '{"reply": "550", "other": 1}', "[" * 10_000]
)
def test_a_line_that_is_no_question_is_named(shell: Shell, line: str) -> None:
    """With its number, so that it is found among thousands; what came before it is answered."""
    said = shell("explain", "--jsonl", stdin='{"reply": "421 busy"}\n' + line + "\n", code=2)

    assert 1 == len(said.jsonl)
    assert "line 2:" in said.err


def test_the_operators_own_rules_come_first(shell: Shell) -> None:
    """A rule of the operator's file decides before the packaged ones, here as in the engine."""
    (shell.folder / "own.toml").write_text(
        '[[rule]]\nrule = "ours"\ncode = ["550"]\ntext = ["come back later"]\n'
        'category = "TRANSIENT"\naction = "RETRY"\nreach = "recipient"\n'
    )

    found = shell("explain", "--json", "550 come back later", STAFFETTA_TRANSPORT__RULES_FILE="own.toml").json

    assert ("ours", True) == (found["rule"], found["retry"])


def test_backoff_shows_every_wait_of_a_policy(shell: Shell) -> None:
    """The table of the documentation, from the program itself."""
    rows = shell("backoff", "--json").json

    assert [1, 2, 3, 4] == [row["attempt"] for row in rows[:4]]
    assert {"attempt": 1, "base_ms": 1_000, "min_ms": 750, "max_ms": 1_250} == rows[0]
    patient = shell("backoff", "--policy", "patient", "--json").json
    assert all(row["base_ms"] == row["min_ms"] == row["max_ms"] for row in patient), "it has no jitter"
    assert 300_000 == patient[0]["base_ms"]


def test_backoff_without_a_name_shows_the_policy_in_force(shell: Shell) -> None:
    """Which depends on the settings, the profile included."""
    assert shell("backoff").out.startswith("gateway: 5 attempts")
    assert shell("backoff", STAFFETTA_RETRY__POLICY="courier").out.startswith("courier: ")
    assert shell("backoff", STAFFETTA_PROFILE="development").out.startswith("worker-development: 3 attempts")
