"""Running: the API, the stages, or both, until a signal ends them."""

from __future__ import annotations

import click
import msgspec

from staffetta.app import running
from staffetta.cli.terminal import run, settings, wants_transport
from staffetta.config import Config

STAGES = ("intake", "deliver", "report", "restore", "retire", "watch")


def _with_processes(found: Config, processes: int | None) -> Config:
    if processes is None:
        return found
    return msgspec.structs.replace(found, worker=msgspec.structs.replace(found.worker, processes=processes))


@click.command("serve")
@click.option("--processes", type=click.IntRange(1, 64), help="Sending processes; default: worker.processes.")
@click.pass_context
def serve_command(context: click.Context, /, processes: int | None) -> None:
    """API, dashboard and all stages, until SIGTERM or Ctrl-C; a stop leaves nothing in work."""
    found = _with_processes(settings(context), processes)
    wants_transport(found)
    run(running.run(found, stages=frozenset(STAGES), api=True))


@click.command("work")
@click.option("--stages", default=",".join(STAGES), show_default=True, help="Which, with commas between.")
@click.option("--processes", type=click.IntRange(1, 64), help="Sending processes; default: worker.processes.")
@click.pass_context
def work_command(context: click.Context, /, stages: str, processes: int | None) -> None:
    """Only the stages, without the API."""
    named = frozenset(one.strip() for one in stages.split(",") if one.strip())
    unknown = sorted(named - set(STAGES))
    if unknown or not named:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'} named; there are {', '.join(STAGES)}")
    found = _with_processes(settings(context), processes)
    if "deliver" in named:
        wants_transport(found)
    run(running.run(found, stages=named, api=False))


@click.command("api")
@click.pass_context
def api_command(context: click.Context) -> None:
    """Only the API and the dashboard; another process sends."""
    run(running.run(settings(context), stages=frozenset(), api=True))
