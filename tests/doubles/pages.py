"""Reads pages of the documentation: their fenced blocks, links and names. Runs the blocks that say so.

The word after a block's language says what it is for; readers of the page do not see it:

    ```sh run                    runs in the page's folder; it must end with 0
    ```sh run exit=2             … or with this code
    ```sh run until=SENT         again and again until its output has this word
    ```sh background             goes on until the page ends; begun when it has said its first line
    ```python run                the same for Python
    ```text output               what the block before it prints: numbers, times and ids may differ, … is anything
    ```toml file=staffetta.toml  is written under this name

Everything happens in one folder and on free ports: the well-known ones of the pages are replaced by them.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from doubles.shell import PATIENCE_SECONDS, Program, Shell

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference"
PORTS = ("8025", "2525", "8099", "8026")
"""The ports that pages name; each page gets free ones instead."""
EVERY_SECONDS = 0.1

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)(?P<words>[^\n]*)\n(?P<text>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)
_ANYTHING = {
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": r"[0-9a-f-]{36}",
    r"\d{4}-\d\d-\d\dT[\d:.]+Z": r"\\S+Z",
    r"sk_[A-Za-z0-9_-]+": r"sk_[A-Za-z0-9_-]+",
    r"\d[\d,.]*": r"\\d[\\d,.]*",
    "…": r".*",
    r"\s+": r"\\s+",
}
_TOKEN = re.compile("|".join(f"({pattern})" for pattern in _ANYTHING))


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    def option(self, name: str) -> str | None:
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")), None)

    @property
    def acts(self) -> bool:
        return bool({"run", "background", "output"} & set(self.words)) or self.option("file") is not None


def pages() -> list[Path]:
    """Every page that people read, without those that are made from the code."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    return sorted(page for page in found if GENERATED not in page.parents)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            language=found["language"],
            words=tuple(found["words"].split()),
            text="".join(
                line.removeprefix(found["indent"]) for line in found["text"].splitlines(keepends=True)
            ),
            line=text.count("\n", 0, found.start()) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def pattern(shown: str) -> re.Pattern[str]:
    """What an output must look like: as shown, but for numbers, times and ids. A line `…` is any lines."""
    lines: list[str] = []
    for line in shown.strip().splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
            continue
        made, at = "", 0
        for token in _TOKEN.finditer(line.strip()):
            made += re.escape(line.strip()[at : token.start()])
            made += next(
                stands.replace("\\\\", "\\")
                for form, stands in _ANYTHING.items()
                if re.fullmatch(form, token.group())
            )
            at = token.end()
        lines.append(r"[ \t]*" + made + re.escape(line.strip()[at:]) + r"[ \t]*\n")
    return re.compile("".join(lines))


def free_port() -> int:
    """A port that nobody has now. Whoever takes it in between makes the page's first command fail, and loudly."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


class Reader:
    """Somebody who follows a page from its top: types what it says, and compares what it shows."""

    def __init__(self, folder: Path) -> None:
        self._ports = {known: str(free_port()) for known in PORTS}
        commands = folder / "bin"
        commands.mkdir()
        (commands / "staffetta").write_text(f'#!/bin/sh\nexec {sys.executable} -m staffetta "$@"\n')
        (commands / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for command in commands.iterdir():
            command.chmod(0o755)
        self.folder = folder / "page"
        self.folder.mkdir()
        self._shell = Shell(
            self.folder,
            PATH=f"{commands}:{os.environ['PATH']}",
            HOME=str(folder),
            COLUMNS="120",
            EXAMPLES=str(ROOT / "examples"),
            STAFFETTA_LISTEN=f"127.0.0.1:{self._ports['8025']}",
        )
        self._said = ""
        self._running: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in reversed(self._running):
            program.stop()
            if error is not None:
                print("".join(program.heard))

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        text = self._localized(block.text)
        file = block.option("file")
        if file is not None:
            (self.folder / file).write_text(text, encoding="utf-8")
        if "background" in block.words:
            program = Program(_Words(self._shell, text))
            self._running.append(program)
            program.line(bool)
        elif "run" in block.words:
            self._said = self._typed(block, text)
        elif "output" in block.words:
            wanted = pattern(self._localized(block.text))
            assert wanted.fullmatch(self._said.strip() + "\n"), (
                f"line {block.line} shows:\n{text}\nbut it was:\n{self._said}"
            )

    @property
    def shell(self) -> Shell:
        """For what the page leaves to its reader."""
        return self._shell

    def typed(self, block: Block) -> str:
        """Type one block, whatever its words say of it; what was said."""
        return self._typed(block, self._localized(block.text))

    def _localized(self, text: str) -> str:
        for known, free in self._ports.items():
            text = re.sub(rf"\b{known}\b", free, text)
        return text

    def _typed(self, block: Block, text: str) -> str:
        until, wanted = block.option("until"), int(block.option("exit") or 0)
        ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            done = subprocess.run(
                _command(block.language, text),
                cwd=self.folder, env=self._shell.environment, capture_output=True, text=True,
                timeout=PATIENCE_SECONDS, check=False,
            )  # fmt: skip
            said = done.stdout + done.stderr
            assert done.returncode == wanted, f"line {block.line} ended with {done.returncode}:\n{text}\n{said}"
            if until is None or until in said:
                return said
            assert time.monotonic() < ends, f"line {block.line} never said {until!r}:\n{said}"
            time.sleep(EVERY_SECONDS)  # another process is at work; a reader would look again, too


class _Words(Shell):
    """What a page says to type, as one command of a shell that becomes it."""

    def __init__(self, shell: Shell, text: str) -> None:
        self.folder, self.environment = shell.folder, shell.environment
        self._text = text

    def command(self, *args: str) -> list[str]:
        joined = self._text.strip().replace("\\\n", " ")
        *before, last = joined.splitlines()
        return _command("sh", "\n".join([*before, f"exec env {last}"]))


def _command(language: str, text: str) -> list[str]:
    return [sys.executable, "-c", text] if language == "python" else ["bash", "-euo", "pipefail", "-c", text]


def commands_in(text: str) -> Iterator[str]:
    """Every `staffetta …` that a text tells somebody to type, on one line."""
    joined = text.replace("\\\n", " ")
    for found in re.finditer(r"(?:^|[\s`(=/])staffetta ([a-z][^\n`|;)#$]*)", joined):
        yield found[1].strip()


def missing(engine: str) -> None:
    """Skips loudly at home, fails where everything must be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{engine} is missing: `make engines` installs it")
    pytest.skip(f"{engine} is missing; see `make engines`")
