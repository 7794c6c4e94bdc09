"""Names and links in the pages lead somewhere: settings, variables, commands, calls, metrics, files, headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from doubles import pages
from staffetta import config
from staffetta.cli.main import staffetta
from staffetta.web import exposed
from staffetta.web.routes import find

PAGES = [page for page in pages.pages() if page.name != "CHANGELOG.md"]
SETTINGS = {one.name for one in config.settings()}
VARIABLES = {one.variable for one in config.settings()} | {*config.NOT_SETTINGS, "STAFFETTA_SECTION__KEY"}
SECTIONS = {name.partition(".")[0] for name in SETTINGS if "." in name}
OUTSIDE = {"_STAFFETTA_COMPLETE"}
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILES = re.compile(r"\.(py|md|toml|txt|json|eml|db|conf|yml|yaml|log|csv)\b")
"""Names that look like a setting's and are a file's."""

each_page = pytest.mark.parametrize("page", PAGES, ids=pages.name_of)


def anchors(page: Path) -> set[str]:
    """A page's headings as links know them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """A page moved, a heading renamed: whoever follows the link finds nothing."""
    lost = []
    for link in _LINK.findall(pages.prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(link)

    assert [] == lost


def _is_module(room: str, name: str) -> bool:
    return any((pages.ROOT / "src" / "staffetta" / room).glob(f"{name}*"))


def test_every_page_is_found_from_the_first_one() -> None:
    """Following links from the README; decisions are found by their folder."""
    found, new = set(), {pages.ROOT / "README.md"}
    while new:
        found |= new
        links = {
            (page.parent / link.partition("#")[0]).resolve()
            for page in new
            for link in _LINK.findall(pages.prose(page))
            if "://" not in link
        }
        leads = {link / "README.md" if link.is_dir() else link for link in links}
        new = {link for link in leads if link.suffix == ".md" and link.exists()} - found
    decisions = set((pages.ROOT / "docs" / "decisions").glob("*.md"))

    assert [] == sorted(
        pages.name_of(page) for page in (pages.ROOT / "docs").rglob("*.md") if page not in found | decisions
    )


def _settings_named(page: Path) -> Iterator[str]:
    for code in _CODE.findall(pages.prose(page)):
        found = re.fullmatch(r"([a-z]+)\.([a-z_]+)(?: *=.*)?", code)
        if found and found[1] in SECTIONS and not _FILES.search(code) and not _is_module(found[1], found[2]):
            yield f"{found[1]}.{found[2]}"


@each_page
def test_every_setting_named_exists(page: Path) -> None:
    if page.name == "ARCHITECTURE.md":
        return  # what is dotted there are modules
    assert set(_settings_named(page)) <= SETTINGS


@each_page
def test_every_variable_named_exists(page: Path) -> None:
    named = set(re.findall(r"\b_?(?:STAFFETTA|EMAIL)_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8")))

    assert named - OUTSIDE <= VARIABLES


def _typed(page: Path) -> Iterator[str]:
    for block in pages.blocks(page):
        if block.language in ("sh", "console", "ini"):
            yield from pages.commands_in(block.text)
    for code in _CODE.findall(pages.prose(page)):
        yield from pages.commands_in(code)


def _unknown(typed: str) -> str:
    """What a command line has that the command does not know; empty: nothing."""
    try:
        words = shlex.split(typed)
    except ValueError:
        words = typed.split()
    command: click.Command = staffetta
    with click.Context(staffetta) as context:
        for index, word in enumerate(words):
            if isinstance(command, click.Group) and not word.startswith("-"):
                found = command.get_command(context, word)
                if found is not None:
                    command = found
                    continue
                if word.islower() and index == 0:
                    return word
            if word.startswith("-") and len(word) > 1:
                options = {name for one in command.params for name in one.opts} | {"--help"}
                if word.partition("=")[0] not in options:
                    return f"{command.name} {word}"
    return ""


@each_page
def test_every_command_and_option_shown_exists(page: Path) -> None:
    """Also in blocks that are not run, and inside sentences."""
    assert [] == [unknown for typed in _typed(page) if (unknown := _unknown(typed))]


@each_page
def test_every_call_named_exists(page: Path) -> None:
    lost = []
    for method, path in re.findall(
        r"\b(GET|POST|DELETE|PUT|PATCH) (/[\w/{}.-]*)", page.read_text(encoding="utf-8")
    ):
        routes, _ = find(path.replace("{id}", "x"))
        if routes is None or method not in routes:
            lost.append(f"{method} {path}")

    assert [] == lost


@each_page
def test_every_metric_named_exists(page: Path) -> None:
    known = {one.name for one in exposed.TABLE}
    looks = re.compile(r"(?:staffetta|retry|dlq|tenant)_[a-z_]+(?:_total|_seconds|_size|_ratio|_rate|_bytes)")
    named = {code for code in _CODE.findall(pages.prose(page)) if looks.fullmatch(code)}

    assert named - {name.partition(".")[2] for name in SETTINGS} <= known


@each_page
def test_prose_fits_the_width(page: Path) -> None:
    """Whoever reads it in a terminal or a diff sees whole lines."""
    long = [
        f"{number}: {len(line)}"
        for number, line in enumerate(pages.prose(page).splitlines(), 1)
        if len(line) > 120 and not line.startswith("|")
    ]
    assert [] == long
