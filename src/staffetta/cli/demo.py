"""The main job in one command: live progress on a terminal, plain lines elsewhere, a closing summary."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from staffetta.cli.terminal import console, run
from staffetta.demo import plan, summary
from staffetta.demo.show import Progress, demonstrate
from staffetta.mail.lifecycle import Status

PLAIN_EVERY_SECONDS = 2.0


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave API and dashboard up afterwards, until Ctrl-C.")
@click.pass_context
def demo_command(context: click.Context, /, keep: bool) -> None:
    """Show the main job: five companies, one of which floods, against a server that misbehaves."""
    screen = console()
    total = len(list(plan.payloads()))
    click.echo(
        f"{total} e-mails of {len(plan.COMPANIES)} companies;"
        f" {plan.FLOOD} sends {plan.FLOOD_COUNT} of them at once."
    )
    click.echo(f"The server goes away for {plan.AWAY_SECONDS:.0f} seconds, and does this:")
    for trouble in plan.TROUBLES:
        click.echo(f"  *@{trouble.domain:<22} {trouble.words}")
    click.echo()

    def stay(url: str, found: summary.Outcome) -> None:
        _print_summary(found)
        click.echo(f"\nAPI and dashboard: {url}  (documents: {url}/docs; Ctrl-C ends)")

    if screen.is_terminal:
        with Live(console=screen, auto_refresh=False, transient=True) as live:

            def stop_and_stay(url: str, found: summary.Outcome) -> None:
                live.stop()
                stay(url, found)

            def show(now: Progress) -> None:
                live.update(_picture(now, total), refresh=True)

            found = run(demonstrate(show, keep=stop_and_stay if keep else None))
    else:
        found = run(demonstrate(_Plain(total), keep=stay if keep else None))
    _print_summary(found)
    context.exit(0 if found.good else 1)


def _print_summary(found: summary.Outcome) -> None:
    for line in summary.lines(found):
        click.echo(line)


class _Plain:
    """A line now and then, for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._told_at = -PLAIN_EVERY_SECONDS

    def __call__(self, now: Progress) -> None:
        if now.seconds - self._told_at < PLAIN_EVERY_SECONDS:
            return
        self._told_at = now.seconds
        sent, failed = _sent(now), _failed(now)
        relay = "the relay is AWAY" if now.relay_away else f"breaker {now.breaker}"
        click.echo(
            f"{now.seconds:4.0f} s  {sent} of {self._total} sent, {failed} failed, {now.waiting} waiting,"
            f" {now.delayed} delayed, {now.callbacks} called back; {relay}"
        )


def _sent(now: Progress) -> int:
    return sum(
        now.counts.get(status, 0)
        for status in (Status.SENT, Status.SENT_ACKNOWLEDGED, Status.CALLING_SENT_CALLBACK)
    )


def _failed(now: Progress) -> int:
    family = (Status.FAILED, Status.FAILED_ACKNOWLEDGED, Status.CALLING_FAILED_CALLBACK)
    return sum(now.counts.get(status, 0) for status in family)


def _picture(now: Progress, total: int) -> RenderableType:
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(width=26)
    rows.add_column(justify="right", width=7)
    for status in Status:
        count = now.counts.get(status, 0)
        rows.add_row(status.value, f"{count:,}", style="" if count else "dim")
    relay = "[red]away[/]" if now.relay_away else "[green]here[/]"
    state = (
        f"relay {relay}, breaker {now.breaker} · {now.waiting} waiting, {now.delayed} delayed ·"
        f" {now.callbacks} called back"
    )
    bar = ProgressBar(total=total, completed=_sent(now) + _failed(now))
    return Panel(Group(bar, rows, state), title=f"Staffetta · {now.seconds:.0f} s", width=78)
