"""`merge_schema`: the table's metadata with room for columns that so far only the data has.

New columns come behind the others, nested ones behind those of their struct; all of them may be null, since rows that
are there already have no value for them. A column of type void takes the type that the data brings. Where the table has
type widening on, a column takes the wider type of the same kind that the data brings. Types of other columns stay;
their values go in by store assignment. Where the table maps columns, new ones get ids and physical names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import msgspec

from lakeseal.commit.alter_columns import found, refuse_used, widened
from lakeseal.errors import SchemaMismatch
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.identity import identity_of
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import (
    COLUMN_ID,
    PHYSICAL_NAME,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    dotted,
)
from lakeseal.protocol.type_widening import is_growth

Path = tuple[str, ...]
Labels = Callable[[], dict[str, object]]


def merge_schema(metadata: Metadata, data: StructType) -> Metadata:
    """The same metadata if the table has all columns already."""
    table = metadata.schema
    properties = TableProperties.of(metadata)
    last_id = max(properties.column_mapping_max_id, table.max_column_id())

    def labels() -> dict[str, object]:
        nonlocal last_id
        if properties.column_mapping_mode == "none":
            return {}
        last_id += 1
        return {COLUMN_ID: last_id, PHYSICAL_NAME: f"col-{uuid4()}"}

    merged = _merge_struct(table, data, (), labels)
    if properties.type_widening:
        for path, wider in _wider(table, data, ()):
            if identity_of(found(table, path[:1])[1]) is None:
                refuse_used(metadata, path, "changed")
                merged = widened(merged, path, wider)
    if merged == table:
        return metadata
    configuration = dict(metadata.configuration)
    if properties.column_mapping_mode != "none":
        configuration[TableProperties.column_mapping_max_id.key] = str(last_id)
    return msgspec.structs.replace(metadata, schema_string=merged.to_json(), configuration=configuration)


def _wider(table: DataType, data: DataType, path: Path) -> Iterator[tuple[Path, DataType]]:
    """Where the data has a wider type of the same kind."""
    match table, data:
        case StructType(), StructType():
            for field in table.fields:
                given = data.field(field.name)
                if given is not None:
                    yield from _wider(field.type, given.type, (*path, field.name))
        case ArrayType(), ArrayType():
            yield from _wider(table.element, data.element, (*path, "element"))
        case MapType(), MapType():
            yield from _wider(table.key, data.key, (*path, "key"))
            yield from _wider(table.value, data.value, (*path, "value"))
        case _ if is_growth(table, data):
            yield path, data
        case _:
            return


def _merge_struct(table: StructType, data: StructType, path: Path, labels: Labels) -> StructType:
    fields = []
    for field in table.fields:
        given = data.field(field.name)
        merged = field.type if given is None else _merge(field.type, given.type, (*path, field.name), labels)
        fields.append(StructField(field.name, merged, field.nullable, field.metadata))
    fields += [_new_field(f, (*path, f.name), labels) for f in data.fields if table.field(f.name) is None]
    return StructType(tuple(fields))


def _merge(table: DataType, data: DataType, path: Path, labels: Labels) -> DataType:
    match table, data:
        case StructType(), StructType():
            return _merge_struct(table, data, path, labels)
        case ArrayType(), ArrayType():
            element = _merge(table.element, data.element, (*path, "element"), labels)
            return ArrayType(element, table.contains_null)
        case MapType(), MapType():
            value = _merge(table.value, data.value, (*path, "value"), labels)
            return MapType(table.key, value, table.value_contains_null)
        case _ if table == VOID:
            return _new_type(data, path, labels) if data != VOID else VOID
        case _:
            return table


def _new_field(given: StructField, path: Path, labels: Labels) -> StructField:
    # Whatever else the data's own metadata says is about where it came from.
    comment = {name: text for name, text in given.metadata.items() if name == "comment"}
    label = labels()
    return StructField(given.name, _new_type(given.type, path, labels), True, {**comment, **label})


def _new_type(data_type: DataType, path: Path, labels: Labels) -> DataType:
    match data_type:
        case StructType(fields=fields):
            return StructType(tuple(_new_field(f, (*path, f.name), labels) for f in fields))
        case ArrayType(element=element):
            return ArrayType(_new_type(element, (*path, "element"), labels))
        case MapType(key=key, value=value):
            return MapType(_new_type(key, (*path, "key"), labels), _new_type(value, (*path, "value"), labels))
        case _ if data_type == VOID:
            raise SchemaMismatch(
                "A new column has no type, because the data has only nulls for it",
                hint="Cast it to the type that it should have, or leave it out",
                column=dotted(path),
            )
        case _:
            return data_type
