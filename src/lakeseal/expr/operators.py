"""How operators and predicates bind: their types, and what they become."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeseal.expr import casts, coercion, compare, decimals, patterns
from lakeseal.expr import syntax as sql
from lakeseal.expr.bound import DAY_TIME, Bound, literal
from lakeseal.expr.calendar import MICROS_PER_SECOND
from lakeseal.expr.numbers import RANGES, decimal_type
from lakeseal.expr.row_collections import equal_parts
from lakeseal.expr.row_functions import ROW
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    VOID,
    DataType,
    DecimalType,
)

if TYPE_CHECKING:
    from lakeseal.expr.bind import Binder

_DAYS = (BYTE, SHORT, INTEGER)
_UNIT_MONTHS = {"month": 1, "year": 12}
_UNIT_DAYS = {"day": 1, "week": 7}
_UNIT_SECONDS = {"hour": 3600, "minute": 60, "second": 1}
_UNIT_MICROS = {"microsecond": 1, "millisecond": 1000}


def comparison(binder: Binder, op: str, left: Bound, right: Bound, position: int) -> Bound:
    settled = _beyond_longs(binder, op, left, right) or _beyond_longs(binder, compare.FLIPPED[op], right, left)
    if settled is not None:
        return settled
    if not (_is_single(left.type) and _is_single(right.type)):
        return _compare_parts(binder, op, left, right, position)
    left, right = _meet(binder, left, right)
    if isinstance(left.type, DecimalType) and isinstance(right.type, DecimalType):
        wider = coercion.wider_decimal(left.type, right.type)
        left, right = binder.cast(left, wider), binder.cast(right, wider)
    if left.type != right.type:
        binder.mismatch(f"{left.type} and {right.type} cannot be compared", position)
    if left.type == VOID:
        left = right = binder.null(BOOLEAN)
    return binder.make(op, BOOLEAN, (left, right), nullable=False if op == "<=>" else None)


def _is_single(data_type: DataType) -> bool:
    return coercion.is_atomic(data_type) or data_type in (VOID, DAY_TIME)


def _compare_parts(binder: Binder, op: str, left: Bound, right: Bound, position: int) -> Bound:
    """Arrays and structs are equal where all their parts are; a null among these equals a null."""
    kinds = [coercion.nullable_parts(side.type) for side in (left, right)]
    if op not in ("=", "<>") or kinds[0] != kinds[1] or not coercion.has_equality(left.type):
        binder.unsupported(f"Comparing {left.type} and {right.type} by {op}", position)
    equal = binder.make(ROW, BOOLEAN, (left, right), nullable=True, option=equal_parts)
    return equal if op == "=" else binder.make("not", BOOLEAN, (equal,))


def _beyond_longs(binder: Binder, op: str, number: Bound, limit: Bound) -> Bound | None:
    """Spark settles a comparison of a whole number with a decimal that no bigint reaches, even for NULL."""
    if number.type not in coercion.INTEGRAL or not isinstance(limit.type, DecimalType) or not binder.is_written(limit):
        return None
    if op not in ("<", "<=", ">", ">=") or -RANGES[LONG] <= limit.value <= RANGES[LONG] - 1:
        return None
    return binder.constant((limit.value > 0) == (op in ("<", "<=")), BOOLEAN)


def _meet(binder: Binder, left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Both sides of a binary operator after the casts that Spark adds, except between two decimals."""
    if left.type == right.type:
        return left, right
    promoted = coercion.with_string(left.type, right.type)
    if promoted is not None:
        return binder.cast(left, promoted), binder.cast(right, promoted)
    if isinstance(left.type, DecimalType) or isinstance(right.type, DecimalType):
        left, right = _meet_decimal(binder, left, right.type), _meet_decimal(binder, right, left.type)
        if isinstance(left.type, DecimalType):
            return left, right
    target = coercion.tightest(left.type, right.type)
    return (left, right) if target is None else (binder.cast(left, target), binder.cast(right, target))


def _meet_decimal(binder: Binder, node: Bound, other: DataType) -> Bound:
    if isinstance(node.type, DecimalType):
        return binder.cast(node, DOUBLE) if other in coercion.FLOATING else node
    if node.type == VOID:
        return binder.null(other)
    if node.type in coercion.INTEGRAL:
        if binder.is_written(node):
            digits = decimal_type(pa.scalar(node.value).cast(pa.decimal128(38, 0)).as_py())
            assert digits is not None
            return binder.cast(node, digits)
        return binder.cast(node, coercion.decimal_of(node.type))
    return node


def _compare(binder: Binder, node: sql.Call) -> Bound:
    left, right = (binder.bind(arg) for arg in node.args)
    return comparison(binder, node.name, left, right, node.position)


def _connective(binder: Binder, node: sql.Call) -> Bound:
    args = [binder.expect(binder.bind(arg), BOOLEAN, node.position) for arg in node.args]
    return connective(binder, node.name, args)


def connective(binder: Binder, op: str, args: list[Bound]) -> Bound:
    """AND or OR, simplified as Spark does: a constant that settles it wins over parts that would fail."""
    settling = op == "or"
    open_args = [arg for arg in args if not (arg.is_literal and arg.value is (not settling))]
    if any(arg.is_literal and arg.value is settling for arg in open_args):
        return binder.constant(settling, BOOLEAN)
    if not open_args:
        return binder.constant(not settling, BOOLEAN)
    if op == "or":
        open_args = _gather_equalities(binder, open_args)
    return open_args[0] if len(open_args) == 1 else binder.make(op, BOOLEAN, open_args)


def _gather_equalities(binder: Binder, args: list[Bound]) -> list[Bound]:
    """`a = 1 OR a = 2` as `a IN (1, 2)`, which is one look-up however many there are."""
    found: dict[tuple[str, ...], list[Bound]] = {}
    for arg in args:
        if arg.op == "=" and arg.args[0].op == "column" and arg.args[1].is_literal:
            found.setdefault(arg.args[0].option, []).append(arg)
    gathered: list[Bound] = []
    for arg in args:
        group = found.get(arg.args[0].option, []) if arg.op == "=" and arg.args[0].op == "column" else []
        if len(group) < 2 or not arg.args[1].is_literal:
            gathered.append(arg)
        elif arg is group[0]:
            choices = pa.concat_arrays([pa.repeat(equal.args[1].option, 1) for equal in group])
            gathered.append(_among(binder, arg.args[0], choices))
    return gathered


def _not(binder: Binder, node: sql.Call) -> Bound:
    return binder.make("not", BOOLEAN, [binder.expect(binder.bind(node.args[0]), BOOLEAN, node.position)])


def _is_null(binder: Binder, node: sql.Call) -> Bound:
    arg = binder.bind(node.args[0])
    if node.name == "is unknown":
        arg = binder.expect(arg, BOOLEAN, node.position)
    return binder.make("is null", BOOLEAN, (arg,), nullable=False)


def _is_truth(binder: Binder, node: sql.Call) -> Bound:
    arg = binder.bind(node.args[0])
    if arg.type not in (BOOLEAN, STRING, VOID):
        binder.mismatch(f"{arg.type} is neither true nor false", node.position)
    return binder.make(node.name, BOOLEAN, (binder.cast(arg, BOOLEAN),), nullable=False)


def _between(binder: Binder, node: sql.Call) -> Bound:
    value, low, high = (binder.bind(arg) for arg in node.args)
    shared = binder.share(value)
    sides = [
        comparison(binder, ">=", shared, low, node.position),
        comparison(binder, "<=", shared, high, node.position),
    ]
    return connective(binder, "and", sides)


def _in(binder: Binder, node: sql.Call) -> Bound:
    """Runs of constants become one look-up each; what is not constant is compared in its turn, as Spark does."""
    value = binder.share(binder.bind(node.args[0]))
    items: list[Bound | sql.Literal] = []
    target = previous = value.type
    for arg in node.args[1:]:
        # Lists of constants may be long, so plain ones are not bound one by one.
        plain = isinstance(arg, sql.Literal) and not (isinstance(arg.value, str) and arg.type != STRING)
        item = arg if isinstance(arg, sql.Literal) and plain else binder.bind(arg)
        items.append(item)
        # The order of the list matters: a string is read as what came before it.
        if item.type != previous:
            wider = coercion.wider(target, item.type)
            if wider is None:
                binder.mismatch(f"{target} and {item.type} have no common type", node.position)
            target, previous = wider, item.type
    if target == VOID:
        return binder.null(BOOLEAN)
    if not coercion.is_atomic(target):
        binder.unsupported(f"IN for values of type {target}", node.position)
    wanted = binder.share(binder.cast(value, target))
    ready = [item if isinstance(item, sql.Literal) else binder.cast(item, target) for item in items]
    parts: list[Bound] = []
    for constant, group in groupby(ready, _is_constant):
        if constant:
            parts.append(_among(binder, wanted, _choices(group, target)))
        else:
            parts += [binder.make("=", BOOLEAN, (wanted, item)) for item in group if isinstance(item, Bound)]
    return parts[0] if len(parts) == 1 else binder.make("or", BOOLEAN, parts)


def _is_constant(item: Bound | sql.Literal) -> bool:
    return isinstance(item, sql.Literal) or item.is_literal


def _choices(items: Iterable[Bound | sql.Literal], target: DataType) -> pa.Array:
    arrays: list[pa.Array] = []
    for (plain, source), group in groupby(items, lambda item: (isinstance(item, sql.Literal), item.type)):
        if plain:
            values = pa.array([item.value for item in group], to_arrow_type(source))
            arrays.append(casts.cast(values, source, target))
        else:
            arrays += [pa.repeat(item.option, 1) for item in group if isinstance(item, Bound)]
    return pa.concat_arrays(arrays)


def _among(binder: Binder, value: Bound, choices: pa.Array) -> Bound:
    or_null = choices.null_count > 0
    option = (choices.drop_null(), or_null)
    return binder.make("in", BOOLEAN, (value,), nullable=value.nullable or or_null, option=option)


def _arithmetic(binder: Binder, node: sql.Call) -> Bound:
    for index, arg in enumerate(node.args):
        if isinstance(arg, sql.Interval):
            other = binder.bind(node.args[1 - index])
            if other.type != DAY_TIME:
                return _shift(binder, node, other, arg, last=index == 1)
    left, right = (binder.bind(arg) for arg in node.args)
    return arithmetic(binder, node.name, left, right, node.position)


def interval(binder: Binder, node: sql.Interval) -> Bound:
    """By itself, to compare with."""
    unit = node.unit
    if unit in _UNIT_MONTHS:
        binder.unsupported("An interval of months other than added to or taken from a date or timestamp", node.position)
    scale = _UNIT_MICROS.get(unit) or (_UNIT_SECONDS.get(unit) or _UNIT_DAYS[unit] * 86_400) * MICROS_PER_SECOND
    if abs(node.amount * scale) >= 1 << 63:
        binder.unsupported("So long an interval", node.position)
    return literal(pa.scalar(node.amount * scale, pa.duration("us")), DAY_TIME)


def arithmetic(binder: Binder, op: str, left: Bound, right: Bound, position: int) -> Bound:
    if DAY_TIME in (left.type, right.type):
        if op not in ("+", "-") or left.type != right.type:
            binder.unsupported(f"{op} of {left.type} and {right.type}", position)
        return binder.make(f"interval {op}", DAY_TIME, (left, right), raises=True)
    if left.type in coercion.MOMENTS or right.type in coercion.MOMENTS:
        return _date_arithmetic(binder, op, left, right, position)
    if op == "/" and left.type == VOID and right.type != STRING:
        left = binder.null(DOUBLE)
    left, right = _meet(binder, left, right)
    if left.type == right.type == VOID:
        left = right = binder.null(DOUBLE)
    if not (coercion.is_numeric(left.type) and coercion.is_numeric(right.type)):
        binder.mismatch(f"{op} needs numbers, not {left.type} and {right.type}", position)
    if isinstance(left.type, DecimalType) and isinstance(right.type, DecimalType):
        if op in ("%", "div", "pmod"):
            return _decimal_remainder(binder, op, left, right)
        if op not in ("+", "-", "*", "/") or decimals.needs_too_many_digits(op, left.type, right.type):
            binder.unsupported(f"{op} of {left.type} and {right.type}", position)
        result = coercion.decimal_result(op, left.type, right.type)
        return binder.make(op, result, (left, right), raises=True)
    if op == "/":
        left, right = binder.cast(left, DOUBLE), binder.cast(right, DOUBLE)
    elif op == "div":
        if left.type in coercion.FLOATING:
            binder.mismatch(f"div needs whole numbers, not {left.type}", position)
        left, right = binder.cast(left, LONG), binder.cast(right, LONG)
    raises = op in ("/", "%", "div", "pmod") or left.type not in coercion.FLOATING
    return binder.make(op, left.type, (left, right), raises=raises)


def _decimal_remainder(binder: Binder, op: str, left: Bound, right: Bound) -> Bound:
    """One row at a time: Arrow has no remainder of decimals."""
    assert isinstance(left.type, DecimalType)
    assert isinstance(right.type, DecimalType)
    gives = LONG if op == "div" else coercion.decimal_result("%", left.type, right.type)
    return binder.make(ROW, gives, (right, left), nullable=True, raises=True, option=decimals.REMAINDERS[op])


def _date_arithmetic(binder: Binder, op: str, left: Bound, right: Bound, position: int) -> Bound:
    if op == "+" and right.type == DATE:
        left, right = right, left
    if op in ("+", "-") and left.type == DATE and right.type in _DAYS:
        name = "date_add" if op == "+" else "date_sub"
        return binder.make(name, DATE, (left, binder.cast(right, INTEGER)))
    if op == "-" and left.type in coercion.MOMENTS and right.type in coercion.MOMENTS:
        return _between_moments(binder, left, right, position)
    if op not in ("+", "-") or (coercion.is_numeric(right.type) and right.type not in _DAYS):
        binder.mismatch(f"{op} does not work on {left.type} and {right.type}", position)
    binder.unsupported(f"{op} of {left.type} and {right.type}", position)


def _between_moments(binder: Binder, left: Bound, right: Bound, position: int) -> Bound:
    if {left.type, right.type} == set(coercion.TIMESTAMPS):
        binder.unsupported(f"- of {left.type} and {right.type}", position)
    later = max(left.type, right.type, key=coercion.MOMENTS.index)
    sides = (binder.cast(left, later), binder.cast(right, later))
    return binder.make("interval -", DAY_TIME, sides, raises=True)


def _shift(binder: Binder, node: sql.Call, moment: Bound, interval: sql.Interval, *, last: bool) -> Bound:
    if node.name not in ("+", "-") or moment.type not in coercion.MOMENTS or (node.name == "-" and not last):
        binder.unsupported(f"{node.name} of an interval and {moment.type}", node.position)
    amount = interval.amount if node.name == "+" else -interval.amount
    unit = interval.unit
    if abs(amount) > (10**15 if unit in _UNIT_MICROS else 10**9):
        binder.unsupported("So long an interval", interval.position)
    if unit in _UNIT_MONTHS:
        months = binder.constant(amount * _UNIT_MONTHS[unit], LONG)
        return binder.make("add_months", moment.type, (moment, months), raises=True)
    if unit in _UNIT_MICROS:
        moment = binder.cast(moment, TIMESTAMP) if moment.type == DATE else moment
        return binder.make("add_micros", moment.type, (moment,), raises=True, option=amount * _UNIT_MICROS[unit])
    if unit in _UNIT_DAYS and moment.type == DATE:
        days = binder.constant(amount * _UNIT_DAYS[unit], LONG)
        return binder.make("date_add", DATE, (moment, days))
    seconds = _UNIT_SECONDS[unit] if unit in _UNIT_SECONDS else _UNIT_DAYS[unit] * 86_400
    if moment.type == DATE:
        moment = binder.cast(moment, TIMESTAMP)
    option = amount * seconds * MICROS_PER_SECOND
    return binder.make("add_micros", moment.type, (moment,), raises=True, option=option)


def _sign(binder: Binder, node: sql.Call) -> Bound:
    return sign(binder, node.name, binder.bind(node.args[0]), node.position)


def sign(binder: Binder, name: str, arg: Bound, position: int) -> Bound:
    if arg.type == DAY_TIME:
        return arg if name == "positive" else binder.make("interval neg", DAY_TIME, (arg,), raises=True)
    if arg.type in (STRING, VOID):
        arg = binder.cast(arg, DOUBLE)
    if not coercion.is_numeric(arg.type):
        binder.mismatch(f"A sign needs a number, not {arg.type}", position)
    if name == "positive":
        return arg
    return binder.make("neg", arg.type, (arg,), raises=arg.type in coercion.INTEGRAL)


def _bits(binder: Binder, node: sql.Call) -> Bound:
    args = [binder.bind(arg) for arg in node.args]
    if any(arg.type not in coercion.INTEGRAL for arg in args):
        binder.unsupported(f"{node.name} of {' and '.join(str(arg.type) for arg in args)}", node.position)
    if len(args) == 2:
        args = list(_meet(binder, *args))
    return binder.make(node.name, args[0].type, args)


def _concat(binder: Binder, node: sql.Call) -> Bound:
    return concat(binder, [binder.bind(arg) for arg in node.args], node.position)


def concat(binder: Binder, args: list[Bound], position: int) -> Bound:
    if any(arg.type == BINARY for arg in args):
        binder.unsupported("Joining binaries", position)
    return binder.make("concat", STRING, [binder.expect(arg, STRING, position) for arg in args])


def _like(binder: Binder, node: sql.Call) -> Bound:
    return like(binder, node.name, [binder.bind(arg) for arg in node.args], node.position)


def like(binder: Binder, name: str, args: list[Bound], position: int) -> Bound:
    value, pattern = (binder.expect(arg, STRING, position) for arg in args[:2])
    if not pattern.is_literal:
        binder.unsupported(f"{name.upper()} with a pattern that is not constant", position)
    if pattern.value is None:
        return binder.null(BOOLEAN)
    text = pattern.value
    if name == "rlike":
        return binder.make("rlike", BOOLEAN, (value,), option=patterns.java_regex(text))
    escape = args[2].value if len(args) == 3 else "\\"
    if name == "ilike":
        value, text = binder.make("lower", STRING, (value,)), text.lower()
    return binder.make("like", BOOLEAN, (value,), option=patterns.like_pattern(text, escape))


OPERATORS: dict[str, Callable[[Binder, sql.Call], Bound]] = {
    **dict.fromkeys(sql.COMPARISONS, _compare),
    **dict.fromkeys(("and", "or"), _connective),
    "not": _not,
    **dict.fromkeys(("is null", "is unknown"), _is_null),
    **dict.fromkeys(("is true", "is false"), _is_truth),
    "between": _between,
    "in": _in,
    **dict.fromkeys(("+", "-", "*", "/", "%", "div"), _arithmetic),
    **dict.fromkeys(("neg", "positive"), _sign),
    **dict.fromkeys(("&", "|", "^", "~"), _bits),
    "||": _concat,
    **dict.fromkeys(("like", "ilike", "rlike"), _like),
}
