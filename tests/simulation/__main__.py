"""Plays seeds: `python -m simulation FIRST COUNT`. Ends with 1, and names them, where a law was broken."""

from __future__ import annotations

import os
import sys
import traceback

from simulation.play import play, tell


def main() -> int:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names are walked in an order that hangs on it: with it a seed plays the same everywhere.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])
    bad = emails = copies = 0
    for seed in range(first, first + count):
        if count == 1:
            try:
                outcome = play(seed)
            except Exception:
                traceback.print_exc()
                return 1
        else:
            outcome = tell(seed)
        emails, copies = emails + outcome.emails, copies + outcome.copies
        if outcome.broken or count == 1:
            print(
                f"STAFFETTA_SEED={seed} {outcome.trace} {outcome.emails} e-mails, {outcome.copies} copies {outcome.kinds}"
            )
        for what in outcome.broken[:20]:
            bad = 1
            print(f"  {what}", flush=True)
    print(f"{count} seeds from {first}: {emails} e-mails, {copies} copies")
    return bad


if __name__ == "__main__":
    sys.exit(main())
