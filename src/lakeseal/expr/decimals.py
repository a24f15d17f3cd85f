"""Exact decimals on Arrow arrays: rounding half up, checking that values fit, arithmetic.

Intermediate results use 76 digits. What could need more is refused when an expression is bound, by
`needs_too_many_digits`.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.protocol.schema import DecimalType

_WIDE = 76
# One digit stays free for a carry.
_ROOM = _WIDE - 1
_EXACT = Context(prec=2 * _WIDE)


def arrow_decimal(data_type: DecimalType) -> pa.DataType:
    return pa.decimal128(data_type.precision, data_type.scale)


def widen(array: pa.Array) -> pa.Array:
    """The same values with room for one digit more."""
    return array.cast(pa.decimal256(min(array.type.precision + 1, _WIDE), array.type.scale))


def rescale(array: pa.Array, target: DecimalType) -> tuple[pa.Array, pa.Array | None]:
    """Values in the target type, rounded half up, and where they do not fit (those are null)."""
    wide = widen(array)
    if wide.type.scale > target.scale:
        wide = pc.round(wide, ndigits=target.scale, round_mode="half_towards_infinity")
    bad = None
    if wide.type.precision - wide.type.scale > target.precision - target.scale:
        limit = pa.scalar(Decimal(10) ** (target.precision - target.scale), wide.type)
        bad = pc.fill_null(pc.greater_equal(pc.abs(wide), limit), False)
        wide = pc.if_else(bad, pa.scalar(None, wide.type), wide)
    return wide.cast(arrow_decimal(target)), bad


def unscaled(array: pa.Array) -> pa.Array:
    """The digits without the point, as whole decimals."""
    plain = pa.decimal128(38, 0) if pa.types.is_decimal128(array.type) else pa.decimal256(_WIDE, 0)
    return pa.Array.from_buffers(plain, len(array), array.buffers(), array.null_count, array.offset)


def to_text(array: pa.Array) -> pa.Array:
    """Plain digits with all places behind the point, never an exponent."""
    scale = array.type.scale
    digits = unscaled(array).cast(pa.string())
    if scale == 0:
        return digits
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, characters="-"), width=scale + 1, padding="0")
    whole = pc.utf8_slice_codeunits(padded, start=0, stop=-scale)
    fraction = pc.utf8_slice_codeunits(padded, start=-scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


def needs_too_many_digits(operator: str, left: DecimalType, right: DecimalType) -> bool:
    match operator:
        case "+" | "-":
            scale = max(left.scale, right.scale)
            return max(left.precision - left.scale, right.precision - right.scale) + scale + 1 > _ROOM
        case "*":
            return left.precision + right.precision + 1 > _ROOM
        case "/":
            return left.precision + right.precision + right.scale + 10 > _ROOM
        case _:
            return True


def arithmetic(operator: str, left: pa.Array, right: pa.Array, target: DecimalType) -> tuple[pa.Array, pa.Array | None]:
    """The result in its type, and where it does not fit. A divisor of zero must be null before."""
    left, right = (side.cast(pa.decimal256(side.type.precision, side.type.scale)) for side in (left, right))
    match operator:
        case "+":
            result = pc.add(left, right)
        case "-":
            result = pc.subtract(left, right)
        case "*":
            result = pc.multiply(left, right)
        case _:
            result = _divide(left, right, target)
    return rescale(result, target)


def _divide(left: pa.Array, right: pa.Array, target: DecimalType) -> pa.Array:
    # Arrow cuts the quotient off after `left.scale + right.precision - right.scale + 1` places; one place more than
    # wanted is enough to round half up, so the divisor is declared with as many digits as that takes.
    places = target.scale + 1
    precision = max(right.type.precision, places - left.type.scale + right.type.scale - 1)
    return pc.divide(left, right.cast(pa.decimal256(precision, right.type.scale)))


def _rest(right: Decimal, left: Decimal) -> Decimal:
    """With the sign of what is divided."""
    if not right:
        raise EvaluationError("Division by zero in %", hint="Leave such rows out by a condition, or use nullif")
    return _EXACT.remainder(left, right)


def _positive_rest(right: Decimal, left: Decimal) -> Decimal:
    rest = _rest(right, left)
    return _EXACT.remainder(_EXACT.add(rest, right), right) if rest < 0 else rest


def _whole_quotient(right: Decimal, left: Decimal) -> int:
    if not right:
        raise EvaluationError("Division by zero in div", hint="Leave such rows out by a condition, or use nullif")
    quotient = int(_EXACT.divide_int(left, right))
    if not -(1 << 63) <= quotient < 1 << 63:
        raise UnsupportedExpression("A quotient beyond 64 bits is not supported")
    return quotient


REMAINDERS: dict[str, Callable[[Decimal, Decimal], Decimal | int]] = {
    "%": _rest,
    "pmod": _positive_rest,
    "div": _whole_quotient,
}
"""Of a divisor, which Spark looks at first, and what is divided; neither is null."""
