"""Named points at which this process dies, stands still or fails, when a test asks for it; otherwise nothing.

    STAFFETTA_FAILPOINT=store.before-commit:kill:7      dies when it comes to that point for the 7th time

Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `error` (the driver's own kind of failure). A point is asked for
only `if failpoints.armed`, so that it costs next to nothing where no test asks.
"""

from __future__ import annotations

import os
import signal
from typing import Final

POINTS: Final = frozenset(
    {
        "store.before-commit", "store.after-commit", "store.before-read", "store.after-read",
        "transport.before-write", "transport.after-write", "transport.read",
        "flow.claimed", "flow.marked", "flow.answered",
        "http.before-write", "http.read",
        "web.read", "web.before-answer", "web.after-answer",
        "keeper.before-write", "keeper.after-write", "keeper.read",
        "spool.before-rename", "spool.after-rename",
    }
)  # fmt: skip
"""Around every commit, every network write, every read."""


def _asked(spelt: str) -> tuple[str, str, int]:
    if not spelt:
        return "", "", 0
    name, _, rest = spelt.partition(":")
    action, _, count = rest.partition(":")
    if name not in POINTS or action not in ("kill", "stop", "error"):
        known = ", ".join(sorted(POINTS))
        raise ValueError(f"STAFFETTA_FAILPOINT={spelt}: write POINT:kill|stop|error:COUNT; points are {known}")
    return name, action, int(count or 1)


_name, _action, _left = _asked(os.environ.get("STAFFETTA_FAILPOINT", ""))
armed: Final = bool(_name)


def reach(name: str, error: type[Exception] = OSError) -> None:
    """This process has come to that point."""
    global _left  # noqa: PLW0603  # one counter for the one point that a process may be asked for
    if name != _name:
        return
    _left -= 1
    if _left:
        return
    if _action == "error":
        raise error(f"failpoint {name}")
    os.kill(os.getpid(), signal.SIGKILL if _action == "kill" else signal.SIGSTOP)
