"""Data as the table wants it: names, types, order, and what is missing.

Names match in any case. A value goes into its column by store assignment. A column that the data lacks is computed if
it is generated, gets its default if it has one, and is null otherwise, if it may be; identity columns get their values
behind that. Columns that the table does not
have are refused (`merge_schema` adds them to the table first). Empty strings in partition columns become null, for the
format cannot tell the two apart; `char(n)` and `varchar(n)` are made to fit. All of it comes before constraints.

`plan_columns` decides over schemas, before any row is seen; a `Normalizer` does it to batches.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import InvalidExpression, LakesealError, SchemaMismatch, UnsupportedExpression
from lakeseal.expr import BoundExpression, bind, evaluate, parse
from lakeseal.expr.render import quote_name
from lakeseal.files.constraints import generation_expression
from lakeseal.files.expressions import IN_TASK, Expressions
from lakeseal.files.file_schema import CHANGE_TYPE
from lakeseal.files.store_assignment import assign, canonical, check_assignable, check_omittable, stored_type
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.char_varchar import fit, limits
from lakeseal.protocol.identity import identity_of
from lakeseal.protocol.nested import has_lists
from lakeseal.protocol.schema import BINARY, STRING, DataType, StructField, StructType

CURRENT_DEFAULT = "CURRENT_DEFAULT"


class PlannedColumn(Struct, frozen=True, kw_only=True):
    """A column that only another engine can compute: its SQL, and why."""

    name: str
    sql: str
    reason: LakesealError


class ColumnPlan(Struct, frozen=True, kw_only=True):
    given: tuple[str, ...]
    """Columns of the table that the data has."""
    in_plan: tuple[PlannedColumn, ...] = ()


def plan_columns(
    data: StructType,
    table: StructType,
    *,
    cdc: bool = False,
    along: Collection[str] = (),
    expressions: Expressions = IN_TASK,
) -> ColumnPlan:
    """Raises `SchemaMismatch` if such data cannot go into such a table. `along` are columns that it may have beside."""
    for field in data.fields:
        if table.field(field.name) is None and not (cdc and field.name == CHANGE_TYPE) and field.name not in along:
            raise SchemaMismatch(
                "The data has a column that the table does not have",
                hint="Leave it out, or add it to the table with merge_schema=True",
                column=field.name,
            )
    in_plan: list[PlannedColumn] = []
    for field in table.fields:
        sql = ""
        try:
            given = data.field(field.name)
            if given is not None:
                sql = f"CAST({quote_name(given.name)} AS {field.type})"
                expressions.check_cast(given.type, field.type, (field.name,))
            else:
                sql = sql_when_missing(field) or ""
                if sql:
                    expressions.check(sql, table)
                    _bind_to(sql, field, table)
                elif identity_of(field) is None:
                    check_omittable(field, (field.name,))
        except (UnsupportedExpression, InvalidExpression) as error:
            in_plan.append(PlannedColumn(name=field.name, sql=sql, reason=error.at(column=field.name)))
    given_names = tuple(f.name for f in table.fields if data.field(f.name) is not None)
    return ColumnPlan(given=given_names, in_plan=tuple(in_plan))


def sql_when_missing(field: StructField) -> str | None:
    """What a column is where the data lacks it; None for null."""
    default = field.metadata.get(CURRENT_DEFAULT)
    return generation_expression(field) or (default if isinstance(default, str) else None)


def _bind_to(sql: str, field: StructField, table: StructType) -> BoundExpression:
    bound = bind(parse(sql), table)
    check_assignable(bound.type, field.type, (field.name,))
    return bound


class Normalizer:
    def __init__(
        self,
        table: StructType,
        partition_columns: Collection[str],
        *,
        cdc: bool = False,
        along: tuple[str, ...] = (),
        now: datetime.datetime | None = None,
    ) -> None:
        """`along` are columns of numbers that rows bring beside the table's; `now` is what `current_timestamp()` stands
        for in all batches."""
        self._now = now
        self._along = along
        self._table = table
        self._cdc = cdc
        self._limits = {f.name: limits(f) for f in table.fields}
        partitions = {name.lower() for name in partition_columns}
        self._no_empty = {f.name for f in table.fields if f.name.lower() in partitions and f.type in (STRING, BINARY)}
        fields = [pa.field(f.name, stored_type(f.type)) for f in table.fields]
        fields += [pa.field(name, pa.int64()) for name in along]
        self._arrow = pa.schema([*fields, pa.field(CHANGE_TYPE, pa.string())] if cdc else fields)
        self._seen: pa.Schema | None = None
        self._data = StructType()
        self._missing: dict[str, BoundExpression] = {}
        self._is_stored = False

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self._look_at(batch.schema)
        if self._is_stored:
            return batch
        columns = dict(zip((f.name.lower() for f in self._data.fields), batch.columns, strict=True))
        arrays = [self._column(field, columns.get(field.name.lower()), batch.num_rows) for field in self._table.fields]
        arrays += [columns[name.lower()] for name in self._along]
        if self._cdc:
            change_type = columns.get(CHANGE_TYPE)
            arrays.append(
                pa.nulls(batch.num_rows, pa.string()) if change_type is None else change_type.cast(pa.string())
            )
        made = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        return self._with_missing(made) if self._missing else made

    def _look_at(self, schema: pa.Schema) -> None:
        if self._seen is not None and self._seen.equals(schema):
            return
        self._data = from_arrow(schema)
        plan = plan_columns(self._data, self._table, cdc=self._cdc, along=self._along)
        if plan.in_plan:
            raise plan.in_plan[0].reason
        self._missing = {}
        for field in self._table.fields:
            sql = sql_when_missing(field) if self._data.field(field.name) is None else None
            if sql is not None:
                self._missing[field.name] = _bind_to(sql, field, self._table)
        self._seen = schema
        # Such as the table's own rows have: there is nothing to be done to it.
        unlimited = not self._no_empty and not any(self._limits.values())
        as_stored = unlimited and schema.equals(self._arrow, check_metadata=True)
        self._is_stored = as_stored and not any(has_lists(field.type) for field in self._arrow)

    def _column(self, field: StructField, array: pa.Array | None, rows: int) -> pa.Array:
        given = self._data.field(field.name)
        if array is None or given is None:
            return pa.nulls(rows, self._arrow.field(field.name).type)
        return self._fitted(field, array, given.type)

    def _fitted(self, field: StructField, array: pa.Array, source: DataType) -> pa.Array:
        try:
            stored = fit(assign(canonical(array), source, field.type), self._limits[field.name], field.name)
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"A value does not fit: {error}", column=field.name) from error
        except LakesealError as error:
            raise error.at(column=field.name) from error.__cause__
        return _empty_as_null(stored) if field.name in self._no_empty else stored

    def _with_missing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, bound in self._missing.items():
            field = self._table.field(name)
            assert field is not None
            values = self._fitted(field, evaluate(bound, batch, now=self._now), bound.type)
            batch = batch.set_column(batch.schema.get_field_index(name), self._arrow.field(name), values)
        return batch


def _empty_as_null(array: pa.Array) -> pa.Array:
    empty = pc.equal(pc.binary_length(array), 0)
    return pc.if_else(empty, pa.scalar(None, array.type), array) if pc.any(empty).as_py() else array
