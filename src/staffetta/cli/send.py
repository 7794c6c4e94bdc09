"""Handing in e-mails: from flags, a payload file, an .eml, or JSON lines. An id printed is an e-mail kept."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from staffetta.app.tools import Tools, tools_for
from staffetta.cli.terminal import print_json, run, settings
from staffetta.config import Config
from staffetta.errors import FieldProblem, PayloadError, StaffettaError
from staffetta.mail import eml, strict_json

LINES_AT_ONCE = 500
PLAIN_PROGRESS_EVERY = 5_000
MOST_PROBLEMS_SHOWN = 20


@click.command("send")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@click.option(
    "--jsonl", "lines_from", metavar="FILE", help="JSON lines, one payload each; - is standard input."
)
@click.option("--from", "sender", metavar="ADDRESS", help="Such as 'Billing <billing@example.com>'.")
@click.option("--to", multiple=True, metavar="ADDRESS", help="Again for each further one.")
@click.option("--cc", multiple=True, metavar="ADDRESS", help="Up to 5.")
@click.option("--bcc", multiple=True, metavar="ADDRESS", help="Up to 5; in no header.")
@click.option("--reply-to", metavar="ADDRESS", help="Where answers go.")
@click.option("--subject", help="One line of up to 998 characters.")
@click.option("--text", "body_text", help="The text body; @FILE reads it from a file.")
@click.option("--html", "body_html", help="The HTML body; @FILE reads it from a file.")
@click.option("--attach", multiple=True, metavar="PATH", help="Inside attachments.base_path.")
@click.option("--header", multiple=True, metavar="NAME:VALUE", help="A header of your own.")
@click.option("--company", "company_id", metavar="ID", help="Whose it is; default: default.")
@click.option("--priority", type=int, help="1 (first) to 10.")
@click.option("--send-at", metavar="TIME", help="Not before this; RFC 3339 with an offset.")
@click.option("--expires-in", type=int, metavar="SECONDS", help="Given up after this.")
@click.option("--callback-url", metavar="URL", help="Who is told the outcome.")
@click.option(
    "--in-doubt",
    type=click.Choice(["resend", "hold"]),
    help="When nobody knows: send once more, or ask a person.",
)
@click.option("--tag", multiple=True, help="Up to 5, for listings of yours.")
@click.option("--id", "id", metavar="UUID", help="Your own id: handed in twice, it is kept once.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same one again gives the first answer.")
@click.option("--json", "as_json", is_flag=True, help='{"id","status"} a line instead of the id.')
@click.pass_context
def send_command(
    context: click.Context,
    /,
    file: Path | None,
    lines_from: str | None,
    key: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Hand in e-mails; they are durable once their id is printed.

    FILE is a payload (JSON) or a message (.eml); flags add to it or replace what it says. - is the same as
    --jsonl -: a payload a line on standard input.
    """
    found = settings(context)
    if file is not None and str(file) == "-" and lines_from is None:
        file, lines_from = None, "-"
    if lines_from is not None:
        if file is not None or key is not None or any(flags.values()):
            raise click.UsageError("--jsonl takes whole payloads: it goes with no file, key or other flags")
        refused = run(_send_lines(found, lines_from, as_json=as_json))
        if refused:
            context.exit(2)
        return
    payload = {**(_from_file(file) if file else {}), **_from_flags(flags)}
    if not payload:
        raise click.UsageError("name a file, or say --from, --to, --subject and --text; or --jsonl -")

    async def send() -> None:
        async with tools_for(found) as tools:
            answer = await tools.desk.accept(json.dumps(payload).encode(), key=key)
        _print_answer(answer.id, str(answer.status), as_json=as_json)

    run(send())


def _print_answer(id: str, status: str, *, as_json: bool) -> None:
    print_json({"id": id, "status": status}) if as_json else click.echo(id)


def _from_file(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    if path.suffix.lower() == ".eml":
        return eml.payload_of(raw)
    try:
        payload = strict_json.loads(raw)
    except PayloadError as error:
        named = [(str(path) if field == strict_json.WHOLE else field, why) for field, why in error.problems]
        raise PayloadError([FieldProblem(field, why) for field, why in named]) from error
    if not isinstance(payload, dict):
        raise PayloadError([FieldProblem(str(path), "must hold one JSON object; several: --jsonl, one a line")])
    return payload


def _from_flags(flags: dict[str, Any]) -> dict[str, Any]:
    payload = {name: value for name, value in flags.items() if value not in (None, ())}
    names = {"sender": "from", "attach": "attachments", "header": "custom_headers", "tag": "tags"}
    payload = {names.get(name, name): list(v) if isinstance(v, tuple) else v for name, v in payload.items()}
    for body in ("body_text", "body_html"):
        text = payload.get(body, "")
        if text.startswith("@"):
            try:
                payload[body] = Path(text[1:]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise PayloadError([FieldProblem(body, f"{text[1:]} cannot be read: {error}")]) from error
    if "custom_headers" in payload:
        pairs = [line.partition(":") for line in payload["custom_headers"]]
        payload["custom_headers"] = {name.strip(): value.strip() for name, _, value in pairs}
    return payload


class _Tally:
    """What became of the lines, told as it goes: a bar on a terminal, a plain line now and then elsewhere."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0
        self._errors = Console(stderr=True, highlight=False)

    def problem(self, number: int, error: Exception) -> None:
        self.refused += 1
        if self.refused <= MOST_PROBLEMS_SHOWN:
            click.echo(f"line {number}: {error}", err=True)
        elif self.refused == MOST_PROBLEMS_SHOWN + 1:
            click.echo("… further refused lines are only counted", err=True)

    def bar(self) -> Progress | None:
        if not self._errors.is_terminal:
            return None
        columns = (
            TextColumn("handing in"),
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        return Progress(*columns, console=self._errors, transient=True)


def _numbered(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(stream, 1) if line.strip())


async def _send_lines(found: Config, name: str, *, as_json: bool) -> int:
    """Hand in lines, some at a time, so that the store gathers them; how many were refused."""
    stream = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115, ASYNC230  # closed below; the command has nothing else to do meanwhile
    tally = _Tally()
    bar = tally.bar()
    total = None if name == "-" else sum(1 for _ in _numbered(stream))
    if total is not None:
        stream.seek(0)
    try:
        async with tools_for(found) as tools:
            if bar:
                bar.start()
            task = bar.add_task("", total=total) if bar else None
            lines = _numbered(stream)
            while some := await asyncio.to_thread(lambda: list(islice(lines, LINES_AT_ONCE))):
                await _send_some(tools, some, tally, as_json=as_json)
                if bar and task is not None:
                    bar.update(task, completed=tally.accepted + tally.refused)
                elif (tally.accepted + tally.refused) % PLAIN_PROGRESS_EVERY == 0:
                    click.echo(f"{tally.accepted} handed in, {tally.refused} refused", err=True)
    finally:
        if bar:
            bar.stop()
        if name != "-":
            stream.close()
    click.echo(f"{tally.accepted} handed in, {tally.refused} refused", err=True)
    return tally.refused


async def _send_some(tools: Tools, lines: Sequence[tuple[int, bytes]], tally: _Tally, *, as_json: bool) -> None:
    answers = await asyncio.gather(*(tools.desk.accept(line) for _, line in lines), return_exceptions=True)
    for (number, _), answer in zip(lines, answers, strict=True):
        if isinstance(answer, StaffettaError) and not tally_must_stop(answer):
            tally.problem(number, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            tally.accepted += 1
            _print_answer(answer.id, str(answer.status), as_json=as_json)


def tally_must_stop(error: StaffettaError) -> bool:
    """A store that is away refuses every line that follows: better to stop and say so."""
    from staffetta.errors import StoreError

    return isinstance(error, StoreError)
