"""The pages of all commands and of all replies are those that the program itself makes."""

from __future__ import annotations

from pathlib import Path

from staffetta.cli import replies_reference
from staffetta.cli.reference import reference

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_is_the_one_the_program_makes() -> None:
    """`python -m staffetta.cli.reference docs/reference` writes it anew."""
    assert reference() == (FOLDER / "cli.md").read_text(encoding="utf-8")


def test_the_page_of_replies_is_the_table_that_judges() -> None:
    """`python -m staffetta.cli.replies_reference docs/reference` writes it anew."""
    assert replies_reference.reference() == (FOLDER / "replies.md").read_text(encoding="utf-8")
