"""Dead letters: e-mails given up, why, and what a person may do about them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from staffetta.app.tools import tools_for
from staffetta.cli.terminal import (
    age,
    build_filter,
    each,
    filter_options,
    json_option,
    print_json,
    run,
    settings,
    table,
    when,
)
from staffetta.mail import shapes
from staffetta.mail.message import DeadLetter


@click.group("dlq")
def dlq_command() -> None:
    """Dead letters: list, show, stats, retry, resolve, discard, purge, export."""


@dlq_command.command("list")
@filter_options(status=False, code=True)
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--cursor", help="Where the page before ended.")
@json_option
@click.pass_context
def list_letters(
    context: click.Context, /, limit: int, cursor: str | None, as_json: bool, **narrow: Any
) -> None:
    """Dead letters, newest first."""
    found, meant = settings(context), build_filter(**narrow)

    async def show() -> None:
        async with tools_for(found) as tools:
            page = await tools.store.dead_letters(meant, limit=limit, cursor=cursor)
        if as_json:
            print_json([shapes.dead_letter(one) for one in page.items])
            if page.cursor:
                click.echo(f"More: --cursor {page.cursor}", err=True)
            return
        table(
            ("id", "company", "code", "attempts", "since", "reason"),
            [_row(one) for one in page.items],
            right=("attempts",),
            empty="No dead letters fit.",
        )
        if page.cursor:
            click.echo(f"More: --cursor {page.cursor}")

    run(show())


def _row(one: DeadLetter) -> tuple[str, ...]:
    retrying = " (being retried)" if one.retrying_since else ""
    code = (one.last_failure_code or "") + retrying
    return (
        one.outbox_id,
        one.company_id,
        code,
        str(one.failed_attempts),
        when(one.moved_at),
        one.last_failure_reason[:80],
    )


@dlq_command.command("show")
@click.argument("id")
@json_option
@click.pass_context
def show_letter(context: click.Context, /, id: str, as_json: bool) -> None:
    """One dead letter with the payload it was handed in with."""
    found = settings(context)

    async def show() -> None:
        async with tools_for(found) as tools:
            letter = await tools.operator.find_dead_letter(id)
            content = await tools.store.content(id)
        shape = shapes.whole_dead_letter(letter, content.payload if content else None)
        if as_json:
            print_json(shape)
            return
        for name, value in shape.items():
            if name != "originalData":
                click.echo(f"{name:<22} {value}")
        click.echo("`staffetta show` tells the whole story; --json shows originalData")

    run(show())


@dlq_command.command("stats")
@json_option
@click.pass_context
def stats(context: click.Context, /, as_json: bool) -> None:
    """How many, by code and by company."""
    found = settings(context)

    async def show() -> None:
        async with tools_for(found) as tools:
            counts = await tools.store.dead_letter_counts()
        oldest = when(counts.oldest_at) or None
        if as_json:
            shape = {
                "size": counts.size,
                "by_code": counts.by_code,
                "by_company": counts.by_company,
                "oldest_at": oldest,
            }
            print_json(shape)
            return
        click.echo(f"{counts.size} dead letters" + (f", the oldest of {oldest}" if oldest else ""))
        for title, groups in (("code", counts.by_code), ("company", counts.by_company)):
            click.echo()
            rows = sorted(groups.items(), key=lambda pair: (-pair[1], pair[0]))
            table((title, "letters"), rows[:20], right=("letters",), empty=f"by {title}: none")

    run(show())


@dlq_command.command("retry")
@click.argument("ids", nargs=-1)
@filter_options(status=False, code=True)
@click.option("--limit", type=click.IntRange(1, 10_000), default=10_000, show_default=True)
@click.option("--dry-run", is_flag=True, help="Say which would go; change nothing.")
@click.option("--all", "everything", is_flag=True, help="Every dead letter there is.")
@json_option
@click.pass_context
def retry(
    context: click.Context,
    /,
    ids: tuple[str, ...],
    limit: int,
    dry_run: bool,
    everything: bool,
    as_json: bool,
    **narrow: Any,
) -> None:
    """Send dead letters again: by id, or all of a filter."""
    if not ids and not everything and not any(narrow.values()):
        raise click.UsageError("name ids, a filter such as --code 421, or --all")
    found, meant = settings(context), build_filter(**narrow)

    async def again() -> dict[str, Any]:
        async with tools_for(found) as tools:
            if ids:
                done = await each(ids, lambda id: tools.operator.retry_dead_letter(id, dry_run=dry_run))
                return {**done, "dry_run": dry_run}
            shape: dict[str, Any] = msgspec.to_builtins(
                await tools.operator.retry_dead_letters(meant, limit=limit, dry_run=dry_run)
            )
            return shape

    done = run(again())
    print_done(done, "would be sent again" if dry_run else "on their way again", as_json=as_json)
    context.exit(1 if ids and done["skipped"] else 0)


def print_done(done: dict[str, Any], words: str, *, as_json: bool) -> None:
    """What an action by filter did: the ids, what was left and why, and whether there is more."""
    if as_json:
        print_json(done)
        return
    for id in done["changed"]:
        click.echo(id)
    click.echo(f"{len(done['changed'])} {words}", err=True)
    for one in done["skipped"]:
        click.echo(f"left alone: {one['id']}: {one['why']}", err=True)
    if done["more"]:
        click.echo("there are more: run it again, or raise --limit", err=True)


def print_each(context: click.Context, /, done: dict[str, Any]) -> None:
    """The ids for which it was done; those for which not, with the reason, and then exit code 1."""
    for id in done["changed"]:
        click.echo(id)
    for one in done["skipped"]:
        click.echo(f"{one['id']}: {one['why']}", err=True)
    context.exit(1 if done["skipped"] else 0)


@dlq_command.command("resolve")
@click.argument("ids", nargs=-1, required=True)
@click.option("--delivered", is_flag=True, help="You know that it was delivered: it becomes SENT.")
@click.pass_context
def resolve(context: click.Context, /, ids: tuple[str, ...], delivered: bool) -> None:
    """Close one in doubt as SENT."""
    if not delivered:
        raise click.UsageError(
            "say --delivered: the e-mail becomes SENT. To send it again: `staffetta dlq retry ID`"
        )
    found = settings(context)

    async def close() -> dict[str, Any]:
        async with tools_for(found) as tools:
            return await each(ids, tools.operator.resolve_dead_letter)

    print_each(context, run(close()))


@dlq_command.command("discard")
@click.argument("ids", nargs=-1, required=True)
@click.pass_context
def discard(context: click.Context, /, ids: tuple[str, ...]) -> None:
    """Remove dead letters; the e-mails' own records stay."""
    found = settings(context)

    async def remove() -> dict[str, Any]:
        async with tools_for(found) as tools:
            return await each(ids, tools.operator.discard)

    print_each(context, run(remove()))


@dlq_command.command("purge")
@click.option("--older-than", required=True, metavar="AGE", help="Such as 30d.")
@click.option("--company", "company_id", metavar="ID", help="Only of this company.")
@click.option("--dry-run", is_flag=True, help="Say which would go; change nothing.")
@json_option
@click.pass_context
def purge(
    context: click.Context, /, older_than: str, company_id: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove dead letters older than this; the e-mails' own records stay."""
    found, oldest = settings(context), age(older_than)

    async def remove() -> dict[str, Any]:
        async with tools_for(found) as tools:
            done = await tools.operator.purge(older_than_ms=oldest, company_id=company_id, dry_run=dry_run)
            shape: dict[str, Any] = msgspec.to_builtins(done)
            return shape

    print_done(run(remove()), "would be removed" if dry_run else "removed", as_json=as_json)


@dlq_command.command("export")
@filter_options(status=False, code=True)
@click.option("--output", type=click.Path(path_type=Path), help="A file; default: standard output.")
@click.pass_context
def export(context: click.Context, /, output: Path | None, **narrow: Any) -> None:
    """Every dead letter of a filter as JSON lines, payloads included."""
    found, meant = settings(context), build_filter(**narrow)

    async def write() -> int:
        count = 0
        stream = output.open("wb") if output else sys.stdout.buffer
        try:
            async with tools_for(found) as tools:
                async for letter, payload in tools.operator.export(meant):
                    shape = shapes.whole_dead_letter(letter, payload)
                    stream.write(msgspec.json.encode(shape) + b"\n")
                    count += 1
        finally:
            stream.flush()
            if output:
                stream.close()
        return count

    click.echo(f"{run(write())} dead letters written", err=True)
