"""Commands that keep a table in shape: its files and its versions."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeseal.cli.change import show
from lakeseal.cli.options import (
    AsJson,
    AtTimestamp,
    AtVersion,
    CatalogName,
    DryRun,
    OwnerName,
    StoreOptions,
    Uri,
    Where,
    open_table,
)
from lakeseal.cli.output import Output
from lakeseal.display import counted, size

commands = typer.Typer()


@commands.command()
def optimize(
    ctx: typer.Context,
    uri: Uri,
    where: Where = None,
    zorder_by: Annotated[
        str | None, typer.Option("--zorder-by", "-z", help="Columns, separated by commas.", show_default=False)
    ] = None,
    target_file_size: Annotated[
        int | None, typer.Option("--target-file-size", min=1, help="Bytes.", show_default=False)
    ] = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Put small files together and drop hidden rows. With --where, only files that may have such rows."""
    names = [name.strip() for name in zorder_by.split(",")] if zorder_by else None
    show(ctx.obj, open_table(uri, option, owner, catalog).optimize(where, names, target_file_size=target_file_size))


@commands.command()
def vacuum(
    ctx: typer.Context,
    uri: Uri,
    hours: Annotated[
        float | None,
        typer.Option("--hours", min=0, help="Keep what was removed since; a week if not given.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    insist: Annotated[bool, typer.Option("--insist", help="Even if --hours is less than the table asks for.")] = False,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Delete files that no version within the retention needs."""
    out: Output = ctx.obj
    report = open_table(uri, option, owner, catalog).vacuum(hours, dry_run, enforce_retention_duration=not insist)
    if dry_run:
        out.rows(({"file": key} for key in report.deleted), ["file"])
        out.say(f"{counted(len(report.deleted), 'file')}, {size(report.bytes)} would be deleted", style="dim")
        return
    out.record({"deletedFiles": len(report.deleted), "deletedBytes": report.bytes})


@commands.command()
def restore(
    ctx: typer.Context,
    uri: Uri,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Make the table what it was, as a new version."""
    show(ctx.obj, open_table(uri, option, owner, catalog).restore(version, timestamp))


@commands.command()
def clone(
    ctx: typer.Context,
    uri: Uri,
    target: Annotated[str, typer.Argument(help="Where the new table goes.", show_default=False)],
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Make a new table that starts with this one's rows, without copying them."""
    out: Output = ctx.obj
    made = open_table(uri, option, owner, catalog).clone(target, version, timestamp, owner=owner, catalog=catalog)
    out.record({"uri": made.uri, "version": made.version(), "files": made.files().num_rows})
