"""What do several sending processes cost? READY to SENT as in `drain.py`, by one process and by two.

The first alone owns the file; the other asks it over a socket. CPU is that of all processes together, after they
have begun. On a machine with two cores they are not faster: what counts here is what the asking costs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import drain, parts

SHOWN = ("rate", "cpu_us", "helping_us", "written")


def measure(count: int = 20_000, pairs: int = 5) -> None:
    """Interleaved pairs, medians."""
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(pairs):
        for processes, found in runs.items():
            found.append(drain.once(count, processes=processes, concurrency=600 // processes))
    ratio = parts.middle([two["cpu_us"] / one["cpu_us"] for one, two in zip(runs[1], runs[2], strict=True)])
    rows = [
        (
            "`serve`" if processes == 1 else f"`serve --processes {processes}`",
            *(f"{parts.middle([run[key] for run in found]):,.0f}" for key in SHOWN),
            "" if processes == 1 else f"{ratio:.2f}",
            max(run["writers"] for run in found),
        )
        for processes, found in runs.items()
    ]  # fmt: skip
    parts.table(
        f"Drain of {count:,} e-mails of 2 KiB by several processes ({pairs} interleaved pairs, medians)",
        ("command", "e-mails/s", "engine and store µs CPU", "of it the second process", "bytes written",
         "against one", "processes that write the file"),
        rows,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    measure(*map(int, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
