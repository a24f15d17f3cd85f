"""CREATE, ALTER and DROP TABLE, CLONE and CONVERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from lakeseal import table as tables
from lakeseal.catalog.place import Place
from lakeseal.catalogs import Catalog
from lakeseal.commit.alter_columns import ColumnPlace, NewColumn, column_path, has_type
from lakeseal.commit.alter_columns import found as column_at
from lakeseal.errors import AlreadyExists, InvalidArgument, NotFound, TableNotFound, UnsupportedFeature
from lakeseal.expr.render import quote_name
from lakeseal.protocol.identity import Identity
from lakeseal.protocol.properties import TableProperties
from lakeseal.protocol.schema import StructType
from lakeseal.statements import statement as statement_values
from lakeseal.statements.parser import parse
from lakeseal.statements.statement import (
    AddColumns,
    AddConstraint,
    Alteration,
    AlterColumn,
    AlterTable,
    CloneTable,
    ClusterBy,
    ColumnDefinition,
    Convert,
    CreateLike,
    CreateSchemaStatement,
    CreateTableStatement,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropSchemaStatement,
    DropTableStatement,
    RenameColumn,
    RenameTableStatement,
    SetComment,
    SetProperties,
    SyncIdentity,
    UnsetProperties,
)
from lakeseal.table import Table
from lakeseal.table_sql.answers import answer, done
from lakeseal.table_sql.context import SqlContext
from lakeseal.table_sql.descriptions import created_by
from lakeseal.table_sql.queries import planned, rows_of

_PROVIDERS = ("delta", "lakeseal")


def create_named(context: SqlContext, statement: CreateTableStatement | CloneTable) -> Any:
    """A table by its path, or one that gets a name; None if it is to be none of ours."""
    name = statement.table
    if name.path is not None:
        if statement.location not in (None, name.path):
            raise InvalidArgument("A table by its path is there, and at no other LOCATION", table=name.path)
        table = context.at_path(name.path)
        return _made(context, table, statement, _rows(context, statement))
    there = context.named(name)
    if there is None and (context.catalog is None or (len(name.parts) < 2 and context.spark is not None)):
        return _made_for_spark(context, statement)
    rows = _rows(context, statement)
    if there is not None:
        if statement.location not in (None, there.uri):
            raise InvalidArgument(f"The table is at {there.uri}, and at no other LOCATION", table=name.shown)
        made = _made(context, there, statement, rows)
        context.keep_in_spark(name)
        return made
    assert context.catalog is not None
    options = context.storage_options
    with context.catalog.making(context.name_in_catalog(name), statement.location, options) as uri:
        return _made(context, context.at_path(uri), statement, rows)


def create_like(context: SqlContext, statement: CreateLike) -> Any:
    """None if the table that is to be copied is none of ours."""
    source = context.existing(statement.source)
    if source is None:
        return None
    like = parse(created_by(source.snapshot(), "it"))
    assert isinstance(like, CreateTableStatement)
    return create_named(
        context,
        msgspec.structs.replace(
            like,
            table=statement.table,
            if_not_exists=statement.if_not_exists,
            location=statement.location,
            provider=statement.provider or like.provider,
            properties={**like.properties, **statement.properties},
        ),
    )


def create_schema(context: SqlContext, catalog: Catalog, statement: CreateSchemaStatement) -> Any:
    try:
        catalog.create_schema(".".join(map(quote_name, statement.name)))
    except AlreadyExists:
        if not statement.if_not_exists:
            raise
    return _of_schema(context, statement.name)


def drop_schema(context: SqlContext, catalog: Catalog, statement: DropSchemaStatement) -> Any:
    try:
        catalog.drop_schema(".".join(map(quote_name, statement.name)))
    except NotFound:
        if not statement.if_exists:
            raise
    return _of_schema(context, statement.name)


def _of_schema(context: SqlContext, name: tuple[str, ...]) -> Any:
    return answer(context, {"namespace": pa.string()}, [{"namespace": ".".join(name)}])


def _made_for_spark(context: SqlContext, statement: CreateTableStatement | CloneTable) -> Any:
    """A table of ours that gets a name in Spark's catalog; None if Spark can do all of it, or it is not ours."""
    if isinstance(statement, CloneTable) or (statement.provider or "").lower() != "lakeseal":
        return None
    if not (statement.columns or statement.query) or statement.location is None:
        return None
    table = context.at_path(statement.location)
    made = _made(context, table, statement, _rows(context, statement))
    context.keep_in_spark(statement.table, table.uri)
    return made


def _made(context: SqlContext, table: Table, statement: CreateTableStatement | CloneTable, rows: Any) -> Any:
    if isinstance(statement, CloneTable):
        return clone(context, table, statement)
    return create(context, table, statement, rows)


def _rows(context: SqlContext, statement: CreateTableStatement | CloneTable) -> Any:
    """What a query gives, before there is a table to put it into."""
    if isinstance(statement, CloneTable) or statement.query is None:
        return None
    with planned(context, "plan the rows of the new table"):
        return rows_of(context, statement.query)


def create(context: SqlContext, table: Table, statement: CreateTableStatement, rows: Any) -> Any:
    if statement.provider is not None and statement.provider.lower() not in _PROVIDERS:
        raise UnsupportedFeature(f"A table of ours cannot be USING {statement.provider}", hint="USING delta")
    context.check_types(column.field.type for column in statement.columns)
    exists = table.exists()
    if exists and statement.if_not_exists:
        return _told(context, table, committed=False)
    if exists and not statement.or_replace:
        raise AlreadyExists("The table is there already", table=table.uri, hint="CREATE OR REPLACE TABLE, or INSERT")
    if statement.must_exist and not exists:
        raise TableNotFound("There is no table to replace", table=table.uri, hint="CREATE OR REPLACE TABLE")
    clustered = tuple(_whole(name, table) for name in statement.cluster_by)
    if rows is not None:
        how: dict[str, Any] = {"partition_by": statement.partition_by, "properties": statement.properties}
        how |= {"cluster_by": clustered} if clustered else {}
        how |= {"mode": "overwrite" if exists else "error"}
        changed = context.changed(table)
        return done(context, changed.write(rows, comment=statement.comment, replace_table=exists, **how))
    if not statement.columns:
        raise InvalidArgument("A new table needs columns", table=table.uri, hint="Name them, or say AS SELECT …")
    columns = statement.columns
    tables.create(
        table.uri,
        StructType(tuple(column.field for column in columns)),
        statement.partition_by,
        statement.properties,
        owner=context.owner,
        storage_options=context.storage_options,
        defaults={c.field.name: c.default for c in columns if c.default is not None},
        generated={c.field.name: c.generated for c in columns if c.generated is not None},
        identity={c.field.name: _identity(c.identity) for c in columns if c.identity is not None},
        constraints=statement.constraints,
        comment=statement.comment,
        cluster_by=clustered,
        replace=statement.or_replace,
        spark=context.spark,
    )
    return _told(context, table, committed=True)


def _identity(asked: statement_values.IdentityDefinition) -> Identity:
    return Identity(start=asked.start, step=asked.step, always=not asked.by_default)


def drop(context: SqlContext, statement: DropTableStatement) -> Any:
    """None if it is none of ours."""
    name = statement.table
    if name.path is not None:
        raise UnsupportedFeature(
            "A table by its path has no name that could be dropped",
            table=name.path,
            hint="Delete its rows and VACUUM it, or delete its directory",
        )
    if context.in_catalog(name) is None or context.catalog is None:
        if context.spark is None and not statement.if_exists:
            raise TableNotFound("There is no table of this name", table=name.shown)
        return None if context.spark is not None else _dropped_names(context, [])
    gone = context.catalog.drop(context.name_in_catalog(name), statement.purge, context.storage_options)
    return _dropped_names(context, [{"name": str(gone.name), "location": gone.uri}])


def _dropped_names(context: SqlContext, rows: list[dict[str, Any]]) -> Any:
    return answer(context, {"name": pa.string(), "location": pa.string()}, rows)


def clone(context: SqlContext, table: Table, statement: CloneTable) -> Any:
    source = context.read(statement.source)
    if source is None:
        raise TableNotFound("There is no such table to clone", table=statement.source.shown)
    if table.exists() and statement.if_not_exists:
        return _told(context, table, committed=False)
    if table.exists() and not statement.or_replace:
        raise AlreadyExists("There is a table already where the clone should go", table=table.uri)
    source.table.clone(
        table.place,
        **context.moment(source.at),
        deep=statement.deep,
        # A deep clone that is there follows its source, and refuses to be one of anything else.
        replace=statement.or_replace and not statement.deep,
        properties=statement.properties,
        owner=context.owner,
        storage_options=context.storage_options,
    )
    return _told(context, table, committed=True)


def convert(context: SqlContext, statement: Convert) -> Any:
    partition_by = {field.name: field.type for field in statement.partition_by}
    context.check_types(field.type for field in statement.partition_by)
    made = tables.convert(Place(uri=statement.path), partition_by, storage_options=context.storage_options)
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
            context.check_types(column.field.type for column in columns)
            return table.add_columns(_new_columns(columns, table))
        case DropColumns(columns=columns, if_exists=if_exists):
            return _dropped(table, columns, if_exists)
        case RenameColumn(column=path, new_name=new_name):
            return table.rename_column(_sql(path), new_name)
        case SyncIdentity(column=column):
            return table.sync_identity(column)
        case AlterColumn():
            return _altered_column(context, table, change)
        case RenameTableStatement(new_name=new_name):
            if table.name is None or context.catalog is None:
                raise UnsupportedFeature("A table by its path has no name that could be changed", table=table.uri)
            context.catalog.rename(table.name, context.name_in_catalog(new_name))
            return None
        case ClusterBy(columns=columns):
            return table.cluster_by([_whole(name, table) for name in columns])
        case DropFeature(feature=feature, truncate_history=truncate_history):
            return table.drop_feature(feature, truncate_history)
        case SetComment(comment=comment):
            return table.set_comment(None, comment)


def _altered_column(context: SqlContext, table: Table, change: AlterColumn) -> Any:
    name = _sql(change.column)
    if change.type is not None:
        context.check_types([change.type.type])
    change = _what_differs(table, change)
    if change.type is not None:
        return table.change_type(name, change.type)
    if change.nullable is not None:
        return table.drop_not_null(name) if change.nullable else table.set_not_null(name, spark=context.spark)
    if change.comment is not None:
        return table.set_comment(name, change.comment)
    if change.default is not None:
        return table.set_default(name, change.default, spark=context.spark)
    if change.drops_default:
        return table.drop_default(name)
    if not change.first and change.after is None:
        return None  # what is asked for is so already
    return table.move_column(name, first=change.first, after=change.after)


def _what_differs(table: Table, change: AlterColumn) -> AlterColumn:
    """Of a change that says all of a column: the one thing that is other than it was."""
    schema = table.snapshot().schema
    if change.type is not None and has_type(schema, change.column, change.type):
        change = msgspec.structs.replace(change, type=None)
    said = (change.type is not None, change.comment is not None, change.first or change.after is not None)
    if sum(said) < 2:
        return change
    _, field = column_at(schema, change.column)
    if change.comment == field.metadata.get("comment"):
        change = msgspec.structs.replace(change, comment=None)
    if (change.type is not None) + (change.comment is not None) + (change.first or change.after is not None) > 1:
        raise UnsupportedFeature(
            "One statement changes one thing of a column: its type, its comment or its place",
            table=table.uri,
            hint="ALTER COLUMN … TYPE, ALTER COLUMN … COMMENT, ALTER COLUMN … FIRST",
        )
    return change


def _has_constraint(table: Table, name: str) -> bool:
    return name.lower() in {n.lower() for n in TableProperties.of(table.snapshot().metadata).constraints}


def _dropped(table: Table, columns: tuple[tuple[str, ...], ...], if_exists: bool) -> Any:
    schema = table.snapshot().schema
    left = [path for path in columns if not if_exists or _has_column(schema, path)]
    return table.drop_columns([_sql(path) for path in left]) if left else None


def _has_column(schema: StructType, path: tuple[str, ...]) -> bool:
    try:
        column_at(schema, path)
    except InvalidArgument:
        return False
    return True


def _new_columns(columns: Sequence[ColumnDefinition], table: Table) -> list[NewColumn]:
    for column in columns:
        if column.generated is not None or column.identity is not None:
            raise InvalidArgument(
                "A column that rows compute is there from the beginning: rows that are there have no value",
                table=table.uri,
                column=column.field.name,
                hint="CREATE OR REPLACE TABLE … AS SELECT",
            )
        if column.default is not None:
            raise UnsupportedFeature(
                "A new column has no DEFAULT: what would rows that are there have?",
                table=table.uri,
                column=column.field.name,
                hint="ADD COLUMN, then ALTER COLUMN … SET DEFAULT for rows to come, and UPDATE for the others",
            )
    return [
        NewColumn(field=c.field, parents=c.parents, place=ColumnPlace(first=c.first, after=c.after)) for c in columns
    ]


def _whole(name: str, table: Table) -> str:
    """A column as a statement names it; fields are not clustered by."""
    path = column_path(name)
    if len(path) > 1:
        raise UnsupportedFeature("Only whole columns are clustered by", table=table.uri, column=name)
    return path[0]


def _sql(path: tuple[str, ...]) -> str:
    return ".".join(quote_name(part) for part in path)


def _told(context: SqlContext, table: Table, *, committed: bool) -> Any:
    row = {"version": table.version(), "committed": committed}
    return answer(context, {"version": pa.int64(), "committed": pa.bool_()}, [row])
