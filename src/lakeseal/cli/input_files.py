"""Files that are named at a terminal, as rows.

CSV (with a header) and JSON lines are read by the readers that pipelines and repositories have, in UTC: a column that
the table has in the table's type, so that `007` stays `007` in a column of texts; others in the type that all of their
values have. A record that is no such row is refused by its file and place. Everything else is a dataset of Arrow's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from lakeseal.errors import InvalidArgument, LakesealError, TableNotFound, VersionNotFound
from lakeseal.files import csv_text, json_lines
from lakeseal.files.inference import csv_columns, json_columns
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.schema import ArrayType, DataType, StructField, StructType
from lakeseal.table import Table

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "ipc",
    ".feather": "feather",
    ".orc": "orc",
}


def input_files(files: Sequence[str], table: Table | None = None) -> Any:
    """What `write` and `merge` take as data; `table` is the one that the rows go to."""
    kinds = {_FORMATS.get(PurePosixPath(file).suffix.lower()) for file in files}
    if len(kinds) != 1 or None in kinds:
        raise InvalidArgument(
            "Files to write must be of one kind, told by their names", hint=f"Known are {', '.join(_FORMATS)}"
        )
    kind = str(kinds.pop())
    try:
        return _text_rows(files, kind, table) if kind in ("csv", "json") else _dataset(files, kind)
    except (OSError, pa.ArrowException) as error:
        raise InvalidArgument(f"The files cannot be read: {error}", hint="Check their names and contents") from error


def _dataset(files: Sequence[str], kind: str) -> Any:
    import pyarrow.dataset as ds  # loads pandas, if that is installed

    return ds.dataset(list(files), format=kind)


def _text_rows(files: Sequence[str], kind: str, table: Table | None) -> pa.RecordBatchReader:
    opened = [(file, partial(pa.OSFile, file)) for file in files]
    found = csv_columns(opened, header=True) if kind == "csv" else json_columns(opened)
    schema = _as_in(found, _schema(table))
    assert isinstance(schema, StructType)
    return pa.RecordBatchReader.from_batches(to_arrow(schema), _batches(files, kind, schema))


def _schema(table: Table | None) -> StructType:
    if table is None:
        return StructType(())
    try:
        return table.snapshot().schema
    except (TableNotFound, VersionNotFound):
        return StructType(())


def _as_in(found: DataType, own: DataType | None) -> DataType:
    """What the files have, each part of it in the type that the table has it in."""
    match found, own:
        case StructType(), StructType():
            types = {field.name.lower(): field.type for field in own.fields}
            return StructType(
                tuple(
                    StructField(field.name, _as_in(field.type, types.get(field.name.lower()))) for field in found.fields
                )
            )
        case ArrayType(), ArrayType():
            return ArrayType(_as_in(found.element, own.element))
        case _:
            return found if own is None else own


def _batches(files: Sequence[str], kind: str, schema: StructType) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pa.OSFile(file) as source:
            try:
                yield from (
                    csv_text.decoded(source, schema.fields, has_header=True)
                    if kind == "csv"
                    else json_lines.decoded(source, schema.fields)
                )
            except LakesealError as error:
                error.file = error.file or file
                raise
