"""Binding: a tree of SQL to typed nodes over a schema.

Columns are found without regard to case, Spark's implicit casts become nodes, parts without columns become constants.
Names that are not there and types that do not go together raise `InvalidExpression`; what Spark does and this package
does not raises `UnsupportedExpression`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Never

import pyarrow as pa
from msgspec.structs import replace

from lakeseal.errors import EvaluationError, InvalidExpression, UnsupportedExpression
from lakeseal.expr import casts, coercion, functions, operators, row_collections
from lakeseal.expr import syntax as sql
from lakeseal.expr.bind_lambdas import bind_with_lambdas
from lakeseal.expr.bound import DAY_TIME, Bound, Path, arrow_type, literal
from lakeseal.expr.interpreter import run_constant
from lakeseal.expr.intervals import TAKE_INTERVALS
from lakeseal.expr.lexer import place
from lakeseal.expr.row_functions import ROW, ROW_WITH_NULLS
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.char_varchar import char_limits
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    dotted,
)

_COLLATIONS = "__COLLATIONS"
# Names that are functions without parentheses, unless the table has such a column.
CLOCKS: dict[str, DataType] = {"current_date": DATE, "current_timestamp": TIMESTAMP}
_MAX_HINTS = 3
_NULL_TOLERANT = frozenset(
    (
        *("<=>", "is null", "is true", "is false", "isnan", "greatest", "least", "concat", "coalesce", "case"),
        *("and", "or", ROW_WITH_NULLS),
    )
)


class Binder:
    def __init__(self, schema: StructType, text: str) -> None:
        self.schema = schema
        self.text = text
        # Spark types a number as written more tightly than one that was calculated.
        self._written: dict[int, Bound] = {}
        self._variables: list[dict[str, Bound]] = []
        self._lambdas = 0

    def bind(self, node: sql.Node) -> Bound:
        match node:
            case sql.Literal():
                return self._literal(node)
            case sql.Column():
                return self._column(node)
            case sql.Member(base=base, name=name, position=position):
                return self.member(self.bind(base), name, position)
            case sql.Subscript(base=base, key=key, position=position):
                return self._subscript(self.bind(base), self.bind(key), position)
            case sql.Cast(child=child, type=target, attempt=attempt, position=position):
                return self.explicit_cast(self.bind(child), target, position, attempt=attempt)
            case sql.Case():
                return self._case(node)
            case sql.Interval():
                return operators.interval(self, node)
            case sql.Variable():
                return self._variable(node)
            case sql.Lambda(position=position):
                self.unsupported("A lambda function here", position)
            case sql.Unit(name=name, position=position):
                self.unsupported(f"The unit {name} by itself", position)
            case sql.Call():
                return self._call(node)

    # What operators and functions build with

    def make(
        self,
        op: str,
        data_type: DataType,
        args: Sequence[Bound],
        *,
        nullable: bool | None = None,
        raises: bool = False,
        option: Any = None,
    ) -> Bound:
        """A node; a constant if it has no columns below it and a value, or if a NULL settles it."""
        if op not in _NULL_TOLERANT and any(arg.is_literal and not arg.option.is_valid for arg in args):
            return self.null(data_type)
        node = Bound(
            op,
            data_type,
            tuple(args),
            any(arg.nullable for arg in args) if nullable is None else nullable,
            raises or any(arg.raises for arg in args),
            option,
        )
        if not args or not all(arg.is_literal for arg in args):
            return node
        try:
            return literal(run_constant(node), data_type)
        except EvaluationError:
            # It may stand in a branch that no row takes.
            return node

    def null(self, data_type: DataType) -> Bound:
        return literal(pa.scalar(None, arrow_type(data_type)), data_type)

    def constant(self, value: Any, data_type: DataType) -> Bound:
        return literal(pa.scalar(value, arrow_type(data_type)), data_type)

    def is_written(self, node: Bound) -> bool:
        return id(node) in self._written

    def share(self, node: Bound) -> Bound:
        """A node that stands in several places and is evaluated once."""
        if node.op in ("literal", "column", "shared"):
            return node
        return Bound("shared", node.type, (node,), node.nullable, node.raises)

    def cast(self, node: Bound, target: DataType) -> Bound:
        """To a type that Spark casts to."""
        if node.type == target:
            return node
        if node.type == VOID:
            return self.null(target)
        reason = casts.refusal(node.type, target)
        if reason is not None:
            raise UnsupportedExpression(f"The cast from {node.type} to {target} is not supported: {reason}")
        return self.make("cast", target, (node,), raises=not casts.never_fails(node.type, target))

    def explicit_cast(self, node: Bound, target: DataType, position: int, *, attempt: bool = False) -> Bound:
        if node.type == target:
            return node
        if not coercion.is_atomic(target) or not (coercion.is_atomic(node.type) or node.type == VOID):
            self.unsupported(f"The cast from {node.type} to {target}", position)
        if not coercion.can_cast(node.type, target):
            self.mismatch(f"{node.type} cannot be cast to {target}", position)
        if not attempt:
            return self.cast(node, target)
        if casts.refusal(node.type, target) is not None:
            self.unsupported(f"The cast from {node.type} to {target}", position)
        return self.make("try_cast", target, (node,), nullable=True)

    def expect(self, node: Bound, target: DataType, position: int) -> Bound:
        """An argument as a function wants it, by the implicit casts that Spark allows there."""
        source = node.type
        allowed = source in (target, VOID)
        if target == STRING:
            allowed |= coercion.is_atomic(source)
        elif target in (DATE, TIMESTAMP):
            allowed |= source == STRING or source in coercion.MOMENTS
        elif target in (INTEGER, LONG):
            allowed |= source == STRING or source in coercion.INTEGRAL
        elif target in (BOOLEAN, BINARY):
            allowed |= source == STRING
        elif target == DOUBLE:
            allowed |= source == STRING or coercion.is_numeric(source)
        elif isinstance(target, DecimalType):
            allowed |= source in coercion.INTEGRAL or isinstance(source, DecimalType)
        if not allowed:
            if coercion.is_atomic(source) and not (coercion.is_numeric(source) and coercion.is_numeric(target)):
                self.mismatch(f"Expected {target}, found {source}", position)
            self.unsupported(f"{source} where {target} is expected", position)
        return self.cast(node, target)

    def common(self, nodes: Sequence[Bound], position: int) -> tuple[Bound, ...]:
        """Branches brought to one type, as for CASE, COALESCE and IN."""
        target: DataType = VOID
        for node in nodes:
            wider = coercion.wider(target, node.type)
            if wider is None:
                self.mismatch(f"{target} and {node.type} have no common type", position)
            target = wider
        return tuple(self.cast(node, target) for node in nodes)

    def mismatch(self, what: str, position: int) -> Never:
        raise InvalidExpression(
            f"{what}, at {place(self.text, position)}", hint="Check the types of the columns, or add a cast"
        )

    def unsupported(self, what: str, position: int) -> Never:
        raise UnsupportedExpression(f"{what} is not supported, at {place(self.text, position)}")

    # Kinds of nodes

    def _literal(self, node: sql.Literal) -> Bound:
        arrow = to_arrow_type(node.type)
        if isinstance(node.value, str) and node.type != STRING:
            try:
                scalar = casts.cast(pa.scalar(node.value), STRING, node.type)
            except EvaluationError:
                raise InvalidExpression(
                    f"{node.value!r} is no {node.type}, at {place(self.text, node.position)}",
                    hint="Write dates as 2024-12-31 and times as 2024-12-31 23:59:59",
                ) from None
        else:
            scalar = pa.scalar(node.value, arrow)
        bound = literal(scalar, node.type)
        self._written[id(bound)] = bound
        return bound

    def _column(self, node: sql.Column) -> Bound:
        first, *rest = node.parts
        field = self.schema.field(first)
        if field is None:
            if not rest and first.lower() in CLOCKS:
                return Bound("now", CLOCKS[first.lower()], nullable=False, option=first.lower())
            raise self._unknown(node.parts, 0, self.schema, node.position)
        self._readable(field, (field.name,), node.position)
        path: Path = (field.name,)
        bound = Bound("column", field.type, nullable=field.nullable, option=path)
        for depth, name in enumerate(rest, 1):
            if not isinstance(bound.type, StructType) or bound.op != "column":
                bound = self.member(bound, name, node.position)
                continue
            inner = bound.type.field(name)
            if inner is None:
                raise self._unknown(node.parts, depth, bound.type, node.position)
            path = (*path, inner.name)
            self._readable(inner, path, node.position)
            bound = Bound("column", inner.type, nullable=bound.nullable or inner.nullable, option=path)
        self._without_chars(field, path, node.position)
        # What a table notes of its fields, such as their names in files, makes no other type of them.
        plain = coercion.without_notes(bound.type)
        return bound if plain is bound.type else replace(bound, type=plain)

    def lambda_body(self, written: sql.Lambda, types: Sequence[DataType]) -> tuple[Bound, tuple[int, ...]]:
        """The body, bound for parameters of these types, and what `Rows` is to know them by."""
        keys = tuple(range(self._lambdas, self._lambdas + len(types)))
        self._lambdas += len(types)
        variables = {
            name.lower(): Bound("variable", data_type, option=key)
            for name, data_type, key in zip(written.parameters, types, keys, strict=True)
        }
        self._variables.append(variables)
        try:
            return self.bind(written.body), keys
        finally:
            self._variables.pop()

    def _variable(self, node: sql.Variable) -> Bound:
        for known in reversed(self._variables):
            if node.name.lower() in known:
                return known[node.name.lower()]
        self.unsupported(f"The variable {node.name} by itself", node.position)

    def member(self, base: Bound, name: str, position: int) -> Bound:
        match base.type:
            case StructType() as struct:
                field = struct.field(name)
                if field is None:
                    raise self._unknown((name,), 0, struct, position)
                self._readable(field, (field.name,), position)
                nullable = base.nullable or field.nullable
                return self.make("get_field", field.type, (base,), nullable=nullable, option=field.name)
            case MapType():
                return self._subscript(base, self.constant(name, STRING), position)
            case other if coercion.is_atomic(other):
                self.mismatch(f"{other} has no field {name!r}", position)
            case other:
                self.unsupported(f"The field {name!r} of {other}", position)

    def _subscript(self, base: Bound, key: Bound, position: int) -> Bound:
        match base.type:
            case ArrayType(element=element):
                if key.type not in (*coercion.INTEGRAL, VOID):
                    self.mismatch(f"An array's index must be a whole number, not {key.type}", position)
                return self.make("array_item", element, (base, self.cast(key, LONG)), nullable=True, raises=True)
            case MapType(key=key_type, value=value_type):
                return self._map_item(base, key, key_type, value_type, position)
            case StructType() if key.is_literal and key.type == STRING and key.value is not None:
                return self.member(base, key.value, position)
            case other:
                self.mismatch(f"{other} has no parts", position)

    def _map_item(self, base: Bound, key: Bound, key_type: DataType, value_type: DataType, position: int) -> Bound:
        if key_type in coercion.FLOATING or not coercion.is_atomic(key_type):
            self.unsupported(f"Looking up a key of type {key_type}", position)
        if coercion.tightest(key_type, key.type) != key_type:
            self.unsupported(f"Looking up a {key.type} among keys of type {key_type}", position)
        wanted = self.cast(key, key_type)
        if not wanted.is_literal:
            return self.make(ROW, value_type, (base, wanted), nullable=True, option=row_collections.map_item)
        if wanted.value is None:
            return self.null(value_type)
        return self.make("map_item", value_type, (base,), nullable=True, option=wanted.option)

    def _case(self, node: sql.Case) -> Bound:
        operand = None if node.operand is None else self.share(self.bind(node.operand))
        conditions, values = [], []
        for when, then in node.branches:
            condition = self.bind(when)
            if operand is not None:
                condition = operators.comparison(self, "=", operand, condition, node.position)
            conditions.append(self.expect(condition, BOOLEAN, node.position))
            values.append(self.bind(then))
        values.append(self.null(VOID) if node.default is None else self.bind(node.default))
        return self.case(conditions, values, node.position)

    def case(self, conditions: Sequence[Bound], values: Sequence[Bound], position: int) -> Bound:
        """The value of the first condition that holds, or the last value."""
        unified = self.common(values, position)
        args = [part for pair in zip(conditions, unified, strict=False) for part in pair]
        nullable = any(value.nullable for value in unified)
        return self.make("case", unified[0].type, (*args, unified[-1]), nullable=nullable)

    def _call(self, node: sql.Call) -> Bound:
        if node.name in operators.OPERATORS:
            return operators.OPERATORS[node.name](self, node)
        if node.args and isinstance(node.args[0], sql.Unit):
            rest = [self.bind(arg) for arg in node.args[1:]]
            return functions.bind_with_unit(self, node.name, node.args[0].name, rest, node.position)
        if any(isinstance(arg, sql.Lambda) for arg in node.args):
            return bind_with_lambdas(self, node)
        args = [self.bind(arg) for arg in node.args]
        if node.name not in TAKE_INTERVALS and any(arg.type == DAY_TIME for arg in args):
            self.unsupported(f"The function {node.name} of an interval", node.position)
        return functions.bind_function(self, node.name, args, node.position)

    def _without_chars(self, column: StructField, path: Path, position: int) -> None:
        """Values of `char(n)` are stored with and without their blanks, and Spark compares them as if they had them."""
        limit = char_limits(column)
        for name in path[1:]:
            limit = limit.get(name.lower()) if isinstance(limit, dict) else None
        if limit is not None:
            self.unsupported(f"The column {dotted(path)} of type {column.char_varchar}", position)

    def _readable(self, field: StructField, path: Path, position: int) -> None:
        """Strings that Spark compares by other rules than byte by byte are left to Spark."""
        collations = field.metadata.get(_COLLATIONS)
        if isinstance(collations, dict) and any(name != "spark.UTF8_BINARY" for name in collations.values()):
            self.unsupported(f"The column {dotted(path)} with a collation", position)

    def _unknown(self, parts: Path, depth: int, struct: StructType, position: int) -> InvalidExpression:
        name = parts[depth]
        names = {candidate.lower(): candidate for candidate in struct.names}
        close = [names[match] for match in difflib.get_close_matches(name.lower(), names, n=_MAX_HINTS, cutoff=0.6)]
        what = f"The field {dotted(parts[: depth + 1])}" if depth else f"The column {name!r}"
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(struct.names[:20]) or 'none'}"
        return InvalidExpression(f"{what} does not exist, at {place(self.text, position)}", hint=hint)
