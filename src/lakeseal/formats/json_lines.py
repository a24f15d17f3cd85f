"""JSON lines as Spark writes and reads them when nobody tells it otherwise.

One object per row; fields that are null are left out. Moments are ISO 8601 texts, in UTC; binary is base64; decimals
are numbers with all their digits; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import BrokenDataFile
from lakeseal.log.decoded_size import whole_lines
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from lakeseal.protocol.text_values import format_text, parse_text
from lakeseal.trust import DEFAULT_MAX_DECODED_BYTES

_LINES = 16_384
_BLOCK = 2**22
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Decimal)
_MOMENTS = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def encoded(rows: pa.Table, fields: Sequence[StructField]) -> Iterator[bytes]:
    """The lines of the rows, which have these columns in this order."""
    for batch in rows.to_batches(max_chunksize=_LINES):
        columns = [_values(array, field.type) for array, field in zip(batch.columns, fields, strict=True)]
        names = [field.name for field in fields]
        yield _ENCODER.encode_lines(list(_objects(names, columns, batch.num_rows)))


def decoded(
    source: BinaryIO, fields: Sequence[StructField], limit: int = DEFAULT_MAX_DECODED_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the types of the fields; a value of another type is null, as for Spark. No line may have
    more bytes than `limit`."""
    names = [field.name for field in fields]
    for lines in whole_lines(source, limit, _BLOCK):
        try:
            rows = _DECODER.decode_lines(lines)
        except msgspec.DecodeError as error:
            raise BrokenDataFile(f"The file does not hold JSON objects line by line: {error}") from error
        rows = [row if isinstance(row, dict) else {} for row in rows]
        arrays = [_array([row.get(field.name) for row in rows], field.type) for field in fields]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _objects(names: Sequence[str], columns: Sequence[list[Any]], rows: int) -> Iterator[dict[str, Any]]:
    if not columns:
        yield from ({} for _ in range(rows))
    for values in zip(*columns, strict=True):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _values(array: pa.Array, data_type: DataType) -> list[Any]:
    """Python values that the encoder writes as Spark would."""
    match data_type:
        case StructType(fields=fields):
            parts = [_values(array.field(n), field.type) for n, field in enumerate(fields)]
            objects = list(_objects([f.name for f in fields], parts, len(array)))
            return _masked(array, objects)
        case ArrayType(element=element):
            return _masked(array, _slices(array, _values(_inside(array, array.values), element)))
        case MapType(key=key, value=value):
            keys = _values(_inside(array, array.keys), key)
            pairs = list(zip(keys, _values(_inside(array, array.items), value), strict=True))
            return _masked(array, [dict(part) for part in _slices(array, pairs)])
        case _ if data_type in _MOMENTS:
            return _list(format_text(array, data_type))
        case _ if data_type in (FLOAT, DOUBLE):
            values = _list(array)
            if pc.all(pc.is_finite(array)).as_py() is False:
                return [value if value is None or math.isfinite(value) else _spelt(value) for value in values]
            return values
        case _:
            return _list(array)


def _list(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _spelt(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _masked(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, _list(array.is_valid()), strict=True)]


def _inside(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of the values that the array's own lists are made of."""
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(start, end - start)


def _slices(array: pa.Array, values: list[Any]) -> list[Any]:
    offsets = _list(array.offsets)
    first = offsets[0]
    return [values[start - first : end - first] for start, end in pairwise(offsets)]


def _array(values: list[Any], data_type: DataType) -> pa.Array:
    arrow = to_arrow_type(data_type)
    match data_type:
        case StructType(fields=fields):
            objects = [value if isinstance(value, dict) else None for value in values]
            parts = [_array([o.get(f.name) if o is not None else None for o in objects], f.type) for f in fields]
            nulls = pa.array([o is None for o in objects], pa.bool_())
            return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=nulls)
        case ArrayType(element=element):
            lists = [value if isinstance(value, list) else None for value in values]
            inner = _array([item for one in lists if one is not None for item in one], element)
            return pa.ListArray.from_arrays(_offsets(lists), inner, type=arrow)
        case MapType(key=key, value=value_type):
            maps = [value if isinstance(value, dict) else None for value in values]
            keys = _array([name for one in maps if one is not None for name in one], key)
            items = _array([item for one in maps if one is not None for item in one.values()], value_type)
            return pa.MapArray.from_arrays(_offsets(maps), keys, items, type=arrow)
        case _:
            return _leaves(values, data_type, arrow)


def _offsets(parts: Sequence[Any]) -> pa.Array:
    offsets: list[int | None] = []
    end = 0
    for part in parts:
        offsets.append(None if part is None else end)
        end += 0 if part is None else len(part)
    return pa.array([*offsets, end], pa.int32())


def _leaves(values: list[Any], data_type: DataType, arrow: pa.DataType) -> pa.Array:
    match data_type:
        case _ if data_type == STRING:
            return pa.array([_text(value) for value in values], arrow)
        case _ if data_type == BINARY:
            return pa.array([_bytes(value) for value in values], arrow)
        case _ if data_type == BOOLEAN:
            return pa.array([value if isinstance(value, bool) else None for value in values], arrow)
        case _ if data_type in (FLOAT, DOUBLE):
            return pa.array([_number(value) for value in values], pa.float64()).cast(arrow, safe=False)
        case DecimalType():
            return parse_text(pa.array([_digits(value) for value in values], pa.string()), data_type)
        case _ if data_type in _MOMENTS:
            return parse_text(pa.array([v if isinstance(v, str) else None for v in values], pa.string()), data_type)
        case _:
            texts = [str(v) if isinstance(v, int) and not isinstance(v, bool) else None for v in values]
            return parse_text(pa.array(texts, pa.string()), data_type)


def _text(value: Any) -> str | None:
    """Spark gives anything else as the JSON that it was."""
    return value if value is None or isinstance(value, str) else _ENCODER.encode(value).decode()


def _bytes(value: Any) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except binascii.Error:
        return None


def _number(value: Any) -> float | None:
    match value:
        case bool() | None:
            return None
        case int() | float() | Decimal():
            return float(value)
        case "NaN" | "Infinity" | "+Infinity" | "-Infinity" | "+INF" | "-INF" | "INF":
            return float(value)
        case _:
            return None


def _digits(value: Any) -> str | None:
    match value:
        case bool() | None:
            return None
        case int() | float():
            return str(value)
        case Decimal():
            return format(value, "f")
        case _:
            return None
