"""`lakeseal merge`: rows of files change and add rows of a table, in one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeseal.cli.change import set_values, show
from lakeseal.cli.input_files import input_files
from lakeseal.cli.options import AsJson, CatalogName, Files, OwnerName, StoreOptions, Uri, open_table
from lakeseal.cli.write import column_names
from lakeseal.expr.render import quote_name

commands = typer.Typer()


@commands.command()
def merge(
    ctx: typer.Context,
    uri: Uri,
    files: Files,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", help="Columns, separated by commas: rows with the same values match.", show_default=False
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on", help="Instead: a SQL condition over t.… (the table) and s.… (the files).", show_default=False
        ),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="COLUMN=SQL",
            help="What rows that match get; may be repeated.",
            show_default="all columns of the files",
        ),
    ] = None,
    update_when: Annotated[
        str | None, typer.Option("--update-when", help="Only matches for which this is true.", show_default=False)
    ] = None,
    delete_when: Annotated[
        str | None, typer.Option("--delete-when", help="Matches for which this is true go.", show_default=False)
    ] = None,
    no_update: Annotated[bool, typer.Option("--no-update", help="Leave rows that match as they are.")] = False,
    no_insert: Annotated[bool, typer.Option("--no-insert", help="Add no rows.")] = False,
    delete_missing: Annotated[
        bool, typer.Option("--delete-missing", help="Rows of the table that no row of the files matches go.")
    ] = False,
    merge_schema: Annotated[bool, typer.Option("--merge-schema", help="Add new columns to the table.")] = False,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Update the rows that files have too, and add those that are new."""
    if (key is None) == (on is None):
        raise typer.BadParameter("say which rows match: --key, or --on")
    if no_update and (values or update_when):
        raise typer.BadParameter("--no-update leaves nothing to set")
    condition = on if on is not None else _same(column_names(key))
    table = open_table(uri, option, owner, catalog)
    merging = table.merge(input_files(files, table), condition, merge_schema=merge_schema)
    if delete_when is not None:
        merging = merging.when_matched_delete(delete_when)
    if not no_update:
        merging = merging.when_matched_update(set_values(values) if values else "*", update_when)
    if not no_insert:
        merging = merging.when_not_matched_insert("*")
    if delete_missing:
        merging = merging.when_not_matched_by_source_delete()
    show(ctx.obj, merging.execute())


def _same(names: tuple[str, ...]) -> str:
    if not all(names):
        raise typer.BadParameter("a key is the name of a column", param_hint="--key")
    return " AND ".join(f"t.{quote_name(name)} = s.{quote_name(name)}" for name in names)
