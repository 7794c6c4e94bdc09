"""Setting up: the store's schema, and checks of all that must be right, with the remedy for what is not."""

from __future__ import annotations

import dataclasses

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from staffetta.app import copying, doctor
from staffetta.app.tools import migrate
from staffetta.cli.terminal import json_option, print_json, run, settings
from staffetta.config import Config
from staffetta.config.kinds import hidden_password

PLAIN_PROGRESS_EVERY = 1_000
SHOWN_MAX = 20


@click.command("migrate")
@click.pass_context
def migrate_command(context: click.Context) -> None:
    """Bring the store's schema up to date. Safe to repeat."""
    done = run(migrate(settings(context)))
    for line in done:
        click.echo(line)
    if not done:
        click.echo("up to date: nothing to do")


@click.group("store")
def store_command() -> None:
    """The store as a whole."""


@store_command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
@click.pass_context
def copy_store(context: click.Context, /, source: str, target: str, as_json: bool) -> None:
    """Move every e-mail to another store, such as sqlite:///staffetta.db to mysql://… or dynamodb://….

    History, attempts, dead letters, contents, keys, pauses and settings go along; nothing of FROM changes. Stop
    `serve` first. It may be run again: it goes on where it was, and what is in TO already stays as it is there.
    Content that lies in files stays in them: both stores name the same ones.
    """
    copied = run(_copied(settings(context), source, target))
    if as_json:
        print_json({**dataclasses.asdict(copied), "whole": copied.whole})
    else:
        click.echo(f"{copied.moved} of {copied.total} e-mails copied, {copied.known} were there already")
        click.echo(f"{copied.letters} dead letters, {copied.keys} keys, {copied.settings} settings went along")
        for told, ids in (("missing in TO", copied.missing), ("otherwise in TO", copied.differing)):
            for id in ids[:SHOWN_MAX]:
                click.echo(f"{told}: {id}", err=True)
            if len(ids) > SHOWN_MAX:
                click.echo(f"… and {len(ids) - SHOWN_MAX} more {told}", err=True)
        if copied.whole:
            click.echo(
                f"verified: all {copied.total} are in {hidden_password(target)}; set STAFFETTA_STORE to it,"
            )
            click.echo(f"and do not serve {hidden_password(source)} any more: it would send them a second time")
        else:
            click.echo("not whole: see above, stop whoever serves FROM or TO, and run it again", err=True)
    if not copied.whole:
        context.exit(1)


async def _copied(found: Config, source: str, target: str) -> copying.Copied:
    errors = Console(stderr=True)
    if not errors.is_terminal:
        return await copying.copy(found, source, target, _plainly)
    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("")
        return await copying.copy(
            found, source, target, lambda done, total: bar.update(task, completed=done, total=total)
        )


def _plainly(done: int, total: int) -> None:
    if done == total or done % PLAIN_PROGRESS_EVERY < copying.AT_ONCE:
        click.echo(f"{done} of {total} copied", err=True)


@click.command("doctor")
@json_option
@click.pass_context
def doctor_command(context: click.Context, /, as_json: bool) -> None:
    """Check settings, store, queue, transport, callback, clock and disk; name the remedy for each trouble."""
    findings = run(doctor.examine(settings(context)))
    if as_json:
        print_json(msgspec.to_builtins(findings))
    else:
        for one in findings:
            mark = "BAD " if not one.ok else ("note" if one.remedy else "ok  ")
            click.echo(f"{mark} {one.part}: {one.words}")
            if one.remedy:
                click.echo(f"     → {one.remedy}")
    if not all(one.ok for one in findings):
        context.exit(1)
