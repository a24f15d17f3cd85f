"""Delta's schema ↔ Arrow's.

`to_arrow` gives the one Arrow form that Lakeseal reads and writes data in: microsecond timestamps (UTC or without a
zone), `decimal128`, plain strings, lists and maps. `from_arrow` takes what users bring and says which Delta type holds
it without loss of range: unsigned integers widen, views, large types, dictionaries and runs become plain, other units
and zones of time are normalised. `to_arrow(from_arrow(s))` is therefore the schema to cast such data to. What has no
Delta type raises `UnsupportedType` with the column's path.

Field metadata travels both ways; values that are not strings travel as JSON, and of those only Delta's own keys come
back as what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import types

from lakeseal.errors import InvalidArgument, UnsupportedType
from lakeseal.protocol import schema as delta
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructField, StructType, VariantType

PARQUET_FIELD_ID = b"PARQUET:field_id"

_TO_ARROW = {
    delta.STRING: pa.string(),
    delta.LONG: pa.int64(),
    delta.INTEGER: pa.int32(),
    delta.SHORT: pa.int16(),
    delta.BYTE: pa.int8(),
    delta.FLOAT: pa.float32(),
    delta.DOUBLE: pa.float64(),
    delta.BOOLEAN: pa.bool_(),
    delta.BINARY: pa.binary(),
    delta.DATE: pa.date32(),
    delta.TIMESTAMP: pa.timestamp("us", "UTC"),
    delta.TIMESTAMP_NTZ: pa.timestamp("us"),
    delta.VOID: pa.null(),
}
_FROM_ARROW: Mapping[pa.DataType, DataType] = {arrow: primitive for primitive, arrow in _TO_ARROW.items()} | {
    pa.uint8(): delta.SHORT,
    pa.uint16(): delta.INTEGER,
    pa.uint32(): delta.LONG,
    pa.float16(): delta.FLOAT,
    pa.large_string(): delta.STRING,
    pa.string_view(): delta.STRING,
    pa.large_binary(): delta.BINARY,
    pa.binary_view(): delta.BINARY,
    pa.date64(): delta.DATE,
}
# A number of days, or so; and bytes that only their maker can read, such as DuckDB's largest numbers.
_NOT_ITS_STORAGE = ("pandas.period", "arrow.opaque")
# The mark is Spark's: a variant that Spark hands over as Arrow carries it too, and one of ours is a variant to Spark.
_VARIANT_MARK = {b"variant": b"true"}
_VARIANT = pa.struct([pa.field("metadata", pa.binary(), metadata=_VARIANT_MARK), pa.field("value", pa.binary())])

_JSON_KEYS = frozenset(
    {
        delta.COLUMN_ID,
        delta.NESTED_IDS,
        "delta.identity.start",
        "delta.identity.step",
        "delta.identity.highWaterMark",
        "delta.identity.allowExplicitInsert",
        "delta.typeChanges",
    }
)


def to_arrow(schema: StructType, *, field_ids: bool = False) -> pa.Schema:
    """`field_ids` adds the column ids where Parquet writers look for them."""
    return pa.schema([_to_field(f, field_ids) for f in schema.fields])


def to_arrow_type(data_type: DataType, *, field_ids: bool = False) -> pa.DataType:
    match data_type:
        case DecimalType(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case VariantType():
            return _VARIANT
        case ArrayType(element=element, contains_null=nullable):
            return pa.list_(
                pa.field("element", to_arrow_type(element, field_ids=field_ids), _nullable(element, nullable))
            )
        case MapType(key=key, value=value, value_contains_null=nullable):
            if key == delta.VOID:
                raise UnsupportedType(
                    f"Arrow has no type for {data_type}", hint="Give the map's keys a type; no row can have such a key"
                )
            return pa.map_(
                pa.field("key", to_arrow_type(key, field_ids=field_ids), nullable=False),
                pa.field("value", to_arrow_type(value, field_ids=field_ids), _nullable(value, nullable)),
            )
        case StructType(fields=fields):
            return pa.struct([_to_field(f, field_ids) for f in fields])
        case primitive:
            return _TO_ARROW[primitive]


def from_arrow(schema: pa.Schema) -> StructType:
    return _from_fields(list(schema), (), 1)


def from_arrow_type(arrow: pa.DataType) -> DataType:
    """The Delta type that holds values of an Arrow type."""
    return _from_type(arrow, (), 1)


def _to_field(field: StructField, field_ids: bool) -> pa.Field:
    metadata = {
        key.encode(): value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        for key, value in field.metadata.items()
    }
    if field_ids and field.field_id is not None:
        metadata[PARQUET_FIELD_ID] = str(field.field_id).encode()
    try:
        arrow = to_arrow_type(field.type, field_ids=field_ids)
    except UnsupportedType as error:
        raise error.at(column=field.name) from None
    return pa.field(field.name, arrow, _nullable(field.type, field.nullable), metadata or None)


def _nullable(data_type: DataType, nullable: bool) -> bool:
    # Null is the only value that void has, and Arrow does not let it be forbidden.
    return nullable or data_type == delta.VOID


def _from_fields(fields: list[pa.Field], path: tuple[str, ...], depth: int) -> StructType:
    twice = delta.duplicate_name(tuple(f.name for f in fields))
    if twice is not None:
        raise InvalidArgument(
            f"Two columns are called {twice!r} without regard to case",
            hint="Rename or drop one of them",
            column=delta.dotted((*path, twice)),
        )
    return StructType(
        tuple(
            StructField(f.name, _from_type(f.type, (*path, f.name), depth + 1), f.nullable, _from_metadata(f))
            for f in fields
        )
    )


def _from_metadata(field: pa.Field) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for key, value in (field.metadata or {}).items():
        name, text = key.decode(errors="replace"), value.decode(errors="replace")
        if name.startswith("ARROW:extension:"):
            # An extension's values are stored as its storage type, so the label would be untrue.
            continue
        metadata[name] = _from_json(text) if name in _JSON_KEYS else text
    return metadata


def _from_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _from_type(arrow: pa.DataType, path: tuple[str, ...], depth: int) -> DataType:
    if depth > delta.MAX_DEPTH:
        raise InvalidArgument(f"The schema is nested deeper than {delta.MAX_DEPTH} levels", hint="Flatten the schema")
    simple = _FROM_ARROW.get(arrow)
    if simple is not None:
        return simple
    if types.is_timestamp(arrow):
        return delta.TIMESTAMP_NTZ if arrow.tz is None else delta.TIMESTAMP
    if types.is_decimal(arrow):
        return _from_decimal(arrow, path)
    if types.is_fixed_size_binary(arrow):
        return delta.BINARY
    if types.is_struct(arrow):
        fields = [arrow.field(n) for n in range(arrow.num_fields)]
        return delta.VARIANT if _is_variant(fields) else _from_fields(fields, path, depth)
    if types.is_map(arrow):
        return MapType(
            _from_type(arrow.key_type, (*path, "key"), depth + 1),
            _from_type(arrow.item_type, (*path, "value"), depth + 1),
            arrow.item_field.nullable,
        )
    if _is_list(arrow):
        return ArrayType(_from_type(arrow.value_type, (*path, "element"), depth + 1), arrow.value_field.nullable)
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return _from_type(arrow.value_type, path, depth + 1)
    if isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name not in _NOT_ITS_STORAGE:
        return _from_type(arrow.storage_type, path, depth + 1)
    raise UnsupportedType(f"Delta has no type for Arrow's {arrow}", hint=_hint(arrow), column=delta.dotted(path))


def _from_decimal(arrow: pa.DataType, path: tuple[str, ...]) -> DecimalType:
    try:
        return DecimalType(arrow.precision, arrow.scale)
    except UnsupportedType as error:
        raise error.at(column=delta.dotted(path)) from None


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_fixed_size_list(arrow)
        or types.is_list_view(arrow)
        or types.is_large_list_view(arrow)
    )


def _is_variant(fields: list[pa.Field]) -> bool:
    return {f.name for f in fields} == {"metadata", "value"} and any(
        f.name == "metadata" and (f.metadata or {}).get(b"variant") == b"true" for f in fields
    )


def _hint(arrow: pa.DataType) -> str:
    if types.is_uint64(arrow):
        return "Cast the column to int64 if its values fit, or to decimal128(20, 0)"
    if types.is_time(arrow):
        return "Cast the column to a timestamp, to an integer or to a string"
    if types.is_duration(arrow) or types.is_interval(arrow):
        return "Cast the column to an integer and name its unit in the column's name"
    return "Cast the column to a type that Delta has, or leave it out"
