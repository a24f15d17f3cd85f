"""What a table is like: its properties, constraints and columns."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeseal.cli.change import show
from lakeseal.cli.options import AsJson, CatalogName, OwnerName, StoreOptions, Uri, open_table
from lakeseal.cli.output import Output
from lakeseal.cli.write import columns_of, pairs
from lakeseal.protocol.properties import CONSTRAINT_PREFIX, TableProperties

commands = typer.Typer()
constraint_commands = typer.Typer(help="Conditions that all rows must keep.", no_args_is_help=True)
column_commands = typer.Typer(help="Columns: added, renamed, widened, described, dropped.", no_args_is_help=True)
commands.add_typer(constraint_commands, name="constraint")
commands.add_typer(column_commands, name="column")

Column = Annotated[str, typer.Argument(metavar="COLUMN", help="A column, or a field as a.b.", show_default=False)]
Constraint = Annotated[str, typer.Argument(metavar="NAME", help="The constraint's name.", show_default=False)]
_SECRET = TableProperties.managed_commit_owner_conf.key


@commands.command()
def properties(
    ctx: typer.Context,
    uri: Uri,
    values: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Set one; may be repeated.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Remove one; may be repeated.", show_default=False),
    ] = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the table's properties, or change them in one commit."""
    out: Output = ctx.obj
    table = open_table(uri, option, owner, catalog)
    if not values and not remove:
        known = table.snapshot().metadata.configuration
        out.rows([{"name": n, "value": v} for n, v in sorted(known.items()) if n != _SECRET], ["name", "value"])
        return
    show(out, table.set_properties({**pairs(values, "--set"), **dict.fromkeys(remove or ())}))


@constraint_commands.command("list")
def constraints(
    ctx: typer.Context,
    uri: Uri,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the constraints, and which columns take no nulls."""
    out: Output = ctx.obj
    snapshot = open_table(uri, option, owner, catalog).snapshot()
    checks = [
        {"name": name.removeprefix(CONSTRAINT_PREFIX), "kind": "check", "condition": text}
        for name, text in sorted(snapshot.metadata.configuration.items())
        if name.startswith(CONSTRAINT_PREFIX)
    ]
    nulls = [
        {"name": field.name, "kind": "not null", "condition": ""}
        for field in snapshot.schema.fields
        if not field.nullable
    ]
    out.rows([*checks, *nulls], ["name", "kind", "condition"])


@constraint_commands.command("add")
def add_constraint(
    ctx: typer.Context,
    uri: Uri,
    name: Constraint,
    condition: Annotated[str, typer.Argument(metavar="CONDITION", help="SQL over a row.", show_default=False)],
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Add a CHECK constraint, which the rows that are there must keep too."""
    show(ctx.obj, open_table(uri, option, owner, catalog).add_constraint(name, condition))


@constraint_commands.command("drop")
def drop_constraint(
    ctx: typer.Context,
    uri: Uri,
    name: Constraint,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Drop a CHECK constraint."""
    show(ctx.obj, open_table(uri, option, owner, catalog).drop_constraint(name))


@column_commands.command("add")
def add_columns(
    ctx: typer.Context,
    uri: Uri,
    column: Annotated[
        list[str], typer.Argument(metavar='"NAME TYPE"…', help="Columns, with their SQL types.", show_default=False)
    ],
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Add columns, which are null in the rows that are there."""
    show(ctx.obj, open_table(uri, option, owner, catalog).add_columns(columns_of(column)))


@column_commands.command("drop")
def drop_column(
    ctx: typer.Context,
    uri: Uri,
    column: Column,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Drop a column. Needs column mapping."""
    show(ctx.obj, open_table(uri, option, owner, catalog).drop_column(column))


@column_commands.command("rename")
def rename_column(
    ctx: typer.Context,
    uri: Uri,
    column: Column,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="A plain name.", show_default=False)],
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Rename a column. Needs column mapping."""
    show(ctx.obj, open_table(uri, option, owner, catalog).rename_column(column, new_name))


@column_commands.command("type")
def change_type(
    ctx: typer.Context,
    uri: Uri,
    column: Column,
    wider: Annotated[str, typer.Argument(metavar="TYPE", help="A wider SQL type.", show_default=False)],
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Give a column a wider type. Needs type widening."""
    show(ctx.obj, open_table(uri, option, owner, catalog).change_type(column, wider))


@column_commands.command("default")
def default(
    ctx: typer.Context,
    uri: Uri,
    column: Column,
    value: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="What rows get that say nothing.", show_default=False)
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="No default from now on.")] = False,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Set or drop a column's default."""
    if (value is None) != drop:
        raise typer.BadParameter("give a value, or --drop")
    table = open_table(uri, option, owner, catalog)
    show(ctx.obj, table.drop_default(column) if value is None else table.set_default(column, value))


@column_commands.command("not-null")
def not_null(
    ctx: typer.Context,
    uri: Uri,
    column: Column,
    drop: Annotated[bool, typer.Option("--drop", help="Allow nulls again.")] = False,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Take no nulls in a column, of which there must be none."""
    table = open_table(uri, option, owner, catalog)
    show(ctx.obj, table.drop_not_null(column) if drop else table.set_not_null(column))


@column_commands.command("comment")
def comment(
    ctx: typer.Context,
    uri: Uri,
    column: Column,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="What is to be known about it.", show_default="none")
    ] = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Say what is to be known about a column."""
    show(ctx.obj, open_table(uri, option, owner, catalog).set_comment(column, text))
