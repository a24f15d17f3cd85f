"""Columns of a MERGE in Spark: which clause a row falls under, and what it then becomes.

Texts are Spark's, as they were written: names bind to frames that carry the aliases of both sides, so what `expr`
cannot evaluate works here, and the session says what a text means. A value goes into its column by store assignment,
structs by name at every depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from lakeseal import expr
from lakeseal.commands.merge.clauses import Clause, MergeCommand
from lakeseal.commands.merge.evolution import own_path
from lakeseal.commands.merge.names import TARGET, MergeNames, columns_of
from lakeseal.commands.merge.plan import check_identity
from lakeseal.errors import InvalidArgument, InvalidExpression, InvalidInput, SchemaMismatch
from lakeseal.expr.bound import Path
from lakeseal.expr.expression import Expression
from lakeseal.expr.render import quote_name
from lakeseal.files.assignments import check_fields, default_or, lacks_fields, value_sql
from lakeseal.files.constraints import generation_expression
from lakeseal.files.file_schema import CHANGE_TYPE, INSERTED
from lakeseal.files.normalize import sql_when_missing
from lakeseal.files.store_assignment import check_omittable
from lakeseal.protocol.identity import identity_of
from lakeseal.protocol.row_tracking import RowTrackingColumns
from lakeseal.protocol.schema import DataType, StructField, StructType, dotted
from lakeseal.spark import store_assignment
from lakeseal.spark.predicates import Settings
from lakeseal.spark.schema import data_schema, spark_type
from lakeseal.statements.qualifiers import qualified, renamed

_OLD = "__lakeseal_old"


class _Value(Struct, frozen=True, kw_only=True):
    sql: str
    keeps: bool = False
    """Fields of a struct that the value lacks stay as they are."""


class MergeColumns:
    def __init__(
        self,
        command: MergeCommand,
        table: StructType,
        source: StructType,
        settings: Settings,
        row_ids: RowTrackingColumns | None,
    ) -> None:
        """`row_ids` are columns that the table's rows bring along, where it tracks them."""
        self._settings = settings
        self._row_ids = row_ids
        self.row_names = [*table.names, *(() if row_ids is None else row_ids.names)]
        self._command = command
        self._table = table
        self._source = source
        self.target_alias, self.source_alias = command.target_names[0], command.source_names[0]
        self.names = MergeNames(table, source, target_names=command.target_names, source_names=command.source_names)
        self.on = self._own(command.on)
        self._conditions = [None if c.condition is None else self._own(c.condition) for c in command.clauses]
        self._values = [self._values_of(clause) for clause in command.clauses]
        self._types: dict[tuple[int, Path], DataType] = {}

    def searched(self, on: Expression | None) -> frozenset[str] | None:
        """Columns of the table that say what becomes of a row; None for all, where that cannot be told."""
        if on is None:
            return None
        paths = set(on.columns)
        for clause in self._command.clauses:
            if clause.condition is None:
                continue
            if self._settings.other_quotes and ('"' in clause.condition or "\\" in clause.condition):
                return None
            try:
                paths |= self.names.resolve(clause.condition).columns
            except InvalidInput:
                return None
        return columns_of(TARGET, paths)

    def check(self, target: DataFrame, source: DataFrame) -> None:
        """That conditions mean something, and that all values go into their columns; the frames need have no rows."""
        both = target.crossJoin(source)
        frames = {"matched": both, "not_matched": source, "not_matched_by_source": target}
        _ = both.where(F.expr(self.on)).schema
        for number, clause in enumerate(self._command.clauses):
            condition = self._conditions[number]
            if condition is not None:
                _ = frames[clause.kind].where(F.expr(condition)).schema
            for path, value in self._values[number].items():
                shown = frames[clause.kind].select(F.expr(value.sql).alias("it"))
                (given,) = data_schema(shown.schema).fields
                wanted = self._type_at(path)
                store_assignment.check(given.type, wanted, path, self._settings)
                if not self._command.merge_schema:
                    check_fields(given.type, wanted, path)
                self._types[number, path] = given.type

    def clause(self, kind: str) -> Column:
        """The number of the first clause of a kind whose condition holds; null if none does."""
        chosen = F.lit(None).cast("int")
        for number, clause in reversed(list(enumerate(self._command.clauses))):
            if clause.kind == kind:
                condition = self._conditions[number]
                holds = F.lit(True) if condition is None else F.expr(condition)
                chosen = F.when(holds, F.lit(number)).otherwise(chosen)
        return chosen

    def updated(self, joined: DataFrame, clause: Column) -> DataFrame:
        """Rows as they become, under the table's names, with `_OLD` as they were."""
        columns = [
            self._new(field, self._of_target(field.name), clause, "update").alias(field.name)
            for field in self._table.fields
        ]
        if self._row_ids is not None:
            # Rows keep their ids, and those that change get the version of the commit.
            row_id, version = (self._of_target(name) for name in self._row_ids.names)
            columns += [row_id, F.when(clause.isNull(), version).alias(self._row_ids.commit_version)]
        was = F.struct(*(self._of_target(n).alias(n) for n in self.row_names)).alias(_OLD)
        return self._generated(joined.select(*columns, was, clause), clause, "update")

    def inserted(self, fresh: DataFrame, clause: Column) -> DataFrame:
        """New rows, under the table's names."""
        columns = [
            self._new(field, F.lit(None).cast(spark_type(field.type)), clause, "insert").alias(field.name)
            for field in self._table.fields
        ]
        made = self._generated(fresh.select(*columns, clause), clause, "insert")
        tracked = () if self._row_ids is None else self._row_ids.names
        fresh_ids = [F.lit(None).cast("long").alias(name) for name in tracked]
        return made.select(*(F.col(quote_name(n)) for n in self._table.names), *fresh_ids)

    def with_changes(self, rows: DataFrame, changes: bool) -> DataFrame:
        """New rows, marked for the change feed."""
        if not changes:
            return rows
        return rows.select("*", F.lit(INSERTED).alias(CHANGE_TYPE))

    def with_feed(self, rows: DataFrame, clause: Column, updates: list[int], change_type: str) -> DataFrame:
        """What `updated` gave, with all that the change feed wants to know."""
        new = F.struct(*(F.col(quote_name(n)) for n in self.row_names))
        old = F.col(quote_name(_OLD))

        def told(kind: str | None, row: Column) -> Column:
            return F.struct(F.lit(kind).cast("string").alias("kind"), row.alias("row"))

        after = F.array(told(None, new), told("update_preimage", old), told("update_postimage", new))
        one = F.when(clause.isNull(), F.array(told(None, new))).when(clause.isin(updates), after)
        whole = rows.select(F.explode(one.otherwise(F.array(told("delete", old)))).alias("told"))
        columns = [F.col("told.row").getField(n).alias(n) for n in self.row_names]
        return whole.select(*columns, F.col("told.kind").alias(change_type))

    def _of_target(self, name: str) -> Column:
        return F.col(f"{quote_name(self.target_alias)}.{quote_name(name)}")

    def _new(self, field: StructField, old: Column, clause: Column, action: str) -> Column:
        new = old
        for number, values in enumerate(self._values):
            mine = [path for path in values if path[0] == field.name]
            if self._command.clauses[number].action == action and mine:
                new = F.when(clause == number, self._placed(number, (field.name,), field.type, old)).otherwise(new)
        return new

    def _placed(self, number: int, path: Path, data_type: DataType, old: Column) -> Column:
        """The value at a path; setting a field of a struct that is null makes it one of nulls."""
        values = self._values[number]
        if path in values:
            return self._assigned(
                F.expr(values[path].sql), self._types[number, path], data_type, old, path, values[path].keeps
            )
        if not any(other[: len(path)] == path for other in values):
            return old
        assert isinstance(data_type, StructType)
        parts = [
            self._placed(number, (*path, part.name), part.type, old.getField(part.name)).alias(part.name)
            for part in data_type.fields
        ]
        return F.struct(*parts)

    def _assigned(
        self, column: Column, given: DataType, wanted: DataType, old: Column, path: Path, keeps: bool
    ) -> Column:
        if not keeps or not lacks_fields(given, wanted):
            return store_assignment.assigned(column, given, wanted, self._settings, path)
        assert isinstance(given, StructType)
        assert isinstance(wanted, StructType)
        parts = []
        for field in wanted.fields:
            part, source = old.getField(field.name), given.field(field.name)
            if source is not None:
                inner = column.getField(source.name)
                part = self._assigned(inner, source.type, field.type, part, (*path, field.name), keeps)
            parts.append(part.alias(field.name))
        # A null where there was one already is no struct of nulls.
        return F.when(column.isNotNull() | old.isNotNull(), F.struct(*parts))

    def _type_at(self, path: Path) -> DataType:
        return self._resolved(path)[1]

    def _resolved(self, path: Path) -> tuple[Path, DataType]:
        names: list[str] = []
        current: DataType = self._table
        for name in path:
            field = current.field(name) if isinstance(current, StructType) else None
            if field is None or (self._settings.case_sensitive and field.name != name):
                raise InvalidExpression(
                    f"There is no column {dotted(path)} to set", hint=f"There are {', '.join(self._table.names[:20])}"
                )
            names.append(field.name)
            current = field.type
        return tuple(names), current

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

    def _values_of(self, clause: Clause) -> dict[Path, _Value]:
        if clause.action == "delete":
            return {}
        values = self._all_columns(clause) if clause.values is None else self._set(clause, clause.values)
        check_identity(clause, self._table, [path[0] for path in values])
        return values | self._missing({p[0].lower() for p in values}) if clause.action == "insert" else values

    def _set(self, clause: Clause, given: Mapping[str, object]) -> dict[Path, _Value]:
        if not given:
            raise InvalidArgument("A clause has nothing to set", hint='Give columns and values, or "*" for all')
        values: dict[Path, _Value] = {}
        for name, value in given.items():
            path, _ = self._resolved(own_path(name, self._command, self._table))
            if any(path[: len(other)] == other[: len(path)] for other in values):
                raise InvalidArgument("A column can be set only once", column=name)
            sql = self._own(default_or(value_sql(value), self._table, path))
            if clause.kind == "not_matched_by_source":
                # It is evaluated beside the source, of which it must not see anything.
                sql = qualified(sql, self._table, self.target_alias, other_quotes=self._settings.other_quotes)
            values[path] = _Value(sql=sql)
        return values

    def _all_columns(self, clause: Clause) -> dict[Path, _Value]:
        self._check_case(clause)
        values: dict[Path, _Value] = {}
        for field in self._table.fields:
            given = self._source.field(field.name)
            if given is not None and not (self._settings.case_sensitive and given.name != field.name):
                sql = f"{quote_name(self.source_alias)}.{quote_name(given.name)}"
                values[(field.name,)] = _Value(sql=sql, keeps=clause.action == "update")
            elif not self._command.merge_schema and identity_of(field) is None:
                raise SchemaMismatch(
                    f'The source has no such column, and {clause.name}("*") sets all columns of the table',
                    column=field.name,
                    hint="Set columns one by one, or merge with merge_schema=True",
                )
        return values

    def _check_case(self, clause: Clause) -> None:
        """In a session that minds case `S` is not the table's `s`; nor can it become a column beside it."""
        if not (self._settings.case_sensitive and self._command.merge_schema):
            return
        for name in self._source.names:
            field = self._table.field(name)
            if field is not None and field.name != name:
                raise SchemaMismatch(
                    f'{clause.name}("*") would set {name}, which in this session is not the column {field.name}, '
                    "and the names of two columns cannot differ by case alone",
                    column=name,
                    hint=f"Call it {field.name} in the source, or set spark.sql.caseSensitive to false",
                )

    def _missing(self, given: set[str]) -> dict[Path, _Value]:
        values: dict[Path, _Value] = {}
        for field in self._table.fields:
            if field.name.lower() in given or generation_expression(field) is not None:
                continue
            sql = sql_when_missing(field)
            if sql is not None:
                values[(field.name,)] = _Value(sql=sql)
            elif identity_of(field) is None:
                check_omittable(field, (field.name,))
        return values

    def _own(self, text: str) -> str:
        """The text with one name for each side, of the several that a side may have."""
        for names in (self._command.target_names, self._command.source_names):
            text = _one_name(text, names, self._settings)
        return text


def _one_name(text: str, names: Sequence[str], settings: Settings) -> str:
    return (
        text if len(names) < 2 else renamed(text, names[1:], names[0], double_quoted_names=settings.double_quoted_names)
    )
