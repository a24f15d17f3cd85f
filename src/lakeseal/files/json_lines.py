"""JSON lines as Spark writes and reads them when nobody tells it otherwise.

One object per row; fields that are null are left out. Moments are ISO 8601 texts, in UTC; binary is base64; decimals
are numbers with all their digits; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.files.json_records import JsonRecords
from lakeseal.files.records import unreadable
from lakeseal.log.decoded_size import too_large
from lakeseal.protocol.schema import (
    DATE,
    DOUBLE,
    FLOAT,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from lakeseal.protocol.text_values import format_text
from lakeseal.trust import DEFAULT_MAX_DECODED_BYTES

_LINES = 16_384
_BLOCK = 2**22
_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_MOMENTS = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def encoded(rows: pa.Table, fields: Sequence[StructField]) -> Iterator[bytes]:
    """The lines of the rows, which have these columns in this order."""
    for batch in rows.to_batches(max_chunksize=_LINES):
        columns = [_values(array, field.type) for array, field in zip(batch.columns, fields, strict=True)]
        names = [field.name for field in fields]
        yield _ENCODER.encode_lines(list(_objects(names, columns, batch.num_rows)))


def decoded(
    source: BinaryIO, fields: Sequence[StructField], limit: int = DEFAULT_MAX_DECODED_BYTES, *, zone: str = "UTC"
) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the types of the fields; `BrokenDataFile` names the first line that is no such row. No line
    may have more bytes than `limit`."""
    records = JsonRecords(StructType(tuple(fields)), zone=zone)
    for block in lines(source, limit):
        parsed = records.parse(block.texts)
        for misfit in parsed.misfits:
            raise unreadable(f"line {block.numbers[misfit.at]}", misfit.reason)
        yield parsed.rows


class Lines(Struct, frozen=True, kw_only=True):
    """Some lines of a file that are not blank."""

    texts: list[bytes]
    numbers: list[int]
    """Counted from 1."""
    size: int


def lines(source: Any, limit: int, *, blank: bool = False) -> Iterator[Lines]:
    r"""A line ends as for Spark, by `\n`, `\r\n` or `\r`. One that is longer than `limit` is refused. Those with blanks
    alone are left out, unless `blank`."""
    rest, number = b"", 1
    is_first = True
    while True:
        # A long line is not looked at again for every block.
        block = source.read(min(max(_BLOCK, len(rest)), max(1, limit - len(rest) + 1)))
        text = rest + block
        if is_first:
            text, is_first = text.removeprefix(_BOM), False
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1 if block else len(text)
        rest = text[end:]
        if len(rest) > limit:
            raise too_large(f"A line has more than {limit:,} bytes")
        split = text[:end].splitlines()
        kept = [n for n, line in enumerate(split) if blank or line.strip(_BLANKS)]
        if kept:
            yield Lines(
                texts=[split[n] for n in kept],
                numbers=[number + n for n in kept],
                size=sum(len(split[n]) for n in kept),
            )
        number += len(split)
        if not block:
            return


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
