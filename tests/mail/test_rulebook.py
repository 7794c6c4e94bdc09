"""Which rules bind an e-mail: the settings, a company's own over them, its own wishes over those."""

from __future__ import annotations

from staffetta.mail import backoff
from staffetta.mail.message import NO_OPTIONS, Options, RetryLimits
from staffetta.mail.rulebook import CompanyRules, RuleBook

BOOK = RuleBook(
    policy=backoff.GATEWAY,
    in_doubt_delay_ms=7,
    dead_letter_ttl_ms=8,
    companies={
        "acme": CompanyRules(
            limits=RetryLimits(max_attempts=9), callback_url="https://acme.example", transports=("b",)
        ),
        "beta": CompanyRules(limits=RetryLimits(retry_delay_ms=5)),
    },
)


def test_who_says_nothing_has_the_settings() -> None:
    rules = BOOK.rules_for("nobody", NO_OPTIONS)

    assert (rules.policy, rules.in_doubt, rules.in_doubt_delay_ms, rules.dead_letter_ttl_ms) == (
        backoff.GATEWAY, "resend", 7, 8,
    )  # fmt: skip
    assert not rules.callback_due
    assert BOOK.rules_for("nobody", Options(tags=("x",))) is rules


def test_a_companys_own_limits_and_receiver_lie_over_the_settings() -> None:
    rules = BOOK.rules_for("acme", NO_OPTIONS)

    assert (rules.policy.max_attempts, rules.policy.curve, rules.callback_due) == (9, "around", True)
    assert BOOK.rules_for("beta", NO_OPTIONS).policy.name == "patient"
    assert (BOOK.transports_for("acme"), BOOK.transports_for("nobody")) == (("b",), ())


def test_an_emails_own_wishes_lie_over_its_companys_field_by_field() -> None:
    policy = BOOK.rules_for("beta", Options(limits=RetryLimits(max_attempts=2))).policy

    assert (policy.max_attempts, policy.first_ms, policy.cap_ms) == (2, 5, 86_400_000)
    assert BOOK.policy_for("acme", Options()) == BOOK.rules_for("acme", NO_OPTIONS).policy


def test_an_emails_own_doubt_policy_and_receiver_hold() -> None:
    rules = BOOK.rules_for("nobody", Options(in_doubt="hold", callback_url="https://own.example"))

    assert (rules.in_doubt, rules.callback_due) == ("hold", True)


def test_a_receiver_for_all_makes_every_outcome_due() -> None:
    book = RuleBook(policy=backoff.GATEWAY, callback_url="https://all.example", in_doubt="hold")

    assert book.rules_for("nobody", NO_OPTIONS).callback_due
    assert book.rules_for("nobody", Options(in_doubt="resend")).in_doubt == "resend"
