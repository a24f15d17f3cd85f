"""Arithmetic as Spark does it with ANSI on: what overflows or divides by zero raises `EvaluationError`.

Arguments are already of the types that the operator works on; NULL in any of them gives NULL and never fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError
from lakeseal.expr import decimals
from lakeseal.expr.bound import Bound
from lakeseal.expr.casts import refuse_java_digits
from lakeseal.expr.coercion import FLOATING
from lakeseal.expr.values import Datum, either, first_value, from_numpy, on_arrays, to_numpy
from lakeseal.protocol.schema import DecimalType

_CHECKED: dict[str, Callable[..., Datum]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "div": pc.divide_checked,
    "neg": pc.negate_checked,
    "abs": pc.abs_checked,
}
_BITS: dict[str, Callable[..., Datum]] = {
    "&": pc.bit_wise_and,
    "|": pc.bit_wise_or,
    "^": pc.bit_wise_xor,
    "~": pc.bit_wise_not,
}
_MAX_EXACT = 10.0**14
_EXACT = Context(prec=800, rounding=ROUND_HALF_UP)


def arithmetic(node: Bound, args: Sequence[Datum]) -> Datum:
    """`+ - * / div neg abs`."""
    if isinstance(node.type, DecimalType):
        return _decimal(node, args)
    if node.op in ("/", "div"):
        refuse_zero(node, *args)
    if node.op == "/":
        return pc.divide(*args)
    try:
        return _CHECKED[node.op](*args)
    except pa.ArrowInvalid:
        raise _overflow(node) from None


def bits(node: Bound, args: Sequence[Datum]) -> Datum:
    return _BITS[node.op](*args)


def remainder(node: Bound, args: Sequence[Datum]) -> Datum:
    """`%` with the sign of the dividend, `pmod` with that of the divisor."""
    refuse_zero(node, *args)

    def kernel(left: pa.Array, right: pa.Array) -> pa.Array:
        (dividend, left_nulls), (divisor, right_nulls) = to_numpy(left), to_numpy(right)
        nulls = either(left_nulls, right_nulls)
        with np.errstate(all="ignore"):
            divisor = np.where(divisor == 0, 1, divisor) if nulls is not None else divisor
            rest = np.fmod(dividend, divisor)
            if node.op == "pmod":
                rest = np.where(rest < 0, np.fmod(rest + divisor, divisor), rest)
        return from_numpy(rest.astype(dividend.dtype, copy=False), nulls, left.type)

    return on_arrays(kernel, *args)


def refuse_zero(node: Bound, dividend: Datum, divisor: Datum) -> None:
    zero = pc.equal(divisor, pa.scalar(0, divisor.type))
    bad = pc.and_(pc.fill_null(zero, False), pc.is_valid(dividend))
    if bad.as_py() if isinstance(bad, pa.Scalar) else pc.any(bad, min_count=0).as_py():
        raise EvaluationError(f"Division by zero in {node.op}")


def floor_or_ceil(node: Bound, args: Sequence[Datum]) -> Datum:
    cut = pc.floor if node.op == "floor" else pc.ceil
    if isinstance(node.type, DecimalType):
        target = node.type

        def exact(array: pa.Array) -> pa.Array:
            return decimals.rescale(cut(decimals.widen(array)), target)[0]

        return on_arrays(exact, *args)

    def kernel(array: pa.Array) -> pa.Array:
        values, nulls = to_numpy(cut(array))
        bad = np.abs(np.nan_to_num(values, nan=0.0)) >= 2.0**63
        bad &= values != -(2.0**63)
        marked = bad if nulls is None else bad & ~nulls
        if marked.any():
            raise EvaluationError(f"{node.op}({first_value(array, pa.array(marked))!r}) does not fit a bigint")
        return from_numpy(np.where(bad | np.isnan(values), 0, values).astype(np.int64), nulls, pa.int64())

    return on_arrays(kernel, *args)


def round_half_up(node: Bound, args: Sequence[Datum]) -> Datum:
    """`round(value, places)`; the places are the node's option."""
    places: int = node.option
    if isinstance(node.type, DecimalType):
        target = node.type
        return on_arrays(lambda array: decimals.rescale(array, target)[0], *args)
    if node.type in FLOATING:
        return on_arrays(lambda array: _round_floats(array, places), *args)
    return on_arrays(lambda array: _round_integers(node, array, places), *args)


def _round_integers(node: Bound, array: pa.Array, places: int) -> pa.Array:
    if places >= 0:
        return array
    exact = array.cast(pa.decimal128(19, 0)).cast(pa.decimal128(38, 0))
    if places < -19:
        return pc.multiply(array, pa.scalar(0, array.type))
    rounded = pc.round(exact, ndigits=places, round_mode="half_towards_infinity")
    try:
        return rounded.cast(array.type)
    except pa.ArrowInvalid:
        raise _overflow(node) from None


def _round_floats(array: pa.Array, places: int) -> pa.Array:
    """Rounds the decimal number that a float is written as, which is not the binary number that it is.

    A number with at most 15 digits is written as itself, so comparing with the nearest float to the middle between two
    candidates decides as comparing the decimals would. Others are rounded one by one.
    """
    values, nulls = to_numpy(array)
    if places < 0:
        refuse_java_digits(array)
    doubles = values.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.abs(doubles)
        scale = 10.0 ** abs(places)
        scaled = size * scale if places >= 0 else size / scale
        lower = np.floor(scaled)
        # Scaling rounds, so the floor may be one off.
        lower = np.where(_unscale(lower + 1, scale, places) <= size, lower + 1, lower)
        lower = np.where(_unscale(lower, scale, places) > size, lower - 1, lower)
        up = size >= _unscale(lower + 0.5, scale, places)
        result = np.copysign(_unscale(lower + up, scale, places), doubles)
        hard = np.isfinite(doubles) & ((scaled >= _MAX_EXACT) | (abs(places) > 15))
        result = np.where(np.isfinite(doubles), result + 0.0, doubles)
    for index in np.flatnonzero(hard if nulls is None else hard & ~nulls):
        result[index] = _round_exactly(float(doubles[index]), places)
    return from_numpy(result.astype(values.dtype), nulls, array.type)


def _unscale(values: npt.NDArray[Any], scale: float, places: int) -> npt.NDArray[Any]:
    result: npt.NDArray[Any] = values / scale if places >= 0 else values * scale
    return result


def _round_exactly(value: float, places: int) -> float:
    if places > 330 or (places >= 0 and math.fabs(value) >= 2.0**53):
        return value
    return float(_EXACT.quantize(Decimal(repr(value)), Decimal(1).scaleb(-places)))


def _decimal(node: Bound, args: Sequence[Datum]) -> Datum:
    target = node.type
    assert isinstance(target, DecimalType)
    if node.op == "neg":
        return pc.negate(args[0])
    if node.op == "abs":
        return pc.abs(args[0])
    if node.op == "/":
        refuse_zero(node, *args)

    def kernel(left: pa.Array, right: pa.Array) -> pa.Array:
        if node.op == "/":
            zero = pc.equal(right, pa.scalar(0, right.type))
            right = pc.if_else(zero, pa.scalar(None, right.type), right)
        result, bad = decimals.arithmetic(node.op, left, right, target)
        if bad is not None and pc.any(bad, min_count=0).as_py():
            raise _overflow(node)
        return result

    return on_arrays(kernel, *args)


def _overflow(node: Bound) -> EvaluationError:
    return EvaluationError(f"The result of {node.op} does not fit {node.type}")
