"""Commands that make tables and write files' rows into them."""

from __future__ import annotations

from typing import Annotated

import typer

from lakeseal import catalogs, table
from lakeseal.cli.change import show
from lakeseal.cli.input_files import input_files
from lakeseal.cli.options import (
    AsJson,
    CatalogName,
    Files,
    Mode,
    OwnerName,
    PartitionBy,
    StoreOptions,
    Uri,
    open_table,
    parse_store_options,
)
from lakeseal.cli.output import Output
from lakeseal.errors import InvalidArgument
from lakeseal.expr.schema_text import parse_schema
from lakeseal.protocol.schema import StructField, StructType

commands = typer.Typer()

Columns = Annotated[
    list[str], typer.Option("--column", "-c", metavar='"NAME TYPE [NOT NULL]"', help="A column, with its SQL type.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="A table property.", show_default=False),
]


@commands.command()
def create(
    ctx: typer.Context,
    uri: Uri,
    column: Columns,
    partition_by: PartitionBy = None,
    properties: Properties = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Make an empty table."""
    out: Output = ctx.obj
    schema = columns_of(column)
    made = catalogs.create(
        uri,
        schema,
        column_names(partition_by),
        pairs(properties),
        owner,
        parse_store_options(option),
        catalog=catalog,
    )
    out.record({"uri": made.uri, "version": made.version(), "columns": list(schema.names)})


@commands.command()
def write(
    ctx: typer.Context,
    uri: Uri,
    files: Files,
    mode: Mode = "append",
    partition_by: PartitionBy = None,
    replace_where: Annotated[
        str | None, typer.Option("--replace-where", help="Overwrite only such rows.", show_default=False)
    ] = None,
    merge_schema: Annotated[bool, typer.Option("--merge-schema", help="Add new columns to the table.")] = False,
    properties: Properties = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Write the rows of files into a table, which is made if there is none."""
    written = open_table(uri, option, owner, catalog)
    show(
        ctx.obj,
        written.write(
            input_files(files, written),
            mode=mode,
            partition_by=column_names(partition_by) or None,
            replace_where=replace_where,
            merge_schema=merge_schema,
            properties=pairs(properties),
        ),
    )


@commands.command()
def convert(
    ctx: typer.Context,
    uri: Uri,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            "--partition-by", "-p", metavar='"NAME [TYPE]"', help="A column of directories.", show_default=False
        ),
    ] = None,
    properties: Properties = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Make a table of a directory of Parquet files, where they are."""
    out: Output = ctx.obj
    fields = [_column(text if " " in text.strip() else f"{text} string") for text in partition_by or ()]
    made = table.convert(
        uri,
        {f.name: f.type for f in fields},
        pairs(properties),
        parse_store_options(option),
        owner=owner,
        catalog=catalog,
    )
    out.record({"uri": made.uri, "version": made.version(), "files": made.files().num_rows})


def columns_of(texts: list[str]) -> StructType:
    return StructType(tuple(_column(text) for text in texts))


def _column(text: str) -> StructField:
    fields = parse_schema(text).fields
    if len(fields) != 1:
        raise InvalidArgument(f"{text!r} is not a column", hint='Write it as "id bigint" or "name string not null"')
    return fields[0]


def column_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def pairs(texts: list[str] | None, flag: str = "--property") -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, found, value = text.partition("=")
        if not found or not name:
            raise typer.BadParameter("a property has the form NAME=VALUE", param_hint=flag)
        pairs[name] = value
    return pairs
