"""The main job in one command: live progress on a terminal, plain lines elsewhere, a closing summary."""

from __future__ import annotations

import asyncio
from collections import deque

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from staffetta.cli.terminal import console, plain, run
from staffetta.demo import plan, summary
from staffetta.demo.show import Progress, demonstrate

PLAIN_EVERY_SECONDS = 2.0
HAPPENINGS_SHOWN = 7
WIDTH_MAX = 112
"""Wider lines are harder to read than cut ones."""


@click.command("demo")
@click.option("--keep", is_flag=True, help="API and dashboard are up from the start and stay up, until Ctrl-C.")
@click.pass_context
def demo_command(context: click.Context, /, keep: bool) -> None:
    """Show the main job: five companies, one of which floods, against a server that misbehaves."""
    total = len(list(plan.payloads()))
    _introduce(total)
    screen = console()
    try:
        if screen.is_terminal:
            with Live(console=screen, auto_refresh=False, transient=True) as live:
                picture = _Picture(total, width=min(screen.width, WIDTH_MAX))

                def stay_live(url: str, found: summary.Outcome) -> None:
                    live.stop()
                    _stay(url, found)

                found = run(
                    demonstrate(
                        lambda now: live.update(picture(now), refresh=True),
                        begun=lambda url: live.console.print(_WATCH.format(url=url)),
                        keep=stay_live if keep else None,
                    )
                )
        else:
            found = run(demonstrate(_Plain(total), begun=_begun, keep=_stay if keep else None))
    except asyncio.CancelledError:
        raise click.Abort from None
    if not keep:
        _print_summary(found)
    context.exit(0 if found.good else 1)


_WATCH = "Watch it in a browser: {url}\n"


def _begun(url: str) -> None:
    click.echo(_WATCH.format(url=url))


def _introduce(total: int) -> None:
    click.echo(
        f"{len(plan.COMPANIES)} companies hand in {total:,} e-mails at once,"
        f" {plan.FLOOD_COUNT:,} of them {plan.FLOOD}'s."
    )
    click.echo(
        f"Their relay takes {plan.PER_SECOND:.0f} a second, goes away for"
        f" {plan.AWAY_SECONDS:.0f} seconds, and does this:"
    )
    for trouble in plan.TROUBLES:
        click.echo(f"  {'@' + trouble.domain:<22} {trouble.words}")
    click.echo()


def _stay(url: str, found: summary.Outcome) -> None:
    _print_summary(found)
    click.echo(f"\nDashboard and API: {url}   (documents: {url}/docs)")
    click.echo("Ctrl-C ends it; everything was in a temporary folder and goes with it.")


def _print_summary(found: summary.Outcome) -> None:
    for line in summary.lines(found):
        click.echo(line)
    words = f"lost {found.lost}, doubled {found.doubled}"
    click.secho(words, bold=True, fg="green" if found.good else "red", nl=False)
    click.echo("   counted from the relay's own log")


class _Plain:
    """A line now and then, and what happened, for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._told_at = -PLAIN_EVERY_SECONDS

    def __call__(self, now: Progress) -> None:
        for one in now.happened:
            click.echo(f"{now.seconds:5.1f} s  {plain(one)}")
        if now.seconds - self._told_at < PLAIN_EVERY_SECONDS:
            return
        self._told_at = now.seconds
        sent = sum(one.sent for one in now.companies.values())
        failed = sum(one.failed for one in now.companies.values())
        click.echo(
            f"{now.seconds:5.1f} s  {sent:,} of {self._total:,} sent, {failed} failed, {now.waiting:,} waiting,"
            f" {now.delayed} delayed, {now.callbacks:,} called back"
        )


class _Picture:
    """The live view: companies, relay, and what happened last."""

    def __init__(self, total: int, *, width: int) -> None:
        self._total = total
        self._width = width
        self._last: deque[tuple[float, str]] = deque(maxlen=HAPPENINGS_SHOWN)

    def __call__(self, now: Progress) -> RenderableType:
        self._last.extend((now.seconds, one) for one in now.happened)
        ended = sum(one.sent + one.failed for one in now.companies.values())
        share = Text(f"{ended:,} of {self._total:,} ended", style="bold")
        title = f"[bold]Staffetta[/]  {now.seconds:.1f} s"
        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=self._total, completed=ended, width=max(10, self._width - 30)), share)
        body = Group(
            bar,
            Text(),
            _companies(now, self._width - 4),
            Text(),
            _relay(now),
            Text(),
            *self._happenings(),
        )
        return Panel(body, title=title, title_align="left", width=self._width, border_style="cyan")

    def _happenings(self) -> list[Text]:
        told = [
            Text(f"{at:5.1f} s  {one}", overflow="ellipsis", no_wrap=True, style="dim")
            for at, one in self._last
        ]
        return told + [Text()] * (HAPPENINGS_SHOWN - len(told))


def _companies(now: Progress, width: int) -> Table:
    rows = Table(box=None, pad_edge=False, header_style="bold", width=width)
    rows.add_column("company", ratio=1)
    rows.add_column("", width=24)
    for name in ("handed in", "sent", "dead", "last waited"):
        rows.add_column(name, justify="right")
    for company_id, one in now.companies.items():
        ended = one.sent + one.failed
        rows.add_row(
            company_id,
            ProgressBar(total=max(1, one.handed_in), completed=ended, width=22),
            f"{one.handed_in:,}",
            f"{one.sent:,}",
            f"{one.failed}",
            f"{one.waited_ms / 1000:.1f} s" if one.sent else "",
        )
    return rows


def _relay(now: Progress) -> Text:
    told = Text.assemble(
        "relay ",
        ("AWAY", "bold red") if now.relay_away else ("here", "green"),
        "   breaker ",
        (now.breaker, "green" if now.breaker == "closed" else "bold yellow"),
    )
    told.append(f"   {now.waiting:,} waiting, {now.delayed:,} delayed   {now.callbacks:,} called back")
    return told
