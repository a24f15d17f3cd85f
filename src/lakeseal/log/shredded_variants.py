"""Shredded variants: what a file keeps of a variant in typed columns, put together again as the variant's two binaries.

A shredded variant is a struct of `metadata`, `value` and `typed_value`. Where `typed_value` is there, it is the value,
of a simple type, or an array whose elements are such structs, or an object whose fields are; `value` then holds the
fields of the object that have no column. Where only `value` is there, it is the value itself. A field without either is
not in its object; an element or a whole variant without either is the variant null. The dictionary stays as it is: it
has the names of all fields, those in columns too.

`plan` looks at the types and raises `UnsupportedType` for what the format does not have; values that make no variant
raise `pa.ArrowInvalid`, as other values do that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakeseal.errors import UnsupportedType
from lakeseal.protocol import variant
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import VARIANT, dotted

TYPED_VALUE = "typed_value"

_EXACT = Context(prec=40)

_Dictionaries = Sequence[bytes | None]
"""The metadata that belongs to each row."""
_Encode = Callable[[pa.Array, _Dictionaries], list[bytes | None]]
"""Of an array's rows the values; None for those that are not there."""


def plan(source: pa.StructType, path: tuple[str, ...]) -> Callable[[pa.Array], pa.Array]:
    """A function from arrays of a file's shredded variants to arrays of variants."""
    encode = _group(source, path)
    arrow = to_arrow_type(VARIANT)

    def convert(array: pa.StructArray) -> pa.StructArray:
        mask = array.is_null()
        dictionaries = _field(array, "metadata").to_pylist()
        for missing, dictionary in zip(mask.to_pylist(), dictionaries, strict=True):
            if dictionary is None and not missing:
                raise pa.ArrowInvalid("a variant has no metadata")
        try:
            values = encode(array, dictionaries)
        except ValueError as error:
            if isinstance(error, pa.ArrowInvalid):
                raise
            raise pa.ArrowInvalid(f"a shredded variant cannot be put together: {error}") from error
        whole = [variant.NULL if v is None else v for v in values]
        children = {"metadata": pa.array(dictionaries, pa.binary()), "value": pa.array(whole, pa.binary())}
        return pa.StructArray.from_arrays([children[f.name] for f in arrow], fields=list(arrow), mask=mask)

    return convert


def _group(source: pa.DataType, path: tuple[str, ...]) -> _Encode:
    """Of a struct of `value` and `typed_value`, of which either may be left out."""
    if not types.is_struct(source):
        raise _unsupported(source, path)
    has_value = source.get_field_index("value") >= 0
    place = source.get_field_index(TYPED_VALUE)
    typed = None if place < 0 else _typed(source.field(place).type, path)

    def encode(array: pa.StructArray, dictionaries: _Dictionaries) -> list[bytes | None]:
        left: list[bytes | None] = [None] * len(array)
        if has_value:
            left = _field(array, "value").cast(pa.binary()).to_pylist()
        return left if typed is None else typed(_field(array, TYPED_VALUE), dictionaries, left)

    return encode


_Typed = Callable[[pa.Array, _Dictionaries, list[bytes | None]], list[bytes | None]]


def _typed(source: pa.DataType, path: tuple[str, ...]) -> _Typed:
    if types.is_struct(source):
        return _object(source, path)
    if types.is_list(source) or types.is_large_list(source):
        return _array(source, path)
    simple = _simple(source, path)

    def encode(array: pa.Array, _: _Dictionaries, left: list[bytes | None]) -> list[bytes | None]:
        found = simple(array)
        if any(a is not None and b is not None for a, b in zip(found, left, strict=True)):
            raise ValueError("it has two values")
        return [a if b is None else b for a, b in zip(found, left, strict=True)]

    return encode


def _object(source: pa.StructType, path: tuple[str, ...]) -> _Typed:
    columns = [(field.name, _group(field.type, (*path, field.name))) for field in source]

    def encode(array: pa.StructArray, dictionaries: _Dictionaries, left: list[bytes | None]) -> list[bytes | None]:
        shredded = [
            (name, column(pc.struct_field(array, [n]), dictionaries)) for n, (name, column) in enumerate(columns)
        ]
        found = list(left)
        for row, is_object in enumerate(array.is_valid().to_pylist()):
            if is_object:
                found[row] = _composed(row, shredded, dictionaries[row], left[row])
        return found

    return encode


def _composed(
    row: int, shredded: list[tuple[str, list[bytes | None]]], dictionary: bytes | None, left: bytes | None
) -> bytes:
    if dictionary is None:
        raise ValueError("it has no metadata")
    names = variant.names(dictionary)
    rest = {} if left is None else variant.fields(left, names)
    if rest is None:
        raise ValueError("it is an object and another value")
    own = {name: value for name, values in shredded if (value := values[row]) is not None}
    twice = own.keys() & rest.keys()
    if twice:
        raise ValueError(f"it has the field {min(twice)!r} twice")
    return variant.composed({**rest, **own}, {name: n for n, name in enumerate(names)})


def _array(source: pa.ListType | pa.LargeListType, path: tuple[str, ...]) -> _Typed:
    element = _group(source.value_type, (*path, "element"))

    def encode(array: pa.ListArray, dictionaries: _Dictionaries, left: list[bytes | None]) -> list[bytes | None]:
        offsets = array.offsets.to_pylist()
        first, last = offsets[0], offsets[-1]
        is_array = array.is_valid().to_pylist()
        owners: list[bytes | None] = []
        for row, (start, end) in enumerate(pairwise(offsets)):
            owners += [dictionaries[row]] * (end - start)
        # An element that is nowhere is there all the same.
        values = [variant.NULL if v is None else v for v in element(array.values.slice(first, last - first), owners)]
        found = list(left)
        for row, yes in enumerate(is_array):
            if yes and left[row] is not None:
                raise ValueError("it is an array and another value")
            if yes:
                found[row] = variant.array(values[offsets[row] - first : offsets[row + 1] - first])
        return found

    return encode


def _simple(source: pa.DataType, path: tuple[str, ...]) -> Callable[[pa.Array], list[bytes | None]]:
    if isinstance(source, pa.BaseExtensionType):
        inner = _simple(source.storage_type, path)
        return lambda array: inner(array.storage)
    if types.is_dictionary(source):
        plain = _simple(source.value_type, path)
        return lambda array: plain(array.cast(source.value_type))
    one, stored = _encoding(source, path)
    return lambda array: [
        None if value is None else one(value) for value in (array if stored is None else array.cast(stored)).to_pylist()
    ]


def _encoding(source: pa.DataType, path: tuple[str, ...]) -> tuple[Callable[[Any], bytes], pa.DataType | None]:
    """How one value is encoded, and as what it is looked at."""
    if types.is_boolean(source):
        return variant.boolean, None
    if types.is_signed_integer(source):
        return lambda value: variant.integer(value, source.bit_width), None
    if types.is_float32(source):
        return variant.single, None
    if types.is_float64(source):
        return variant.double, None
    if types.is_decimal(source) and source.precision <= 38:
        return lambda value: variant.decimal(_unscaled(value, source.scale), source.precision, source.scale), None
    if types.is_date(source):
        return _whole(11, 4), pa.int32()
    if types.is_timestamp(source) and source.unit in ("us", "ns"):
        zoned = 0 if source.tz is not None else 1
        return _whole((12 if source.unit == "us" else 18) + zoned, 8), pa.int64()
    if types.is_time64(source) and source.unit == "us":
        return _whole(17, 8), pa.int64()
    if types.is_string(source) or types.is_large_string(source) or types.is_string_view(source):
        return variant.text, pa.large_binary()
    if types.is_binary(source) or types.is_large_binary(source) or types.is_binary_view(source):
        return variant.binary, None
    if types.is_fixed_size_binary(source) and source.byte_width == 16:
        return lambda value: variant.primitive(20, value), None
    raise _unsupported(source, path)


def _whole(number: int, size: int) -> Callable[[Any], bytes]:
    return lambda value: variant.primitive(number, value.to_bytes(size, "little", signed=True))


def _unscaled(value: Decimal, scale: int) -> int:
    return int(value.scaleb(scale, _EXACT))


def _field(array: pa.StructArray, name: str) -> pa.Array:
    """Null where its struct is: below nulls anything may lie."""
    return pc.struct_field(array, [array.type.get_field_index(name)])


def _unsupported(source: pa.DataType, path: tuple[str, ...]) -> UnsupportedType:
    return UnsupportedType(
        f"The variant is shredded as {source} in this file, which no variant can be",
        hint="Write the file anew with a client that can read it, or leave this column out",
        column=dotted(path),
    )
