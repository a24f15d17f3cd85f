"""Columns of a MERGE in Spark: which clause a row falls under, and what it then becomes.

Expressions are over flat names (`t.id`, `s.id`, see `write/merge_names`) and are Spark's: what `expr` cannot evaluate
works here. A value goes into its column by store assignment, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from lakeseal import expr
from lakeseal.errors import InvalidArgument, InvalidExpression, SchemaMismatch
from lakeseal.expr.bound import Path
from lakeseal.expr.expression import Expression
from lakeseal.expr.render import quote_name, render
from lakeseal.protocol.schema import DataType, StructType
from lakeseal.spark import store_assignment
from lakeseal.spark.predicates import Settings
from lakeseal.spark.schema import data_schema, spark_type
from lakeseal.write.assignments import column_path, value_sql
from lakeseal.write.constraints import generation_expression
from lakeseal.write.file_schema import CHANGE_TYPE
from lakeseal.write.merge_clauses import Clause, MergeCommand
from lakeseal.write.merge_names import BOTH, SOURCE, TARGET, Names
from lakeseal.write.normalize import sql_when_missing
from lakeseal.write.store_assignment import check_omittable

_SEES = {"matched": BOTH, "not_matched": (SOURCE,), "not_matched_by_source": (TARGET,)}
_OLD = "__lakeseal_old"


class MergeColumns:
    def __init__(
        self, command: MergeCommand, table: StructType, source: StructType, names: Names, settings: Settings
    ) -> None:
        self._settings = settings
        self._command = command
        self._table = table
        self._source = source
        self._names = names
        self._conditions = [
            None if c.condition is None else names.resolve(c.condition, _SEES[c.kind]) for c in command.clauses
        ]
        self._values = [self._values_of(clause) for clause in command.clauses]

    def paths(self, on: Expression) -> frozenset[Path]:
        """Columns that say what becomes of a row."""
        return frozenset().union(on.columns, *(c.columns for c in self._conditions if c is not None))

    def check(self, joined: DataFrame) -> None:
        """That all values go into their columns; `joined` has the columns of both sides, and need have no rows."""
        for values in self._values:
            for path, value in values.items():
                self._cast(joined, path, value)

    def clause(self, kind: str) -> Column:
        """The number of the first clause of a kind whose condition holds; null if none does."""
        chosen = F.lit(None).cast("int")
        for number, clause in reversed(list(enumerate(self._command.clauses))):
            if clause.kind == kind:
                condition = self._conditions[number]
                holds = F.lit(True) if condition is None else F.expr(render(condition.root))
                chosen = F.when(holds, F.lit(number)).otherwise(chosen)
        return chosen

    def updated(self, joined: DataFrame, clause: Column) -> DataFrame:
        """Rows as they become, under the table's names, with `_OLD` as they were."""
        columns = []
        for field in self._table.fields:
            old = _flat(TARGET, field.name)
            new = old
            for number, values in enumerate(self._values):
                mine = {path: value for path, value in values.items() if path[0].lower() == field.name.lower()}
                if self._command.clauses[number].action == "update" and mine:
                    new = F.when(clause == number, self._assigned(joined, old, mine)).otherwise(new)
            columns.append(new.alias(field.name))
        was = F.struct(*(_flat(TARGET, n).alias(n) for n in self._table.names)).alias(_OLD)
        return self._generated(joined.select(*columns, was, clause), clause, "update")

    def inserted(self, fresh: DataFrame, clause: Column) -> DataFrame:
        """New rows, under the table's names."""
        columns = []
        for field in self._table.fields:
            empty = F.lit(None).cast(spark_type(field.type))
            new = empty
            for number, values in enumerate(self._values):
                mine = {path: value for path, value in values.items() if path[0].lower() == field.name.lower()}
                if self._command.clauses[number].action == "insert" and mine:
                    new = F.when(clause == number, self._assigned(fresh, empty, mine)).otherwise(new)
            columns.append(new.alias(field.name))
        made = self._generated(fresh.select(*columns, clause), clause, "insert")
        return made.select(*(F.col(quote_name(n)) for n in self._table.names))

    def with_changes(self, rows: DataFrame, changes: bool) -> DataFrame:
        """New rows, once more for the change feed."""
        if not changes:
            return rows
        kinds = F.explode(F.array(F.lit(None).cast("string"), F.lit("insert"))).alias(CHANGE_TYPE)
        return rows.select("*", kinds)

    def with_feed(self, rows: DataFrame, clause: Column, updates: list[int], change_type: str) -> DataFrame:
        """What `updated` gave, with all that the change feed wants to know."""
        new = F.struct(*(F.col(quote_name(n)) for n in self._table.names))
        old = F.col(quote_name(_OLD))

        def told(kind: str | None, row: Column) -> Column:
            return F.struct(F.lit(kind).cast("string").alias("kind"), row.alias("row"))

        after = F.array(told(None, new), told("update_preimage", old), told("update_postimage", new))
        one = F.when(clause.isNull(), F.array(told(None, new))).when(clause.isin(updates), after)
        whole = rows.select(F.explode(one.otherwise(F.array(told("delete", old)))).alias("told"))
        columns = [F.col("told.row").getField(n).alias(n) for n in self._table.names]
        return whole.select(*columns, F.col("told.kind").alias(change_type))

    def _assigned(self, frame: DataFrame, old: Column, values: Mapping[Path, Expression]) -> Column:
        result = old
        for path, value in values.items():
            column = self._cast(frame, path, value)
            result = column if len(path) == 1 else result.withField(".".join(map(quote_name, path[1:])), column)
        return result

    def _cast(self, frame: DataFrame, path: Path, value: Expression) -> Column:
        target = self._type_at(path)
        column = F.expr(render(value.root))
        (given,) = data_schema(frame.select(column.alias("it")).schema).fields
        store_assignment.check(given.type, target, path, self._settings)
        return store_assignment.assigned(column, given.type, target, self._settings, path)

    def _type_at(self, path: Path) -> DataType:
        current: DataType = self._table
        for name in path:
            field = current.field(name) if isinstance(current, StructType) else None
            if field is None:
                raise InvalidExpression(
                    f"There is no column {'.'.join(path)} to set", hint=f"There are {', '.join(self._table.names[:20])}"
                )
            current = field.type
        return current

    def _generated(self, rows: DataFrame, clause: Column, action: str) -> DataFrame:
        """Generated columns follow what they are made of, where they are not set themselves."""
        columns: dict[str, Column] = {}
        for field in self._table.fields:
            sql = generation_expression(field)
            if sql is None:
                continue
            made_of = {path[0].lower() for path in expr.parse(sql).columns}
            follows = []
            for number, values in enumerate(self._values):
                given = {path[0].lower() for path in values}
                of_clause = self._command.clauses[number].action == action and field.name.lower() not in given
                if of_clause and (action == "insert" or made_of & given):
                    follows.append(number)
            if follows:
                value = F.expr(sql).cast(spark_type(field.type))
                columns[field.name] = F.when(clause.isin(follows), value).otherwise(F.col(quote_name(field.name)))
        return rows.withColumns(columns) if columns else rows

    def _values_of(self, clause: Clause) -> dict[Path, Expression]:
        if clause.action == "delete":
            return {}
        sees = _SEES[clause.kind]
        values = self._all_columns(clause) if clause.values is None else self._set(clause.values, sees)
        return values | self._missing({p[0].lower() for p in values}) if clause.action == "insert" else values

    def _set(self, given: Mapping[str, Any], sees: tuple[str, ...]) -> dict[Path, Expression]:
        if not given:
            raise InvalidArgument("A clause has nothing to set", hint='Give columns and values, or "*" for all')
        values: dict[Path, Expression] = {}
        for name, value in given.items():
            path = column_path(name)
            if len(path) > 1 and path[0].lower() in {n.lower() for n in self._command.target_names}:
                path = path[1:]
            self._type_at(path)
            if any(other[0].lower() == path[0].lower() and (len(other) == 1 or len(path) == 1) for other in values):
                raise InvalidArgument("A column can be set only once", column=name)
            values[path] = self._names.resolve(value_sql(value), sees)
        return values

    def _all_columns(self, clause: Clause) -> dict[Path, Expression]:
        values: dict[Path, Expression] = {}
        for field in self._table.fields:
            given = self._source.field(field.name)
            if given is not None:
                values[(field.name,)] = expr.column(SOURCE + given.name)
            elif not self._command.merge_schema and sql_when_missing(field) is None:
                raise SchemaMismatch(
                    f'The source has no such column, and {clause.name}("*") sets all columns of the table',
                    column=field.name,
                    hint="Set columns one by one, or merge with merge_schema=True",
                )
        return values

    def _missing(self, given: set[str]) -> dict[Path, Expression]:
        values: dict[Path, Expression] = {}
        for field in self._table.fields:
            if field.name.lower() in given or generation_expression(field) is not None:
                continue
            sql = sql_when_missing(field)
            if sql is not None:
                values[(field.name,)] = expr.parse(sql)
            else:
                check_omittable(field, (field.name,))
        return values


def _flat(side: str, name: str) -> Column:
    return F.col(quote_name(side + name))
