"""CREATE TABLE: a table without rows, with all that its columns are to keep to from the first row on.

What is wrong with a definition is found here, before there is a table: an expression that does not mean anything, or is
of another type than its column, would make every later write fail. Expressions are judged by `expr`; where only Spark
understands them, the engine's judge has to be given (`Judge`), and without one they are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec
from msgspec import Struct

from lakeseal import expr
from lakeseal.clock import now_ms
from lakeseal.commands.cluster import set_clustering
from lakeseal.commands.command import CommandContext, PlannedChange
from lakeseal.commands.file_changes import removals
from lakeseal.commit.alter import new_metadata, replaced_table, with_constraint
from lakeseal.commit.alter_columns import with_comment
from lakeseal.commit.clustering import clustering_columns
from lakeseal.commit.proposal import Operation
from lakeseal.errors import AlreadyExists, InvalidArgument, SchemaMismatch, UnsupportedExpression, located
from lakeseal.files.constraints import GENERATION_EXPRESSION, generation_expression
from lakeseal.files.normalize import CURRENT_DEFAULT
from lakeseal.files.store_assignment import check_assignable
from lakeseal.protocol.actions import Metadata, RemoveFile
from lakeseal.protocol.identity import Identity, identity_of
from lakeseal.protocol.schema import BOOLEAN, DataType, StructField, StructType


class Judge(Protocol):
    def type_of(self, sql: str, schema: StructType) -> DataType:
        """The type of an expression over rows of a schema. Raises what is wrong with it."""


class InProcessJudge:
    def type_of(self, sql: str, schema: StructType) -> DataType:
        return expr.bind(expr.parse(sql), schema).type


class TableDefinition(Struct, frozen=True, kw_only=True):
    """What a new table is to be. Columns are named as in the schema, in any case."""

    schema: StructType
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, Any] = msgspec.field(default_factory=dict)
    defaults: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Column → SQL text; what is no text is a constant."""
    generated: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column → SQL over other columns of the row."""
    identity: Mapping[str, Identity] = msgspec.field(default_factory=dict)
    constraints: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Name → condition."""
    comments: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column, or field as `a.b` → comment."""
    comment: str | None = None

    def metadata(self, judge: Judge, *, created_ms: int) -> Metadata:
        for name in (*self.defaults, *self.generated, *self.identity):
            column(self.schema, name)
        schema = StructType(tuple(self._field(field) for field in self.schema.fields))
        for name in self.defaults:
            field = column(schema, name)
            check_default(field.metadata[CURRENT_DEFAULT], field, judge)
        for name in self.generated:
            _check_generated(column(schema, name), schema, judge)
        metadata = new_metadata(schema, self.partition_by, self.properties, created_ms=created_ms)
        if self.comment is not None:
            metadata = msgspec.structs.replace(metadata, description=self.comment)
        for name, text in self.comments.items():
            metadata = with_comment(metadata, name, text)
        for name, condition in self.constraints.items():
            check_condition(condition, schema, judge, name)
            metadata = with_constraint(metadata, name, condition, is_checked=True)
        return metadata

    def _field(self, field: StructField) -> StructField:
        default, generated, identity = (
            _of(field.name, values) for values in (self.defaults, self.generated, self.identity)
        )
        if sum(value is not None for value in (default, generated, identity)) > 1:
            raise InvalidArgument(
                "A column has a default, is generated or is an identity, not two of these", column=field.name
            )
        says = dict(field.metadata)
        if default is not None:
            says[CURRENT_DEFAULT] = default_sql(default)
        if generated is not None:
            says[GENERATION_EXPRESSION] = generated
        found = StructField(field.name, field.type, field.nullable, says)
        return found if identity is None else identity.on(found)


class CreateCommand(Struct, frozen=True, kw_only=True):
    shown: ClassVar[str | None] = None
    times: ClassVar[tuple[str, ...]] = ()

    definition: TableDefinition
    judge: Judge = InProcessJudge()
    replaces: bool = False
    """Whether a table that is there is made anew: its rows go, and all else is as the definition says."""
    user_metadata: str | None = None

    def decide(self, context: CommandContext) -> PlannedChange:
        txn, snapshot = context.txn, context.txn.snapshot
        if snapshot is not None and not self.replaces:
            raise AlreadyExists("The table is there already", hint="Open it with lakeseal.Table(uri)")
        metadata = self.definition.metadata(self.judge, created_ms=now_ms())
        removed: list[RemoveFile] = []
        was_clustered = False
        if snapshot is not None:
            metadata = replaced_table(snapshot.metadata, metadata)
            was_clustered = bool(clustering_columns(snapshot.domains))
            removed = removals(txn.filter_files(), now_ms=now_ms(), data_change=True)
        txn.update_metadata(metadata)
        if self.definition.cluster_by or was_clustered:
            set_clustering(txn, self.definition.cluster_by)
        operation = Operation(
            name="CREATE OR REPLACE TABLE" if self.replaces else "CREATE TABLE",
            parameters={
                "partitionBy": list(self.definition.partition_by),
                "clusterBy": list(self.definition.cluster_by),
                "description": self.definition.comment,
            },
            user_metadata=self.user_metadata,
        )
        return PlannedChange(finish=lambda _: (removed, operation))


def default_sql(value: Any) -> str:
    return value if isinstance(value, str) else expr.literal(value).sql


def check_default(sql: str, field: StructField, judge: Judge) -> None:
    """A default sees no column of the row."""
    with located(column=field.name):
        given = _judged(sql, StructType(), judge)
        check_assignable(given, field.type, (field.name,))


def check_condition(sql: str, schema: StructType, judge: Judge, name: str) -> None:
    given = _judged(sql, schema, judge)
    if given != BOOLEAN:
        raise InvalidArgument(f"The constraint {name} ({sql}) is of type {given}, and no condition")


def column(schema: StructType, name: str) -> StructField:
    field = schema.field(name)
    if field is None:
        raise InvalidArgument(f"There is no column {name!r}", column=name, hint=f"There are {', '.join(schema.names)}")
    return field


def _check_generated(field: StructField, schema: StructType, judge: Judge) -> None:
    sql = generation_expression(field)
    assert sql is not None
    with located(column=field.name):
        plain = [f for f in schema.fields if generation_expression(f) is None and identity_of(f) is None]
        given = _judged(sql, StructType(tuple(plain)), judge)
        if given != field.type:
            raise SchemaMismatch(
                f"The column is of type {field.type}, and what it is generated from, {sql}, of type {given}",
                hint=f"CAST(({sql}) AS {field.type})",
            )


def _judged(sql: str, schema: StructType, judge: Judge) -> DataType:
    try:
        return judge.type_of(sql, schema)
    except UnsupportedExpression as error:
        raise UnsupportedExpression(
            error.message, column=error.column, hint="Give a Spark session, which knows it: spark=…"
        ) from error


def _of(name: str, values: Mapping[str, Any]) -> Any:
    return next((value for given, value in values.items() if given.lower() == name.lower()), None)
