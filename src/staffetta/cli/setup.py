"""Setting up: the store's schema, and checks of all that must be right, with the remedy for what is not."""

from __future__ import annotations

import click
import msgspec

from staffetta.app import doctor
from staffetta.app.tools import migrate
from staffetta.cli.terminal import json_option, print_json, run, settings
from staffetta.config.kinds import hidden_password
from staffetta.errors import StaffettaError


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
def copy_store(source: str, target: str) -> None:
    """Move every e-mail to another store, such as sqlite:///staffetta.db to mysql://….

    This release has one kind of store, so it says what to do instead.
    """
    raise StaffettaError(
        f"nothing was copied from {hidden_password(source)} to {hidden_password(target)}:"
        " this release keeps e-mails in SQLite only. A copy of its file is taken while `serve` runs or not:"
        " sqlite3 staffetta.db \"VACUUM INTO 'copy.db'\""
    )


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
