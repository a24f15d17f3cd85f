"""Expressions: SQL text that was understood, and the same bound to a schema.

    predicate = parse("id > 5 AND region = 'eu'")
    predicate.columns                               # {("id",), ("region",)}
    bound = bind_predicate(predicate, schema)
    filter_batch(bound, batch)

An `Expression` knows nothing of tables. A `BoundExpression` has a type and can be evaluated over Arrow data whose
columns have the schema's names. Both are frozen, can be pickled, and are safe to share between threads. The session's
time zone is UTC, ANSI mode is on, and answers are Spark's: what would differ is refused by `UnsupportedExpression`.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from functools import cached_property

import pyarrow as pa
from msgspec import Struct

from lakeseal.errors import InvalidArgument, InvalidExpression
from lakeseal.expr import syntax as sql
from lakeseal.expr.bind import CLOCKS, Binder
from lakeseal.expr.bound import Bound, Path, columns, conjuncts
from lakeseal.expr.interpreter import Rows, run_array, run_mask
from lakeseal.expr.numbers import decimal_type, fits
from lakeseal.expr.parser import parse_text
from lakeseal.expr.render import render
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    StructType,
)

Value = bool | int | float | Decimal | str | bytes | datetime.date | datetime.datetime | None


class Expression(Struct, frozen=True, eq=False, dict=True):
    text: str
    root: sql.Node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.sql == other.sql

    def __hash__(self) -> int:
        return hash(self.sql)

    def __str__(self) -> str:
        return self.text

    @cached_property
    def sql(self) -> str:
        """The expression in one canonical spelling."""
        return render(self.root)

    @cached_property
    def columns(self) -> frozenset[Path]:
        """Columns as they are written, such as `("a", "b")` for `a.b`."""
        paths = {node.parts for node, _ in sql.walk(self.root) if isinstance(node, sql.Column)}
        return frozenset(path for path in paths if len(path) > 1 or path[0].lower() not in CLOCKS)

    def conjuncts(self) -> tuple[Expression, ...]:
        """What AND joins at the top; the expression itself if it is no AND."""
        if not (isinstance(self.root, sql.Call) and self.root.name == "and"):
            return (self,)
        return tuple(_rendered(part) for part in self.root.args)

    def and_(self, *others: Expression) -> Expression:
        if not others:
            return self
        return _rendered(sql.Call("and", tuple(part.root for e in (self, *others) for part in e.conjuncts())))

    def bind(self, schema: StructType) -> BoundExpression:
        return bind(self, schema)


class BoundExpression(Struct, frozen=True, eq=False, dict=True):
    text: str
    root: Bound

    def __str__(self) -> str:
        return self.text

    @property
    def type(self) -> DataType:
        return self.root.type

    @property
    def nullable(self) -> bool:
        return self.root.nullable

    @cached_property
    def columns(self) -> frozenset[Path]:
        """Paths by the schema's own names."""
        return columns(self.root)

    def conjuncts(self) -> tuple[BoundExpression, ...]:
        parts = conjuncts(self.root)
        return (self,) if len(parts) == 1 else tuple(BoundExpression(self.text, part) for part in parts)


def parse(text: str) -> Expression:
    return Expression(text, parse_text(text))


def bind(expression: Expression, schema: StructType) -> BoundExpression:
    return BoundExpression(expression.text, Binder(schema, expression.text).bind(expression.root))


def bind_predicate(expression: Expression, schema: StructType) -> BoundExpression:
    """As `bind`, for what must be true or false of a row."""
    bound = bind(expression, schema)
    if bound.type == VOID:
        return BoundExpression(bound.text, Binder(schema, expression.text).null(BOOLEAN))
    check_predicate(bound)
    return bound


def check_predicate(bound: BoundExpression) -> None:
    if bound.type != BOOLEAN:
        raise InvalidExpression(
            f"The condition {bound.text[:100]!r} is of type {bound.type}, not boolean",
            hint="Compare it with something",
        )


def evaluate(
    bound: BoundExpression, batch: pa.RecordBatch | pa.Table, *, now: datetime.datetime | None = None
) -> pa.Array:
    """One value per row. `now` is what `current_timestamp()` and its like stand for."""
    if isinstance(batch, pa.Table):
        parts = [run_array(bound.root, _rows(bound, part, now)) for part in batch.to_batches()]
        return pa.concat_arrays(parts) if parts else pa.array([], bound.root.arrow)
    return run_array(bound.root, _rows(bound, batch, now))


def filter_batch(
    bound: BoundExpression, batch: pa.RecordBatch | pa.Table, *, now: datetime.datetime | None = None
) -> pa.RecordBatch | pa.Table:
    """The rows for which a condition is TRUE."""
    check_predicate(bound)
    if isinstance(batch, pa.Table):
        parts = [filter_batch(bound, part, now=now) for part in batch.to_batches()]
        return pa.Table.from_batches(parts, batch.schema)
    return batch.filter(mask(bound, batch, now=now))


def mask(bound: BoundExpression, batch: pa.RecordBatch, *, now: datetime.datetime | None = None) -> pa.BooleanArray:
    """Whether a condition is TRUE, of each row; none is null."""
    check_predicate(bound)
    return run_mask(bound.root, _rows(bound, batch, now))


def _rows(bound: BoundExpression, batch: pa.RecordBatch, now: datetime.datetime | None) -> Rows:
    exact = {name: position for position, name in enumerate(batch.schema.names)}
    folded = {name.lower(): position for name, position in exact.items()}
    wanted = {path[0] for path in bound.columns}
    found = {name: exact.get(name, folded.get(name.lower())) for name in wanted}
    arrays = {name: batch.column(position) for name, position in found.items() if position is not None}
    return Rows(arrays, batch.num_rows, clock(now))


def clock(now: datetime.datetime | None) -> pa.Scalar | None:
    if now is None:
        return None
    if now.tzinfo is None:
        raise InvalidArgument("`now` needs a time zone", hint="Use datetime.now(UTC)")
    return pa.scalar(now, pa.timestamp("us", "UTC"))


def column(*path: str) -> Expression:
    return _rendered(sql.Column(path))


def literal(value: Value) -> Expression:
    """A constant, of the type that fits the Python value."""
    return _rendered(_literal(value))


def equal(path: Path, value: Value) -> Expression:
    """A column's value is this one; NULL equals NULL."""
    if value is None:
        return _rendered(sql.Call("is null", (sql.Column(path),)))
    return _rendered(sql.Call("=", (sql.Column(path), _literal(value))))


def _literal(value: Value) -> sql.Literal:
    match value:
        case None:
            return sql.Literal(None, VOID)
        case bool():
            return sql.Literal(value, BOOLEAN)
        case int():
            return _integer(value)
        case float():
            return sql.Literal(value, DOUBLE)
        case Decimal():
            return _decimal(value)
        case str():
            return sql.Literal(value, STRING)
        case bytes():
            return sql.Literal(value, BINARY)
        case datetime.datetime() if value.tzinfo is None:
            return sql.Literal(value.isoformat(" "), TIMESTAMP_NTZ)
        case datetime.datetime():
            return sql.Literal(value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(" ") + "Z", TIMESTAMP)
        case datetime.date():
            return sql.Literal(value.isoformat(), DATE)
        case _:
            raise InvalidArgument(f"There is no SQL literal for a value of type {type(value).__name__}")


def _integer(value: int) -> sql.Literal:
    for data_type in (INTEGER, LONG):
        if fits(value, data_type):
            return sql.Literal(value, data_type)
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> sql.Literal:
    data_type = decimal_type(value) if value.is_finite() else None
    if data_type is None:
        raise InvalidArgument(f"The number {value!s:.50} has too many digits for a decimal")
    return sql.Literal(Decimal(f"{value:f}"), data_type)


def _rendered(root: sql.Node) -> Expression:
    return Expression(render(root), root)
