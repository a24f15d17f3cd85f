"""How the columns of a data file become the table's.

`Projection.of` compares a table's columns with a file's schema once; `apply` then turns each batch of the file into
columns of the table's types, in the table's order. It finds columns by name (or physical name, or field id, as the
table's column mapping says, at every level), fills in nulls for columns that the file lacks, and converts what a table
may hold after its schema changed or after another client wrote it: wider types, other units of time, strings without
their annotation, lists and maps of any encoding.

A column that cannot become the table's raises `BrokenDataFile` with its path, when the schemas are compared wherever
that tells; a value that does not fit raises it when it is met.

All columns are nullable in the result, whatever the table says: a file may be older than a NOT NULL column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import BrokenDataFile
from lakeseal.log import shredded_variants
from lakeseal.log.shredded_variants import TYPED_VALUE
from lakeseal.protocol.arrow import PARQUET_FIELD_ID, to_arrow_type
from lakeseal.protocol.decimal_text import recast
from lakeseal.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
    dotted,
)

Mapping = Literal["none", "name", "id"]
Path = tuple[str, ...]
Convert = Callable[[pa.Array], pa.Array]

_HINT = "The file was not written for this schema: restore the file, or the table to an earlier version"


def plain_field(field: StructField) -> pa.Field:
    """A column of results: nullable throughout, and without the metadata that is about the table, not the data."""
    return pa.field(field.name, to_arrow_type(_plain(field.type)))


class Projection(Struct, frozen=True, kw_only=True):
    """The columns to read from one file, and what to make of them."""

    sources: tuple[str | None, ...]
    """For each wanted column the file's column, or None if the file has none."""
    converts: tuple[Convert, ...]
    fields: tuple[pa.Field, ...]

    @classmethod
    def of(cls, wanted: Sequence[StructField], file: pa.Schema, mapping: Mapping) -> Projection:
        if mapping == "id" and wanted and not any(_field_id(f) is not None for f in file):
            raise BrokenDataFile(
                "The file has no field ids, by which the table finds its columns",
                hint="Rewrite the file with a client that supports column mapping by id",
            )
        sources: list[str | None] = []
        converts: list[Convert] = []
        for column in wanted:
            place = _find(column, list(file), mapping)
            sources.append(None if place is None else file.field(place).name)
            converts.append(
                _nulls(column.type)
                if place is None
                else _plan(file.field(place).type, column.type, mapping, (column.name,))
            )
        fields = tuple(plain_field(column) for column in wanted)
        return cls(sources=tuple(sources), converts=tuple(converts), fields=fields)

    @property
    def columns(self) -> list[str]:
        """The file's columns to read."""
        return list(dict.fromkeys(name for name in self.sources if name is not None))

    def apply(self, batch: pa.RecordBatch) -> list[pa.Array]:
        columns = []
        for source, convert, field in zip(self.sources, self.converts, self.fields, strict=True):
            if source is None:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            place = batch.schema.get_field_index(source)
            if place < 0:
                raise BrokenDataFile(f"The file has several columns called {source!r}", column=field.name)
            try:
                columns.append(convert(batch.column(place)))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise BrokenDataFile(
                    f"A value does not fit the table's type {field.type}: {error}", hint=_HINT, column=field.name
                ) from error
        return columns


def _plain(data_type: DataType) -> DataType:
    match data_type:
        case ArrayType(element=element):
            return ArrayType(_plain(element))
        case MapType(key=key, value=value):
            return MapType(_plain(key), _plain(value))
        case StructType(fields=fields):
            return StructType(tuple(StructField(f.name, _plain(f.type)) for f in fields))
        case _:
            return data_type


def _find(column: StructField, fields: Sequence[pa.Field], mapping: Mapping) -> int | None:
    if mapping == "id":
        wanted = column.field_id
        return next((n for n, f in enumerate(fields) if wanted is not None and _field_id(f) == wanted), None)
    name = column.physical_name if mapping == "name" else column.name
    exact = [n for n, f in enumerate(fields) if f.name == name]
    # Spark finds columns in any case, so a file may differ in case from a table that was renamed so.
    return next(iter(exact or [n for n, f in enumerate(fields) if f.name.lower() == name.lower()]), None)


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(PARQUET_FIELD_ID)
    return int(text) if text is not None and int(text) >= 0 else None


def _nulls(data_type: DataType) -> Convert:
    arrow = to_arrow_type(_plain(data_type))
    return lambda array: pa.nulls(len(array), arrow)


def _plan(source: pa.DataType, target: DataType, mapping: Mapping, path: Path) -> Convert:
    """A function from arrays of a file's type to arrays of the table's."""
    if isinstance(source, pa.BaseExtensionType):
        inner = _plan(source.storage_type, target, mapping, path)
        return lambda array: inner(array.storage)
    if pa.types.is_dictionary(source) or pa.types.is_run_end_encoded(source):
        plain = _plan(source.value_type, target, mapping, path)
        return lambda array: plain(array.cast(source.value_type))
    if pa.types.is_null(source):
        return _nulls(target)
    match target:
        case StructType():
            return _plan_struct(source, target, mapping, path)
        case ArrayType():
            return _plan_list(source, target, mapping, path)
        case MapType():
            return _plan_map(source, target, mapping, path)
        case VariantType():
            return _plan_variant(source, path)
        case PrimitiveType(name="void"):
            return _nulls(target)
        case _:
            return convert_simple(source, target, path)


def _plan_struct(source: pa.DataType, target: StructType, mapping: Mapping, path: Path) -> Convert:
    if not pa.types.is_struct(source):
        raise _mismatch(source, target, path)
    plans: list[tuple[int, Convert] | None] = []
    for column in target.fields:
        place = _find(column, list(source), mapping)
        plans.append(
            None
            if place is None
            else (place, _plan(source.field(place).type, column.type, mapping, (*path, column.name)))
        )
    arrow = to_arrow_type(_plain(target))

    def convert(array: pa.StructArray) -> pa.StructArray:
        children = [
            pa.nulls(len(array), arrow.field(n).type) if plan is None else plan[1](array.field(plan[0]))
            for n, plan in enumerate(plans)
        ]
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=array.is_null())

    return convert


def _plan_list(source: pa.DataType, target: ArrayType, mapping: Mapping, path: Path) -> Convert:
    if pa.types.is_fixed_size_list(source):
        listed = _plan_list(pa.list_(source.value_field), target, mapping, path)
        return lambda array: listed(array.cast(pa.list_(source.value_field)))
    if not (pa.types.is_list(source) or pa.types.is_large_list(source)):
        raise _mismatch(source, target, path)
    element = _plan(source.value_type, target.element, mapping, (*path, "element"))
    arrow = to_arrow_type(_plain(target))

    def convert(array: pa.ListArray) -> pa.ListArray:
        offsets, values = _unsliced(array.offsets, array.values)
        return pa.ListArray.from_arrays(offsets, element(values), type=arrow, mask=array.is_null())

    return convert


def _plan_map(source: pa.DataType, target: MapType, mapping: Mapping, path: Path) -> Convert:
    if not pa.types.is_map(source):
        raise _mismatch(source, target, path)
    key = _plan(source.key_type, target.key, mapping, (*path, "key"))
    value = _plan(source.item_type, target.value, mapping, (*path, "value"))
    arrow = to_arrow_type(_plain(target))

    def convert(array: pa.MapArray) -> pa.MapArray:
        offsets, keys = _unsliced(array.offsets, array.keys)
        _, items = _unsliced(array.offsets, array.items)
        return pa.MapArray.from_arrays(offsets, key(keys), value(items), type=arrow, mask=array.is_null())

    return convert


def _unsliced(offsets: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets that start at zero, and just the values that they span: nulls are masked only over such."""
    numbers = offsets.to_numpy()
    start, end = int(numbers[0]), int(numbers[-1])
    return pa.array((numbers - start).astype(np.int32)), values.slice(start, end - start)


def _plan_variant(source: pa.DataType, path: Path) -> Convert:
    names = {f.name for f in source} if pa.types.is_struct(source) else set()
    if not {"metadata", "value"} <= names and not {"metadata", TYPED_VALUE} <= names:
        raise _mismatch(source, VariantType(), path)
    if TYPED_VALUE in names:
        return shredded_variants.plan(source, path)
    arrow = to_arrow_type(VariantType())

    def convert(array: pa.StructArray) -> pa.StructArray:
        children = [array.field(f.name).cast(f.type) for f in arrow]
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=array.is_null())

    return convert


def convert_simple(source: pa.DataType, target: DataType, path: Path) -> Convert:
    """Of a type without parts; `BrokenDataFile` if its values may not become the other's."""
    arrow = to_arrow_type(target)
    if source == arrow:
        return lambda array: array
    if not _convertible(source, target):
        raise _mismatch(source, target, path)
    if pa.types.is_timestamp(source):
        return lambda array: _to_micros(array).cast(pa.int64()).cast(arrow)
    return lambda array: recast(array, arrow)


def _convertible(source: pa.DataType, target: DataType) -> bool:
    types = pa.types
    match target:
        case PrimitiveType(name="byte" | "short" | "integer" | "long"):
            # Narrower than stored is for clients that store every integer as INT32; values are checked.
            return bool(types.is_integer(source))
        case PrimitiveType(name="float"):
            return bool(types.is_float16(source))
        case PrimitiveType(name="double"):
            return bool(types.is_floating(source) or (types.is_integer(source) and source.bit_width <= 32))
        case DecimalType():
            return bool(types.is_integer(source) or types.is_decimal(source))
        case PrimitiveType(name="string" | "binary"):
            return bool(
                types.is_string(source)
                or types.is_large_string(source)
                or types.is_string_view(source)
                or types.is_binary(source)
                or types.is_large_binary(source)
                or types.is_binary_view(source)
                or types.is_fixed_size_binary(source)
            )
        case PrimitiveType(name="date"):
            return bool(types.is_date(source))
        case PrimitiveType(name="timestamp"):
            return bool(types.is_timestamp(source))
        case PrimitiveType(name="timestamp_ntz"):
            return bool(types.is_timestamp(source) or types.is_date(source))
        case _:
            return False


def _to_micros(array: pa.Array) -> pa.Array:
    unit = array.type.unit
    naive = array.cast(pa.int64()).cast(pa.timestamp(unit))
    if unit == "ns":
        # Casting would round towards 1970, which is up for what lies before it.
        naive = pc.floor_temporal(naive, unit="microsecond")
    return naive.cast(pa.timestamp("us"))


def _mismatch(source: pa.DataType, target: DataType, path: Path) -> BrokenDataFile:
    return BrokenDataFile(
        f"The file stores {source}, which cannot be read as the table's type {target}", hint=_HINT, column=dotted(path)
    )
