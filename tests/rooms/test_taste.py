"""Taste that a machine can keep: sizes, names, leftovers. Each rule tells what to do instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs", "deploy", "scripts", ".ci")
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".sql",
    ".lua",
    ".sh",
    ".html",
    ".css",
    ".js",
    ".yml",
    ".yaml",
    ".json",
    ".conf",
    "",
}
LINES_MAX = 450
"""Some 400 fit a head; a module that grows past this has a second idea inside it."""


def texts() -> list[Path]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXT]
    top = [path for path in ROOT.iterdir() if path.suffix in TEXT]
    return sorted(path for path in (*inside, *top) if path.is_file() and "__pycache__" not in path.parts)


SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT / "src")) for path in SOURCES])
def test_a_module_fits_a_head(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX, "look for the second idea inside it"


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT / "src")) for path in SOURCES])
def test_a_module_says_what_it_is_for(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert not source.strip() or source.lstrip().startswith(('"""', "#!")), "open it with one or two sentences"


def test_no_module_is_a_drawer() -> None:
    """`utils` and `helpers` tell nobody what is inside."""
    drawers = [p.name for p in SOURCES if re.search(r"(util|helper|manager|common|misc)", p.stem)]
    assert drawers == []


def test_nothing_is_left_over() -> None:
    """Unfinished things live in the tracker, not in the code."""
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        if path.suffix in (".py", ".sql", ".lua", ".sh", ".toml", ".md")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if mark.search(line)
    ]
    assert found == []


def test_no_address_of_a_package_index_is_pinned() -> None:
    """Lock files name versions and hashes; where they are fetched from is the machine's business."""
    found = [
        path.name
        for path in ROOT.glob("requirements*.lock")
        if re.search(r"https?://|--(extra-)?index-url|--find-links", path.read_text(encoding="utf-8"))
    ]
    assert found == []
