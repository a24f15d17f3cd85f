"""New values for columns of rows: what UPDATE and MERGE set, computed in Arrow.

Expressions see the row as it was; a value goes into its column by store assignment. A field of a struct may be set
alone. Generated columns follow the columns that they are made of, unless they are set themselves.

Binding raises what is wrong with an assignment before any row is read: `InvalidExpression`, `SchemaMismatch`,
`UnsupportedExpression`.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from lakeseal import expr
from lakeseal.errors import InvalidArgument, InvalidExpression, LakesealError
from lakeseal.expr.expression import BoundExpression, Expression
from lakeseal.expr.syntax import Column
from lakeseal.protocol.nested import children
from lakeseal.protocol.schema import DataType, StructField, StructType, dotted
from lakeseal.write.constraints import generation_expression
from lakeseal.write.store_assignment import assign, canonical, check_assignable, stored_type

Path = tuple[str, ...]


class Assignment(Struct, frozen=True, kw_only=True):
    column: Path
    sql: str


def assignments(values: Mapping[str, Any]) -> tuple[Assignment, ...]:
    """What a caller sets: columns, or fields as `a.b`, to SQL text; what is no text is a constant."""
    if not values:
        raise InvalidArgument("There is nothing to set", hint="Give at least one column and its new value")
    return tuple(Assignment(column=column_path(name), sql=value_sql(value)) for name, value in values.items())


def column_path(name: str) -> Path:
    root = expr.parse(name).root
    if not isinstance(root, Column):
        raise InvalidExpression(
            f"{name!r} is not a column that can be set", hint="Name a column, in backticks if it is no plain word"
        )
    return root.parts


def value_sql(value: Any) -> str:
    return value if isinstance(value, str) else expr.literal(value).sql


class Assigner:
    """Assignments bound to a table. `given` is the schema that their expressions see, the table's own if left out."""

    def __init__(
        self,
        table: StructType,
        values: Sequence[tuple[Path, Expression]],
        *,
        given: StructType | None = None,
        now: datetime.datetime | None = None,
        is_new: bool = False,
    ) -> None:
        """`is_new`: the rows are new, so all generated columns that are not set are computed."""
        self._table = table
        self._now = now
        self._values: list[tuple[Path, BoundExpression]] = []
        for path, value in values:
            own, target = _resolved(table, path)
            if any(own[: len(other)] == other[: len(own)] for other, _ in self._values):
                raise InvalidArgument("A column can be set only once", column=dotted(own))
            bound = expr.bind(value, table if given is None else given)
            check_assignable(bound.type, target, own)
            self._values.append((own, bound))
        self._generated = self._dependent(is_new)

    @property
    def columns(self) -> frozenset[str]:
        """Top-level columns that change."""
        return frozenset(path[0] for path, _ in self._values) | {field.name for field, _ in self._generated}

    @property
    def reads(self) -> frozenset[Path]:
        """Columns of `given` that the expressions need."""
        return frozenset(path for _, bound in self._values for path in bound.columns)

    def apply(self, rows: pa.RecordBatch, given: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """`rows` with the new values, computed from `given`, row by row; from the rows themselves if left out."""
        source = rows if given is None else given
        changed = rows
        for path, bound in self._values:
            place = rows.schema.get_field_index(path[0])
            field = self._table.fields[self._table.names.index(path[0])]
            values = _evaluated(bound, source, _type_at(field, path), dotted(path), self._now)
            changed = _set(changed, place, field, _placed(changed.column(place), path[1:], values, field.type))
        for field, bound in self._generated:
            values = _evaluated(bound, changed, field.type, field.name, self._now)
            changed = _set(changed, rows.schema.get_field_index(field.name), field, values)
        return changed

    def _dependent(self, every: bool) -> list[tuple[StructField, BoundExpression]]:
        assigned = {path[0].lower() for path, _ in self._values}
        found = []
        for field in self._table.fields:
            sql = generation_expression(field)
            if sql is None or field.name.lower() in assigned:
                continue
            parsed = expr.parse(sql)
            if every or {path[0].lower() for path in parsed.columns} & assigned:
                found.append((field, expr.bind(parsed, self._table)))
        return found


def only_where(
    batch: pa.RecordBatch, mask: np.ndarray[Any, Any], changed: pa.RecordBatch, columns: Collection[str]
) -> pa.RecordBatch:
    """The batch with the rows of `mask` replaced by those of `changed`, in their places; they differ in `columns`."""
    order = np.arange(batch.num_rows)
    order[mask] = batch.num_rows + np.arange(changed.num_rows)
    places = pa.array(order)
    arrays = [
        pa.concat_arrays([old, new.cast(old.type)]).take(places) if name in columns else old
        for name, old, new in zip(batch.schema.names, batch.columns, changed.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _resolved(table: StructType, path: Path) -> tuple[Path, DataType]:
    names: list[str] = []
    current: DataType = table
    for name in path:
        field = current.field(name) if isinstance(current, StructType) else None
        if field is None:
            known = ", ".join(current.names[:20]) if isinstance(current, StructType) else "no fields"
            raise InvalidExpression(f"There is no column {dotted(path)} to set", hint=f"There are {known}")
        names.append(field.name)
        current = field.type
    return tuple(names), current


def _type_at(field: StructField, path: Path) -> DataType:
    current: DataType = field.type
    for name in path[1:]:
        assert isinstance(current, StructType)
        inner = current.field(name)
        assert inner is not None
        current = inner.type
    return current


def _evaluated(
    bound: BoundExpression, rows: pa.RecordBatch, target: DataType, column: str | None, now: datetime.datetime | None
) -> pa.Array:
    try:
        return assign(canonical(expr.evaluate(bound, rows, now=now)), bound.type, target)
    except LakesealError as error:
        raise error.at(column=column) from error.__cause__


def _set(rows: pa.RecordBatch, place: int, field: StructField, values: pa.Array) -> pa.RecordBatch:
    return rows.set_column(place, pa.field(rows.schema.names[place], stored_type(field.type)), values)


def _placed(old: pa.Array, path: Path, values: pa.Array, data_type: DataType) -> pa.Array:
    """`values` in the field at `path` of `old`; setting a field of a struct that is null makes it one of nulls."""
    if not path:
        return values
    assert isinstance(data_type, StructType)
    arrow = stored_type(data_type)
    parts = [
        _placed(child, path[1:], values, field.type) if field.name == path[0] else child.cast(arrow.field(index).type)
        for index, (child, field) in enumerate(zip(children(old), data_type.fields, strict=True))
    ]
    return pa.StructArray.from_arrays(parts, fields=list(arrow))
