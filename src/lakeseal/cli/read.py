"""Commands that read a table: its rows, its history, its files, its description."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import typer

from lakeseal.cli.options import (
    AsJson,
    AtTimestamp,
    AtVersion,
    CatalogName,
    OwnerName,
    StoreOptions,
    Uri,
    Where,
    open_table,
)
from lakeseal.cli.output import Output
from lakeseal.display import counted
from lakeseal.protocol.arrow import from_arrow_type
from lakeseal.protocol.schema import type_to_json
from lakeseal.protocol.text_values import format_text

commands = typer.Typer()

Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many.", show_default=False)]
_ROWS_ON_A_TERMINAL = 20
_ROWS_AT_ONCE = 1024


@commands.command()
def read(
    ctx: typer.Context,
    uri: Uri,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    where: Where = None,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Names, separated by commas.", show_default=False)
    ] = None,
    limit: Limit = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show rows. Without --limit, --json gives all of them and people get the first 20."""
    out: Output = ctx.obj
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    reader = open_table(uri, option, owner, catalog).to_batches(
        version=version, timestamp=timestamp, columns=names, where=where
    )
    show_rows(out, reader, limit)


@commands.command()
def history(
    ctx: typer.Context,
    uri: Uri,
    limit: Limit = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the commits, newest first."""
    out: Output = ctx.obj
    table = open_table(uri, option, owner, catalog)
    commits = table.history(limit)
    if not commits and limit != 0:
        table.version()  # says what is wrong with a place that has no commits
    out.rows(commits, ["version", "timestamp", "operation", "operationParameters", "userMetadata"])


@commands.command()
def files(
    ctx: typer.Context,
    uri: Uri,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    limit: Limit = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the live data files."""
    out: Output = ctx.obj
    live = open_table(uri, option, owner, catalog).snapshot(version=version, timestamp=timestamp).files
    live = live.select(["path", "size", "partitionValues", "modificationTime", "stats"])
    shown = live.slice(0, limit)
    out.rows(rows_of(shown.to_batches()), ["path", "size", "partitionValues", "modificationTime"])
    out.say(f"{shown.num_rows} of {live.num_rows} files", style="dim")


@commands.command()
def schema(
    ctx: typer.Context,
    uri: Uri,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show the columns and their types."""
    out: Output = ctx.obj
    snapshot = open_table(uri, option, owner, catalog).snapshot(version=version, timestamp=timestamp)
    partitions = set(snapshot.metadata.partition_columns)
    rows = [
        {
            "name": field["name"],
            "type": field["type"],
            "nullable": field["nullable"],
            "partition": field["name"] in partitions,
            "metadata": field["metadata"],
        }
        for field in type_to_json(snapshot.schema)["fields"]
    ]
    out.rows(rows, ["name", "type", "nullable", "partition"])


@commands.command()
def describe(
    ctx: typer.Context,
    uri: Uri,
    version: AtVersion = None,
    timestamp: AtTimestamp = None,
    owner: OwnerName = None,
    catalog: CatalogName = None,
    option: StoreOptions = None,
    json: AsJson = False,
) -> None:
    """Show what the table is: version, size, protocol, properties."""
    out: Output = ctx.obj
    snapshot = open_table(uri, option, owner, catalog).snapshot(version=version, timestamp=timestamp)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    out.record(
        {
            "uri": uri,
            "version": snapshot.version,
            "id": metadata.id,
            "name": metadata.name,
            "description": metadata.description,
            "columns": list(snapshot.schema.names),
            "partitionColumns": list(metadata.partition_columns),
            "files": snapshot.files.num_rows,
            "bytes": snapshot.size_in_bytes,
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": list(protocol.reader_features or ()),
            "writerFeatures": list(protocol.writer_features or ()),
            "properties": dict(metadata.configuration),
        }
    )


def show_rows(out: Output, reader: pa.RecordBatchReader, limit: int | None) -> None:
    """All of them to programs, and the first to people, unless they say how many."""
    if limit is None and not out.json:
        limit = _ROWS_ON_A_TERMINAL
    if limit is None:
        out.rows(rows_of(reader), reader.schema.names)
        return
    rows = list(islice(rows_of(reader), limit + 1))
    out.rows(rows[:limit], reader.schema.names, none="")
    more = ", and there are more: see --limit" if len(rows) > limit else ""
    out.say(counted(min(limit, len(rows)), "row") + more, style="dim")


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Rows one by one, a few in memory."""
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            some = batch.slice(start, _ROWS_AT_ONCE)
            try:
                yield from some.to_pylist(maps_as_pydicts="lossy")
            except (OverflowError, ValueError):
                columns = [[_value(one) for one in column] for column in some.columns]
                yield from (dict(zip(some.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


def _value(scalar: pa.Scalar) -> Any:
    """Python's own dates and moments are of the years 1 to 9999; those beyond are texts of the same form."""
    match scalar:
        case pa.StructScalar() if scalar.is_valid:
            return {name: _value(part) for name, part in scalar.items()}
        case pa.MapScalar() if scalar.is_valid:
            return {entry[0].as_py(): _value(entry[1]) for entry in map(_parts, scalar.values)}
        case pa.ListScalar() if scalar.is_valid:
            return [_value(part) for part in scalar.values]
        case pa.Date32Scalar() | pa.TimestampScalar():
            try:
                return scalar.as_py()
            except (OverflowError, ValueError):
                text: str = format_text(pa.array([scalar]), from_arrow_type(scalar.type))[0].as_py()
                return text.replace(" ", "T")
        case _:
            return scalar.as_py()


def _parts(entry: pa.StructScalar) -> list[pa.Scalar]:
    return list(entry.values())
