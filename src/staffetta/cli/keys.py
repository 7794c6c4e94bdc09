"""API keys: made once, shown once, stored as a hash."""

from __future__ import annotations

import secrets

import click

from staffetta.app.tools import tools_for
from staffetta.cli.terminal import json_option, print_json, run, settings, table, when
from staffetta.mail import keys, shapes


@click.group("keys")
def keys_command() -> None:
    """API keys: create, list, revoke."""


@keys_command.command("create")
@click.option(
    "--role", type=click.Choice(keys.ROLES), required=True, help="send: hand in; read: look; operate: all."
)
@click.option("--company", "company_id", metavar="ID", help="Only this company.")
@click.option("--all-companies", is_flag=True, help="For all companies.")
@click.option("--note", default="", help="Whose it is; shown in listings.")
@json_option
@click.pass_context
def create(
    context: click.Context,
    /,
    role: keys.Role,
    company_id: str | None,
    all_companies: bool,
    note: str,
    as_json: bool,
) -> None:
    """Make a key and show it once."""
    if (company_id is None) != all_companies:
        raise click.UsageError("say for whom: --company ID or --all-companies")
    found = settings(context)

    async def make() -> tuple[str, str]:
        async with tools_for(found) as tools:
            text, stored = keys.make(
                random=secrets.token_bytes(keys.SECRET_BYTES),
                role=role,
                company_id=company_id,
                now=tools.clock(),
                note=note,
            )
            await tools.store.add_key(stored)
            return text, stored.id

    text, id = run(make())
    if as_json:
        print_json({"id": id, "key": text, "role": role, "company_id": company_id})
    else:
        click.echo(text)
        click.echo(f"Keep it now: it is not shown again. Revoke it by: staffetta keys revoke {id}", err=True)


@keys_command.command("list")
@json_option
@click.pass_context
def list_keys(context: click.Context, /, as_json: bool) -> None:
    """All keys, revoked ones included; never the keys themselves."""
    found = settings(context)

    async def read() -> None:
        async with tools_for(found) as tools:
            known = await tools.store.keys()
        if as_json:
            print_json([shapes.key(one) for one in known])
            return
        table(
            ("id", "role", "company", "created", "revoked", "note"),
            [
                (k.id, k.role, k.company_id or "(all)", when(k.created_at), when(k.revoked_at), k.note)
                for k in known
            ],
            empty="No keys: `serve` answers on loopback only. Make one: staffetta keys create --role send …",
        )

    run(read())


@keys_command.command("revoke")
@click.argument("ids", nargs=-1, required=True)
@click.pass_context
def revoke(context: click.Context, /, ids: tuple[str, ...]) -> None:
    """End keys; a running API refuses them within a second."""
    found = settings(context)

    async def end() -> None:
        async with tools_for(found) as tools:
            for id in ids:
                await tools.store.revoke_key(id, now=tools.clock())
                click.echo(id)

    run(end())
