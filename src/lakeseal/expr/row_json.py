"""Functions of JSON texts, one row at a time, as Jackson reads and writes them for Spark.

What Jackson takes and Python's reader does not (single quotes), what either bounds (depth, digits, names) and what
both write differently (most fractions) is refused by name where it turns up; a text that is no JSON gives null.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

from msgspec import Struct

from lakeseal.errors import UnsupportedExpression
from lakeseal.expr.calendar import MICROS_PER_DAY
from lakeseal.expr.row_date_patterns import shown
from lakeseal.expr.row_function import MAX_TEXT
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)

Steps = tuple[str | int, ...]

_STEP = re.compile(r"\.(?P<name>[^\s.\[][^.\[]*)|\['(?P<quoted>[^\s'][^']*)'\]|\[(?P<index>[0-9]+)\]")
_BLANKS = " \t\n\r"
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BEYOND_16_BITS = re.compile("[\U00010000-\U0010ffff]")
_PLAIN_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]{0,6})\.[0-9]{1,8}")
_MAX_DIGITS = 1000
_MAX_DEPTH = 200
_MAX_NAME = 50_000
_READ = (BOOLEAN, DOUBLE, STRING, DATE)
_RANGES: dict[DataType, int] = {BYTE: 1 << 7, SHORT: 1 << 15, INTEGER: 1 << 31, LONG: 1 << 63}
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_WRITTEN = (BYTE, SHORT, INTEGER, LONG, BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ)


class _Object(Struct, frozen=True):
    """Names may be there twice."""

    pairs: list[tuple[str, Any]]


class _Fraction(str):
    """A number that is no whole one, as it was written."""

    __slots__ = ()


class _Malformed(Exception):
    """The text is no JSON."""


def steps(path: str) -> Steps | None:
    """Of `$.a['b'][0]`; None for a text that is no path. Raises where it leads to several values."""
    if not path.startswith("$"):
        return None
    if "*" in path:
        raise UnsupportedExpression(f"The path {path[:50]!r} is not supported")
    found: list[str | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            if any(char.isspace() for char in path):
                raise UnsupportedExpression(f"The path {path[:50]!r} with blanks is not supported")
            return None
        found.append(int(step["index"]) if step["index"] is not None else step["name"] or step["quoted"])
        at = step.end()
    return tuple(found)


def get_json_object(path: Steps, text: str) -> str | None:
    try:
        found, written = _at(_read(text), path)
    except _Malformed:
        return None
    if not written:
        return None
    if type(found) is str:
        _refuse_halves(found)
        return found
    # Of what it copies, Jackson escapes these; of what it is given, it does not.
    return _BEYOND_16_BITS.sub(_in_halves, _written(found))


def json_array_length(text: str) -> int | None:
    try:
        found = _read(text)
    except _Malformed:
        return None
    return len(found) if isinstance(found, list) else None


def json_object_keys(text: str) -> list[str] | None:
    try:
        found = _read(text)
    except _Malformed:
        return None
    if not isinstance(found, _Object):
        return None
    for name, _ in found.pairs:
        _refuse_halves(name)
    return [name for name, _ in found.pairs]


def refused_type(data_type: DataType) -> DataType | None:
    """The part of a type whose values `to_json` writes otherwise in other versions of Java, or nobody has looked at."""
    match data_type:
        case ArrayType(element=element):
            return refused_type(element)
        case MapType(key=key, value=value):
            return key if key not in (STRING, INTEGER, LONG) else refused_type(value)
        case StructType(fields=fields):
            return next((found for field in fields if (found := refused_type(field.type)) is not None), None)
        case DecimalType():
            return None
        case _:
            return None if data_type in _WRITTEN else data_type


def to_json(data_type: DataType, value: Any) -> str:
    """Fields of structs that are null are left out, values of arrays and maps stay."""
    if value is None:
        return "null"
    match data_type:
        case StructType(fields=fields):
            present = ((field, value[field.name]) for field in fields)
            parts = (f"{_quoted(f.name)}:{to_json(f.type, one)}" for f, one in present if one is not None)
            return "{" + ",".join(parts) + "}"
        case MapType(value=inner):
            return "{" + ",".join(f"{_quoted(str(key))}:{to_json(inner, one)}" for key, one in value) + "}"
        case ArrayType(element=element):
            return "[" + ",".join(to_json(element, one) for one in value) + "]"
    if data_type == BOOLEAN:
        return "true" if value else "false"
    if data_type == STRING:
        return _quoted(value)
    if data_type == BINARY:
        return f'"{base64.b64encode(value).decode()}"'
    if data_type == DATE:
        return f'"{shown("yyyy-MM-dd", value * MICROS_PER_DAY)}"'
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return f'"{shown("yyyy-MM-dd", value)}T{shown("HH:mm:ss.SSS", value)}{"Z" if data_type == TIMESTAMP else ""}"'
    return str(value)


def refused_reading(data_type: DataType) -> DataType | None:
    """The part of a type whose values `from_json` does not read here."""
    match data_type:
        case ArrayType(element=element):
            return refused_reading(element)
        case MapType(key=key, value=value):
            return key if key != STRING else refused_reading(value)
        case StructType(fields=fields):
            return next((found for field in fields if (found := refused_reading(field.type)) is not None), None)
        case _:
            return None if data_type in _RANGES or data_type in _READ else data_type


def from_json(data_type: DataType, text: str) -> Any:
    """Values of the very types that are asked for: what Spark would turn into them, or take for null, is refused."""
    plain = text.strip(_BLANKS)
    if not plain:
        return None
    try:
        found = _read(plain, _STRICT_READER)
    except _Malformed:
        if any(isinstance(part, StructType | ArrayType | MapType) for part in _parts(data_type)):
            # Spark keeps what it had read of some, and of others not.
            raise UnsupportedExpression(f"Broken JSON where {data_type} is expected is not supported") from None
        return {field.name: None for field in data_type.fields} if isinstance(data_type, StructType) else None
    if _STRICT_READER.raw_decode(plain)[1] != len(plain) or found is None:
        raise UnsupportedExpression("JSON that is null, or has something behind it, is not supported")
    return _typed(data_type, found)


def _parts(data_type: DataType) -> tuple[DataType, ...]:
    match data_type:
        case StructType(fields=fields):
            return tuple(field.type for field in fields)
        case MapType(value=value):
            return (value,)
        case ArrayType(element=element):
            return (element,)
    return ()


def _typed(data_type: DataType, found: Any) -> Any:
    if found is None:
        return None
    match data_type, found:
        case StructType(fields=fields), _Object(pairs=pairs):
            values = _by_name(pairs)
            return {field.name: _typed(field.type, values.get(field.name)) for field in fields}
        case MapType(value=inner), _Object(pairs=pairs):
            return [(name, _typed(inner, one)) for name, one in _by_name(pairs).items()]
        case ArrayType(element=element), list():
            return [_typed(element, one) for one in found]
        case _, bool() if data_type == BOOLEAN:
            return found
        case _, int() if (
            type(found) is int and data_type in _RANGES and -_RANGES[data_type] <= found < _RANGES[data_type]
        ):
            return found
        case _, int() | _Fraction() if type(found) is not bool and data_type == DOUBLE:
            return float(found)
        case _, str() if type(found) is str and data_type == STRING:
            _refuse_halves(found)
            return found
        case _, str() if type(found) is str and data_type == DATE and _DAY.fullmatch(found) is not None:
            with suppress(ValueError):
                return (date.fromisoformat(found) - date(1970, 1, 1)).days
    raise UnsupportedExpression(f"JSON of another type where {data_type} is expected is not supported")


def _by_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise UnsupportedExpression("JSON with a name twice is not supported")
    for name in values:
        _refuse_halves(name)
    return values


def _at(found: Any, path: Steps) -> tuple[Any, bool]:
    """What stands there, and whether anything does: a null that is a field's value is nothing."""
    for place, step in enumerate(path):
        if isinstance(step, int):
            if not isinstance(found, list) or step >= len(found):
                return None, False
            found = found[step]
        elif isinstance(found, _Object):
            # Of fields that are called the same, the first that leads to a value.
            for name, value in found.pairs:
                if name == step and value is not None:
                    inner, written = _at(value, path[place + 1 :])
                    if written:
                        return inner, True
            return None, False
        else:
            return None, False
    return found, True


def _read(text: str, reader: json.JSONDecoder | None = None) -> Any:
    if len(text) > MAX_TEXT or _depth(text) > _MAX_DEPTH:
        raise UnsupportedExpression("JSON that is so long or nested so deeply is not supported")
    plain = text.lstrip(_BLANKS)
    if not plain:
        raise _Malformed
    try:
        found, end = (reader or _READER).raw_decode(plain)
    except ValueError:
        if "'" in text:
            raise UnsupportedExpression("JSON with single quotes is not supported") from None
        raise _Malformed from None
    if not isinstance(found, _Object | list) and plain[end:].strip(_BLANKS):
        raise UnsupportedExpression("JSON of a single value with something behind it is not supported")
    return found


def _depth(text: str) -> int:
    """At most how deep the text is nested; quotes are not looked at."""
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return 0
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    if any(len(name) > _MAX_NAME for name, _ in pairs):
        raise UnsupportedExpression(f"A name of JSON with more than {_MAX_NAME} characters is not supported")
    return _Object(pairs)


def _whole(text: str) -> int:
    return int(_bounded(text))


def _fraction(text: str) -> _Fraction:
    return _Fraction(_bounded(text))


def _bounded(text: str) -> str:
    if len(text) >= _MAX_DIGITS:
        raise UnsupportedExpression(f"A number of JSON with {_MAX_DIGITS} digits is not supported")
    return text


def _no_number(text: str) -> Any:
    raise ValueError(text)


_STRICT_READER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_fraction, parse_int=_whole, parse_constant=_no_number
)
_READER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_fraction, parse_int=_whole, parse_constant=_no_number, strict=False
)
"""Also takes control characters as they are, within texts; `from_json` does not."""


def _written(value: Any) -> str:
    match value:
        case _Object(pairs=pairs):
            return "{" + ",".join(f"{_quoted(name)}:{_written(one)}" for name, one in pairs) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Fraction():
            return _as_java_writes(value)
        case str():
            return _quoted(value)
        case _:
            return str(value)


def _as_java_writes(text: str) -> str:
    """A fraction that every Java writes as a double with the digits that it was written with."""
    if _PLAIN_FRACTION.fullmatch(text) is not None and (float(text) == 0 or abs(Decimal(text)) >= Decimal("0.001")):
        plain = text.rstrip("0")
        return f"{plain}0" if plain.endswith(".") else plain
    raise UnsupportedExpression(f"The number {text[:50]} of JSON is not supported")


def _refuse_halves(text: str) -> None:
    if not text.isascii() and any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise UnsupportedExpression("JSON with halves of characters is not supported")


def _quoted(text: str) -> str:
    _refuse_halves(text)
    return '"' + "".join(_SHORT.get(char) or (char if char >= " " else f"\\u{ord(char):04X}") for char in text) + '"'


def _in_halves(match: re.Match[str]) -> str:
    code = ord(match[0]) - 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
