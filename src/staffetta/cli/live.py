"""The live view of `staffetta top`: statuses, queue, companies, dead letters, redrawn every second."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from staffetta.app.tools import Tools
from staffetta.cli.look import read_status
from staffetta.cli.terminal import console, plain

EVERY_SECONDS = 1.0
COMPANIES_SHOWN = 12


async def watch(tools: Tools) -> None:
    """Redraw until Ctrl-C; on something that is no terminal, one plain line a second."""
    screen = console()
    before: tuple[float, int] | None = None
    if not screen.is_terminal:
        while True:
            status, before, rate = await _read(tools, before)
            sent = status["emails"]["SENT"] + status["emails"]["SENT-ACKNOWLEDGED"]
            waiting = status["queue"]["waiting"]
            click.echo(
                f"sent {sent}, waiting {waiting}, dead letters {status['dlq']['size']}, {rate:.0f} e-mails/s"
            )
            await asyncio.sleep(EVERY_SECONDS)
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            status, before, rate = await _read(tools, before)
            live.update(_picture(status, await tools.tenants(), rate), refresh=True)
            await asyncio.sleep(EVERY_SECONDS)


async def _read(
    tools: Tools, before: tuple[float, int] | None
) -> tuple[dict[str, Any], tuple[float, int], float]:
    status = await read_status(tools)
    ended = sum(
        status["emails"][name] for name in status["emails"] if name.startswith(("SENT", "CALLING-SENT"))
    )
    now = time.monotonic()
    rate = (ended - before[1]) / (now - before[0]) if before and now > before[0] else 0.0
    return status, (now, ended), max(0.0, rate)


def _picture(status: dict[str, Any], tenants: list[dict[str, Any]], rate: float) -> RenderableType:
    emails = Table(box=None, show_header=False, pad_edge=False)
    emails.add_column()
    emails.add_column(justify="right")
    for name, count in status["emails"].items():
        emails.add_row(name, f"{count:,}", style="" if count else "dim")
    queue = status["queue"]
    line = (
        f"{rate:,.0f} sent a second · {queue['waiting']:,} waiting · {queue['delayed']:,} delayed ·"
        f" {queue['active']:,} active · {status['dlq']['size']:,} dead letters"
    )
    companies = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("company", "waiting", "active", "weight", "rounds", "priority", "processed"):
        companies.add_column(column, justify="left" if column == "company" else "right")
    for row in tenants[:COMPANIES_SHOWN]:
        companies.add_row(
            plain(row["companyId"]),
            f"{row['waiting']:,}",
            f"{row['active']:,}",
            f"{row['weight']:g}",
            str(row["roundsWithoutProcessing"]),
            str(row["currentPriority"]),
            f"{row['totalProcessed']:,}",
        )
    pauses = [f"PAUSED: {one['scope']} {one['name']}".rstrip() for one in status["paused"]]
    return Group(
        Panel(line, title="Staffetta", subtitle="Ctrl-C ends", border_style="red" if pauses else "green"),
        *(plain(one) for one in pauses),
        Panel(emails, title="e-mails"),
        Panel(companies, title=f"companies ({len(tenants)})"),
    )
