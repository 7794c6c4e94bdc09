"""Looking: counts, listings, one e-mail's story, companies, alerts. Nothing here changes but a weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from staffetta.app import wiring
from staffetta.app.tools import Tools, tools_for
from staffetta.cli import story
from staffetta.cli.terminal import (
    build_filter,
    filter_options,
    json_option,
    print_json,
    run,
    run_until_stopped,
    settings,
    table,
    until_cancelled,
    when,
)
from staffetta.config import Config
from staffetta.errors import NotFound
from staffetta.mail import shapes
from staffetta.mail.lifecycle import Status
from staffetta.mail.message import Email


async def read_status(tools: Tools) -> dict[str, Any]:
    """The counts of `status`, all of them kept by the store, none scanned."""
    counts = await tools.store.counts()
    waiting, delayed, active = await tools.store.queue_counts(now=tools.clock())
    letters = await tools.store.dead_letter_counts()
    return {
        "emails": {status.value: counts.get(status, 0) for status in Status},
        "queue": {"waiting": waiting, "delayed": delayed, "active": active},
        "dlq": {"size": letters.size, "by_code": letters.by_code, "by_company": letters.by_company},
        "paused": [shapes.pause(one) for one in await tools.store.pauses()],
    }


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again every second until Ctrl-C.")
@json_option
@click.pass_context
def status_command(context: click.Context, /, watch: bool, as_json: bool) -> None:
    """Counts by status, queue and dead letters."""
    found = settings(context)

    async def show() -> None:
        async with tools_for(found) as tools:

            async def once() -> None:
                status = await read_status(tools)
                if watch and not as_json:
                    click.clear()
                print_json(status) if as_json else _print_status(status)

            await (until_cancelled(once, 1.0) if watch else once())

    (run_until_stopped if watch else run)(show())


def _print_status(status: dict[str, Any]) -> None:
    table(("status", "e-mails"), status["emails"].items(), right=("e-mails",), empty="")
    queue, dlq = status["queue"], status["dlq"]
    click.echo()
    click.echo(
        f"queue: {queue['waiting']} waiting, {queue['delayed']} delayed (READY, due later),"
        f" {queue['active']} active"
    )
    click.echo(f"dead letters: {dlq['size']}" + (" (see `staffetta dlq stats`)" if dlq["size"] else ""))
    for pause in status["paused"]:
        name = f" {pause['name']}" if pause["name"] else ""
        click.echo(f"PAUSED since {pause['since']}: {pause['scope']}{name} (`staffetta resume` ends it)")


@click.command("list")
@filter_options()
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--cursor", help="Where the page before ended.")
@json_option
@click.pass_context
def list_command(
    context: click.Context, /, limit: int, cursor: str | None, as_json: bool, **narrow: Any
) -> None:
    """E-mails, newest first."""
    found, meant = settings(context), build_filter(**narrow)

    async def show() -> None:
        async with tools_for(found) as tools:
            page = await tools.store.emails(meant, limit=limit, cursor=cursor)
        if as_json:
            print_json({"emails": [shapes.email(one) for one in page.items], "cursor": page.cursor})
            return
        table(
            ("id", "status", "company", "created", "recipients", "reason"),
            [_row(one) for one in page.items],
            empty="No e-mail fits. `staffetta status` counts what there is.",
        )
        if page.cursor:
            click.echo(f"More: --cursor {page.cursor}")

    run(show())


def _row(one: Email) -> Sequence[str]:
    first = story.masked(one.recipients[0].address) if one.recipients else ""
    more = f" +{len(one.recipients) - 1}" if len(one.recipients) > 1 else ""
    return (one.id, one.status, one.company_id, when(one.created_at), first + more, one.reason[:60])


@click.command("show")
@click.argument("id")
@json_option
@click.pass_context
def show_command(context: click.Context, /, id: str, as_json: bool) -> None:
    """One e-mail's whole story: statuses, attempts with replies and rules, recipients."""
    found = settings(context)

    async def show() -> None:
        async with tools_for(found) as tools:
            email = await tools.store.get(id)
            if email is None:
                raise NotFound(f"there is no e-mail {id} here; `staffetta list` shows those there are")
            history, attempts = await tools.store.history(id), await tools.store.attempts(id)
            letter = await tools.store.dead_letter(id)
        if as_json:
            print_json(shapes.story(email, history, attempts))
        else:
            for line in story.tell(email, history, attempts, letter, rules=wiring.table_for(found)):
                click.echo(line)

    run(show())


@click.group("tenants", invoke_without_command=True)
@json_option
@click.pass_context
def tenants_command(context: click.Context, /, as_json: bool) -> None:
    """Fairness figures per company, as the running workers last told them."""
    if context.invoked_subcommand is None:
        run(_show_tenants(settings(context), as_json=as_json))


async def _show_tenants(found: Config, *, as_json: bool) -> None:
    async with tools_for(found) as tools:
        rows = await tools.tenants()
    if as_json:
        print_json(rows)
        return
    table(
        ("company", "waiting", "active", "weight", "rounds", "priority", "in a row", "processed", "last"),
        [
            (
                row["companyId"], row["waiting"], row["active"], f"{row['weight']:g}",
                row["roundsWithoutProcessing"],
                row["currentPriority"], row["consecutiveBatchCount"], row["totalProcessed"],
                row["lastProcessedAt"] or "",
            )
            for row in rows
        ],
        right=("waiting", "active", "weight", "rounds", "priority", "in a row", "processed"),
        empty="No running worker has told of a company in the last seconds. Is `staffetta serve` running?",
    )  # fmt: skip


@tenants_command.command("weight")
@click.argument("company_id")
@click.argument("weight", type=click.FloatRange(0.01, 1_000))
@click.pass_context
def weight_command(context: click.Context, /, company_id: str, weight: float) -> None:
    """Change a company's share; running workers follow within a second, and it survives restarts."""
    found = settings(context)

    async def change() -> None:
        async with tools_for(found) as tools:
            await tools.set_weight(company_id, weight)

    run(change())
    click.echo(f"{company_id} now weighs {weight:g}")


@click.command("alerts")
@json_option
@click.pass_context
def alerts_command(context: click.Context, /, as_json: bool) -> None:
    """Every alert's condition, value and state."""
    found = settings(context)

    async def show() -> None:
        async with tools_for(found) as tools:
            rows = await tools.alerts()
        if as_json:
            print_json(rows)
            return
        table(
            ("alert", "state", "value", "condition", "since"),
            [(r["name"], r["state"], r["value"], r["condition"], r["since"] or "") for r in rows],
            empty="No alerts are defined.",
        )

    run(show())


@click.command("top")
@click.pass_context
def top_command(context: click.Context) -> None:
    """A live view: statuses, queue, companies, breakers. Ctrl-C ends it."""
    from staffetta.cli import live

    found = settings(context)

    async def watch() -> None:
        async with tools_for(found) as tools:
            await live.watch(tools)

    run_until_stopped(watch())
