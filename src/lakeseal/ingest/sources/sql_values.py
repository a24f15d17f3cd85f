"""What a database's driver gives, as values of a schema: the same values, or none.

A number that its column would round, cut or overflow is no value, nor is a number for a moment, or a moment with a zone
for one without. Texts, which is what SQLite has for moments and decimals, are read as the cells of files are. A moment
without a zone is in UTC where the schema has one with.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeseal.errors import InvalidArgument
from lakeseal.files import cells
from lakeseal.files.records import Misfit, Parsed
from lakeseal.protocol.arrow import to_arrow
from lakeseal.protocol.decimal_text import fitting, parse_decimal
from lakeseal.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_LARGEST_FLOAT = 3.4028235677973366e38
# Of columns that hold nothing else Arrow makes the same values, or raises.
_SAME: dict[str, type] = {
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "double": float,
    "boolean": bool,
    "string": str,
    "binary": bytes,
    "date": dt.date,
}

Convert = Callable[[Any], Any]


class NotText:
    """A text of a database that is not UTF-8."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return repr(self.data)


def text_or_not(data: bytes) -> str | NotText:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return NotText(data)


class SqlRows:
    def __init__(self, schema: StructType) -> None:
        self.schema = to_arrow(schema)
        self._fields = schema.fields
        self._converts = [_converter(field.type, field.name) for field in schema.fields]

    def parse(self, rows: Sequence[Sequence[Any]]) -> Parsed:
        columns: list[pa.Array] = []
        wrong: dict[int, str] = {}
        for n, (field, convert) in enumerate(zip(self._fields, self._converts, strict=True)):
            columns.append(self._column([row[n] for row in rows], field, convert, wrong))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if not wrong:
            return Parsed(rows=batch)
        numbers = [n for n in range(len(rows)) if n not in wrong]
        misfits = tuple(Misfit(at=n, reason=reason) for n, reason in sorted(wrong.items()))
        return Parsed(rows=batch.take(pa.array(numbers, pa.int64())), misfits=misfits, record_numbers=numbers)

    def _column(self, values: list[Any], field: StructField, convert: Convert, wrong: dict[int, str]) -> pa.Array:
        arrow = self.schema.field(field.name).type
        same = _SAME.get(field.type.name) if isinstance(field.type, PrimitiveType) else None
        if same is not None and {type(value) for value in values} <= {same, type(None)}:
            try:
                return pa.array(values, arrow)
            except (pa.ArrowException, OverflowError, UnicodeError):
                pass
        made: list[Any] = []
        for n, value in enumerate(values):
            found = None if value is None else convert(value)
            made.append(found)
            if found is None and value is not None:
                wrong.setdefault(n, f"{field.name}: {_shown(value)} is no {field.type}")
        return pa.array(made, arrow)


def _converter(data_type: DataType, column: str) -> Convert:
    """Gives None for what is no value of the type."""
    match data_type:
        case ArrayType(element=element):
            return _list(_converter(element, column))
        case DecimalType():
            return lambda value: _decimal(value, data_type)
        case PrimitiveType(name="string"):
            return _text
        case PrimitiveType(name="binary"):
            return lambda value: bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
        case PrimitiveType(name="boolean"):
            return _or_text(data_type, lambda value: bool(value) if value in (0, 1) else None, (bool, int))
        case PrimitiveType(name="byte" | "short" | "integer" | "long" as name):
            limit = 2 ** {"byte": 7, "short": 15, "integer": 31, "long": 63}[name]
            return _or_text(data_type, lambda value: _whole(value, limit), (int, float, Decimal))
        case PrimitiveType(name="double"):
            return _or_text(data_type, _double, (int, float, Decimal))
        case PrimitiveType(name="float"):
            return _or_text(data_type, _float, (int, float, Decimal))
        case PrimitiveType(name="date"):
            return _or_text(data_type, lambda value: value if type(value) is dt.date else None, (dt.date,))
        case PrimitiveType(name="timestamp"):
            return _or_text(data_type, _instant, (dt.datetime,))
        case PrimitiveType(name="timestamp_ntz"):
            return _or_text(data_type, lambda value: value if value.tzinfo is None else None, (dt.datetime,))
        case StructType() | MapType() | _:
            raise InvalidArgument(f"A database has no values of the type {data_type}", column=column)


def _or_text(data_type: DataType, convert: Convert, kinds: tuple[type, ...]) -> Convert:
    parse = cells.scalar(data_type)

    def converted(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            return None
        return convert(value)

    return converted


def _list(convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return None
        items = [None if one is None else convert(one) for one in value]
        return None if any(m is None and v is not None for m, v in zip(items, value, strict=True)) else items

    return converted


def _text(value: Any) -> str | None:
    if isinstance(value, uuid.UUID):
        return str(value)
    try:
        return value if isinstance(value, str) and value.encode() is not None else None
    except UnicodeEncodeError:
        return None


def _whole(value: Any, limit: int) -> int | None:
    if isinstance(value, float | Decimal) and (not math.isfinite(value) or value != int(value)):
        return None
    return int(value) if -limit <= value < limit else None


def _double(value: Any) -> float | None:
    """A number of other kinds must be what the double's own digits say."""
    if isinstance(value, float):
        return value
    try:
        found = float(value)
    except OverflowError:
        return None
    if math.isnan(found):
        return found
    return found if math.isfinite(found) and Decimal(repr(found)) == value else None


def _float(value: Any) -> float | None:
    found = _double(value)
    return found if found is None or not math.isfinite(found) or abs(found) < _LARGEST_FLOAT else None


def _decimal(value: Any, data_type: DecimalType) -> Decimal | None:
    match value:
        case bool():
            return None
        case str():
            return parse_decimal(value, data_type)
        case float():
            return fitting(Decimal(repr(value)), data_type) if math.isfinite(value) else None
        case int() | Decimal():
            return fitting(Decimal(value), data_type)
        case _:
            return None


def _instant(value: dt.datetime) -> int:
    zoned = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
    return (zoned - _EPOCH) // _MICROSECOND


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
