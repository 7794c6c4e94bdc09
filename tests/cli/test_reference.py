"""The page of all commands is the one that the commands themselves make."""

from __future__ import annotations

from pathlib import Path

from staffetta.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_the_one_the_program_makes() -> None:
    """`python -m staffetta.cli.reference docs/reference` writes it anew."""
    assert reference() == PAGE.read_text(encoding="utf-8")
