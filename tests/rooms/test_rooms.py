"""The house's rooms: who may import whom, and which foreign library is met where. ARCHITECTURE.md draws the table."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import staffetta

SOURCE = Path(staffetta.__file__).parent
DRAWN = Path(__file__).parents[2] / "ARCHITECTURE.md"

CONTRACTS = ("store.contract", "queue.contract", "transport.contract")

ROOMS: dict[str, tuple[str, ...]] = {
    # room (longest prefix wins): what it may import from staffetta, besides itself
    "": (),
    "__main__": ("cli",),
    "errors": (),
    "failpoints": (),
    "mail": ("errors",),
    "store.contract": ("mail", "errors"),
    "queue.contract": ("mail", "errors"),
    "transport.contract": ("mail", "errors"),
    "store.insisting": ("mail", "errors"),
    "store": ("store.contract", "store.insisting", "mail", "errors", "failpoints"),
    "store.dynamodb": ("store.contract", "store.insisting", "aws", "http", "mail", "errors", "failpoints"),
    "queue": ("queue.contract", "mail", "errors"),
    "transport": ("transport.contract", "mail", "errors", "failpoints", "http", "aws"),
    "sink": ("transport.wire", "transport.stuffing", "mail", "errors"),
    "http": ("mail", "errors", "failpoints"),
    "aws": ("errors",),
    "callback": ("http", "mail", "errors"),
    "notify": ("http", "callback", "mail", "errors", *CONTRACTS),
    "spool": ("mail", "errors", "failpoints"),
    "attachments": ("mail", "errors"),
    "flow": ("mail", "errors", "failpoints", "callback", "spool", "attachments", *CONTRACTS),
    "logs": ("mail", "errors"),
    "worker": ("flow", "mail", "errors", *CONTRACTS),
    "keeper": ("mail", "errors", "failpoints", *CONTRACTS),
    "web": ("flow", "mail", "errors", "failpoints", *CONTRACTS),
    "config": ("mail", "errors"),
    "client": ("mail", "errors", "http"),
    "outbox": ("mail", "errors", "store.contract", "spool"),
    "app": ("*",),
    "demo": ("app", "config", "logs", "sink", "mail", "errors"),
    "cli": ("app", "config", "client", "demo", "sink", "mail", "errors"),
}

FOREIGN: dict[str, tuple[str, ...]] = {
    # foreign library: the only rooms that may import it
    "aiohttp": ("http",),
    "yarl": ("http",),
    "apsw": ("store.sqlite",),
    "asyncmy": ("store.mysql",),
    "botocore": ("aws",),
    "click": ("cli",),
    "email_validator": ("mail",),
    "jinja2": ("web.dashboard",),
    "markupsafe": ("web.dashboard",),
    "msgspec": ("*",),
    "prometheus_client": ("web.metrics",),
    "redis": ("queue.redis",),
    "rich": ("cli",),
    "starlette": ("web",),
    "uvicorn": ("web",),
    "uvloop": ("app", "cli"),
}

CLOCK_AND_CHANCE = {"time", "random", "secrets", "asyncio", "socket", "threading", "subprocess"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imported(path: Path, module: str) -> Iterator[tuple[str, int]]:
    """Every module imported anywhere in a file, in full, with its line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["staffetta", *package.split(".")][: len(package.split(".")) + 2 - node.level]
                base = ".".join([*above, base]).strip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                is_module = (SOURCE.parent / Path(*full.split("."))).with_suffix(".py").exists() or (
                    SOURCE.parent / Path(*full.split("."))
                ).is_dir()
                yield (full if is_module else base), node.lineno


def within(module: str, room: str) -> bool:
    return room in ("*", "") or module == room or module.startswith(f"{room}.")


def room_of(module: str) -> str:
    fitting = [room for room in ROOMS if room and within(module, room)]
    assert fitting or not module, (
        f"staffetta.{module} stands in no room: add it to ROOMS and to ARCHITECTURE.md"
    )
    return max(fitting, key=len, default="")


MODULES = list(modules())


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name or "staffetta" for name, _ in MODULES])
def test_a_room_imports_only_what_the_table_lets_it(module: str, path: Path) -> None:
    """Else a change in one place moves another, and nobody can follow one e-mail any more."""
    room = room_of(module)
    if not room:
        return  # the public names: checked by test_public_names
    wrong = []
    for name, line in imported(path, module):
        if not within(name, "staffetta"):
            continue
        target = name.removeprefix("staffetta").removeprefix(".")
        sibling = within(target, room) and (room not in ("store", "queue") or _same_backend(module, target))
        if not (sibling or any(within(target, allowed) for allowed in ROOMS[room])):
            wrong.append(
                f"{path.name}:{line} imports staffetta.{target}; {room} may import {', '.join(ROOMS[room])}"
            )
    assert wrong == []


def _same_backend(module: str, target: str) -> bool:
    """Backends never borrow from each other."""
    return module.split(".")[:2] == target.split(".")[:2]


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name or "staffetta" for name, _ in MODULES])
def test_a_foreign_library_is_met_in_one_room(module: str, path: Path) -> None:
    """So that it can be exchanged, left out, or upgraded by reading one place."""
    wrong = []
    for name, line in imported(path, module):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "staffetta":
            continue
        if not any(within(module, room) for room in FOREIGN.get(top, ())):
            wrong.append(f"{path.name}:{line} imports {top}; only {FOREIGN.get(top, '(nobody)')} may")
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "path"),
    [(name, path) for name, path in MODULES if within(name, "mail")],
    ids=[name for name, _ in MODULES if within(name, "mail")],
)
def test_what_is_decided_is_pure(module: str, path: Path) -> None:
    """No clock, no chance, no network in `mail/`: the same arguments give the same decision, now and in ten years."""
    wrong = [
        f"{path.name}:{line} imports {name}"
        for name, line in imported(path, module)
        if name.partition(".")[0] in CLOCK_AND_CHANCE
    ]
    assert wrong == []


def drawn_rooms() -> dict[str, set[str]]:
    """The table of ARCHITECTURE.md, in this file's words."""
    found: dict[str, set[str]] = {}
    for line in DRAWN.read_text(encoding="utf-8").split("## Rooms")[1].split("\n## ")[0].splitlines():
        if not line.startswith("| `"):
            continue
        rooms, may_import = line.split("|")[1:3]
        for name in re.findall(r"`([^`]+)`", rooms):
            for room in CONTRACTS if name == "*/contract.py" else (name.removesuffix("/x").removesuffix("/"),):
                allowed = set(re.findall(r"`([^`]+)`", may_import))
                if "own contract" in may_import:
                    allowed.add(f"{room}.contract")
                elif "contracts" in may_import:
                    allowed.update(CONTRACTS)
                if "everything" in may_import:
                    allowed.add("*")
                found[room] = allowed
    return found


def test_the_drawn_table_is_the_one_that_is_kept() -> None:
    """Who reads ARCHITECTURE.md before adding an import is told what this test will say."""
    kept = {room: set(allowed) for room, allowed in ROOMS.items() if room not in ("", "__main__")}
    assert kept == drawn_rooms()
