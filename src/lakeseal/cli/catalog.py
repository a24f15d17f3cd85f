"""`lakeseal catalog …`: tables by their names."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakeseal.catalog.names import CommitKind, NamedTable, StagedTable
from lakeseal.catalogs import Catalog
from lakeseal.cli.options import AsJson, CatalogName, PartitionBy, StoreOptions, parse_store_options, service_token
from lakeseal.cli.output import Output
from lakeseal.cli.write import Columns, Properties, column_names, columns_of, pairs

commands = typer.Typer()
catalog_commands = typer.Typer(help="Tables by their names.")
commands.add_typer(catalog_commands, name="catalog")

Name = Annotated[str, typer.Argument(metavar="NAME", help="schema.table, or catalog.schema.table.", show_default=False)]
DeleteFiles = Annotated[bool, typer.Option("--delete-files", help="And the table itself, with all its files.")]
Root = Annotated[
    str | None,
    typer.Option("--root", help="Where tables without a location go.", show_default="LAKESEAL_CATALOG_ROOT"),
]


@catalog_commands.command("list")
def list_tables(
    ctx: typer.Context,
    schema: Annotated[str | None, typer.Argument(help="A schema: sales, or lake.sales.", show_default="all")] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Those whose creation was begun, and that have no name yet.")
    ] = False,
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Show the tables, or those of a schema."""
    out: Output = ctx.obj
    opened = _opened(catalog)
    found = opened.unfinished() if unfinished else opened.tables(schema)
    nothing = "no table has a name here; lakeseal catalog create and lakeseal catalog register give one"
    out.rows([_shown(one) for one in found], ["name", "kind", "uri"], none="none" if unfinished else nothing)


@catalog_commands.command("show")
def show(ctx: typer.Context, name: Name, catalog: CatalogName = None, json: AsJson = False) -> None:
    """Show what the catalog knows of a table."""
    out: Output = ctx.obj
    out.record(_shown(_opened(catalog).show(name)))


@catalog_commands.command("create")
def create(
    ctx: typer.Context,
    name: Name,
    column: Columns,
    location: Annotated[
        str | None, typer.Option("--location", help="Where it goes.", show_default="below the catalog's root")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", help=f"Who decides on its commits: {', '.join(CommitKind)}.")
    ] = CommitKind.FILESYSTEM.value,
    partition_by: PartitionBy = None,
    properties: Properties = None,
    root: Root = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Make an empty table with a name."""
    out: Output = ctx.obj
    opened = _opened(catalog, root)
    opened.create(
        name,
        columns_of(column),
        location,
        kind,
        column_names(partition_by),
        pairs(properties),
        parse_store_options(option),
    )
    out.record(_shown(opened.show(name)))


@catalog_commands.command("register")
def register(
    ctx: typer.Context,
    name: Name,
    uri: Annotated[str, typer.Argument(help="Where the table is.", show_default=False)],
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Give a table that is there a name."""
    out: Output = ctx.obj
    opened = _opened(catalog)
    opened.register(name, uri, parse_store_options(option))
    out.record(_shown(opened.show(name)))


@catalog_commands.command("rename")
def rename(
    ctx: typer.Context,
    name: Name,
    new_name: Annotated[str, typer.Argument(metavar="NEW-NAME", help="The name that it gets.", show_default=False)],
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Give a table another name. Its files stay where they are."""
    out: Output = ctx.obj
    opened = _opened(catalog)
    opened.rename(name, new_name)
    out.record(_shown(opened.show(new_name)))


@catalog_commands.command("drop")
def drop(
    ctx: typer.Context,
    name: Name,
    delete_files: DeleteFiles = False,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Forget a name. The table stays, unless --delete-files is given. A table that was begun goes by its id."""
    out: Output = ctx.obj
    opened, options = _opened(catalog), parse_store_options(option)
    begun = next((one for one in _begun(opened, name) if one.table_id == name.lower()), None)
    if begun is not None:
        opened.abandon(begun.table_id, delete_files, options)
        out.record({**_shown(begun), "filesDeleted": delete_files})
        return
    out.record({**_shown(opened.drop(name, delete_files, options)), "filesDeleted": delete_files})


@catalog_commands.command("grant")
def grant(
    ctx: typer.Context,
    name: Name,
    role: Annotated[str, typer.Argument(help="reader, writer or admin.", show_default=False)],
    to: Annotated[str, typer.Option("--to", metavar="ID", help="A token's id, as lakeseal owner token list shows it.")],
    catalog: CatalogName = None,
    json: AsJson = False,
) -> None:
    """Give a token of the catalog's service a role for a table."""
    out: Output = ctx.obj
    out.record({"token": to, "grants": _opened(catalog).grant(name, role, to)})


def _opened(catalog: str | None, root: str | None = None) -> Catalog:
    token = None if catalog is None else service_token(catalog)
    return Catalog(catalog, token, root=root)


def _begun(opened: Catalog, name: str) -> list[StagedTable]:
    return opened.unfinished() if "." not in name else []


def _shown(table: NamedTable | StagedTable) -> dict[str, Any]:
    return {"name": str(table.name), "kind": table.kind.value, "uri": table.uri, "id": table.table_id}
