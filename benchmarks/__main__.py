"""Prints the tables: `make bench`, or `make bench ARGS="drain ceilings"`.

Each file answers one question and can be run by itself, as `python -m benchmarks.drain`. Results of other
systems, measured by an outside harness, are shown beside ours where a file of them is given:
`--others results.jsonl`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks import parts

FILES = (
    "ceilings",
    "drain",
    "processes",
    "journey",
    "latency",
    "flat",
    "million",
    "transport",
    "verdict",
    "mysql",
    "dynamodb",
    "redis",
)


def others(path: Path) -> None:
    """Medians of a harness's results: one JSON object a line, with `peer`, `w` and the figures."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("w") == "w1" and "rate" in row:
            found[row["peer"]].append(row["rate"])
    rows = sorted(((name, statistics.median(rates)) for name, rates in found.items()), key=lambda row: -row[1])
    shown = [(name, f"{rate:,.0f}") for name, rate in rows]
    parts.table(f"Other systems, from {path.name}", ("system", "e-mails/s"), shown)


def main(arguments: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    reader.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)}; default: all")
    reader.add_argument("--others", type=Path, help="results of other systems (JSON lines)")
    given = reader.parse_args(arguments)
    print(f"Python {platform.python_version()}, {platform.system()} {platform.release()}")
    for name in given.files or FILES:
        importlib.import_module(f"benchmarks.{name}").measure()
    if given.others:
        others(given.others)


if __name__ == "__main__":
    main(sys.argv[1:])
