"""Spark's schema ↔ Delta's.

Both are the same JSON, so nothing is lost either way: `from_spark` keeps names, nullability and metadata, and turns
`char(n)` and `varchar(n)` into strings that remember them, as Delta does. A type that no Delta table can hold raises
`UnsupportedType` with its name and the column's path: intervals, times, collated strings, user-defined types.

`data_schema` is for data on its way into a table: all of it nullable (Spark says "not null" of whatever it computes),
without what Spark or other tables noted about its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyspark.sql.types as spark

from lakeseal.errors import SchemaMismatch, UnsupportedType
from lakeseal.protocol.schema import (
    CHAR_VARCHAR,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    dotted,
    duplicate_name,
    type_to_json,
)

Path = tuple[str, ...]

_STRINGS = ("string", "char", "varchar", "binary")
_NUMBERS = ("long", "integer", "short", "byte", "float", "double", "decimal", "boolean")
_STORED = {*_STRINGS, *_NUMBERS, "date", "timestamp", "timestamp_ntz", "variant", "void", "struct", "array", "map"}
# Notes of Spark's own planning, and of other tables' logs.
_FOREIGN_NOTES = ("__", "delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT")


def from_spark(schema: spark.StructType) -> StructType:
    for path, data_type in _types(schema, ()):
        _check(data_type, path)
    return StructType.from_json({"type": "struct", "fields": [_field(field) for field in schema.fields]})


def to_spark(schema: StructType) -> spark.StructType:
    return spark.StructType.fromJson(type_to_json(schema))


def spark_type(data_type: DataType) -> spark.DataType:
    return to_spark(StructType((StructField("it", data_type),))).fields[0].dataType


def data_schema(schema: spark.StructType) -> StructType:
    own = _bare(from_spark(schema))
    assert isinstance(own, StructType)
    return own


def _types(data_type: spark.DataType, path: Path) -> Iterator[tuple[Path, spark.DataType]]:
    yield path, data_type
    match data_type:
        case spark.StructType():
            for field in data_type.fields:
                yield from _types(field.dataType, (*path, field.name))
        case spark.ArrayType():
            yield from _types(data_type.elementType, (*path, "element"))
        case spark.MapType():
            yield from _types(data_type.keyType, (*path, "key"))
            yield from _types(data_type.valueType, (*path, "value"))
        case _:
            return


def _check(data_type: spark.DataType, path: Path) -> None:
    name, hint = data_type.simpleString(), "Cast it to a string, a number or a timestamp, or leave it out"
    match data_type:
        case spark.StructType():
            twice = duplicate_name(tuple(data_type.fieldNames()))
            if twice is None:
                return
            raise SchemaMismatch(
                f"Two columns are called {twice!r} without regard to case",
                column=dotted((*path, twice)),
                hint="Rename or drop one of them",
            )
        case spark.UserDefinedType():
            name, hint = type(data_type).__name__, "Select the parts that it is made of"
        case spark.DayTimeIntervalType() | spark.YearMonthIntervalType() | spark.CalendarIntervalType():
            hint = "Cast it to a number and name its unit in the column's name"
        case spark.StringType() if data_type.collation != "UTF8_BINARY":
            hint = "Add COLLATE UTF8_BINARY to the column: a table compares strings by their bytes"
        case _ if data_type.typeName() in _STORED:
            return
    raise UnsupportedType(f"A Delta table has no columns of Spark's type {name!r}", column=dotted(path), hint=hint)


def _field(field: spark.StructField) -> dict[str, Any]:
    metadata = dict(field.metadata or {})
    if any(isinstance(t, spark.CharType | spark.VarcharType) for _, t in _types(field.dataType, ())):
        metadata[CHAR_VARCHAR] = field.dataType.simpleString()
    return {
        "name": field.name,
        "type": _type(field.dataType.jsonValue()),
        "nullable": field.nullable,
        "metadata": metadata,
    }


def _type(value: Any) -> Any:
    """The JSON of a type with plain strings for all that are limited in length."""
    match value:
        case str():
            return "string" if value.startswith(("char(", "varchar(")) else value
        case list():
            return [_type(part) for part in value]
        case Mapping():
            kept = {"name", "metadata"}
            return {key: part if key in kept else _type(part) for key, part in value.items()}
        case _:
            return value


def _bare(data_type: DataType) -> DataType:
    match data_type:
        case StructType(fields=fields):
            return StructType(tuple(StructField(f.name, _bare(f.type), True, _own_notes(f.metadata)) for f in fields))
        case ArrayType(element=element):
            return ArrayType(_bare(element))
        case MapType(key=key, value=value):
            return MapType(_bare(key), _bare(value))
        case _:
            return data_type


def _own_notes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key == CHAR_VARCHAR or not key.startswith(_FOREIGN_NOTES)}
