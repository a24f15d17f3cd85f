"""What may become of a table's metadata: new tables, properties, constraints, new columns. Pure.

Each function takes metadata and gives metadata; the transaction then works out which features it needs. Under column
mapping every column keeps its id and physical name for ever, which is what lets a column be renamed or dropped without
touching a file. Without it the name in the files is the column's name, so neither is possible: turn on name mode first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from lakeseal import expr
from lakeseal.errors import InvalidArgument, SchemaMismatch
from lakeseal.protocol.actions import Metadata
from lakeseal.protocol.partitions import can_partition
from lakeseal.protocol.properties import CONSTRAINT_PREFIX, TableProperties, settings
from lakeseal.protocol.schema import (
    COLUMN_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    duplicate_name,
)

# What another table's log says about a column has no meaning in this one.
_FOREIGN = (COLUMN_ID, PHYSICAL_NAME, "delta.columnMapping.nested.ids", "delta.typeChanges")

# What these say is true of every row, and rows that are there when a column is added have no value in it.
_OF_ALL_ROWS = ("delta.generationExpression", "delta.invariants")

_OF_COLUMN_IDS = (TableProperties.column_mapping_max_id.key,)
# What a table that is made anew keeps of what it was.
_OF_THE_TABLE = frozenset(
    (
        TableProperties.managed_commit_owner_name.key,
        TableProperties.managed_commit_owner_conf.key,
        TableProperties.in_commit_timestamps.key,
        TableProperties.in_commit_timestamp_enablement_version.key,
        TableProperties.in_commit_timestamp_enablement_timestamp.key,
        TableProperties.row_id_column.key,
        TableProperties.row_commit_version_column.key,
        TableProperties.column_mapping_mode.key,
        *_OF_COLUMN_IDS,
    )
)

Label = Callable[[StructField], dict[str, Any]]


def new_metadata(
    schema: StructType, partition_by: Sequence[str], properties: Mapping[str, Any], *, created_ms: int
) -> Metadata:
    """Of a table that is not there yet."""
    configuration: dict[str, str | None] = {
        k: v for k, v in settings(properties).configuration.items() if v is not None
    }
    metadata = Metadata(id=str(uuid4()), configuration=configuration, created_time=created_ms)
    return replaced_schema(metadata, schema, partition_by)


def replaced_schema(metadata: Metadata, schema: StructType, partition_by: Sequence[str]) -> Metadata:
    """The same table with another schema, for files that are all new."""
    own = _relabelled(schema, _foreign_dropped)
    duplicate = duplicate_name(own.names)
    if duplicate is not None:
        raise SchemaMismatch("Two columns have the same name", column=duplicate, hint="Names differ by more than case")
    plain = msgspec.structs.replace(
        metadata, schema_string=own.to_json(), partition_columns=_partition_columns(own, partition_by)
    )
    if TableProperties.of(metadata).column_mapping_mode == "none":
        return plain
    return _mapped(plain, own, lambda field: f"col-{uuid4()}")


def replaced_table(before: Metadata, fresh: Metadata) -> Metadata:
    """The same table made anew: all is as `fresh` says, but for what makes it the same one and what its owner, its
    clock and its columns' ids go by."""
    kept = {key: value for key, value in before.configuration.items() if key in _OF_THE_TABLE}
    if TableProperties.of(before).column_mapping_mode == "none":
        kept.pop(TableProperties.column_mapping_mode.key, None)
    own = {key: value for key, value in fresh.configuration.items() if key not in _OF_COLUMN_IDS}
    same = msgspec.structs.replace(before, configuration={**own, **kept}, description=fresh.description)
    return replaced_schema(same, fresh.schema, fresh.partition_columns)


def with_properties(metadata: Metadata, changes: Mapping[str, Any]) -> Metadata:
    """Properties set, or removed where the value is None."""
    before = TableProperties.of(metadata)
    configuration = dict(metadata.configuration)
    for key, value in settings(changes).configuration.items():
        if value is None:
            configuration.pop(key, None)
        else:
            configuration[key] = value
    changed = msgspec.structs.replace(metadata, configuration=configuration)
    after = TableProperties.of(changed)
    if before.column_mapping_mode == after.column_mapping_mode:
        return changed
    if before.column_mapping_mode != "none" or after.column_mapping_mode != "name":
        raise InvalidArgument(
            f"Column mapping cannot go from {before.column_mapping_mode!r} to {after.column_mapping_mode!r}",
            hint="A table that is there can only be switched on, to 'name'",
        )
    # The files that are there have the columns under their present names.
    return _mapped(changed, metadata.schema, lambda field: field.name)


def with_constraint(metadata: Metadata, name: str, sql: str, *, is_checked: bool = False) -> Metadata:
    """A CHECK constraint for rows to come; the caller makes sure of those that are there. `is_checked`: the condition
    is known to mean something, if only to Spark."""
    if not name or name.lower() in {n.lower() for n in TableProperties.of(metadata).constraints}:
        raise InvalidArgument(f"There is a constraint {name!r} already" if name else "A constraint needs a name")
    if not is_checked:
        expr.bind(expr.parse(sql), metadata.schema)
    return msgspec.structs.replace(
        metadata, configuration={**metadata.configuration, f"{CONSTRAINT_PREFIX}{name}": sql}
    )


def without_constraint(metadata: Metadata, name: str) -> Metadata:
    key = f"{CONSTRAINT_PREFIX}{name}".lower()
    kept = {k: v for k, v in metadata.configuration.items() if k.lower() != key}
    if len(kept) == len(metadata.configuration):
        known = ", ".join(TableProperties.of(metadata).constraints) or "none"
        raise InvalidArgument(f"There is no constraint {name!r}", hint=f"The table has: {known}")
    return msgspec.structs.replace(metadata, configuration=kept)


def new_field(field: StructField) -> StructField:
    """A column or a field as a table that is there may get it."""
    if not field.nullable:
        raise InvalidArgument("A new column must be nullable: rows that are there have no value", column=field.name)
    if any(key in field.metadata for key in _OF_ALL_ROWS):
        raise InvalidArgument(
            "A new column cannot be generated or have an invariant: rows that are there have no value",
            column=field.name,
            hint="Add it when the table is created, or overwrite the table with overwrite_schema=True",
        )
    return _relabelled(StructType((field,)), _foreign_dropped).fields[0]


def stated(data_type: DataType) -> DataType:
    """A column's type as a statement says it, comments of its fields included: without what only this table's log notes
    of them, such as their names in files."""
    return _relabelled_type(data_type, _foreign_dropped)


def with_new_fields(metadata: Metadata, schema: StructType) -> Metadata:
    """The table with this schema, whose new columns and fields get their ids, where the table maps columns."""
    changed = msgspec.structs.replace(metadata, schema_string=schema.to_json())
    if TableProperties.of(metadata).column_mapping_mode == "none":
        return changed
    return _mapped(changed, schema, lambda field: f"col-{uuid4()}")


def _existing(schema: StructType, name: str) -> StructField:
    field = schema.field(name)
    if field is None:
        raise InvalidArgument(
            f"The table has no column {name!r}", hint=f"It has {', '.join(schema.names)}", column=name
        )
    return field


def _partition_columns(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    columns = []
    for name in names:
        field = _existing(schema, name)
        if not can_partition(field.type):
            raise InvalidArgument(f"A table cannot be partitioned by a column of type {field.type}", column=name)
        columns.append(field.name)
    if len(set(columns)) != len(columns):
        raise InvalidArgument("A column can be partitioned by only once", column=columns[0])
    if columns and len(columns) == len(schema.fields):
        raise InvalidArgument("A table needs a column that it is not partitioned by")
    return tuple(columns)


def _mapped(metadata: Metadata, schema: StructType, physical_name: Callable[[StructField], str]) -> Metadata:
    """Every column that has none gets an id and a physical name."""
    last = max(TableProperties.of(metadata).column_mapping_max_id, schema.max_column_id())

    def label(field: StructField) -> dict[str, Any]:
        nonlocal last
        if COLUMN_ID in field.metadata and PHYSICAL_NAME in field.metadata:
            return dict(field.metadata)
        last += 1
        return {**field.metadata, COLUMN_ID: last, PHYSICAL_NAME: physical_name(field)}

    labelled = _relabelled(schema, label)
    configuration = {**metadata.configuration, TableProperties.column_mapping_max_id.key: str(last)}
    return msgspec.structs.replace(metadata, schema_string=labelled.to_json(), configuration=configuration)


def _foreign_dropped(field: StructField) -> dict[str, Any]:
    return {key: value for key, value in field.metadata.items() if key not in _FOREIGN}


def _relabelled(schema: StructType, label: Label) -> StructType:
    return StructType(
        tuple(StructField(f.name, _relabelled_type(f.type, label), f.nullable, label(f)) for f in schema.fields)
    )


def _relabelled_type(data_type: DataType, label: Label) -> DataType:
    match data_type:
        case StructType():
            return _relabelled(data_type, label)
        case ArrayType(element=element, contains_null=contains_null):
            return ArrayType(_relabelled_type(element, label), contains_null)
        case MapType(key=key, value=value, value_contains_null=contains_null):
            return MapType(_relabelled_type(key, label), _relabelled_type(value, label), contains_null)
        case _:
            return data_type
