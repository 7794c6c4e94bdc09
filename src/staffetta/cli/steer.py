"""Steering: e-mails back on their way, stopped, erased; sending paused and resumed. Beside a `serve` or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click
import msgspec

from staffetta.app.tools import Tools, tools_for
from staffetta.cli.deadletters import print_done, print_each
from staffetta.cli.terminal import build_filter, each, filter_options, json_option, run, settings


@click.command("retry")
@click.argument("ids", nargs=-1)
@filter_options()
@click.option("--limit", type=click.IntRange(1, 10_000), default=10_000, show_default=True)
@click.option("--dry-run", is_flag=True, help="Say which would go; change nothing.")
@json_option
@click.pass_context
def retry_command(
    context: click.Context, /, ids: tuple[str, ...], limit: int, dry_run: bool, as_json: bool, **narrow: Any
) -> None:
    """Failed e-mails back on their way: by id, or all of a filter. Attempts start anew, history is kept."""
    if not ids and not any(narrow.values()):
        raise click.UsageError("name ids, or a filter such as --company acme or --status FAILED")
    found, meant = settings(context), build_filter(**narrow)

    async def again() -> dict[str, Any]:
        async with tools_for(found) as tools:
            if ids:
                done = await each(ids, lambda id: tools.operator.retry(id, dry_run=dry_run))
                return {**done, "dry_run": dry_run}
            shape: dict[str, Any] = msgspec.to_builtins(
                await tools.operator.retry_emails(meant, limit=limit, dry_run=dry_run)
            )
            return shape

    done = run(again())
    print_done(done, "would be sent again" if dry_run else "on their way again", as_json=as_json)
    context.exit(1 if ids and done["skipped"] else 0)


def _each(
    context: click.Context, /, ids: tuple[str, ...], act: Callable[[Tools, str], Awaitable[object]]
) -> None:
    found = settings(context)

    async def all_of_them() -> dict[str, Any]:
        async with tools_for(found) as tools:
            return await each(ids, lambda id: act(tools, id))

    print_each(context, run(all_of_them()))


@click.command("cancel")
@click.argument("ids", nargs=-1, required=True)
@click.pass_context
def cancel_command(context: click.Context, /, ids: tuple[str, ...]) -> None:
    """Stop e-mails that are not sent yet: they end as FAILED, code CANCELLED, without a dead letter."""
    _each(context, ids, lambda tools, id: tools.operator.cancel(id))


@click.command("erase")
@click.argument("ids", nargs=-1, required=True)
@click.pass_context
def erase_command(context: click.Context, /, ids: tuple[str, ...]) -> None:
    """Erase the content of finished e-mails; their records stay."""
    _each(context, ids, lambda tools, id: tools.operator.erase(id))


def _scope(transport: str | None, company_id: str | None) -> tuple[str, str]:
    if transport and company_id:
        raise click.UsageError("name a transport or a company, not both")
    if transport:
        return "transport", transport
    return ("company", company_id) if company_id else ("all", "")


@click.command("pause")
@click.option("--transport", metavar="NAME", help="Only this transport.")
@click.option("--company", "company_id", metavar="ID", help="Only this company.")
@click.pass_context
def pause_command(context: click.Context, /, transport: str | None, company_id: str | None) -> None:
    """Stop sending within a second; what is handed in is kept. Survives restarts; expiry goes on."""
    found, (scope, name) = settings(context), _scope(transport, company_id)

    async def change() -> None:
        async with tools_for(found) as tools:
            await tools.operator.pause(scope, name)

    run(change())
    click.echo(f"paused: {scope} {name}".rstrip() + "; `staffetta resume` ends it")


@click.command("resume")
@click.option("--transport", metavar="NAME", help="Only this transport.")
@click.option("--company", "company_id", metavar="ID", help="Only this company.")
@click.pass_context
def resume_command(context: click.Context, /, transport: str | None, company_id: str | None) -> None:
    """Send again."""
    found, (scope, name) = settings(context), _scope(transport, company_id)

    async def change() -> None:
        async with tools_for(found) as tools:
            await tools.operator.resume(scope, name)

    run(change())
    click.echo(f"resumed: {scope} {name}".rstrip())
