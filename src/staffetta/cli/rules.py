"""Asking the rules: what a reply means, how long a policy waits. Needs no store."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec

from staffetta.app import wiring
from staffetta.cli.terminal import json_option, print_json, settings, table
from staffetta.config.kinds import shown_duration
from staffetta.errors import FieldProblem, PayloadError
from staffetta.mail import backoff, explain, verdict

_ACTIONS = {
    "DELIVERED": "delivered",
    "RETRY": "tried again, by the retry policy",
    "RETRY_SLOW": "tried again, not before retry.slow_seconds",
    "SPLIT": "those accepted are done; the rest goes at once, and no attempt counts",
    "HOLD": "held until the transport is well; no attempt counts",
    "FAIL": "never tried again: a dead letter",
}
"""What is done, in words."""


def _rules(context: click.Context) -> verdict.Table:
    """The rules in force: the operator's own file first."""
    return wiring.table_for(settings(context))


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    reply: str
    stage: str | None = None


@click.command("explain")
@click.argument("reply", required=False)
@click.option(
    "--stage", help="Where it was answered: connect, ehlo, starttls, auth, mail, rcpt, data, dot, request."
)
@click.option("--jsonl", is_flag=True, help='Read {"reply": …, "stage": …} lines; write one verdict a line.')
@json_option
@click.pass_context
def explain_command(
    context: click.Context, /, reply: str | None, stage: str | None, jsonl: bool, as_json: bool
) -> None:
    """What a server's reply means: category, what is done, how far it reaches, and the rule that says so."""
    rules = _rules(context)
    if jsonl:
        _explain_lines(rules)
        return
    if reply is None:
        raise click.UsageError('give the reply: staffetta explain "550 5.7.1 …", or --jsonl')
    shape = explain.explain(reply, stage or "", table=rules)
    if as_json:
        print_json(shape)
        return
    click.echo(_ACTIONS[str(shape["action"])])
    for name in ("category", "action", "reach", "rule", "code", "enhanced"):
        click.echo(f"  {name:<10} {shape[name] or '-'}")
    for name, told in _limits(shape):
        click.echo(f"  {name:<10} {told}")


def _limits(shape: explain.Explained) -> Iterator[tuple[str, str]]:
    """What the rule or the server's own hint asks for beyond the policy."""
    if shape["least_delay_ms"]:
        yield "waits", f"{shown_duration(shape['least_delay_ms'])} at least"
    if shape["max_attempts"]:
        yield "attempts", f"{shape['max_attempts']} at most"
    if shape["in_doubt"]:
        yield "in doubt", "the message may be out: it follows delivery.in_doubt"


def _explain_lines(rules: verdict.Table) -> None:
    decoder = msgspec.json.Decoder(_Line)
    write = sys.stdout.buffer.write
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            asked = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            sys.stdout.flush()
            problem = f'is not {{"reply": …, "stage": …}}: {error}'
            raise PayloadError([FieldProblem(f"line {number}", problem)]) from error
        write(msgspec.json.encode(explain.explain(asked.reply, asked.stage or "", table=rules)) + b"\n")
    sys.stdout.flush()


@click.command("backoff")
@click.option(
    "--policy", "name", type=click.Choice(sorted(backoff.POLICIES)), help="Default: the one in force."
)
@json_option
@click.pass_context
def backoff_command(context: click.Context, /, name: str | None, as_json: bool) -> None:
    """The delays of a retry policy: base, least and most, after each failed attempt."""
    found = settings(context)
    in_force = "worker-development" if found.profile == "development" else found.retry.policy
    policy = backoff.POLICIES[name or in_force]
    rows = backoff.table(policy)
    if as_json:
        print_json(rows)
        return
    click.echo(f"{policy.name}: {policy.max_attempts} attempts at most")
    table(
        ("failed attempt", "wait", "from", "to"),
        [
            (row["attempt"], *(shown_duration(row[name]) for name in ("base_ms", "min_ms", "max_ms")))
            for row in rows
        ],
        right=("failed attempt", "wait", "from", "to"),
        empty="",
    )
