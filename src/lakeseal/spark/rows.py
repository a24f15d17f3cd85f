"""Rows on their way into Spark: the schema that they have there, and their Arrow form.

Columns are nullable throughout, as from every file source of Spark: Spark believes a NOT NULL without looking, and a
file that is older than the promise would turn into wrong answers. Of a table's notes on its columns two stay: comments,
and `char(n)`, by which Spark compares texts of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.types as spark

from lakeseal.protocol.schema import CHAR_VARCHAR, ArrayType, DataType, MapType, StructField, StructType
from lakeseal.spark.schema import to_spark

_KEPT_NOTES = ("comment", CHAR_VARCHAR)
_VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def rows_schema(fields: Iterable[StructField]) -> spark.StructType:
    return to_spark(StructType(tuple(_plain_field(field) for field in fields)))


def _plain_field(field: StructField) -> StructField:
    notes = {key: text for key in _KEPT_NOTES if isinstance(text := field.metadata.get(key), str)}
    return StructField(field.name, _plain(field.type), True, notes)


def _plain(data_type: DataType) -> DataType:
    match data_type:
        case StructType(fields=fields):
            return StructType(tuple(_plain_field(f) for f in fields))
        case ArrayType(element=element):
            return ArrayType(_plain(element))
        case MapType(key=key, value=value):
            return MapType(_plain(key), _plain(value))
        case _:
            return data_type


def for_spark(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of a reader's `schema` as Spark takes them. Only the parts of a variant are laid out otherwise there."""
    wanted = pa.schema([pa.field(f.name, _spark_type(f.type)) for f in schema])
    if wanted.equals(schema):
        yield from batches
        return
    for batch in batches:
        columns = [_as(column, field.type) for column, field in zip(batch.columns, wanted, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _spark_type(arrow: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(arrow):
        if any((f.metadata or {}).get(b"variant") == b"true" for f in arrow):
            return _VARIANT
        return pa.struct([pa.field(f.name, _spark_type(f.type)) for f in arrow])
    if types.is_list(arrow):
        return pa.list_(pa.field(arrow.value_field.name, _spark_type(arrow.value_type)))
    if types.is_map(arrow):
        return pa.map_(_spark_type(arrow.key_type), _spark_type(arrow.item_type))
    return arrow


def _as(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        places = {f.name: n for n, f in enumerate(array.type)}
        children = [_as(array.field(places[f.name]), f.type) for f in wanted]
        if wanted == _VARIANT:
            # Its parts may not be null even where the whole is; what they are there is never looked at.
            children = [pc.fill_null(child, b"\0") for child in children]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_list(wanted):
        offsets, values = _unsliced(array.offsets, array.values)
        return pa.ListArray.from_arrays(offsets, _as(values, wanted.value_type), wanted, mask=array.is_null())
    offsets, keys = _unsliced(array.offsets, array.keys)
    _, items = _unsliced(array.offsets, array.items)
    keys, items = _as(keys, wanted.key_type), _as(items, wanted.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, wanted, mask=array.is_null())


def _unsliced(offsets: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets that start at zero, and just the values that they span: nulls are masked only over such."""
    numbers = offsets.to_numpy()
    start, end = int(numbers[0]), int(numbers[-1])
    return pa.array((numbers - start).astype(np.int32)), values.slice(start, end - start)
