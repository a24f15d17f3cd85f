"""A table's schema in the words of the catalog's protocol: the log's JSON with hyphens, and a list of columns."""

from __future__ import annotations

from typing import Any

import msgspec

from lakeseal.catalog.unity.messages import ColumnInfo
from lakeseal.protocol.schema import DataType, StructField, StructType, type_to_json

_HYPHENS = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
_NAMES = {"integer": "INT", "void": "NULL"}


def with_hyphens(schema: StructType) -> dict[str, Any]:
    found = _renamed(type_to_json(schema))
    assert isinstance(found, dict)
    return found


def _renamed(value: Any) -> Any:
    """Only of types: what a field's metadata says is its writer's."""
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {_HYPHENS.get(key, key): one if key == "metadata" else _renamed(one) for key, one in value.items()}


def column_infos(schema: StructType, partition_columns: tuple[str, ...]) -> tuple[ColumnInfo, ...]:
    by_place = {name.lower(): place for place, name in enumerate(partition_columns)}
    return tuple(
        ColumnInfo(
            name=field.name,
            type_text=str(field.type),
            type_json=_json(field),
            type_name=_name(field.type),
            position=position,
            nullable=field.nullable,
            partition_index=by_place.get(field.name.lower()),
        )
        for position, field in enumerate(schema.fields)
    )


def _json(field: StructField) -> str:
    return msgspec.json.encode(type_to_json(StructType((field,)))["fields"][0]).decode()


def _name(kind: DataType) -> str:
    said = type_to_json(kind)
    name = str(said["type"] if isinstance(said, dict) else said).partition("(")[0]
    return _NAMES.get(name, name.upper())
