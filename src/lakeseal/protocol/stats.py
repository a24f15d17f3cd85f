"""Statistics of files as readers see them: which columns have them, and their JSON as Arrow columns.

`stats_schema` is the Arrow type of the statistics that a table collects; any part of it may be given to `parse_stats`,
and leaving out columns that are not asked for saves the time to read them.

`parse_stats` never fails on what a log holds. A row that is absent or not JSON is null, a value that is absent or does
not fit its type is null, and null means unknown: never a reason to skip a file. What it does return can be relied on:
every minimum is at or below the file's values and every maximum at or above them, for timestamps too, which the format
cuts to milliseconds, and for decimals with more digits than a double has, which some writers round to one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakeseal.errors import InvalidMetadata
from lakeseal.protocol import decimal_text
from lakeseal.protocol.arrow import from_arrow_type, to_arrow_type
from lakeseal.protocol.schema import DataType, DecimalType, PrimitiveType, StructField, StructType
from lakeseal.protocol.text_values import parse_text

DEFAULT_INDEXED_COLUMNS = 32
NUM_RECORDS = "numRecords"
MIN_VALUES = "minValues"
MAX_VALUES = "maxValues"
NULL_COUNT = "nullCount"
TIGHT_BOUNDS = "tightBounds"
TYPE_CHANGES = "delta.typeChanges"

_UNBOUNDED = ("boolean", "binary", "void")
_COLUMN_LIST = re.compile(r"\s*((?:`(?:[^`]|``)*`|[^`.,]+)(?:\.(?:`(?:[^`]|``)*`|[^`.,]+))*)\s*(?:,|$)")
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^`.]+)")

_ROWS_AT_ONCE = 32_768
_ROWS_ONE_BY_ONE = 256
_BLOCK = 1 << 20
# As many digits as every double gives back, and a little more than the greatest part of a longer number that it loses.
_DOUBLE_DIGITS = 15
_LOST_BY_DOUBLES = Decimal("2.3e-16")
_END_OF_LONGS = {MIN_VALUES: Decimal(-(2**63)), MAX_VALUES: Decimal(2**63 - 1)}
# Spark writes these as strings where a number should be. As null they are unknown, which is what they are to us.
_NOT_NUMBERS = r'":\s*"(?:NaN|[+-]?Infinity)"'
_JSON = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)


def has_bounds(data_type: DataType) -> bool:
    """Whether statistics have a minimum and a maximum for columns of this type, or only a count of nulls."""
    return isinstance(data_type, DecimalType) or (
        isinstance(data_type, PrimitiveType) and data_type.name not in _UNBOUNDED
    )


def indexed_columns(
    schema: StructType,
    *,
    partition_columns: Sequence[str] = (),
    num_indexed_cols: int = DEFAULT_INDEXED_COLUMNS,
    stats_columns: str | None = None,
) -> StructType:
    """The part of a table's schema that has statistics: the columns that `stats_columns` lists (the value of
    `delta.dataSkippingStatsColumns`), or else the first leaves (all, if negative); never partition columns."""
    partitions = {name.lower() for name in partition_columns}
    data = StructType(tuple(f for f in schema.fields if f.name.lower() not in partitions))
    if stats_columns is not None:
        return _named(data, [tuple(n.lower() for n in path) for path in parse_column_list(stats_columns)])
    return data if num_indexed_cols < 0 else _first_leaves(data, num_indexed_cols)[0]


def parse_column_list(text: str) -> list[tuple[str, ...]]:
    """Column paths of a list such as ``a, b.c, `d.e` ``."""
    paths, at = [], 0
    while at < len(text.rstrip()):
        found = _COLUMN_LIST.match(text, at)
        if found is None:
            raise InvalidMetadata(f"This is not a list of columns: {text!r}", hint="Write names with commas between")
        paths.append(tuple(n[1].replace("``", "`") if n[2] is None else n[2].strip() for n in _NAME.finditer(found[1])))
        at = found.end()
    return paths


def stats_schema(indexed: StructType) -> pa.StructType:
    """The Arrow type of statistics over these columns, under these names: give them `to_physical()` if mapped."""
    bounds, counts = _bounds_type(indexed), _counts_type(indexed)
    return pa.struct(
        [
            pa.field(NUM_RECORDS, pa.int64()),
            pa.field(MIN_VALUES, bounds),
            pa.field(MAX_VALUES, bounds),
            pa.field(NULL_COUNT, counts),
            pa.field(TIGHT_BOUNDS, pa.bool_()),
        ]
    )


def parse_stats(texts: pa.Array | pa.ChunkedArray, schema: pa.StructType) -> pa.StructArray:
    """One row of statistics per text, of the type that is asked for."""
    return widen(stated_stats(texts, schema))


def stated_stats(texts: pa.Array | pa.ChunkedArray, schema: pa.StructType) -> pa.StructArray:
    """What the texts say, word for word, with bounds as they were cut and rounded: to store, not to skip files by."""
    column = (texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts])).cast(pa.string())
    raw = pa.schema([pa.field(f.name, _raw_type(f.type)) for f in schema])
    parts: list[pa.StructArray] = []
    for start in range(0, len(column), _ROWS_AT_ONCE):
        _read(column.slice(start, _ROWS_AT_ONCE).combine_chunks(), raw, parts)
    return _typed(pa.chunked_array(parts, pa.struct(list(raw))).combine_chunks(), schema)


def widen(stats: pa.StructArray) -> pa.StructArray:
    """The same statistics with bounds moved apart by what may have been lost of them: of maxima of timestamps the
    microseconds that were cut, of decimals what rounding to a double takes."""
    children = [
        _widened(stats.field(n), field.name) if field.name in (MIN_VALUES, MAX_VALUES) else stats.field(n)
        for n, field in enumerate(stats.type)
    ]
    return _struct(children, stats)


def _widened(array: pa.Array, side: str) -> pa.Array:
    if pa.types.is_struct(array.type):
        return _struct([_widened(array.field(n), side) for n in range(array.type.num_fields)], array)
    if pa.types.is_decimal(array.type) and array.type.precision > _DOUBLE_DIGITS:
        return _past_rounding(array, side)
    if side == MIN_VALUES or not pa.types.is_timestamp(array.type):
        return array
    micros = pc.min_element_wise(array.cast(pa.int64()), 2**63 - 1000, skip_nulls=False)
    cut = pc.equal(pc.multiply(pc.divide(micros, 1000), 1000), micros)
    return pc.if_else(cut, pc.add(micros, 999), array.cast(pa.int64())).cast(array.type)


def _past_rounding(array: pa.Array, side: str) -> pa.Array:
    """deltalake and polars write decimals as doubles: numbers of few digits come back as they were, others almost.
    Those without a fraction go on to a long, and the greatest long stands for all that are greater."""
    digits, scale = array.type.precision, array.type.scale
    wide = array.cast(pa.decimal256(digits + 1, scale))
    size = pc.abs(wide)
    lost = pc.round(
        pc.multiply(size, pa.scalar(_LOST_BY_DOUBLES, pa.decimal256(2, 17))),
        ndigits=scale,
        round_mode="towards_infinity",
    )
    moved = (pc.subtract if side == MIN_VALUES else pc.add)(wide, lost.cast(wide.type))
    found = pc.if_else(pc.less(size, _one_with_zeros(_DOUBLE_DIGITS, scale)), wide, moved)
    fits = pc.less(pc.abs(found), _one_with_zeros(digits, scale))
    ended = pc.equal(wide, pa.scalar(_END_OF_LONGS[side]))
    return pc.if_else(pc.and_not(fits, ended), found, None).cast(array.type)  # beyond that, nothing is known


def _one_with_zeros(zeros: int, scale: int) -> pa.Scalar:
    """The least decimal of this scale that has more digits than `zeros`."""
    return pa.scalar(f"1e{zeros - scale}").cast(pa.decimal256(zeros + 2, scale))


def _struct(children: list[pa.Array], like: pa.StructArray) -> pa.StructArray:
    fields = [pa.field(f.name, child.type) for f, child in zip(like.type, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=like.is_null())


def _named(schema: StructType, paths: Sequence[tuple[str, ...]]) -> StructType:
    fields = []
    for child in schema.fields:
        below = [path[1:] for path in paths if path and path[0] == child.name.lower()]
        if not below:
            continue
        if all(below) and isinstance(child.type, StructType):
            child = StructField(child.name, _named(child.type, below), child.nullable, child.metadata)
        elif all(below):
            continue
        fields.append(child)
    return StructType(tuple(fields))


def _first_leaves(schema: StructType, limit: int) -> tuple[StructType, int]:
    fields: list[StructField] = []
    taken = 0
    for child in schema.fields:
        if taken >= limit:
            break
        if isinstance(child.type, StructType):
            inner, count = _first_leaves(child.type, limit - taken)
            child = StructField(child.name, inner, child.nullable, child.metadata)
            taken += count
        else:
            taken += 1
        fields.append(child)
    return StructType(tuple(fields)), taken


def _bounds_type(schema: StructType) -> pa.StructType:
    fields = []
    for child in schema.fields:
        if isinstance(child.type, StructType):
            inner = _bounds_type(child.type)
            if inner.num_fields:
                fields.append(pa.field(child.name, inner))
        elif has_bounds(child.type) and not _was_float(child):
            fields.append(pa.field(child.name, to_arrow_type(child.type)))
    return pa.struct(fields)


def _was_float(column: StructField) -> bool:
    # Clients write a float's bounds with just the digits that a float needs. Read as a double, which the column is now,
    # such a bound can lie on the wrong side of the value that it was taken from.
    changes = column.metadata.get(TYPE_CHANGES)
    return isinstance(changes, list) and any(isinstance(c, dict) and c.get("fromType") == "float" for c in changes)


def _counts_type(schema: StructType) -> pa.StructType:
    return pa.struct(
        [
            pa.field(f.name, _counts_type(f.type) if isinstance(f.type, StructType) else pa.int64())
            for f in schema.fields
        ]
    )


def _raw_type(arrow: pa.DataType) -> pa.DataType:
    """The type to read JSON as, from which values that do not fit can still be told apart."""
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _raw_type(f.type)) for f in arrow])
    if pa.types.is_integer(arrow):
        return pa.int64()
    if pa.types.is_date(arrow) or pa.types.is_timestamp(arrow):
        return pa.string()
    return decimal_text.wide(arrow) if pa.types.is_decimal(arrow) else arrow


def _has_decimals(arrow: pa.DataType) -> bool:
    if pa.types.is_struct(arrow):
        return any(_has_decimals(field.type) for field in arrow)
    return bool(pa.types.is_decimal(arrow))


def _read(rows: pa.Array, raw: pa.Schema, parts: list[pa.StructArray]) -> None:
    read = _read_fast(rows, raw)
    if read is not None:
        parts.append(read)
    elif len(rows) <= _ROWS_ONE_BY_ONE:
        parts.append(_read_each(rows, raw))
    else:
        half = len(rows) // 2
        _read(rows.slice(0, half), raw, parts)
        _read(rows.slice(half), raw, parts)


def _read_fast(rows: pa.Array, raw: pa.Schema) -> pa.StructArray | None:
    """All rows in one call, or None if one of them is not as it should be."""
    known = pc.fill_null(pc.not_equal(rows, ""), False)
    texts = pc.if_else(known, rows, "{}")
    # A row is one object and nothing else: then as many objects as rows means that each row is its own.
    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return None
    if (
        _has_decimals(pa.struct(list(raw)))
        and pc.any(pc.match_substring_regex(texts, decimal_text.STRANGE_NUMBERS)).as_py()
    ):
        return None
    read = _read_lines(texts, raw)
    if read is None:
        read = _read_lines(pc.replace_substring_regex(texts, _NOT_NUMBERS, '":null'), raw)
    if read is None:
        return None
    columns = [column.combine_chunks() for column in read.columns]
    return pa.StructArray.from_arrays(columns, fields=list(raw), mask=pc.invert(known))


def _read_lines(texts: pa.Array, raw: pa.Schema) -> pa.Table | None:
    lines = pc.binary_join_element_wise(texts, "", "\n")
    longest = pc.max(pc.binary_length(lines)).as_py() or 0
    try:
        read = pj.read_json(
            pa.BufferReader(lines.buffers()[2]),
            read_options=pj.ReadOptions(block_size=max(_BLOCK, longest)),
            parse_options=pj.ParseOptions(explicit_schema=raw, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    return read if read.num_rows == len(texts) else None


def _read_each(rows: pa.Array, raw: pa.Schema) -> pa.StructArray:
    """Row by row, keeping everything that can be kept."""
    decoded: list[dict[str, Any] | None] = []
    for text in rows.to_pylist():
        try:
            decoded.append(_JSON.decode(text) if text else None)
        except (msgspec.MsgspecError, UnicodeError, ArithmeticError, RecursionError):
            decoded.append(None)
    return _raw_array(decoded, pa.struct(list(raw)))


def _raw_array(values: list[Any], raw: pa.DataType) -> pa.Array:
    if pa.types.is_struct(raw):
        absent = [not isinstance(value, dict) for value in values]
        children = [
            _raw_array(
                [None if gone else value.get(f.name) for value, gone in zip(values, absent, strict=True)], f.type
            )
            for f in raw
        ]
        return pa.StructArray.from_arrays(children, fields=list(raw), mask=pa.array(absent))
    if pa.types.is_decimal(raw):
        texts = [str(value) if isinstance(value, Decimal | int | str) else None for value in values]
        return parse_text(pa.array(texts, pa.string()), from_arrow_type(raw)).cast(raw)
    return pa.array([_raw_value(value, raw) for value in values], raw)


def _raw_value(value: Any, raw: pa.DataType) -> Any:
    if pa.types.is_boolean(raw):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if pa.types.is_string(raw):
        return value if isinstance(value, str) else None
    if not isinstance(value, Decimal | int):
        return None
    if pa.types.is_floating(raw):
        number = float(value)
        return number if np.isfinite(number) else None
    return int(value) if -(2**63) <= value < 2**63 and value == int(value) else None


def _typed(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Raw values as values of their type, null where they do not fit."""
    if pa.types.is_struct(arrow):
        children = [_typed(array.field(n), f.type) for n, f in enumerate(arrow)]
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=array.is_null())
    if array.type == arrow:
        return array
    if pa.types.is_decimal(arrow):
        return decimal_text.narrow(array, arrow)
    if pa.types.is_integer(arrow):
        limit = 2 ** (arrow.bit_width - 1)
        fits = pc.and_(pc.greater_equal(array, -limit), pc.less(array, limit))
        return pc.if_else(fits, array, None).cast(arrow)
    return parse_text(array, from_arrow_type(arrow))
