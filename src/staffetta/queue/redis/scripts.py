"""The Lua moves: each file with the parts it includes, as one text, known to the server by its SHA-1."""

from __future__ import annotations

import hashlib
from importlib import resources

from staffetta.mail.message import Value

MARK = "--- include:"
NAMES = (
    "bury", "block", "depth", "doze", "enrol", "extend", "figures", "full", "hungry", "offer", "postpone", "room",
    "settle", "stock", "take", "weigh",
)  # fmt: skip


class Script(Value, frozen=True, kw_only=True):
    name: str
    text: str
    sha: str


def load() -> dict[str, Script]:
    folder = resources.files("staffetta.queue") / "lua"
    return {name: _script(name, (folder / f"{name}.lua").read_text(encoding="utf-8")) for name in NAMES}


def _script(name: str, own: str) -> Script:
    folder = resources.files("staffetta.queue") / "lua" / "include"
    lines: list[str] = []
    for line in own.splitlines():
        if line.startswith(MARK):
            lines += [
                (folder / f"{part}.lua").read_text(encoding="utf-8") for part in line[len(MARK) :].split()
            ]
        elif not line.startswith("--"):
            lines.append(line)
    text = "\n".join(lines)
    return Script(name=name, text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
