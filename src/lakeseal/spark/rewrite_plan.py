"""A `Rewrite` whose new values only Spark can compute, as a DataFrame: the rows that its tasks are to write.

Tasks read the files and say of each row whether it is one that gets new values; Spark evaluates the assignments as they
were written, in its own dialect and with the session's settings, and puts the values into their columns by the
session's store assignment. Expressions see the row as it was; generated columns follow what they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know

from lakeseal import expr
from lakeseal.errors import InvalidArgument, InvalidExpression, InvalidInput
from lakeseal.expr.render import quote_name
from lakeseal.files.assignments import Assignment, Path, check_fields
from lakeseal.files.constraints import generation_expression
from lakeseal.files.file_schema import CHANGE_TYPE
from lakeseal.jobs.rewrite import Rewrite
from lakeseal.log.data import ReadSpec
from lakeseal.protocol.schema import DataType, StructField, StructType, dotted
from lakeseal.spark import store_assignment
from lakeseal.spark.failures import analysed
from lakeseal.spark.placed_rows import CHOSEN, placed_rows
from lakeseal.spark.predicates import Settings
from lakeseal.spark.schema import data_schema

_OLD = "__lakeseal_old"
_NEW = "__lakeseal_new"
_TOLD = "__lakeseal_told"


def rewritten(session: SparkSession, rewrite: Rewrite, settings: Settings) -> DataFrame:
    """`rewrite` is one of an update."""
    with analysed("evaluate a new value"):
        return _Plan(session, rewrite, settings).frame()


class _Plan:
    def __init__(self, session: SparkSession, rewrite: Rewrite, settings: Settings) -> None:
        self._rewrite = rewrite
        self._settings = settings
        self._table = rewrite.table
        spec = ReadSpec(
            schema=self._table,
            partition_columns=rewrite.partition_columns,
            mapping=rewrite.mapping,
            columns=None,
            max_decoded_bytes=rewrite.max_decoded_bytes,
            places=rewrite.places,
            row_ids=rewrite.row_ids,
            pads_chars=settings.pads_chars,
        )
        files = [file for split in rewrite.splits for file in split]
        rows = placed_rows(session, rewrite.store, spec, list(enumerate(files)), chosen=True)
        self._rows = rows.where(_column(CHOSEN)) if rewrite.only_updated else rows
        self._values = {field.name: self._of(field, rewrite.assignments) for field in self._table.fields}

    def frame(self) -> DataFrame:
        names = [*self._table.names, *self._tracked]
        new = [self._new(field).alias(field.name) for field in self._table.fields] + self._new_ids()
        old = F.struct(*(_column(name) for name in names)).alias(_OLD)
        changed = self._with_generated(self._rows.select(*new, old, _column(CHOSEN)))
        if not self._rewrite.changes:
            return changed.select(*(_column(name) for name in names))
        row = F.struct(*(_column(name) for name in names))
        after = F.array(_told(None, row), _told("update_preimage", _column(_OLD)), _told("update_postimage", row))
        one = F.when(_column(CHOSEN), after).otherwise(F.array(_told(None, row)))
        told = changed.select(F.explode(one).alias(_TOLD))
        columns = [_column(_TOLD).getField(_NEW).getField(name).alias(name) for name in names]
        return told.select(*columns, _column(_TOLD).getField(CHANGE_TYPE).alias(CHANGE_TYPE))

    @property
    def _tracked(self) -> tuple[str, ...]:
        return () if self._rewrite.row_ids is None else self._rewrite.row_ids.names

    def _new_ids(self) -> list[Column]:
        """Rows keep their ids, and those that change get the version of the commit."""
        if self._rewrite.row_ids is None:
            return []
        row_id, version = (_column(name) for name in self._tracked)
        return [row_id, F.when(~_column(CHOSEN), version).alias(self._rewrite.row_ids.commit_version)]

    def _of(self, field: StructField, assignments: Sequence[Assignment]) -> list[tuple[Path, str]]:
        """What the field or parts of it are set to."""
        found: list[tuple[Path, str]] = []
        for one in assignments:
            path = self._resolved(one.column)
            if path[0] != field.name:
                continue
            if any(path[: len(other)] == other[: len(path)] for other, _ in found):
                raise InvalidArgument("A column can be set only once", column=dotted(path))
            found.append((path, one.sql))
        return found

    def _resolved(self, path: Path) -> Path:
        names: list[str] = []
        current: DataType = self._table
        for name in path:
            field = current.field(name) if isinstance(current, StructType) else None
            if field is None or (self._settings.case_sensitive and field.name != name):
                known = ", ".join(current.names[:20]) if isinstance(current, StructType) else "no fields"
                raise InvalidExpression(f"There is no column {dotted(path)} to set", hint=f"There are {known}")
            names.append(field.name)
            current = field.type
        return tuple(names)

    def _new(self, field: StructField) -> Column:
        old = _column(field.name)
        values = self._values[field.name]
        if not values:
            return old
        return F.when(_column(CHOSEN), self._placed(old, field.type, (field.name,), dict(values))).otherwise(old)

    def _placed(self, old: Column, data_type: DataType, path: Path, values: dict[Path, str]) -> Column:
        """The value at a path; setting a field of a struct that is null makes it one of nulls."""
        if path in values:
            return self._assigned(values[path], data_type, path)
        if not any(other[: len(path)] == path for other in values):
            return old
        assert isinstance(data_type, StructType)
        parts = [
            self._placed(old.getField(part.name), part.type, (*path, part.name), values).alias(part.name)
            for part in data_type.fields
        ]
        return F.struct(*parts)

    def _assigned(self, sql: str, target: DataType, path: Path) -> Column:
        column = F.expr(sql)
        (given,) = data_schema(self._rows.select(column.alias("it")).schema).fields
        store_assignment.check(given.type, target, path, self._settings)
        check_fields(given.type, target, path)
        return store_assignment.assigned(column, given.type, target, self._settings, path)

    def _with_generated(self, rows: DataFrame) -> DataFrame:
        assigned = {path[0].lower() for values in self._values.values() for path, _ in values}
        columns: dict[str, Column] = {}
        for field in self._table.fields:
            sql = generation_expression(field)
            if sql is None or field.name.lower() in assigned or not _made_of(sql, assigned):
                continue
            (given,) = data_schema(rows.select(F.expr(sql).alias("it")).schema).fields
            value = store_assignment.assigned(F.expr(sql), given.type, field.type, self._settings, (field.name,))
            columns[field.name] = F.when(_column(CHOSEN), value).otherwise(_column(field.name)).alias(field.name)
        kept = [columns.get(name, _column(name)) for name in (*self._table.names, *self._tracked)]
        return rows.select(*kept, _column(_OLD), _column(CHOSEN)) if columns else rows


def _made_of(sql: str, assigned: set[str]) -> bool:
    try:
        return bool({path[0].lower() for path in expr.parse(sql).columns} & assigned)
    except InvalidInput:
        return True


def _told(kind: str | None, row: Column) -> Column:
    return F.struct(F.lit(kind).cast("string").alias(CHANGE_TYPE), row.alias(_NEW))


def _column(name: str) -> Column:
    return F.col(quote_name(name))
