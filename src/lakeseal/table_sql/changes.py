"""DELETE, UPDATE, MERGE and INSERT on tables of ours."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, overload

import msgspec
import pyarrow as pa

from lakeseal import clock, expr
from lakeseal.errors import InvalidArgument, InvalidExpression, SchemaMismatch, located
from lakeseal.expr.render import quote_name
from lakeseal.files.constraints import generation_expression
from lakeseal.files.normalize import sql_when_missing
from lakeseal.files.store_assignment import assign, check_assignable
from lakeseal.protocol.arrow import from_arrow, to_arrow_type
from lakeseal.protocol.identity import identity_of
from lakeseal.protocol.schema import TIMESTAMP, DataType, StructField, StructType
from lakeseal.statements.qualifiers import unqualified
from lakeseal.statements.statement import Delete, Insert, Merge, StatedName, UpdateStatement
from lakeseal.table import Table
from lakeseal.table_sql.answers import done
from lakeseal.table_sql.context import SqlContext
from lakeseal.table_sql.positions import fits_by_name, named, refuse_turned
from lakeseal.table_sql.queries import frame_of, planned, rows_of, rows_of_named, viewed


def delete(context: SqlContext, table: Table, statement: Delete) -> Any:
    own = _Alias(statement.alias or _own_name(statement.table), table, context)
    with viewed(context, own.cut(statement.where)) as (where,):
        return done(context, context.changed(table).delete(where, spark=context.spark))


def update(context: SqlContext, table: Table, statement: UpdateStatement) -> Any:
    own = _Alias(statement.alias or _own_name(statement.table), table, context)
    names = [own.cut(name) for name in statement.values]
    texts = [own.cut(value) for value in statement.values.values()]
    with viewed(context, own.cut(statement.where), *texts) as (where, *values):
        given = dict(zip(names, values, strict=True))
        return done(context, context.changed(table).update(given, where, spark=context.spark))


def merge(context: SqlContext, table: Table, statement: Merge) -> Any:
    with ExitStack() as stack:
        on, *conditions = stack.enter_context(
            viewed(context, statement.on, *(clause.condition for clause in statement.clauses))
        )
        clauses = []
        for clause, condition in zip(statement.clauses, conditions, strict=True):
            given = clause.values or {}
            texts = stack.enter_context(viewed(context, *given.values()))
            values = None if clause.values is None else dict(zip(given, texts, strict=True))
            clauses.append(msgspec.structs.replace(clause, condition=condition, values=values))
        assert on is not None
        source = _source(context, statement)
        builder = context.changed(table).merge(
            source,
            on,
            merge_schema=statement.merge_schema,
            # A side without a name must not get one by which a column may be called, too.
            source_alias=statement.source_alias or "__lakeseal_source",
            target_alias=statement.target_alias or "__lakeseal_target",
        )
        return done(context, builder.with_clauses(*clauses).execute())


def _source(context: SqlContext, statement: Merge) -> Any:
    named = statement.source
    with planned(context, "plan the source of the merge"):
        rows = rows_of_named(context, named) if isinstance(named, StatedName) else rows_of(context, named.text)
    names = statement.source_columns
    if not names:
        return rows
    there = rows.column_names if context.spark is None else rows.columns
    if len(names) != len(there):
        raise InvalidExpression(
            f"The source's alias has {len(names)} names for {len(there)} columns", hint="Name all of them"
        )
    return rows.rename_columns(list(names)) if context.spark is None else rows.toDF(*names)


def insert(context: SqlContext, table: Table, statement: Insert) -> Any:
    snapshot = table.snapshot()
    with located(table=table.uri):
        target = _Target(snapshot.schema, snapshot.partition_columns, statement)
        data = target.frame(context) if context.spark is not None else target.arrow(context)
    how: dict[str, Any] = {"merge_schema": statement.merge_schema}
    if statement.replace_where is not None:
        with viewed(context, statement.replace_where) as (where,):
            return done(context, context.changed(table).write(data, "overwrite", replace_where=where, **how))
    if statement.overwrite:
        static = target.static_condition()
        some = len(target.static) < len(snapshot.partition_columns)
        if some and snapshot.partition_columns and _overwrites_dynamically(context):
            how["partition_overwrite"] = "dynamic"
        elif static is not None:
            how["replace_where"] = static
    return done(context, context.changed(table).write(data, "overwrite" if statement.overwrite else "append", **how))


def _overwrites_dynamically(context: SqlContext) -> bool:
    """As the session says it, for tables of several partitions."""
    if context.spark is None:
        return False
    mode = context.spark.conf.get("spark.sql.sources.partitionOverwriteMode", "static")
    return str(mode).lower() == "dynamic"


class _Target:
    """Which columns the values of an INSERT go into."""

    def __init__(self, schema: StructType, partition_columns: tuple[str, ...], statement: Insert) -> None:
        self._schema = schema
        self._statement = statement
        partitions = {name.lower(): name for name in partition_columns}
        for name in statement.partition:
            if name.lower() not in partitions:
                raise InvalidArgument("The table is not partitioned by this column", column=name)
        self.static = {partitions[n.lower()]: text for n, text in statement.partition.items() if text is not None}
        self.names = self._names()

    def _names(self) -> tuple[str, ...] | None:
        """By position; None where the rows have names."""
        asked = self._statement.columns
        if self._statement.by_name:
            return None
        if asked is None:
            return tuple(name for name in self._schema.names if name not in self.static)
        found = [self._field(name).name for name in asked]
        if len(set(found)) < len(found):
            raise InvalidArgument("A column is named twice", hint="Name each column once")
        if set(found) & set(self.static):
            raise InvalidArgument("A column of PARTITION cannot be among the columns, too")
        return tuple(found)

    def _field(self, name: str) -> StructField:
        field = self._schema.field(name)
        if field is None:
            raise InvalidArgument(
                "The table has no such column", column=name, hint=f"It has {', '.join(self._schema.names[:20])}"
            )
        return field

    def static_condition(self) -> str | None:
        parts = [f"{quote_name(name)} <=> {self._static(name)}" for name in self.static]
        return " AND ".join(parts) if parts else None

    def _static(self, name: str) -> str:
        """A value of PARTITION is cast, as Spark does it, and not assigned."""
        kind = self._field(name).type
        # TIMESTAMP may be another type in a session.
        return f"CAST(({self.static[name]}\n) AS {'timestamp_ltz' if kind == TIMESTAMP else kind})"

    def frame(self, context: SqlContext) -> Any:
        from lakeseal.spark.schema import data_schema  # pyspark is an extra

        with planned(context, "plan the rows to insert"):
            text, names = self._query()
            frame = frame_of(context, text)
            if names is not None:
                self._check_count(len(frame.columns), names)
                renamed = frame.toDF(*names)
                if not self._fits_by_name(frame.columns, data_schema(renamed.schema)):
                    frame = self._framed(renamed)
            values = [f"{self._static(name)} AS {quote_name(name)}" for name in self.static]
            return frame.selectExpr("*", *values) if values else frame

    def _fits_by_name(self, names: list[str], given: StructType) -> bool:
        """`given` has the types of rows under the names that they get by position, `names` are their own."""
        if self._statement.columns is not None or tuple(names) != given.names:
            return False
        return all(fits_by_name(field.type, self._field(field.name).type) for field in given.fields)

    def _framed(self, frame: Any) -> Any:
        """Fields of structs go in by position, too."""
        from lakeseal.spark.schema import data_schema, spark_type

        given = data_schema(frame.schema).fields
        kinds = [self._named(field.name, field.type) for field in given]
        if kinds == [field.type for field in given]:
            return frame
        columns = [frame[quote_name(field.name)] for field in given]
        return frame.select(
            *(
                column if kind == field.type else column.cast(spark_type(kind)).alias(field.name)
                for column, field, kind in zip(columns, given, kinds, strict=True)
            )
        )

    def _named(self, name: str, given: DataType) -> DataType:
        wanted = self._field(name).type
        if self._statement.columns is not None:
            refuse_turned(given, wanted, (name,))
        return named(given, wanted, (name,))

    def arrow(self, context: SqlContext) -> pa.Table:
        if self._statement.rows:
            data = self._constants()
        else:
            data = rows_of(context, self._statement.query or "")
            if self.names is not None:
                self._check_count(data.num_columns, self.names)
                renamed = data.rename_columns(list(self.names))
                is_named = self._fits_by_name(data.column_names, from_arrow(renamed.schema))
                data = data if is_named else self._placed(renamed)
        for name in self.static:
            cell = self._cell(self._static(name), self._field(name))
            data = data.append_column(name, pa.concat_arrays([cell] * data.num_rows) if data.num_rows else cell[:0])
        return data

    def _placed(self, data: pa.Table) -> pa.Table:
        """Fields of structs go in by position, too."""
        for place, field in enumerate(from_arrow(data.schema).fields):
            kind = self._named(field.name, field.type)
            if kind != field.type:
                renamed = _renamed(data.column(place), field.type, kind)
                data = data.set_column(place, data.schema.field(place).with_type(renamed.type), renamed)
        return data

    def _query(self) -> tuple[str, tuple[str, ...] | None]:
        """The rows, with defaults where DEFAULT stands; a column that only has defaults is left to the table."""
        rows, names = self._statement.rows, self.names
        if names is None or not any(_is_default(cell) for row in rows for cell in row):
            return self._statement.query or "", names
        columns = self._given(names)
        cells = [[self._or_default(row[place], self._field(names[place])) for place in columns] for row in rows]
        text = ", ".join(f"({', '.join(row)})" for row in cells)
        return f"VALUES {text}", tuple(names[place] for place in columns)

    def _given(self, names: tuple[str, ...]) -> list[int]:
        """Places of columns for which a row has more to say than DEFAULT."""
        rows = self._statement.rows
        for row in rows:
            self._check_count(len(row), names)
        columns = [n for n in range(len(names)) if not all(_is_default(row[n]) for row in rows)]
        if not columns:
            raise InvalidExpression("The rows say nothing but DEFAULT", hint="Give a value for one of the columns")
        return columns

    def _or_default(self, cell: str, field: StructField) -> str:
        if not _is_default(cell):
            return cell
        if generation_expression(field) is not None or identity_of(field) is not None:
            raise InvalidExpression(
                "A generated column or an identity is DEFAULT in all rows or in none",
                column=field.name,
                hint="Insert in two statements",
            )
        return sql_when_missing(field) or "NULL"

    def _constants(self) -> pa.Table:
        names = self.names
        if names is None:
            raise InvalidExpression("VALUES have no names", hint="Leave BY NAME out, or insert a query")
        columns = {}
        for place in self._given(names):
            field = self._field(names[place])
            cells = [self._cell(self._or_default(row[place], field), field) for row in self._statement.rows]
            columns[field.name] = pa.concat_arrays(cells)
        return pa.table(columns)

    def _cell(self, text: str, field: StructField) -> pa.Array:
        with located(column=field.name):
            bound = expr.bind(expr.parse(text), StructType(()))
            kind = self._named(field.name, bound.type)
            check_assignable(kind, field.type, (field.name,))
            one = pa.record_batch([pa.array([0])], names=["__one"])
            value = expr.evaluate(bound, one, now=clock.now())
            return assign(value if kind == bound.type else _renamed(value, bound.type, kind), kind, field.type)

    @staticmethod
    def _check_count(given: int, names: tuple[str, ...]) -> None:
        if given != len(names):
            raise SchemaMismatch(
                f"The rows have {given} columns, and there are {len(names)} to insert into: {', '.join(names[:20])}",
                hint="Name the columns that the rows are for, or insert BY NAME",
            )


def _renamed(values: Any, given: DataType, named_so: DataType) -> Any:
    """Values of Arrow with other names for fields: nothing else changes."""
    plain = values.cast(to_arrow_type(given))
    kind = to_arrow_type(named_so)
    if isinstance(plain, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in plain.chunks], kind)
    return plain.view(kind)


def _is_default(cell: str) -> bool:
    return cell.upper() == "DEFAULT"


def _own_name(table: StatedName) -> str | None:
    return None if table.path is not None else table.parts[-1]


class _Alias:
    """The name that a statement gives to the only table that it is about."""

    def __init__(self, name: str | None, table: Table, context: SqlContext) -> None:
        self._name = name
        self._table = table
        self._context = context

    @overload
    def cut(self, text: str) -> str: ...
    @overload
    def cut(self, text: str | None) -> str | None: ...
    def cut(self, text: str | None) -> str | None:
        """The text with the table's own names."""
        if text is None or self._name is None:
            return text
        return unqualified(
            text,
            self._name,
            self._table.snapshot().schema,
            case_sensitive=self._context.case_sensitive,
            double_quoted_names=self._context.double_quoted_names,
        )
