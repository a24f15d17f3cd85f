"""CREATE, ALTER and DROP TABLE, CLONE and CONVERT."""

from __future__ import annotations

from typing import Any, Never

import pyarrow as pa

from lakeseal import table as tables
from lakeseal.errors import AlreadyExists, InvalidArgument, TableNotFound, UnsupportedFeature
from lakeseal.files.normalize import CURRENT_DEFAULT
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import StructField, StructType
from lakeseal.statements.statement import (
    AddColumns,
    AddConstraint,
    Alteration,
    AlterTable,
    CloneTable,
    ColumnDefinition,
    Convert,
    CreateTable,
    DropColumns,
    DropConstraint,
    RenameColumn,
    SetProperties,
    UnsetProperties,
)
from lakeseal.table import Table
from lakeseal.table_sql.answers import answer, done
from lakeseal.table_sql.context import SqlContext
from lakeseal.table_sql.queries import rows_of

_PROVIDERS = ("delta", "lakeseal")


def create(context: SqlContext, table: Table, statement: CreateTable) -> Any:
    if statement.provider is not None and statement.provider.lower() not in _PROVIDERS:
        raise UnsupportedFeature(f"A table of ours cannot be USING {statement.provider}", hint="USING delta")
    if statement.table.path is not None and statement.location not in (None, statement.table.path):
        raise InvalidArgument("A table by its path is there, and at no other LOCATION", table=table.uri)
    exists = table.exists()
    if exists and statement.if_not_exists:
        return _told(context, table, committed=False)
    if exists and not statement.or_replace:
        raise AlreadyExists("The table is there already", table=table.uri, hint="CREATE OR REPLACE TABLE, or INSERT")
    if statement.must_exist and not exists:
        raise TableNotFound("There is no table to replace", table=table.uri, hint="CREATE OR REPLACE TABLE")
    if exists:
        _not_yet("CREATE OR REPLACE of a table that is there", table)
    _refuse_missing(statement, table)
    if statement.query is not None:
        rows = rows_of(context, statement.query)
        how: dict[str, Any] = {"partition_by": statement.partition_by, "properties": statement.properties}
        return done(context, table.write(rows, "error", **how))
    if not statement.columns:
        raise InvalidArgument("A new table needs columns", table=table.uri, hint="Name them, or say AS SELECT …")
    schema = StructType(tuple(_field(column) for column in statement.columns))
    tables.create(
        table.uri,
        schema,
        statement.partition_by,
        statement.properties,
        owner=context.owner,
        storage_options=context.storage_options,
    )
    return _told(context, table, committed=True)


def _refuse_missing(statement: CreateTable, table: Table) -> None:
    for asked, what in (
        (statement.cluster_by, "CLUSTER BY"),
        (statement.constraints, "CHECK constraints of a new table"),
        (statement.comment, "COMMENT on a table"),
        (any(column.identity for column in statement.columns), "An identity column"),
    ):
        if asked:
            _not_yet(what, table)


def _field(column: ColumnDefinition) -> StructField:
    metadata = dict(column.field.metadata)
    if column.generated is not None:
        metadata["delta.generationExpression"] = column.generated
    if column.default is not None:
        metadata[CURRENT_DEFAULT] = column.default
    return StructField(column.field.name, column.field.type, column.field.nullable, metadata)


def clone(context: SqlContext, table: Table, statement: CloneTable) -> Any:
    source = context.read(statement.source)
    if source is None:
        raise TableNotFound("There is no such table to clone", table=statement.source.shown)
    if table.exists() and statement.if_not_exists:
        return _told(context, table, committed=False)
    for asked, what in (
        (statement.deep, "DEEP CLONE"),
        (statement.or_replace and table.exists(), "CREATE OR REPLACE of a table that is there"),
        (statement.properties, "TBLPROPERTIES of a clone"),
    ):
        if asked:
            _not_yet(what, table)
    source.table.clone(
        table.uri, **context.moment(source.at), owner=context.owner, storage_options=context.storage_options
    )
    return _told(context, table, committed=True)


def convert(context: SqlContext, statement: Convert) -> Any:
    partition_by = {field.name: field.type for field in statement.partition_by}
    made = tables.convert(statement.path, partition_by, storage_options=context.storage_options)
    return _told(context, made, committed=True)


def alter(context: SqlContext, table: Table, statement: AlterTable) -> Any:
    results = _altered(context, table, statement.change)
    if results is None:
        return _told(context, table, committed=False)
    return done(context, results)


def _altered(context: SqlContext, table: Table, change: Alteration) -> Any:
    match change:
        case SetProperties(properties=properties):
            return table.set_properties(properties)
        case UnsetProperties(keys=keys, if_exists=if_exists):
            known = table.snapshot().metadata.configuration
            missing = [key for key in keys if key not in known]
            if missing and not if_exists:
                raise InvalidArgument(f"The table has no property {missing[0]!r}", table=table.uri)
            left = [key for key in keys if key in known]
            return table.set_properties(dict.fromkeys(left)) if left else None
        case AddConstraint(name=name, condition=condition):
            return table.add_constraint(name, condition, spark=context.spark)
        case DropConstraint(name=name, if_exists=if_exists):
            if if_exists and not _has_constraint(table, name):
                return None
            return table.drop_constraint(name)
        case AddColumns(columns=columns):
            if any(c.parents or c.first or c.after or c.default or c.generated or c.identity for c in columns):
                _not_yet("ADD COLUMNS with a place, a default or inside of another column", table)
            return table.add_columns(StructType(tuple(column.field for column in columns)))
        case DropColumns(columns=columns, if_exists=if_exists):
            return _dropped(table, columns, if_exists)
        case RenameColumn(column=path, new_name=new_name):
            return table.rename_column(_plain(path, table), new_name)
        case _:
            _not_yet("This ALTER TABLE", table)


def _has_constraint(table: Table, name: str) -> bool:
    return name.lower() in {n.lower() for n in TableProperties.of(table.snapshot().metadata).constraints}


def _dropped(table: Table, columns: tuple[tuple[str, ...], ...], if_exists: bool) -> Any:
    schema = table.snapshot().schema
    left = [path for path in columns if not if_exists or len(path) > 1 or schema.field(path[0]) is not None]
    if len(left) > 1:
        raise UnsupportedFeature("One statement drops one column", table=table.uri, hint="Drop them one by one")
    return table.drop_column(_plain(left[0], table)) if left else None


def _plain(path: tuple[str, ...], table: Table) -> str:
    if len(path) > 1:
        _not_yet("A change of a column inside of another one", table)
    return path[0]


def _told(context: SqlContext, table: Table, *, committed: bool) -> Any:
    row = {"version": table.version(), "committed": committed}
    return answer(context, {"version": pa.int64(), "committed": pa.bool_()}, [row])


def _not_yet(what: str, table: Table) -> Never:
    raise UnsupportedFeature(f"{what} is not supported", table=table.uri)
