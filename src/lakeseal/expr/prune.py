"""Which files a condition may match, told from partition values and statistics alone.

`prune` runs a condition over files instead of rows: a column is a range of values, a condition is what it may be. The
answer is safe in both directions. `may` is False only if no row can be TRUE, and `all` is True only if every row is.
What is missing, null or not understood counts as unknown.

Statistics are used as writers leave them: string bounds may be cut off at 32 characters, timestamps at milliseconds,
bounds of floating-point columns leave NaN out, and with deletion vectors they speak of rows that are deleted too; a
null count then says something only if it is zero or all.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.errors import EvaluationError, InvalidArgument, SchemaMismatch, UnsupportedExpression
from lakeseal.expr import casts, coercion, ranges
from lakeseal.expr.bound import Bound, Path, columns, conjuncts, walk
from lakeseal.expr.expression import BoundExpression, check_predicate, clock
from lakeseal.expr.interpreter import KERNELS, Rows, conform, run_array
from lakeseal.expr.nested import struct_field
from lakeseal.expr.ranges import Range, Truth
from lakeseal.expr.values import Bools, Datum, truths
from lakeseal.protocol.schema import BOOLEAN, DataType

_CUT_TEXT = 32
_CUT_MICROS = 999
# Functions of one column that never turn two values round; other arguments are constants in the node's option.
_RISING = frozenset(("floor", "ceil", "round", "year", "trunc", "last_day", "add_micros"))
_WITH_CONSTANT = frozenset(("+", "-", "date_add", "date_sub", "datediff", "add_months"))
_SAFE_DAYS = 1 << 30


class FileMatch(Struct, frozen=True):
    may: pa.Array
    """False where no row can be TRUE."""
    all: pa.Array
    """True where every row is TRUE."""


class Split(Struct, frozen=True):
    """A condition in two parts that AND joins; None is TRUE."""

    partition: BoundExpression | None
    data: BoundExpression | None


def prune(
    bound: BoundExpression,
    *,
    partitions: pa.StructArray | None = None,
    stats: pa.StructArray | None = None,
    now: datetime.datetime | None = None,
) -> FileMatch:
    """`partitions` holds typed partition values, `stats` holds `numRecords`, `minValues`, `maxValues` and `nullCount`
    nested as the schema. Both have the schema's (logical) names and one row per file; any part may be missing."""
    check_predicate(bound)
    lengths = {len(part) for part in (partitions, stats) if part is not None}
    if len(lengths) != 1:
        raise InvalidArgument("Pruning needs partition values or statistics, with one row per file in both")
    files = _Files(lengths.pop(), partitions, stats, clock(now))
    try:
        truth = files.truth(bound.root)
    except RecursionError:
        truth = ranges.unknown_truth(files.count)
    may = truth.true & ~files.empty()
    return FileMatch(pa.array(may), pa.array(~truth.false & ~truth.null))


def split(bound: BoundExpression, partition_columns: Collection[str]) -> Split:
    """The conjuncts that need partition columns alone, and the others."""
    check_predicate(bound)
    names = {name.lower() for name in partition_columns}
    sides: dict[bool, list[Bound]] = {True: [], False: []}
    for part in conjuncts(bound.root):
        sides[all(path[0].lower() in names for path in columns(part))].append(part)
    return Split(_joined(bound, sides[True]), _joined(bound, sides[False]))


def stats_columns(bound: BoundExpression) -> frozenset[Path]:
    """The columns whose statistics `prune` can use; those of partition columns it does not need."""
    return frozenset(node.option for node in walk(bound.root) if node.op == "column" and coercion.is_atomic(node.type))


def _joined(bound: BoundExpression, parts: list[Bound]) -> BoundExpression | None:
    if not parts:
        return None
    if len(parts) == 1:
        return BoundExpression(bound.text, parts[0])
    root = Bound("and", BOOLEAN, tuple(parts), any(p.nullable for p in parts), any(p.raises for p in parts))
    return BoundExpression(bound.text, root)


class _Files:
    def __init__(
        self, count: int, partitions: pa.StructArray | None, stats: pa.StructArray | None, now: pa.Scalar | None
    ) -> None:
        self.count = count
        self.stats = stats
        self.partitions: dict[str, pa.Array] = {}
        self.known: Bools | None = None
        if partitions is not None:
            self.partitions = {f.name: struct_field(partitions, f.name) for f in partitions.type}
            self.known = np.asarray(partitions.is_valid()).astype(np.bool_) if partitions.null_count else None
        self.rows = Rows(self.partitions, count, now)
        self.memo: dict[int, Truth | Range] = {}

    def empty(self) -> Bools:
        records = self.leaf(("numRecords",), pa.int64())
        if records is None:
            return np.zeros(self.count, dtype=np.bool_)
        return np.asarray(pc.fill_null(pc.equal(records, 0), False)).astype(np.bool_)

    def leaf(self, path: Path, arrow: pa.DataType) -> pa.Array | None:
        """A part of the statistics, if it is there and of the right type."""
        array = self.stats
        for name in path:
            if array is None or not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
                return None
            array = struct_field(array, name)
        if array is None:
            return None
        try:
            return conform(array, arrow, path)
        except SchemaMismatch:
            return None

    def exact(self, node: Bound) -> pa.Array | None:
        """The value of a part that partition columns alone decide."""
        paths = columns(node)
        if not paths or not all(path[0] in self.partitions for path in paths):
            return None
        try:
            return run_array(node, self.rows)
        except (EvaluationError, InvalidArgument, UnsupportedExpression, SchemaMismatch):
            return None

    def truth(self, node: Bound) -> Truth:
        found = self.memo.get(id(node))
        if found is None:
            found = self.memo[id(node)] = self._truth(node)
        assert isinstance(found, Truth)
        return found

    def range(self, node: Bound) -> Range:
        found = self.memo.get(id(node))
        if found is None:
            found = self.memo[id(node)] = self._range(node)
        assert isinstance(found, Range)
        return found

    def _truth(self, node: Bound) -> Truth:
        values = node.option if node.op == "literal" else self.exact(node)
        if values is not None:
            truth = ranges.exact_truth(values, self.count)
            if self.known is None or node.op == "literal":
                return truth
            return Truth(truth.true | ~self.known, truth.false | ~self.known, truth.null | ~self.known)
        match node.op:
            case "column":
                return _as_truth(self.range_of_column(node), self.count)
            case "shared":
                return self.truth(node.args[0])
            case "and":
                return ranges.conjunction([self.truth(arg) for arg in node.args])
            case "or":
                return ranges.disjunction([self.truth(arg) for arg in node.args])
            case "not":
                return self.truth(node.args[0]).negated()
            case "is null":
                return self._is_null(node.args[0])
            case "is true" | "is false":
                inner = self.truth(node.args[0])
                inner = inner if node.op == "is true" else inner.negated()
                return Truth(inner.true, inner.false | inner.null, np.zeros(self.count, dtype=np.bool_))
            case "=" | "<>" | "<" | "<=" | ">" | ">=" | "<=>" if node.args[0].type != BOOLEAN:
                return ranges.compared(node.op, self.range(node.args[0]), self.range(node.args[1]))
            case "in" if node.args[0].type != BOOLEAN:
                choices, or_null = node.option
                return ranges.included(self.range(node.args[0]), choices, or_null=or_null)
            case "like" | "startswith":
                return self._like(node)
            case "case" | "coalesce":
                return self._branches(node)
            case _:
                return ranges.unknown_truth(self.count)

    def _is_null(self, arg: Bound) -> Truth:
        if arg.type == BOOLEAN:
            inner = self.truth(arg)
            null, some = inner.null, inner.true | inner.false
        else:
            bounds = self.range(arg)
            null, some = bounds.null, bounds.some
        return Truth(null, some, np.zeros(self.count, dtype=np.bool_))

    def _like(self, node: Bound) -> Truth:
        value = self.range(node.args[0])
        if node.op == "startswith":
            return ranges.starting_with(value, node.option)
        pattern = node.option
        if pattern.form == "equal":
            return ranges.compared("=", value, ranges.exact_range(pa.scalar(pattern.text), self.count))
        prefixed = ranges.starting_with(value, pattern.prefix)
        return prefixed if pattern.form == "prefix" else Truth(prefixed.true, value.some, prefixed.null)

    def _branches(self, node: Bound) -> Truth:
        values = [self.truth(arg) for arg in _values(node)]
        null = [value.null for value in values]
        return Truth(
            np.logical_or.reduce([value.true for value in values]),
            np.logical_or.reduce([value.false for value in values]),
            np.logical_and.reduce(null) if node.op == "coalesce" else np.logical_or.reduce(null),
        )

    def _range(self, node: Bound) -> Range:
        if node.op == "literal":
            return ranges.exact_range(node.option, self.count)
        if not coercion.is_atomic(node.type):
            return ranges.unknown_range(node.arrow, self.count)
        values = self.exact(node)
        if values is not None:
            return self._where_known(ranges.exact_range(values, self.count), node)
        match node.op:
            case "column":
                return self.range_of_column(node)
            case "shared":
                return self.range(node.args[0])
            case "now" if self.rows.now is not None:
                return ranges.exact_range(self.rows.now.cast(node.arrow), self.count)
            case "cast" | "try_cast" if _keeps_order(node.args[0].type, node.type):
                return self._cast(node)
            case "case" | "coalesce":
                parts = [self.range(arg) for arg in _values(node)]
                null = [part.null for part in parts]
                reduce: Callable[..., Bools] = (np.logical_and if node.op == "coalesce" else np.logical_or).reduce
                return ranges.union(parts, null=reduce(null))
            case "neg":
                return self._mapped(node, 0, falling=True)
            case "substring" if node.option[0] in (0, 1):
                return self._mapped(node, 0)
            case op if op in _RISING:
                return self._mapped(node, 0)
            case op if op in _WITH_CONSTANT and node.args[1].is_literal and node.args[1].option.is_valid:
                return self._mapped(node, 0)
            case "+" | "-" | "datediff" if node.args[0].is_literal and node.args[0].option.is_valid:
                return self._mapped(node, 1, falling=node.op != "+")
            case _:
                return ranges.unknown_range(node.arrow, self.count)

    def _where_known(self, bounds: Range, node: Bound) -> Range:
        if self.known is None:
            return bounds
        known = pa.array(self.known)
        unknown = ~self.known
        low = pc.if_else(known, bounds.low, pa.scalar(None, node.arrow))
        nan = bounds.nan | (unknown if pa.types.is_floating(node.arrow) else False)
        return Range(low, low, bounds.null | unknown, bounds.some | unknown, nan)

    def range_of_column(self, node: Bound) -> Range:
        path: Path = node.option
        arrow = node.arrow
        if path[0] in self.partitions or not coercion.is_atomic(node.type) or pa.types.is_binary(arrow):
            return ranges.unknown_range(arrow, self.count)
        nowhere = pa.scalar(None, arrow)
        low, high = (self.leaf((side, *path), arrow) for side in ("minValues", "maxValues"))
        nulls = self.leaf(("nullCount", *path), pa.int64())
        records = self.leaf(("numRecords",), pa.int64())
        yes = np.ones(self.count, dtype=np.bool_)
        null = yes if nulls is None else _maybe(pc.not_equal(nulls, 0))
        some = yes if nulls is None or records is None else _maybe(pc.less(nulls, records))
        floating = pa.types.is_floating(arrow)
        return Range(
            nowhere if low is None else _without_nan(low) if floating else low,
            nowhere if high is None else _widened(_without_nan(high) if floating else high),
            null,
            some,
            yes if floating else ~yes,
        )

    def _cast(self, node: Bound) -> Range:
        arg = node.args[0]
        inner = self.range(arg)
        try:
            low, high = (casts.cast(bound, arg.type, node.type, attempt=True) for bound in (inner.low, inner.high))
        except (UnsupportedExpression, pa.ArrowException):
            return ranges.unknown_range(node.arrow, self.count)
        may_vanish = node.op == "try_cast" or arg.type in coercion.FLOATING
        null = np.ones(self.count, dtype=np.bool_) if may_vanish else inner.null
        nan = inner.nan if node.type in coercion.FLOATING else np.zeros(self.count, dtype=np.bool_)
        return Range(low, high, null, inner.some, nan)

    def _mapped(self, node: Bound, index: int, *, falling: bool = False) -> Range:
        """A function's range from its values at the bounds of the one argument that is not constant."""
        inner = self.range(node.args[index])

        def apply(bound: Datum) -> Datum:
            args = [arg.option for arg in node.args]
            args[index] = bound
            return KERNELS[node.op](node, args)

        try:
            low, high = (apply(_inside(bound)) for bound in (inner.low, inner.high))
        except (EvaluationError, UnsupportedExpression, pa.ArrowException):
            return ranges.unknown_range(node.arrow, self.count)
        low, high = (high, low) if falling else (low, high)
        # A sum of infinities is NaN, and so may be a number that is not finite after rounding.
        floating = pa.types.is_floating(node.arrow)
        nan = np.ones(self.count, dtype=np.bool_) if floating else np.zeros(self.count, dtype=np.bool_)
        return Range(low, high, inner.null, inner.some, nan)


def _keeps_order(source: DataType, target: DataType) -> bool:
    """Whether a cast never turns two values round: true of numbers and moments, not of text."""
    return all(coercion.is_numeric(side) or side in coercion.MOMENTS for side in (source, target))


def _values(node: Bound) -> tuple[Bound, ...]:
    """The results that CASE or COALESCE chooses from."""
    return node.args if node.op == "coalesce" else (*node.args[1:-1:2], node.args[-1])


def _as_truth(bounds: Range, count: int) -> Truth:
    return Truth(_maybe(bounds.high, count) & bounds.some, ~truths(bounds.low, count) & bounds.some, bounds.null)


def _maybe(flags: Datum, count: int = 0) -> Bools:
    """Null counts as true: it is not known."""
    if isinstance(flags, pa.Scalar):
        return np.full(count, flags.as_py() is not False, dtype=np.bool_)
    return np.asarray(pc.fill_null(flags, True)).astype(np.bool_)


def _without_nan(bound: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _widened(high: pa.Array) -> pa.Array:
    if pa.types.is_string(high.type):
        return ranges.widened_text(high, _CUT_TEXT)
    if pa.types.is_timestamp(high.type):
        micros = high.cast(pa.int64())
        most = pa.scalar(np.iinfo(np.int64).max - _CUT_MICROS, pa.int64())
        raised = pc.add(pc.min_element_wise(micros, most, skip_nulls=False), _CUT_MICROS)
        return raised.cast(high.type)
    return high


def _inside(bound: Datum) -> Datum:
    """Dates so far off that adding to them could start over are not bounds."""
    if not pa.types.is_date(bound.type):
        return bound
    days = bound.cast(pa.int32())
    near = pc.less(pc.abs(days.cast(pa.int64())), _SAFE_DAYS)
    return pc.if_else(near, bound, pa.scalar(None, bound.type))
