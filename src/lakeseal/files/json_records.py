"""JSON objects as rows of a schema: every field has the value that Spark's reader gives it, or the record is none.

Fields that the schema lacks are left out, missing ones are null. What Spark would alter on the way is no value here:
a number with more digits than its decimal, or beyond its float; a number for a moment; a key that is there twice; bytes
that are not UTF-8, and halves of surrogate pairs. So is what only some parsers take for JSON: quotes other than `"`,
anything behind the object, nesting beyond 500 levels. A string column takes any JSON, as the text that it is.

`_strictly` is the meaning. Arrow parses many records at once where nothing in them is doubtful: it gives the same
values, five to ten times as fast, or its answer is not taken.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakeseal.errors import InvalidArgument
from lakeseal.files import cells
from lakeseal.files.records import Misfit, Parsed, joined
from lakeseal.protocol.arrow import to_arrow, to_arrow_type
from lakeseal.protocol.decimal_text import STRANGE_NUMBERS, narrow, wide
from lakeseal.protocol.schema import (
    BOOLEAN,
    DOUBLE,
    LONG,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

_AT_ONCE = 16_384
_DOUBTFUL = 256
_DEEPEST = 500
_MOST_DIGITS = 1000
_BLANKS = b" \t\r\n"
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
_LONG_NUMBER = re.compile(rb"[0-9.eE+-]{%d}" % (_MOST_DIGITS + 1))
# Arrow takes these for infinity where Spark takes them for nothing.
_ODD_NAMES = re.compile(rb"[\s:,\[][-+]?Inf(?!inity)")
_STRANGE_NUMBERS = re.compile(STRANGE_NUMBERS.encode())
_WHOLE = re.compile(r"-?[0-9]+")

Convert = Callable[[Any], Any]
Kind = Any
"""A type of a leaf, a dict of an object's fields, a list of what is in an array (one kind where all are alike), or None
for null."""


class _Number(str):
    """A number as it is written."""


class _Constant(str):
    """NaN, Infinity or -Infinity without quotes, which Spark takes for numbers."""


class _Object(list[tuple[str, Any]]):
    """An object's fields in their order, twice where they are there twice."""


class _Unfit(ValueError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[str | int] = []

    def __str__(self) -> str:
        place = ".".join(map(str, self.path))
        return f"{place}: {self.args[0]}" if place else str(self.args[0])


class _Nested(_Unfit):
    """An object or array where the schema has a text: its own text is the value."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_Constant)
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class JsonRecords:
    def __init__(self, schema: StructType, *, zone: str = "UTC") -> None:
        """`zone` is that of moments without one."""
        self.schema = to_arrow(schema)
        self._zone = zone
        self._fields = schema.fields
        for field in schema.fields:
            _check(field.type, field.name)
        self._convert = _struct(schema.fields, zone)
        # A struct without fields is none to Arrow.
        self._is_quick = not any(_contains(MapType, f.type) or _is_hollow(f.type) for f in schema.fields)
        self._has_decimals = any(_contains(DecimalType, field.type) for field in schema.fields)
        self._wire = pa.schema([pa.field(f.name, _wire(f.type)) for f in schema.fields])
        self._options = pj.ParseOptions(
            explicit_schema=self._wire, unexpected_field_behavior="ignore", newlines_in_values=True
        )

    def parse(self, texts: Sequence[bytes]) -> Parsed:
        """One JSON object per text."""
        return self._parts(texts, _AT_ONCE)

    def _parts(self, texts: Sequence[bytes], size: int) -> Parsed:
        parts = [(first, self._part(texts[first : first + size])) for first in range(0, len(texts), size)]
        return joined(parts, self.schema)

    def _part(self, texts: Sequence[bytes]) -> Parsed:
        rows = self._by_arrow(texts) if self._is_quick else None
        if rows is not None:
            return Parsed(rows=rows)
        # Most of the neighbours of a doubtful record are not.
        if self._is_quick and len(texts) > _DOUBTFUL:
            return self._parts(texts, _DOUBTFUL)
        return self._strictly(texts)

    def _strictly(self, texts: Sequence[bytes]) -> Parsed:
        rows, misfits, numbers = [], [], []
        for at, text in enumerate(texts):
            try:
                rows.append(self._row(text))
                numbers.append(at)
            except (ValueError, RecursionError) as error:
                misfits.append(Misfit(at=at, reason=_reason(error)))
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return Parsed(rows=batch, misfits=tuple(misfits), record_numbers=numbers if misfits else None)

    def _row(self, text: bytes) -> dict[str, Any]:
        found = _decoded(text)
        row: dict[str, Any] | None = None
        while row is None:
            try:
                row = self._convert(found)
            except _Nested as nested:
                _set(found, nested.path, _text_at(text, nested.path))
        return row

    def _by_arrow(self, texts: Sequence[bytes]) -> pa.RecordBatch | None:
        """None where Arrow might take something else for a row than `_strictly`."""
        # The parser takes no notice of where one text ends. With a brace at either end of each, as many objects as
        # texts can only be one of each.
        if not all(text[:1] == b"{" and text[-1:] == b"}" for text in texts):
            texts = [text.strip(_BLANKS) for text in texts]
            if not all(text[:1] == b"{" and text[-1:] == b"}" for text in texts):
                return None
        together = b"\n".join(texts)
        if max(map(len, texts)) > _DEEPEST and any(map(_is_doubtful, texts)):
            return None
        if b"Inf" in together and _ODD_NAMES.search(together):
            return None
        if self._has_decimals and _STRANGE_NUMBERS.search(together):
            return None
        try:
            if not together.isascii():
                together.decode()
            table = pj.read_json(
                io.BytesIO(together),
                # One block: an object must not be cut in two.
                read_options=pj.ReadOptions(use_threads=False, block_size=len(together) + 1),
                parse_options=self._options,
            )
            if table.num_rows != len(texts):
                return None
            rows = table.combine_chunks().to_batches()[0]
            columns = [_typed(rows[field.name], field.type, self._zone) for field in self._fields]
        except (pa.ArrowException, ValueError):
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def kind_of(text: bytes) -> Kind:
    """What one record's fields are; `ValueError` where it is none."""
    found = _decoded(text)
    try:
        return _kind(found)
    except _Unfit as error:
        raise ValueError(str(error)) from None


def _kind(value: Any) -> Kind:
    match value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case _Number() if _WHOLE.fullmatch(value):
            whole = int(value) if len(value) <= 40 else 10**40
            return LONG if -(2**63) <= whole < 2**63 else DecimalType(38, 0) if abs(whole) < 10**38 else DOUBLE
        case _Number() | _Constant():
            return DOUBLE
        case str():
            return STRING
        case _Object():
            fields: dict[str, Kind] = {}
            for name, one in value:
                if name in fields:
                    raise _Unfit(f"{name!r} is there twice")
                fields[name] = _kind(one)
            return fields
        case _:
            kinds = [_kind(one) for one in value]
            return [None] if not kinds else kinds[:1] if all(one == kinds[0] for one in kinds) else kinds


def _decoded(text: bytes) -> _Object:
    if _is_doubtful(text):
        _check_extremes(text)
    found = _DECODER.decode(text.decode())
    if not isinstance(found, _Object):
        raise _Unfit("It is not a JSON object")
    return found


def _is_doubtful(text: bytes) -> bool:
    return len(text) > _DEEPEST and (
        text.count(b"[") + text.count(b"{") > _DEEPEST
        or (len(text) > _MOST_DIGITS and _LONG_NUMBER.search(text) is not None)
    )


def _check_extremes(text: bytes) -> None:
    """What parsers refuse for their own good, each at another point; Spark's among them."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(found[0], 0)
        if depth > _DEEPEST:
            raise _Unfit(f"It is nested more than {_DEEPEST} levels deep")
    outside = _BRACKETS.sub(b" ", text)
    if _LONG_NUMBER.search(outside):
        raise _Unfit(f"It has a number of more than {_MOST_DIGITS} digits")


def _check(data_type: DataType, column: str) -> None:
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                _check(field.type, f"{column}.{field.name}")
        case ArrayType(element=element):
            _check(element, column)
        case MapType(key=key, value=value):
            if key != STRING:
                raise InvalidArgument(
                    f"The keys of JSON are texts, not {key}", column=column, hint="Make it a map<string, …>"
                )
            _check(value, column)
        case DecimalType():
            pass
        case PrimitiveType(name=name) if name != "void":
            pass
        case _:
            raise InvalidArgument(f"JSON has no values of the type {data_type}", column=column, hint="Read a string")


def _contains(kind: type[DataType], data_type: DataType) -> bool:
    return isinstance(data_type, kind) or any(_contains(kind, part) for part in _parts_of(data_type))


def _is_hollow(data_type: DataType) -> bool:
    """Whether there is a struct without fields in it."""
    parts = _parts_of(data_type)
    return (isinstance(data_type, StructType) and not parts) or any(map(_is_hollow, parts))


def _parts_of(data_type: DataType) -> Sequence[DataType]:
    match data_type:
        case StructType(fields=fields):
            return [field.type for field in fields]
        case ArrayType(element=element):
            return [element]
        case MapType(value=value):
            return [value]
        case _:
            return []


def _wire(data_type: DataType) -> pa.DataType:
    """As what Arrow's parser reads a type."""
    match data_type:
        case StructType(fields=fields):
            return pa.struct([pa.field(field.name, _wire(field.type)) for field in fields])
        case ArrayType(element=element):
            return pa.list_(_wire(element))
        case MapType(value=value):
            return pa.map_(pa.string(), _wire(value))
        case PrimitiveType(name="date" | "timestamp" | "timestamp_ntz" | "binary"):
            return pa.string()
        case DecimalType():
            return wide(to_arrow_type(data_type))
        case _:
            return to_arrow_type(data_type)


def _typed(array: pa.Array, data_type: DataType, zone: str) -> pa.Array:
    """What Arrow's parser gave in the type that was asked for; `ValueError` where a value is doubtful."""
    arrow = to_arrow_type(data_type)
    match data_type:
        case StructType(fields=fields):
            parts = [_typed(array.field(n), field.type, zone) for n, field in enumerate(fields)]
            return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=pc.is_null(array))
        case ArrayType(element=element):
            inner = _typed(array.values, element, zone)
            made = pa.ListArray.from_arrays(array.offsets, inner, mask=pc.is_null(array))
            return made.cast(arrow)
        case PrimitiveType(name="float" | "double"):
            # A name without quotes, or a number that is too large: told apart by who looks at the text.
            if pc.all(pc.is_finite(array)).as_py() is False:
                raise ValueError
            return array
        case DecimalType() | PrimitiveType(name="date" | "timestamp" | "timestamp_ntz" | "binary"):
            is_decimal = isinstance(data_type, DecimalType)
            made = narrow(array, arrow) if is_decimal else cells.parse(array, data_type, zone=zone)
            if made.null_count > array.null_count:
                raise ValueError
            return made
        case _:
            return array


def _converter(data_type: DataType, zone: str) -> Convert:
    match data_type:
        case StructType(fields=fields):
            return _struct(fields, zone)
        case ArrayType(element=element):
            return _array(element, zone)
        case MapType(value=value):
            return _map(value, zone)
        case PrimitiveType(name="string"):
            return _string
        case PrimitiveType(name="boolean"):
            return _boolean
        case PrimitiveType(name="byte" | "short" | "integer" | "long"):
            return _leaf(data_type, lambda value: isinstance(value, _Number) and _WHOLE.fullmatch(value) is not None)
        case PrimitiveType(name="float" | "double"):
            return _leaf(
                data_type,
                lambda value: isinstance(value, _Number | _Constant) or value in cells.JSON_NAMES,
            )
        case DecimalType():
            return _leaf(data_type, lambda value: not isinstance(value, _Constant))
        case _:
            return _leaf(data_type, lambda value: not isinstance(value, _Number | _Constant), zone)


def _leaf(data_type: DataType, is_kind: Callable[[str], bool], zone: str = "UTC") -> Convert:
    """A type whose values are texts or numbers; `is_kind` says which of them."""
    parse = cells.scalar(data_type, cells.JSON_NAMES, zone=zone)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        found = parse(value) if isinstance(value, str) and is_kind(value) else None
        if found is None:
            raise _Unfit(f"{_shown(value)} is no {data_type}")
        return found

    return convert


def _boolean(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    raise _Unfit(f"{_shown(value)} is no boolean")


def _string(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, _Constant):
        raise _Unfit(f"{value} is no JSON")
    if isinstance(value, str):
        return _whole_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise _Nested("It is not text")


def _whole_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unfit("It has half of a surrogate pair, which is no text") from None
    return str(value)


def _struct(fields: Sequence[StructField], zone: str) -> Convert:
    converts = {field.name: _converter(field.type, zone) for field in fields}

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, _Object):
            raise _Unfit(f"{_shown(value)} is no object")
        row: dict[str, Any] = dict.fromkeys(converts)
        seen = set()
        for name, one in value:
            if name not in converts:
                continue
            if name in seen:
                raise _Unfit(f"{name!r} is there twice")
            seen.add(name)
            row[name] = _at(name, converts[name], one)
        return row

    return convert


def _array(element: DataType, zone: str) -> Convert:
    inner = _converter(element, zone)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list) or isinstance(value, _Object):
            raise _Unfit(f"{_shown(value)} is no array")
        return [_at(n, inner, one) for n, one in enumerate(value)]

    return convert


def _map(item: DataType, zone: str) -> Convert:
    inner = _converter(item, zone)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, _Object):
            raise _Unfit(f"{_shown(value)} is no object")
        pairs: dict[str, Any] = {}
        for name, one in value:
            if _whole_text(name) in pairs:
                raise _Unfit(f"{name!r} is there twice")
            pairs[name] = _at(name, inner, one)
        return list(pairs.items())

    return convert


def _at(place: str | int, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except _Unfit as error:
        error.path.insert(0, place)
        raise


def _shown(value: Any) -> str:
    if isinstance(value, _Object):
        return "An object"
    if isinstance(value, list):
        return "An array"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    text = text if len(text) <= 100 else f"{text[:100]}…"
    return text if isinstance(value, _Number | _Constant) else repr(text)


def _text_at(text: bytes, path: Sequence[str | int]) -> str:
    """The part of a record's text that is the value at a path."""
    raw = msgspec.Raw(text)
    for step in path:
        try:
            raw = _RAW_FIELDS.decode(raw)[step] if isinstance(step, str) else _RAW_ITEMS.decode(raw)[step]
        except (msgspec.MsgspecError, KeyError):
            raise _Unfit("It is not JSON that has a text") from None
    return bytes(raw).decode()


def _set(found: Any, path: Sequence[str | int], value: str) -> None:
    """Puts the text of a value in its place."""
    for step in path[:-1]:
        found = found[step] if isinstance(step, int) else dict(found)[step]
    last = path[-1]
    if isinstance(last, int):
        found[last] = value
    else:
        found[:] = [(name, value if name == last else one) for name, one in found]


def _reason(error: Exception) -> str:
    match error:
        case UnicodeDecodeError():
            return f"It is not UTF-8: {error.reason} at byte {error.start}"
        case json.JSONDecodeError():
            return f"It is not JSON: {error.msg} at character {error.pos + 1}"
        case RecursionError():
            return "It is nested too deeply"
        case _:
            return str(error)
