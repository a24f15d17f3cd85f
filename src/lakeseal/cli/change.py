"""Commands that change rows of a table, or show what changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeseal.cli.options import AsJson, CatalogName, OwnerName, StoreOptions, Uri, Where, open_table
from lakeseal.cli.output import Output
from lakeseal.cli.read import rows_of
from lakeseal.commands.command import NothingToDo
from lakeseal.commit.transaction import CommitResult

commands = typer.Typer()


def show(out: Output, result: CommitResult | NothingToDo) -> None:
    if isinstance(result, NothingToDo):
        out.say(f"Nothing to do: {result.reason}")
        out.record({"version": result.version, "committed": False, **result.metrics})
    else:
        out.record({"version": result.version, "committed": True, **result.metrics})


@commands.command()
def delete(
    ctx: typer.Context,
    uri: Uri,
    where: Where = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all rows.")] = False,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Delete rows."""
    if (where is None) != everything:
        raise typer.BadParameter("say which rows: --where, or --all")
    show(ctx.obj, open_table(uri, option, owner, catalog).delete(where))


@commands.command()
def update(
    ctx: typer.Context,
    uri: Uri,
    values: Annotated[list[str], typer.Option("--set", "-s", metavar="COLUMN=SQL", help="What to set.")],
    where: Where = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Set columns of rows; all rows without --where."""
    show(ctx.obj, open_table(uri, option, owner, catalog).update(set_values(values), where))


@commands.command()
def changes(
    ctx: typer.Context,
    uri: Uri,
    start: Annotated[str, typer.Option("--start", help="The first version, or a moment.")] = "0",
    end: Annotated[str | None, typer.Option("--end", help="The last version, or a moment.", show_default=False)] = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the change feed: which rows each version inserted, deleted or updated."""
    feed = open_table(uri, option, owner, catalog).changes(_moment(start), None if end is None else _moment(end))
    ctx.obj.rows(rows_of(feed.to_batches()), feed.column_names)


def set_values(texts: list[str]) -> dict[str, Any]:
    """SQL by column."""
    parsed: dict[str, Any] = {}
    for text in texts:
        name, found, sql = text.partition("=")
        if not found or not name.strip() or not sql.strip():
            raise typer.BadParameter("what to set has the form COLUMN=SQL", param_hint="--set")
        parsed[name.strip()] = sql.strip()
    return parsed


def _moment(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
