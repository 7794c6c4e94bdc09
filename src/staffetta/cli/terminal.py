"""What all commands share: settings, running a coroutine, and printing for people or for programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from staffetta import config
from staffetta.config import Config
from staffetta.errors import FieldProblem, LockNotAcquired, MoveNotAllowed, NotFound, SettingsError
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Millis
from staffetta.mail.operators import Filter

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on standard output.")


def settings(context: click.Context) -> Config:
    """The settings in force. :raises SettingsError: naming every wrong one."""
    path = context.find_root().obj
    assert path is None or isinstance(path, Path)
    return config.load(path, os.environ)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run one command's coroutine to its end."""
    import uvloop

    return uvloop.run(work)


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run what only a person ends: Ctrl-C is its good end."""
    with contextlib.suppress(KeyboardInterrupt):
        run(work)


def console() -> Console:
    """Standard output for people; wide where it is no terminal, so that nothing is cut from a pipe or a log."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=False)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = (), empty: str
) -> None:
    """Print rows, or the one line that says that there are none and what to do."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        shown.add_column(column, justify="right" if column in right else "left", overflow="fold")
    count = 0
    for row in rows:
        shown.add_row(*(plain(str(cell)) for cell in row))
        count += 1
    if count:
        console().print(shown)
    else:
        click.echo(empty)


def plain(text: str) -> str:
    """A foreign text without control characters and markup: a server's words cannot paint the screen."""
    from rich.markup import escape

    return escape("".join(c if c.isprintable() or c == "\n" else " " for c in text))


def when(at: Millis | None) -> str:
    """A time for people and programs: RFC 3339 in UTC, milliseconds kept."""
    if not at:
        return ""
    text = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def parse_time(text: str, *, now: Millis) -> Millis:
    """RFC 3339 with an offset, or an age such as 15m, 24h, 7d."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return now - age(text)
    if found.tzinfo is None:
        raise click.BadParameter(f"'{text}' has no offset: write 2026-01-31T08:00:00+01:00 or end it with Z")
    return round(found.timestamp() * 1000)


def age(text: str) -> int:
    """Milliseconds of an age such as 30d."""
    from staffetta.config.kinds import Wrong, duration

    try:
        return int(duration("age", least_ms=0, most_ms=100 * 365 * 86_400_000).read(text))
    except Wrong as wrong:
        raise click.BadParameter(str(wrong)) from None


def filter_options(*, status: bool = True, code: bool = False) -> Callable[[Command], Command]:
    """The filter of SPEC's listings, as options; `build_filter` reads them."""

    def add(command: Command) -> Command:
        options = [
            click.option("--until", metavar="TIME", help="Handed in before: RFC 3339, or an age such as 24h."),
            click.option("--since", metavar="TIME", help="Handed in since: RFC 3339, or an age such as 24h."),
            click.option("--recipient", metavar="ADDRESS", help="Sent to this address."),
            click.option("--company", "company_id", metavar="ID", help="Of this company."),
        ]
        if code:
            options.append(click.option("--code", help="Failed with this code, such as 421 or IN-DOUBT."))
        if status:
            names = click.Choice([one.value for one in Status], case_sensitive=False)
            options.append(
                click.option(
                    "--status",
                    "statuses",
                    multiple=True,
                    type=names,
                    metavar="STATUS",
                    help="In this status; again for several.",
                )
            )
        for option in options:
            command = option(command)
        return command

    return add


def build_filter(
    *,
    company_id: str | None = None,
    recipient: str | None = None,
    since: str | None = None,
    until: str | None = None,
    statuses: Sequence[str] = (),
    code: str | None = None,
) -> Filter:
    """:raises click.BadParameter: before any store is opened."""
    from staffetta.app.wiring import clock

    now = clock()
    return Filter(
        status=tuple(Status(one) for one in statuses),
        company_id=company_id,
        recipient=recipient,
        code=code,
        since=parse_time(since, now=now) if since else None,
        until=parse_time(until, now=now) if until else None,
    )


async def each(ids: Iterable[str], act: Callable[[str], Awaitable[object]]) -> dict[str, Any]:
    """Do it to each; one that cannot be done is named and stops no other. The store's own failure ends it."""
    changed, skipped = [], []
    for id in ids:
        try:
            await act(id)
        except (NotFound, MoveNotAllowed, LockNotAcquired) as error:
            skipped.append({"id": id, "why": str(error)})
        else:
            changed.append(id)
    return {"changed": changed, "skipped": skipped, "more": False}


def wants_transport(found: Config) -> None:
    """:raises SettingsError: nothing can be sent, and how to change that."""
    if not found.transport.url:
        remedy = (
            "is not set: write STAFFETTA_TRANSPORT=smtp://user:password@relay:587 (or sink:// to try it out)"
        )
        raise SettingsError([FieldProblem("transport.url", remedy)])


async def until_cancelled(work: Callable[[], Coroutine[Any, Any, None]], every_seconds: float) -> None:
    """Repeat until the person presses Ctrl-C."""
    while True:
        await work()
        await asyncio.sleep(every_seconds)
