"""Comparing values as Spark does.

NaN equals NaN and is larger than every number; -0.0 equals 0.0; strings and binaries compare by their bytes. Both sides
have the same type. Comparing with NULL gives NULL, except for `<=>`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.expr.values import Datum, is_scalar

_PLAIN = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


def compare(operator: str, left: Datum, right: Datum) -> Datum:
    if operator == "<=>":
        return null_safe_equal(left, right)
    plain = _PLAIN[operator](left, right)
    if not pa.types.is_floating(left.type):
        return plain
    match operator:
        case "=":
            return pc.or_(plain, pc.and_(_nan(left), _nan(right)))
        case "<>":
            return pc.and_(plain, pc.invert(pc.and_(_nan(left), _nan(right))))
        case "<":
            return pc.or_(plain, pc.and_(_nan(right), pc.invert(_nan(left))))
        case ">":
            return pc.or_(plain, pc.and_(_nan(left), pc.invert(_nan(right))))
        case "<=":
            return pc.or_(plain, _nan(right))
        case _:
            return pc.or_(plain, _nan(left))


def null_safe_equal(left: Datum, right: Datum) -> Datum:
    equal = pc.fill_null(compare("=", left, right), False)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def is_in(value: Datum, choices: pa.Array, *, or_null: bool) -> Datum:
    """Membership in a list of values without nulls; `or_null` says that the list held a NULL besides."""
    if pa.types.is_floating(value.type):
        zero = pa.scalar(0.0, value.type)
        # Adding zero turns -0.0 into 0.0, which hashing would tell apart.
        value, choices = pc.add(value, zero), pc.add(choices, zero)
    found = pc.is_in(value, value_set=choices)
    unknown = pc.is_null(value)
    if or_null:
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def extreme(operator: str, args: Sequence[Datum]) -> Datum:
    """The least (`<`) or greatest (`>`) argument, leaving nulls out."""
    best = args[0]
    for arg in args[1:]:
        better = pc.or_(pc.fill_null(compare(operator, arg, best), False), pc.is_null(best))
        best = pc.if_else(better, arg, best)
    return best


def _nan(datum: Datum) -> Datum:
    if is_scalar(datum) and datum.is_valid:
        return pa.scalar(math.isnan(datum.as_py()))
    return pc.is_nan(datum)
