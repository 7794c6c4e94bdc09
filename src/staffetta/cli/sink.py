"""The scripted SMTP sink on its own: takes every e-mail, sends none on, misbehaves as told."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from staffetta.cli.terminal import run
from staffetta.errors import FieldProblem, SettingsError
from staffetta.sink import Script, SinkServer
from staffetta.sink import script as script_module

_FORMAT = "\n\n".join(f"\b\n{part}" for part in (script_module.__doc__ or "").strip().split("\n\n"))


@click.command("sink", epilog=_FORMAT)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=2525, show_default=True, help="0: any; printed first."
)
@click.option(
    "--script", "script_path", type=click.Path(path_type=Path), help="Rules: who is answered what, and when."
)
@click.option(
    "--log", type=click.Path(path_type=Path), help="One JSON line a message, written before the reply."
)
def sink_command(host: str, port: int, script_path: Path | None, log: Path | None) -> None:
    """A scripted SMTP server: takes every e-mail, sends none on, and misbehaves as its script says."""
    try:
        script = Script.parse(script_path.read_text(encoding="utf-8")) if script_path else Script()
    except (OSError, ValueError) as error:
        raise SettingsError([FieldProblem("--script", str(error))]) from error

    async def serve() -> None:
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        sink = SinkServer(script, host=host, port=port, log=log)
        try:
            await sink.start()
        except OSError as error:
            where = f"cannot write {log}" if error.filename else f"cannot listen on {host}:{port}"
            problem = FieldProblem(
                "--log" if error.filename else "--port", f"{where}: {error.strerror or error}"
            )
            raise SettingsError([problem]) from error
        click.echo(sink.port)
        await ended.wait()
        await sink.stop()
        click.echo(f"{sink.record.messages} messages taken", err=True)

    run(serve())
