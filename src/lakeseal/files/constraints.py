"""What every row of a table must keep to, checked batch by batch where the rows are written.

`plan_constraints` collects it: columns that must not be null (nested ones too), CHECK constraints, invariants of
columns, and generated columns that the data brings along. What cannot be evaluated here is handed back apart, with the
reason, for an engine that can: it must be checked in that engine's plan, or the write must be refused.

A check holds only if it is TRUE; NULL is a violation. A `ConstraintViolation` names the constraint and shows a row.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import (
    ConstraintViolation,
    EvaluationError,
    InvalidExpression,
    InvalidMetadata,
    LakesealError,
    UnsupportedExpression,
)
from lakeseal.expr import BoundExpression, bind_predicate, evaluate, parse
from lakeseal.expr.render import quote_name
from lakeseal.files.expressions import IN_TASK, Expressions
from lakeseal.protocol.nested import without_hidden
from lakeseal.protocol.schema import BINARY, STRING, ArrayType, DataType, MapType, StructField, StructType, dotted

GENERATION_EXPRESSION = "delta.generationExpression"
INVARIANTS = "delta.invariants"

Path = tuple[str, ...]

_SHOWN_COLUMNS = 20
_SHOWN_CHARACTERS = 80


class NotNull(Struct, frozen=True, kw_only=True, tag="not_null"):
    """`path` goes through structs by name, through arrays by `element`, through maps by `value`."""

    path: Path

    def __str__(self) -> str:
        return f"NOT NULL of column {dotted(self.path)}"


class RowCondition(Struct, frozen=True, kw_only=True, tag="check"):
    what: str
    name: str
    sql: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.name} ({self.sql})"


Constraint = NotNull | RowCondition
_EMPTY: Mapping[DataType, str] = {STRING: "''", BINARY: "X''"}
"""What partitions cannot tell from null."""


class RefusedCheck(Struct, frozen=True, kw_only=True):
    """A check that only another engine can evaluate, and why."""

    check: RowCondition
    reason: LakesealError


class ConstraintPlan(Struct, frozen=True, kw_only=True):
    in_task: tuple[Constraint, ...] = ()
    in_plan: tuple[RefusedCheck, ...] = ()


def plan_constraints(
    schema: StructType,
    checks: Mapping[str, str],
    *,
    given: Collection[str],
    partition_columns: Collection[str] = (),
    extra: Iterable[RowCondition] = (),
    expressions: Expressions = IN_TASK,
) -> ConstraintPlan:
    """`checks` are the table's CHECK constraints, SQL by name; `given` are the columns that the data has; `extra`
    are checks of this write alone."""
    partitions = {name.lower() for name in partition_columns}
    in_task: list[Constraint] = [NotNull(path=path) for path in _not_null(schema, ())]
    in_plan: list[RefusedCheck] = []
    for check in (*_checks(schema, checks, {name.lower() for name in given}, partitions), *extra):
        try:
            expressions.check(check.sql, schema)
            bind_predicate(parse(check.sql), schema)
        except (UnsupportedExpression, InvalidExpression) as error:
            in_plan.append(RefusedCheck(check=check, reason=error))
        else:
            in_task.append(check)
    return ConstraintPlan(in_task=tuple(in_task), in_plan=tuple(in_plan))


def generation_expression(field: StructField) -> str | None:
    sql = field.metadata.get(GENERATION_EXPRESSION)
    return sql if isinstance(sql, str) else None


def _checks(
    schema: StructType, checks: Mapping[str, str], given: Collection[str], partitions: Collection[str]
) -> Iterator[RowCondition]:
    for name, sql in checks.items():
        yield RowCondition(what="CHECK constraint", name=name, sql=sql)
    for path, field in _fields(schema, ()):
        sql_of_invariant = _invariant(field, path)
        if sql_of_invariant is not None:
            column = dotted(path)
            yield RowCondition(what="Invariant", name=f"of column {column}", sql=sql_of_invariant, column=column)
    for field in schema.fields:
        generated = generation_expression(field)
        if generated is not None and field.name.lower() in given:
            sql = f"{quote_name(field.name)} <=> ({generated})"
            empty = _EMPTY.get(field.type)
            if empty is not None and field.name.lower() in partitions:
                # What is generated as an empty text is null in a row that was read again.
                sql = f"coalesce({quote_name(field.name)}, {empty}) = coalesce({generated}, {empty})"
            yield RowCondition(what="Generated column", name=field.name, sql=sql, column=field.name)


def _fields(schema: StructType, path: Path) -> Iterator[tuple[Path, StructField]]:
    for field in schema.fields:
        yield (*path, field.name), field
        if isinstance(field.type, StructType):
            yield from _fields(field.type, (*path, field.name))


def _invariant(field: StructField, path: Path) -> str | None:
    text = field.metadata.get(INVARIANTS)
    if text is None:
        return None
    try:
        match msgspec.json.decode(text):
            case {"expression": {"expression": str(sql)}}:
                return sql
    except (msgspec.DecodeError, TypeError):
        pass
    raise InvalidMetadata(f"The metadata {INVARIANTS} is malformed: {str(text)[:100]}", column=dotted(path))


def _not_null(data_type: DataType, path: Path) -> Iterator[Path]:
    match data_type:
        case StructType(fields=fields):
            for field in fields:
                if not field.nullable:
                    yield (*path, field.name)
                yield from _not_null(field.type, (*path, field.name))
        case ArrayType(element=element, contains_null=contains_null):
            if not contains_null:
                yield (*path, "element")
            yield from _not_null(element, (*path, "element"))
        case MapType(key=key, value=value, value_contains_null=contains_null):
            yield from _not_null(key, (*path, "key"))
            if not contains_null:
                yield (*path, "value")
            yield from _not_null(value, (*path, "value"))
        case _:
            return


class ConstraintCheck:
    """Constraints bound to a schema; batches come with the schema's columns in the schema's types."""

    def __init__(
        self, constraints: Collection[Constraint], schema: StructType, *, now: datetime.datetime | None = None
    ) -> None:
        """`now` is what `current_timestamp()` stands for in all batches."""
        self._now = now
        self._not_null = [c for c in constraints if isinstance(c, NotNull)]
        self._checks: list[tuple[RowCondition, BoundExpression]] = [
            (c, bind_predicate(parse(c.sql), schema)) for c in constraints if isinstance(c, RowCondition)
        ]

    def check(self, batch: pa.RecordBatch) -> None:
        for constraint in self._not_null:
            row = _first_null(batch.column(constraint.path[0]), constraint.path[1:], None)
            if row is not None:
                raise _violation(constraint, batch, row, dotted(constraint.path))
        for check, bound in self._checks:
            row = _first_not_true(self._evaluated(check, bound, batch))
            if row is not None:
                raise _violation(check, batch, row, check.column)

    def _evaluated(self, check: RowCondition, bound: BoundExpression, batch: pa.RecordBatch) -> pa.Array:
        try:
            return evaluate(bound, batch, now=self._now)
        except EvaluationError as error:
            raise EvaluationError(
                f"The {check} failed: {error.message}", column=check.column, hint="Mend the row, or the constraint"
            ) from error


def _first_not_true(holds: pa.Array) -> int | None:
    if holds.null_count == 0 and pc.all(holds, min_count=0).as_py():
        return None
    at = pc.index(pc.fill_null(holds, False), False).as_py()
    return at if at >= 0 else None


def _first_null(array: pa.Array, path: Path, rows: np.ndarray[Any, Any] | None) -> int | None:
    """The first row where the value at the path is null though what holds it is there; `rows` are those of values."""
    if not path:
        if array.null_count == 0:
            return None
        at = int(pc.index(array.is_null(), True).as_py())
        return at if rows is None else int(rows[at])
    if pa.types.is_struct(array.type):
        child = array.field(path[0])
        if array.null_count:
            valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
            child, rows = child.take(pa.array(valid)), valid if rows is None else rows[valid]
        return _first_null(child, path[1:], rows)
    is_map = pa.types.is_map(array.type)
    entries = without_hidden(_as_list(array) if is_map else array)
    parents = pc.list_parent_indices(entries).to_numpy()
    values = pc.list_flatten(entries)
    if is_map:
        values = values.field(0 if path[0] == "key" else 1)
    return _first_null(values, path[1:], parents if rows is None else rows[parents])


def _as_list(array: pa.MapArray) -> pa.ListArray:
    # Kernels for lists do not refuse maps, they end the process.
    entry = pa.struct([array.type.key_field, array.type.item_field])
    return array.view(pa.list_(pa.field("entries", entry, nullable=False)))


def _violation(constraint: Constraint, batch: pa.RecordBatch, row: int, column: str | None) -> ConstraintViolation:
    return ConstraintViolation(
        f"The {constraint} is violated by the row {show_row(batch, row)}",
        column=column,
        hint="Mend or leave out such rows; nothing was written",
    )


def show_row(batch: pa.RecordBatch, row: int) -> str:
    """A row for an error's text, long values and many columns cut."""
    parts = []
    for name, column in list(zip(batch.schema.names, batch.columns, strict=True))[:_SHOWN_COLUMNS]:
        text = _shown(column[row])
        parts.append(f"{name}: {text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '…'}")
    return "{" + ", ".join(parts) + (", …}" if batch.num_columns > _SHOWN_COLUMNS else "}")


def _shown(scalar: pa.Scalar) -> str:
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        # Python's own dates end with the year 9999.
        return f"<{scalar.type}>"
    if value is None:
        return "null"
    return str(value) if pa.types.is_temporal(scalar.type) else repr(value)
