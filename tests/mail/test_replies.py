"""What replies mean: every row of the protocol's tables, of our own, and what real servers said."""

from __future__ import annotations

from collections import Counter

import pytest

from doubles import replies
from doubles.replies import Labelled
from staffetta.mail.verdict import DEFAULT

TABLES = list(replies.of_tables())
SERVERS = replies.of_servers()
EXAMPLES = replies.of_rules()


def wrong(labelled: list[Labelled]) -> list[str]:
    return [problem for one in labelled if (problem := one.wrong(one.judged()))]


@pytest.mark.parametrize("title", sorted({one.of for one in TABLES}))
def test_every_row_of_the_references_holds(title: str) -> None:
    """Whichever row of ours says so: the basic codes, enhanced codes, words, events and SES errors as listed."""
    rows = [one for one in TABLES if one.of == title]

    assert [] == wrong(rows)
    assert len(rows) >= 8


@pytest.mark.parametrize("server", sorted({one.of for one in SERVERS}))
def test_replies_of_real_servers_mean_what_people_who_read_them_say(server: str) -> None:
    assert [] == wrong([one for one in SERVERS if one.of == server])


@pytest.mark.parametrize("rule", [row.rule for row in DEFAULT.rows])
def test_every_row_has_an_example_that_it_decides(rule: str) -> None:
    """A row that no example reaches may be dead: an earlier one may have taken all it was for."""
    examples = [one for one in EXAMPLES if one.of == rule]

    assert examples, f"give {rule} an example in replies_examples.toml"
    assert [rule] * len(examples) == [one.judged().rule for one in examples]
    assert [] == wrong(examples)


def test_no_example_speaks_of_a_row_that_is_gone() -> None:
    assert set() == {one.of for one in EXAMPLES} - {row.rule for row in DEFAULT.rows}


def test_each_row_has_a_name_of_its_own() -> None:
    """`show ID` and the docs name the rule: it must be one row."""
    assert [] == [name for name, count in Counter(row.rule for row in DEFAULT.rows).items() if count > 1]


def test_no_reply_is_labelled_in_two_ways() -> None:
    labels: dict[tuple[str, str], set[str]] = {}
    for one in SERVERS:
        labels.setdefault((one.said, one.stage), set()).add(one.means.strip())

    assert {} == {key: means for key, means in labels.items() if len(means) > 1}
