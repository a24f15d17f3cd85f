"""What can be said of an expression's values in many files at once, without reading them.

`Truth` holds, per file, whether a condition may be TRUE, FALSE or NULL for some row. `Range` bounds the values of some
rows: a null bound is unknown. Everything here errs on the side of "may": a rule that does not apply says `unknown`.
Order is Spark's, so NaN lies above every number and above `high`; `nan` says that it may be there.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakeseal.expr.compare import compare, is_in
from lakeseal.expr.values import Bools, Datum, as_array, is_scalar, to_numpy, truths

_SEGMENTS = 32
_GREATEST = "\U0010ffff"


class Truth(Struct, frozen=True):
    true: Bools
    false: Bools
    null: Bools

    def negated(self) -> Truth:
        return Truth(self.false, self.true, self.null)


class Range(Struct, frozen=True):
    low: Datum
    high: Datum
    null: Bools
    """Some row may be NULL."""
    some: Bools
    """Some row may have a value."""
    nan: Bools


def unknown_truth(count: int) -> Truth:
    yes = np.ones(count, dtype=np.bool_)
    return Truth(yes, yes, yes)


def unknown_range(arrow: pa.DataType, count: int) -> Range:
    yes = np.ones(count, dtype=np.bool_)
    nowhere = pa.scalar(None, arrow)
    return Range(nowhere, nowhere, yes, yes, yes if pa.types.is_floating(arrow) else ~yes)


def exact_range(values: Datum, count: int) -> Range:
    """Files whose rows all have the one value."""
    null = truths(pc.is_null(values), count)
    nan = truths(pc.is_nan(values), count) if pa.types.is_floating(values.type) else np.zeros(count, dtype=np.bool_)
    return Range(values, values, null, ~null, nan)


def exact_truth(values: Datum, count: int) -> Truth:
    null = truths(pc.is_null(values), count)
    true = truths(values, count)
    return Truth(true, ~true & ~null, null)


def conjunction(parts: list[Truth]) -> Truth:
    true = np.logical_and.reduce([part.true for part in parts])
    false = np.logical_or.reduce([part.false for part in parts])
    not_false = np.logical_and.reduce([part.true | part.null for part in parts])
    return Truth(true, false, not_false & np.logical_or.reduce([part.null for part in parts]))


def disjunction(parts: list[Truth]) -> Truth:
    return conjunction([part.negated() for part in parts]).negated()


def compared(operator: str, left: Range, right: Range) -> Truth:
    count = len(left.some)
    if operator == "<=>":
        return _null_safe(compared("=", left, right), left, right)
    if operator == "<>":
        return compared("=", left, right).negated()
    if operator in (">", ">="):
        return compared("<" if operator == ">" else "<=", right, left)
    if operator == "=":
        overlap = _may("<=", left.low, right.high, count) & _may("<=", right.low, left.high, count)
        true = overlap | (left.nan & right.nan)
        false = ~(_single(left, count) & _single(right, count) & _surely("=", left.low, right.low, count))
    else:
        true = _may(operator, left.low, right.high, count) | right.nan
        false = _may(">=" if operator == "<" else ">", left.high, right.low, count) | left.nan
    both = left.some & right.some
    return Truth(true & both, false & both, left.null | right.null)


def _null_safe(equal: Truth, left: Range, right: Range) -> Truth:
    true = equal.true | (left.null & right.null)
    false = equal.false | (left.null & right.some) | (left.some & right.null)
    return Truth(true, false, np.zeros_like(true))


def included(value: Range, choices: pa.Array, *, or_null: bool) -> Truth:
    """Whether values are among constants, of which NULL may be one."""
    count = len(value.some)
    surely = _single(value, count) & truths(is_in(value.low, choices, or_null=False), count)
    true = _near(value, choices, count)
    if pa.types.is_floating(choices.type):
        true |= value.nan & bool(pc.any(pc.is_nan(choices), min_count=0).as_py())
    elsewhere = value.some & ~surely
    null = value.null | (elsewhere if or_null else False)
    return Truth(true & value.some, elsewhere & (not or_null), null)


def _near(value: Range, choices: pa.Array, count: int) -> Bools:
    """Where some choice may lie between the bounds."""
    ordered = choices.take(pc.sort_indices(choices))
    if pa.types.is_integer(choices.type) or pa.types.is_temporal(choices.type):
        return _next_inside(value, ordered, count)
    result = np.zeros(count, dtype=np.bool_)
    # Of a long list, neighbours are taken together.
    size = max(1, -(-len(ordered) // _SEGMENTS))
    for start in range(0, len(ordered), size):
        group = ordered.slice(start, size)
        result |= _may("<=", value.low, group[len(group) - 1], count) & _may("<=", group[0], value.high, count)
    return result


def _next_inside(value: Range, ordered: pa.Array, count: int) -> Bools:
    """Where the first choice at or above the lower bound is not above the upper one."""
    if not len(ordered):
        return np.zeros(count, dtype=np.bool_)
    (low, no_low), (high, no_high) = (to_numpy(as_array(bound, count)) for bound in (value.low, value.high))
    choices, _ = to_numpy(ordered)
    index = np.searchsorted(choices, low)
    if no_low is not None:
        index = np.where(no_low, 0, index)
    inside = choices[np.minimum(index, len(choices) - 1)] <= high
    if no_high is not None:
        inside |= no_high
    result: Bools = inside & (index < len(choices))
    return result


def starting_with(value: Range, prefix: str) -> Truth:
    """Whether strings start so; a range of strings may be cut off at both ends."""
    count = len(value.some)
    first = prefix.encode()
    beyond = first[:-1] + bytes([first[-1] + 1]) if first else None
    low, high = (bound.cast(pa.binary()) for bound in (value.low, value.high))
    start = pa.scalar(first, pa.binary())
    true = _may("<=", start, high, count)
    false = ~_surely(">=", low, start, count)
    if beyond is not None:
        end = pa.scalar(beyond, pa.binary())
        true = true & _may("<", low, end, count)
        false = false | ~_surely("<", high, end, count)
    return Truth(true & value.some, false & value.some, value.null)


def union(parts: list[Range], *, null: Bools) -> Range:
    """Values of any of the parts."""
    low, high = parts[0].low, parts[0].high
    for part in parts[1:]:
        # A bound that is unknown makes the union's unknown.
        low = pc.if_else(compare("<=", low, part.low), low, part.low)
        high = pc.if_else(compare(">=", high, part.high), high, part.high)
    return Range(
        low,
        high,
        null,
        np.logical_or.reduce([part.some for part in parts]),
        np.logical_or.reduce([part.nan for part in parts]),
    )


def _may(operator: str, left: Datum, right: Datum, count: int) -> Bools:
    """Where a comparison of bounds holds, or is not known."""
    return truths(pc.fill_null(compare(operator, left, right), True), count)


def _surely(operator: str, left: Datum, right: Datum, count: int) -> Bools:
    return truths(compare(operator, left, right), count)


def _single(value: Range, count: int) -> Bools:
    """Where there is only one value."""
    return _surely("=", value.low, value.high, count) & ~value.nan


def widened_text(high: Datum, length: int) -> Datum:
    """An upper bound of strings that may be cut off after `length` characters: all that begin so and go on with less
    than the greatest character. One that goes on with it, and then further, has no bound."""
    if is_scalar(high):
        return high
    cut = pc.greater_equal(pc.utf8_length(high), length)
    if not pc.any(cut, min_count=0).as_py():
        return high
    longest = pc.binary_join_element_wise(pc.utf8_slice_codeunits(high, start=0, stop=length), _GREATEST, "")
    further = pc.greater(high, longest)
    return pc.if_else(cut, pc.if_else(further, None, longest), high)
