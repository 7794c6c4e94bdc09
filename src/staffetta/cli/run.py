"""Running: the API, the stages, or both, until a signal ends them."""

from __future__ import annotations

from collections.abc import Callable

import click
import msgspec

from staffetta.app import running
from staffetta.cli.terminal import run, settings, wants_transport
from staffetta.config import Config

STAGES = ("intake", "deliver", "report", "restore", "retire", "watch")


def _run(reread: Callable[[], Config], *, stages: frozenset[str], api: bool) -> None:
    """Until it is told to end; after SIGHUP again, on the settings as they are then."""
    found: Config | None = reread()
    while found is not None:
        found = run(running.run(found, stages=stages, api=api, reread=reread))


def _with_processes(found: Config, processes: int | None) -> Config:
    if processes is None:
        return found
    return msgspec.structs.replace(found, worker=msgspec.structs.replace(found.worker, processes=processes))


@click.command("serve")
@click.option("--processes", type=click.IntRange(1, 64), help="Sending processes; default: worker.processes.")
@click.pass_context
def serve_command(context: click.Context, /, processes: int | None) -> None:
    """API, dashboard and all stages, until SIGTERM or Ctrl-C; a stop leaves nothing in work."""

    def reread() -> Config:
        found = _with_processes(settings(context), processes)
        wants_transport(found)
        return found

    _run(reread, stages=frozenset(STAGES), api=True)


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

    def reread() -> Config:
        found = _with_processes(settings(context), processes)
        if "deliver" in named:
            wants_transport(found)
        return found

    _run(reread, stages=named, api=False)


@click.command("api")
@click.pass_context
def api_command(context: click.Context) -> None:
    """Only the API and the dashboard; another process sends."""
    _run(lambda: settings(context), stages=frozenset(), api=True)
