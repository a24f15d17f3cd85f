"""New values for columns of rows: what UPDATE and MERGE set, computed in Arrow.

Expressions see the row as it was; a value goes into its column by store assignment. A field of a struct may be set
alone. Generated columns follow the columns that they are made of, unless they are set themselves.

A value that is a struct has all fields of its column, in any order; only a merge that evolves the schema takes less.
The word DEFAULT as a whole value is the column's default, or null where it has none.

Binding raises what is wrong with an assignment before any row is read: `InvalidExpression`, `SchemaMismatch`,
`UnsupportedExpression`.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal import expr
from lakeseal.errors import InvalidArgument, InvalidExpression, LakesealError, SchemaMismatch
from lakeseal.expr.expression import BoundExpression, Expression
from lakeseal.expr.syntax import Column
from lakeseal.files.constraints import generation_expression
from lakeseal.files.normalize import CURRENT_DEFAULT
from lakeseal.files.store_assignment import assign, canonical, check_assignable, stored_type
from lakeseal.protocol.nested import children
from lakeseal.protocol.schema import ArrayType, DataType, MapType, StructField, StructType, dotted

Path = tuple[str, ...]
_DEFAULT = "DEFAULT"


class Assignment(Struct, frozen=True, kw_only=True):
    column: Path
    sql: str


def assignments(values: Mapping[str, Any]) -> tuple[Assignment, ...]:
    """What a caller sets: columns, or fields as `a.b`, to SQL text; what is no text is a constant."""
    if not values:
        raise InvalidArgument("There is nothing to set", hint="Give at least one column and its new value")
    return tuple(Assignment(column=column_path(name), sql=value_sql(value)) for name, value in values.items())


def with_defaults(values: tuple[Assignment, ...], table: StructType) -> tuple[Assignment, ...]:
    """The same with the columns' own defaults where a value is DEFAULT."""
    return tuple(Assignment(column=v.column, sql=default_or(v.sql, table, v.column)) for v in values)


def column_path(name: str) -> Path:
    root = expr.parse(name).root
    if not isinstance(root, Column):
        raise InvalidExpression(
            f"{name!r} is not a column that can be set", hint="Name a column, in backticks if it is no plain word"
        )
    return root.parts


def value_sql(value: Any) -> str:
    return value if isinstance(value, str) else expr.literal(value).sql


def default_or(sql: str, table: StructType, path: Path) -> str:
    """What stands for a value: the default of its column, if it is the word DEFAULT and no column is called so."""
    if sql.strip().upper() != _DEFAULT or table.field(_DEFAULT) is not None:
        return sql
    if len(path) > 1:
        raise InvalidExpression(
            f"DEFAULT is for whole columns, and {dotted(path)} is a field", hint="Say the value, or NULL"
        )
    field = table.field(path[0])
    if field is not None and generation_expression(field) is not None:
        raise InvalidExpression("A generated column has no default", column=field.name, hint="Leave it out")
    default = None if field is None else field.metadata.get(CURRENT_DEFAULT)
    return default if isinstance(default, str) else "NULL"


def lacks_fields(given: DataType, wanted: DataType) -> bool:
    """Whether a struct lacks fields of its column, itself or in one of its structs."""
    if not isinstance(given, StructType) or not isinstance(wanted, StructType):
        return False
    pairs = [(given.field(field.name), field.type) for field in wanted.fields]
    return any(source is None or lacks_fields(source.type, target) for source, target in pairs)


def check_fields(given: DataType, wanted: DataType, path: Path) -> None:
    """Raises `SchemaMismatch` where a struct lacks a field of its column, at any depth."""
    match given, wanted:
        case StructType(), StructType():
            for field in wanted.fields:
                source = given.field(field.name)
                if source is None:
                    raise SchemaMismatch(
                        "The value lacks a field that the column has",
                        column=dotted((*path, field.name)),
                        hint="Give all fields of the struct, or merge with merge_schema=True",
                    )
                check_fields(source.type, field.type, (*path, field.name))
        case ArrayType(), ArrayType():
            check_fields(given.element, wanted.element, (*path, "element"))
        case MapType(), MapType():
            check_fields(given.key, wanted.key, (*path, "key"))
            check_fields(given.value, wanted.value, (*path, "value"))
        case _:
            pass


class Assigner:
    """Assignments bound to a table. `given` is the schema that their expressions see, the table's own if left out.

    `may_lack`: a struct may lack fields of its column. They are null, or stay as they are in columns of `keeps`.
    """

    def __init__(
        self,
        table: StructType,
        values: Sequence[tuple[Path, Expression]],
        *,
        given: StructType | None = None,
        now: datetime.datetime | None = None,
        is_new: bool = False,
        may_lack: bool = False,
        keeps: Collection[str] = (),
    ) -> None:
        """`is_new`: the rows are new, so all generated columns that are not set are computed."""
        self._table = table
        self._keeps = frozenset(keeps)
        self._now = now
        self._values: list[tuple[Path, BoundExpression]] = []
        for path, value in values:
            own, target = _resolved(table, path)
            if any(own[: len(other)] == other[: len(own)] for other, _ in self._values):
                raise InvalidArgument("A column can be set only once", column=dotted(own))
            bound = expr.bind(value, table if given is None else given)
            check_assignable(bound.type, target, own)
            if not may_lack:
                check_fields(bound.type, target, own)
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
            if field.name in self._keeps:
                values = _kept(values, bound.type, changed.column(place), field.type)
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


def _kept(values: pa.Array, given: DataType, old: pa.Array, wanted: DataType) -> pa.Array:
    """`values`, with the old values of fields that a struct lacks."""
    if not lacks_fields(given, wanted):
        return values
    assert isinstance(given, StructType)
    assert isinstance(wanted, StructType)
    arrow = stored_type(wanted)
    parts = []
    for index, (new, was, field) in enumerate(zip(children(values), children(old), wanted.fields, strict=True)):
        source = given.field(field.name)
        part = was.cast(arrow.field(index).type)
        parts.append(part if source is None else _kept(new, source.type, part, field.type))
    # A null where there was one already is no struct of nulls.
    return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=pc.and_(values.is_null(), old.is_null()))


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
