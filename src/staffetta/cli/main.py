"""The `staffetta` command: loads a command's file only when it is called, turns errors into words and codes.

Exit codes: 0 done, 1 the operation failed, 2 wrong usage or settings.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from staffetta.errors import PayloadError, SettingsError, StaffettaError

# Where each command lives, and its line in the overview (read without importing anything).
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Show the main job: companies, failures, a summary. Needs nothing else."),
    "serve": ("run", "API, dashboard and all stages."),
    "work": ("run", "Only the stages."),
    "api": ("run", "Only the API and the dashboard."),
    "send": ("send", "Hand in e-mails from flags, a payload file, an .eml or JSON lines."),
    "status": ("look", "Counts by status, queue and dead letters."),
    "list": ("look", "E-mails by filter."),
    "show": ("look", "One e-mail's whole story."),
    "top": ("look", "A live view."),
    "tenants": ("look", "Fairness figures per company; change a weight while running."),
    "alerts": ("look", "Every alert's condition, value and state."),
    "explain": ("rules", "What a server's reply means, and the rule that says so."),
    "backoff": ("rules", "The delays of a retry policy."),
    "dlq": ("deadletters", "Dead letters: list, show, stats, retry, resolve, discard, purge, export."),
    "retry": ("steer", "Failed e-mails back on their way."),
    "cancel": ("steer", "Stop one that is not sent yet."),
    "erase": ("steer", "Erase the content of a finished e-mail."),
    "pause": ("steer", "Stop sending: all, a transport, or a company. Survives restarts."),
    "resume": ("steer", "Send again."),
    "keys": ("keys", "API keys: create, list, revoke."),
    "migrate": ("setup", "Bring the store's schema up to date."),
    "store": ("setup", "Move every e-mail to another store: store copy FROM TO."),
    "doctor": ("setup", "Check store, queue, transport, callback, clock and disk; the remedy for each."),
    "sink": ("sink", "A scripted SMTP server that takes every e-mail and sends none on."),
}


class Commands(click.Group):
    """Imports a command's file when it is needed: `staffetta --help` loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"staffetta.cli.{COMMANDS[cmd_name][0]}")
        found = getattr(module, f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="STAFFETTA_CONFIG",
    help="Settings file; default: staffetta.toml where there is one.",
)
@click.version_option(package_name="staffetta")
@click.pass_context
def staffetta(context: click.Context, /, config_path: Path | None) -> None:
    """A delivery engine for the e-mail that an application must not lose."""
    context.obj = config_path


def main() -> NoReturn:
    """Run one command; say what went wrong in words, never in a traceback."""
    try:
        code: Any = staffetta(prog_name="staffetta", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        code = 1
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (SettingsError, PayloadError) as error:
        what = "Settings are wrong; nothing was done" if isinstance(error, SettingsError) else "Refused"
        click.echo(f"{what}:", err=True)
        for field, problem in error.problems:
            click.echo(f"  {field}: {problem}", err=True)
        code = 2
    except StaffettaError as error:
        click.echo(f"Error: {error}", err=True)
        code = 1
    except BrokenPipeError:
        # The reader (head, less) has seen enough; writing the rest at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        click.echo(f"Error: {what}", err=True)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
