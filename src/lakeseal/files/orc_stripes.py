"""ORC as Spark writes and reads it.

Moments are instants in UTC. A timestamp without a zone is a number with Spark's own mark, as Spark has it; only at the
top level, where Arrow writes marks. ORC readers count days before October 1582 by another calendar, and shift moments
before 1900 by zones of that time; Arrow reads moments up to 2262. Arrow's writer also loses its place over structs that
are null in structs that are not. All of that is refused, never stored as something else.

A file is decoded a few rows at a time, not by stripes, which may unfold to anything: very few of a small file, where
every row may be one long value that is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from lakeseal.errors import BrokenDataFile, InvalidInput
from lakeseal.log.decoded_size import joined
from lakeseal.log.physical import Projection
from lakeseal.protocol.schema import TIMESTAMP_NTZ, StructField

_MARK = {b"spark.sql.catalyst.type": b"timestamp_ntz"}
_SMALL_FILE, _FEW_ROWS, _ROWS = 2**17, 16, 1024
_JOINED_ROWS, _JOINED_BYTES = 2**16, 2**24
_DAY_MICROS = 86_400_000_000
_FIRST_DAY = -141_427
_FIRST_MOMENT, _LAST_MOMENT = -25_567 * _DAY_MICROS, 106_000 * _DAY_MICROS


class OrcEncoder:
    def __init__(self, out: Any, fields: Sequence[StructField], codec: str) -> None:
        self._fields = fields
        self._writer = orc.ORCWriter(out, compression="uncompressed" if codec in ("none", "uncompressed") else codec)

    def write(self, rows: pa.Table) -> None:
        columns, fields = [], []
        for field, column in zip(self._fields, rows.columns, strict=True):
            for chunk in column.chunks:
                _check(chunk, field.name)
            is_local = field.type == TIMESTAMP_NTZ
            columns.append(column.cast(pa.int64()) if is_local else _unsliced(column))
            fields.append(pa.field(field.name, columns[-1].type, metadata=_MARK if is_local else None))
        self._writer.write(pa.Table.from_arrays(columns, schema=pa.schema(fields)))

    def close(self) -> None:
        self._writer.close()


def decoded(source: pa.NativeFile, fields: Sequence[StructField]) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the types of the fields; a column that the file lacks is null."""
    for found, projection in stored(source, fields):
        yield pa.RecordBatch.from_arrays(projection.apply(found), names=[field.name for field in fields])


def stored(source: pa.NativeFile, fields: Sequence[StructField]) -> Iterator[tuple[pa.RecordBatch, Projection]]:
    """The rows as the file has them, and what makes columns of these fields of them, or raises."""
    try:
        file = orc.ORCFile(source)
        rows = _FEW_ROWS if source.size() < _SMALL_FILE else _ROWS
        marked = {field.name for field in file.schema if _is_local(field)}
        names = {field.name.lower() for field in fields}
        wanted = [name for name in file.schema.names if name.lower() in names]
        projection: Projection | None = None
        # Through a dataset, since Arrow's file of ORC reads whole stripes only.
        import pyarrow.dataset as ds  # loads pandas, if that is installed

        fragment = ds.OrcFileFormat().make_fragment(source)
        few = fragment.to_batches(columns=wanted, batch_size=rows, batch_readahead=0, use_threads=False)
        for stripe in joined(few, rows=_JOINED_ROWS, limit=_JOINED_BYTES):
            columns = [
                column.cast(pa.timestamp("us")) if name in marked else column
                for name, column in zip(stripe.schema.names, stripe.columns, strict=True)
            ]
            found = pa.RecordBatch.from_arrays(columns, names=stripe.schema.names)
            projection = projection or Projection.of(fields, found.schema, "none")
            yield found, projection
    except pa.ArrowException as error:
        raise BrokenDataFile(f"The ORC file cannot be read: {error}") from error


def _is_local(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"spark.sql.catalyst.type") == b"timestamp_ntz"


def file_schema(source: Any) -> pa.Schema:
    """What a file says of its columns, in types that Spark would give them."""
    found = orc.ORCFile(source).schema
    return pa.schema([pa.field(f.name, pa.timestamp("us") if _is_local(f) else f.type) for f in found])


def _unsliced(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow's ORC writer forgets where a slice of structs begins, and takes the nulls of others for its own.
    return pa.chunked_array([pa.concat_arrays(column.chunks)]) if pa.types.is_nested(column.type) else column


def _check(array: pa.Array, column: str) -> None:
    arrow = array.type
    if pa.types.is_struct(arrow):
        for child in array.flatten():
            if pa.types.is_struct(child.type) and child.null_count > array.null_count:
                raise InvalidInput(
                    "A struct that is null in a struct that is not would be stored as another one by Arrow's ORC",
                    column=column,
                    hint="Write Parquet or JSON, or select the parts of the struct",
                )
            _check(child, column)
    elif pa.types.is_map(arrow):
        _check(array.keys, column)
        _check(array.items, column)
    elif pa.types.is_list(arrow):
        _check(array.flatten(), column)
    elif pa.types.is_date32(arrow):
        _check_bounds(array.cast(pa.int32()), _FIRST_DAY, 2**31, column)
    elif pa.types.is_timestamp(arrow) and arrow.tz is not None:
        _check_bounds(array.cast(pa.int64()), _FIRST_MOMENT, _LAST_MOMENT, column)


def _check_bounds(numbers: pa.Array, first: int, last: int, column: str) -> None:
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < first or high > last):
        raise InvalidInput(
            "ORC files are not read alike for dates before 1582-10-15 and timestamps before 1900 or after 2260",
            column=column,
            hint="Write Parquet, or keep such values as text",
        )
