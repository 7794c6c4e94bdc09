"""What does fairness cost? Picking the next job among many companies, and the memory of a million that wait.

Only the local queue is measured, without a store: each job is offered, taken and settled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from staffetta.mail.message import Job
from staffetta.queue.local import LocalQueue

NOW = 1_800_000_000_000
LEASE_MS = 60_000
ROUNDS = 5
MILLION = 1_000_000


def _jobs(count: int, companies: int, *, by_company: bool) -> list[Job]:
    """In mixed order, or company by company."""
    each = -(-count // companies)
    return [
        Job(
            id=f"0198f0a0-0000-7000-8000-{number:012d}",
            company_id=f"company-{number // each if by_company else number % companies:05d}",
            priority=5,
            due_at=NOW - count + number,
            ref=number,
        )
        for number in range(count)
    ]


async def picking(companies: int, count: int, batch: int, *, by_company: bool) -> dict[str, float]:
    """Microseconds a job: for being offered, for being picked (`take`), for being settled."""
    jobs = _jobs(count, companies, by_company=by_company)
    queue = LocalQueue(clock=lambda: NOW, waiting_max=2 * count)
    started = time.perf_counter()
    await queue.offer(jobs)
    offered = time.perf_counter()
    taking = settling = 0.0
    given = 0
    while True:
        before = time.perf_counter()
        taken = await queue.take(batch, now=NOW, lease_ms=LEASE_MS)
        between = time.perf_counter()
        await queue.settle([job.id for job in taken])
        taking += between - before
        settling += time.perf_counter() - between
        if not taken:
            break
        given += len(taken)
    assert given == count, f"{given} of {count} came out"
    scale = 1e6 / count
    return {
        "offer": (offered - started) * scale,
        "take": taking * scale,
        "settle": settling * scale,
    }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


async def memory(companies: int) -> tuple[float, int]:
    """Megabytes that the queue grows by when a million READY e-mails are told to it, and how many it keeps."""
    queue = LocalQueue(clock=lambda: NOW)
    before = _resident_mb()
    page = 10_000
    for start in range(0, MILLION, page):
        refused = await queue.offer(
            [
                Job(
                    id=f"0198f0a0-0000-7000-8000-{number:012d}",
                    company_id=f"company-{number % companies:05d}",
                    priority=5,
                    due_at=NOW,
                    ref=number,
                )
                for number in range(start, start + page)
            ]
        )
        for company_id in {job.company_id for job in refused}:
            await queue.full(company_id, more=True)
    return _resident_mb() - before, (await queue.depth()).waiting


async def measure(rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for companies, count, batch, by_company in (
        (100, 50_000, 20, False),
        (10_000, 100_000, 20, False),
        (10_000, 100_000, 20, True),
        (10_000, 100_000, 1, False),
    ):
        runs = [await picking(companies, count, batch, by_company=by_company) for _ in range(rounds)]
        middle = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
        order = "by company" if by_company else "mixed"
        rows.append({"companies": companies, "batch": batch, "loaded": order, **middle})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = asyncio.run(measure(options.rounds))
    grown, kept = asyncio.run(memory(10_000))
    if options.json:
        print(json.dumps({"picking_us": rows, "million_mb": round(grown, 1), "million_kept": kept}))
        return
    print("companies  at once  loaded       offer  take  settle   (microseconds a job; picking may cost 5)")
    for row in rows:
        costs = f"{row['offer']:>5}  {row['take']:>4}  {row['settle']:>6}"
        print(f"{row['companies']:>9}  {row['batch']:>7}  {row['loaded']:<11}  {costs}")
    print(f"1,000,000 READY of 10,000 companies: {kept} kept in the window, {grown:.1f} MB")


if __name__ == "__main__":
    main()
