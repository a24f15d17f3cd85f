"""Runs a bound expression over the rows of a batch.

Strict operators get the values of all their arguments. AND, OR, CASE and COALESCE look only at the rows that need
them, as Spark does row by row: `x <> 0 AND 1 / x > 2` does not fail where x is 0. A part that cannot fail is run over
all rows at once, because that is cheaper than choosing rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import InvalidArgument, SchemaMismatch, UnsupportedExpression
from lakeseal.expr import arithmetic, compare, intervals, nested, strings, temporal
from lakeseal.expr.bound import Bound, Path
from lakeseal.expr.casts import cast
from lakeseal.expr.lambdas import LAMBDA_KERNELS
from lakeseal.expr.row_functions import ROW, ROW_WITH_NULLS, run_rows
from lakeseal.expr.values import Bools, Datum, as_array, has_nulls, is_scalar, scatter, truths, valid
from lakeseal.protocol.decimal_text import recast
from lakeseal.protocol.schema import BOOLEAN, dotted

_NOT_STRICT = ("<=>", "greatest", "least", "concat", ROW_WITH_NULLS)

Kernel = Callable[[Bound, Sequence[Datum]], Datum]


class Rows:
    """The rows that an expression is run over: columns by path, read when they are asked for."""

    def __init__(
        self, columns: Mapping[str, pa.Array], length: int, now: pa.Scalar | None = None, chosen_of: Rows | None = None
    ) -> None:
        self.columns = columns
        self.length = length
        self.now = now
        self.parent = chosen_of
        self.chosen: Bools | None = None
        self.spread_by: pa.Array | None = None
        """Which row of the parent each row is, where these are the elements of its rows."""
        self.variables: dict[int, pa.Array] = {}
        """Parameters of lambdas."""
        self.cache: dict[Path, pa.Array] = {}
        self.shared: dict[int, Datum] = {}

    def choose(self, chosen: Bools) -> Rows:
        rows = Rows(self.columns, int(chosen.sum()), self.now, self)
        rows.chosen = chosen
        return rows

    def spread(self, owners: npt.NDArray[np.int64], variables: dict[int, pa.Array]) -> Rows:
        """One row for each element, with the columns of the row that it is of."""
        rows = Rows(self.columns, len(owners), self.now, self)
        rows.spread_by = pa.array(owners)
        rows.variables = variables
        return rows

    def inherited(self, values: Datum) -> Datum:
        """The parent's values as this has them."""
        if is_scalar(values):
            return values
        return values.filter(pa.array(self.chosen)) if self.spread_by is None else values.take(self.spread_by)

    def variable(self, key: int) -> pa.Array:
        if key not in self.variables:
            assert self.parent is not None, "a parameter is used in its lambda only"
            self.variables[key] = self.inherited(self.parent.variable(key))
        return self.variables[key]

    def column(self, node: Bound) -> pa.Array:
        path: Path = node.option
        if path not in self.cache:
            if self.parent is not None:
                self.cache[path] = self.inherited(self.parent.column(node))
            else:
                self.cache[path] = self._read(path, node)
        return self.cache[path]

    def _read(self, path: Path, node: Bound) -> pa.Array:
        array = self.columns.get(path[0])
        if array is None:
            raise SchemaMismatch(
                f"The data has no column {path[0]!r} that the expression needs", hint="Read it with the others"
            )
        for name in path[1:]:
            if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
                raise SchemaMismatch(f"The data has no field {dotted(path)} that the expression needs")
            array = nested.struct_field(array, name)
        return conform(array, node.arrow, path)


def conform(array: pa.Array, arrow: pa.DataType, path: Path) -> pa.Array:
    """The array in the one Arrow form of its type: dictionaries, views and other units of time are turned into it."""
    if array.type.equals(arrow):
        return array
    try:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        # Finer units of time than a table has are cut off, as Spark does.
        return array.cast(arrow, safe=False) if pa.types.is_timestamp(arrow) else recast(array, arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if pa.types.is_nested(arrow) and array.type.id == arrow.id:
            # Some of its fields may not have been read; what is asked of it needs none of them, or fails by itself.
            return array
        raise SchemaMismatch(
            f"The data has type {array.type}, the table {arrow}", hint=str(error), column=dotted(path)
        ) from error


def run(node: Bound, rows: Rows) -> Datum:
    match node.op:
        case "literal":
            return node.option
        case "column":
            return rows.column(node)
        case "shared":
            return _shared(node, rows)
        case "variable":
            return rows.variable(node.option)
        case "and" | "or":
            return _connective(node, rows)
        case "case":
            return _case(node, rows)
        case "coalesce":
            return _coalesce(node, rows)
        case "now":
            return _now(node, rows)
        case op if op in LAMBDA_KERNELS:
            return LAMBDA_KERNELS[op](node, rows, run)
        case _:
            return KERNELS[node.op](node, _arguments(node, rows))


def run_guarded(node: Bound, rows: Rows, needed: Bools) -> Datum:
    """Runs a part for the rows that need it; elsewhere its value may be anything or null."""
    if not node.raises or needed.all():
        return run(node, rows)
    if not needed.any():
        return pa.scalar(None, node.arrow)
    return scatter(run(node, rows.choose(needed)), needed)


def _arguments(node: Bound, rows: Rows) -> list[Datum]:
    """Values of all arguments; a strict operator does not look at one where an earlier one is NULL."""
    if node.op in _NOT_STRICT:
        return [run(arg, rows) for arg in node.args]
    values: list[Datum] = [None] * len(node.args)
    # Spark looks at a divisor first.
    order = range(len(node.args))[::-1] if node.op in ("/", "%", "div", "pmod") else range(len(node.args))
    needed: Bools | None = None
    for index in order:
        arg = node.args[index]
        values[index] = run(arg, rows) if needed is None else run_guarded(arg, rows, needed)
        if has_nulls(values[index]):
            present = truths(valid(values[index]), rows.length)
            needed = present if needed is None else needed & present
    return values


def _shared(node: Bound, rows: Rows) -> Datum:
    key = id(node)
    if key not in rows.shared:
        above = rows.parent
        if above is not None and key in above.shared:
            rows.shared[key] = rows.inherited(above.shared[key])
        else:
            rows.shared[key] = run(node.args[0], rows)
    return rows.shared[key]


def _connective(node: Bound, rows: Rows) -> Datum:
    join, settled = (pc.and_kleene, False) if node.op == "and" else (pc.or_kleene, True)
    result = run(node.args[0], rows)
    for arg in node.args[1:]:
        if arg.raises:
            open_rows = ~truths(pc.equal(result, settled), rows.length)
            result = join(result, run_guarded(arg, rows, open_rows))
        else:
            result = join(result, run(arg, rows))
    return result


def _case(node: Bound, rows: Rows) -> Datum:
    """Arguments are condition and value in turns, then the value if no condition holds."""
    *branches, default = node.args
    left = np.ones(rows.length, dtype=np.bool_)
    takes: list[pa.Array] = []
    values: list[Datum] = []
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        take = left & truths(run_guarded(condition, rows, left), rows.length)
        takes.append(pa.array(take))
        values.append(run_guarded(value, rows, take))
        left &= ~take
    values.append(run_guarded(default, rows, left))
    return pc.case_when(pc.make_struct(*takes), *values)


def _coalesce(node: Bound, rows: Rows) -> Datum:
    result = run(node.args[0], rows)
    for arg in node.args[1:]:
        if not has_nulls(result):
            break
        missing = ~truths(valid(result), rows.length)
        result = pc.coalesce(result, run_guarded(arg, rows, missing))
    return result


def _now(node: Bound, rows: Rows) -> Datum:
    if rows.now is None:
        raise InvalidArgument(
            f"{node.option} has no value here, because an expression is evaluated without a clock",
            hint="Pass the time as `now`, or write it into the expression",
        )
    return rows.now.cast(node.arrow)


def _compare(node: Bound, args: Sequence[Datum]) -> Datum:
    return compare.compare(node.op, *args)


def _is(node: Bound, args: Sequence[Datum]) -> Datum:
    return pc.fill_null(pc.equal(args[0], node.op == "is true"), False)


def _cast(node: Bound, args: Sequence[Datum]) -> Datum:
    return cast(args[0], node.args[0].type, node.type, attempt=node.op == "try_cast")


KERNELS: dict[str, Kernel] = {
    "cast": _cast,
    "try_cast": _cast,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _compare),
    "not": lambda node, args: pc.invert(args[0]),
    "is null": lambda node, args: pc.is_null(args[0]),
    "is true": _is,
    "is false": _is,
    "in": lambda node, args: compare.is_in(args[0], node.option[0], or_null=node.option[1]),
    "isnan": lambda node, args: pc.fill_null(pc.is_nan(args[0]), False),
    "greatest": lambda node, args: compare.extreme(">", args),
    "least": lambda node, args: compare.extreme("<", args),
    **dict.fromkeys(("+", "-", "*", "/", "div", "neg", "abs"), arithmetic.arithmetic),
    **dict.fromkeys(("&", "|", "^", "~"), arithmetic.bits),
    **dict.fromkeys(("%", "pmod"), arithmetic.remainder),
    **dict.fromkeys(("floor", "ceil"), arithmetic.floor_or_ceil),
    "round": arithmetic.round_half_up,
    **dict.fromkeys(("upper", "lower"), strings.change_case),
    "length": strings.length,
    **dict.fromkeys(("trim both", "trim leading", "trim trailing"), strings.trim),
    "concat": strings.concat,
    "substring": strings.substring,
    "replace": strings.replace,
    **dict.fromkeys(("lpad", "rpad"), strings.pad),
    "startswith": strings.starts_with,
    "endswith": strings.ends_with,
    "contains": strings.contains,
    "like": strings.like,
    "rlike": strings.rlike,
    **dict.fromkeys((*temporal.FIELDS_OF_DATE, *temporal.FIELDS_OF_TIME), temporal.field),
    **dict.fromkeys(("date_add", "date_sub"), temporal.shift_days),
    "datediff": temporal.date_diff,
    **dict.fromkeys(("interval +", "interval -", "interval neg"), intervals.calculate),
    "add_months": temporal.shift_months,
    "add_micros": temporal.shift_micros,
    "last_day": temporal.last_day,
    "trunc": temporal.truncate,
    "date_format": temporal.date_format,
    "get_field": nested.get_field,
    "array_item": nested.array_item,
    "map_item": nested.map_item,
    "size": nested.size,
    "array_contains": nested.array_contains,
    **dict.fromkeys((ROW, ROW_WITH_NULLS), run_rows),
}


def run_whole(node: Bound, rows: Rows) -> Datum:
    """Runs an expression from its root: nothing but errors of our own leaves."""
    try:
        return run(node, rows)
    except pa.ArrowException as error:
        raise UnsupportedExpression(f"Arrow cannot evaluate this: {error}") from error
    except RecursionError:
        raise UnsupportedExpression("The expression is nested too deeply to be evaluated here") from None


def run_constant(node: Bound) -> pa.Scalar:
    """The value of a part without columns."""
    result = run_whole(node, Rows({}, 1))
    return result if is_scalar(result) else result[0]


def run_array(node: Bound, rows: Rows) -> pa.Array:
    """One value per row."""
    return as_array(run_whole(node, rows), rows.length)


def run_mask(node: Bound, rows: Rows) -> pa.Array:
    """TRUE rows; what is FALSE or NULL is not chosen."""
    assert node.type == BOOLEAN
    found = run_whole(node, rows)
    if is_scalar(found):
        return pa.array(truths(found, rows.length))
    return found.fill_null(False) if found.null_count else found
