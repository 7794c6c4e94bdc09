"""The labelled replies of tests/mail, read as they are written: what was said, at which stage, what it means."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from staffetta.mail.explain import judge_text
from staffetta.mail.message import Reply, Verdict
from staffetta.mail.verdict import DEFAULT, Table

FOLDER = Path(__file__).parents[1] / "mail"
OWN_TALK = ("mail", "rcpt", "data", "dot")
"""The stages of one e-mail's own talk: what `*` stands for."""


class Labelled(msgspec.Struct, frozen=True):
    """One reply with its label."""

    of: str
    """The table, server or rule it belongs to."""
    said: str
    stage: str
    means: str
    """`CATEGORY ACTION reach`; the reach may be left out, `*` is any category."""

    def judged(self, table: Table = DEFAULT) -> Verdict:
        if self.said.startswith("@"):
            name, _, words = self.said[1:].partition(" ")
            return table.judge(Reply(stage=self.stage, name=name, text=words))
        return judge_text(self.said, self.stage, table=table)

    def wrong(self, verdict: Verdict) -> str:
        """How the verdict differs from the label; empty: it does not."""
        category, action, *reach = (
            self.means.strip().split(" ") if self.means[0] != " " else ("", self.means[1:])
        )
        got = (
            verdict.category if category != "*" else "*",
            verdict.action,
            *([verdict.reach] if reach else []),
        )
        if got == (category, action, *reach):
            return ""
        told = f"{verdict.category} {verdict.action} {verdict.reach}"
        return f"[{self.of}] {self.said!r} at {self.stage or 'no stage'}: {self.means}, not {told} ({verdict.rule})"


def _document(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


def of_servers() -> list[Labelled]:
    """Replies as servers and libraries really say them."""
    return [
        Labelled(server, said, stage, means)
        for server, table in _document("replies_of_servers.toml").items()
        for said, stage, means in table["replies"]
    ]


def of_rules() -> list[Labelled]:
    """The examples of each row of replies.toml."""
    return [
        Labelled(rule, said, stage, means)
        for rule, examples in _document("replies_examples.toml")["examples"].items()
        for said, stage, means in examples
    ]


def of_tables() -> Iterator[Labelled]:
    """The rows of the protocol's own tables: each alternative at each stage."""
    for title, table in _document("replies_tables.toml").items():
        for said, stages, means in table["rows"]:
            for stage in _stages(stages):
                for one in said.split("|"):
                    yield Labelled(title, one, stage, means)


def _stages(told: str) -> tuple[str, ...]:
    if told == "*":
        return OWN_TALK
    return tuple(told.split()) or ("",)
