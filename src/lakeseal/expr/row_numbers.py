"""Functions of numbers, one row at a time.

Only what every machine computes to the same last bit: sines and their like, which Spark takes from the machine, are
left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from lakeseal.errors import EvaluationError
from lakeseal.expr import strict_math
from lakeseal.expr.row_function import RowFunction, row_function
from lakeseal.protocol.schema import DOUBLE, INTEGER, LONG, STRING

_LONG = 1 << 63
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def wrapped(value: int, bits: int) -> int:
    """As a signed number of so many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def shift_left(value: int, count: int, bits: int) -> int:
    return wrapped(value << (count & (bits - 1)), bits)


def shift_right(value: int, count: int, bits: int) -> int:
    return value >> (count & (bits - 1))


def shift_right_unsigned(value: int, count: int, bits: int) -> int:
    return wrapped((value & ((1 << bits) - 1)) >> (count & (bits - 1)), bits)


def _factorial(value: int) -> int | None:
    return math.factorial(value) if 0 <= value <= 20 else None


def _bin(value: int) -> str:
    return format(value & (2 * _LONG - 1), "b")


def hexadecimal(value: int) -> str:
    return format(value & (2 * _LONG - 1), "X")


def _conv(text: str, source: int, target: int) -> str | None:
    """A number from one base to another, as unsigned 64 bits, or signed where the target is negative."""
    if not (2 <= source <= 36 and 2 <= abs(target) <= 36):
        return None
    digits = text.strip(" ")
    if not digits:
        return None
    negative = digits.startswith("-")
    value = 0
    for char in digits[negative:]:
        digit = _DIGITS.find(char.upper()) if char.isascii() else -1
        if not 0 <= digit < source:
            break
        value = value * source + digit
        if value >= 2 * _LONG:
            raise EvaluationError(f"conv of {text[:50]!r} does not fit 64 bits")
    if negative:
        value = value if target < 0 else (-value) % (2 * _LONG)
        if target < 0 and value >= _LONG:
            value = _LONG
    elif target < 0 and value >= _LONG:
        value, negative = 2 * _LONG - value, True
    shown = _in_base(value, abs(target))
    return f"-{shown}" if negative and target < 0 and value else shown


def _in_base(value: int, base: int) -> str:
    digits = []
    while value:
        value, digit = divmod(value, base)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)) or "0"


def _width_bucket(value: float, low: float, high: float, count: int) -> int | None:
    if count <= 0 or count == _LONG - 1 or math.isnan(value) or low == high:
        return None
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    least, most = min(low, high), max(low, high)
    if low < high:
        if value < least:
            return 0
        if value >= most:
            return count + 1
        return int(count * (value - least) / (most - least)) + 1
    if value > most:
        return 0
    if value <= least:
        return count + 1
    return int(count * (most - value) / (most - least)) + 1


def _sign(value: float) -> float:
    return value if value == 0 or math.isnan(value) else math.copysign(1.0, value)


def _rint(value: float) -> float:
    return value if not math.isfinite(value) else math.copysign(float(round(value)), value)


def _nan_or(value: float | None, other: float | None) -> float | None:
    return other if value is not None and math.isnan(value) else value


def _logarithm(compute: Callable[[float], float], above: float = 0.0) -> Callable[[float], float | None]:
    return lambda value: None if value <= above else compute(value)


def _log2(value: float) -> float:
    return strict_math.log(value) / strict_math.log(2.0)


def _log_to(base: float, value: float | None = None) -> float | None:
    if base <= 0 or (value is not None and value <= 0):
        return None
    if value is None:
        return strict_math.log(base)
    below = strict_math.log(base)
    above = strict_math.log(value)
    if below:
        return above / below
    return math.nan if above == 0 or math.isnan(above) else math.copysign(math.inf, above)


def half_even(value: Any, places: int) -> Any:
    """A whole number or a decimal, rounded to the even neighbour."""
    unit = Decimal(1).scaleb(-places)
    rounded = Decimal(value).quantize(unit, ROUND_HALF_EVEN)
    return int(rounded) if isinstance(value, int) else rounded


NUMBER_FUNCTIONS: dict[str, RowFunction] = (
    row_function("sqrt", lambda value: math.sqrt(value) if value >= 0 else math.nan, (DOUBLE,), DOUBLE)
    | row_function("degrees", lambda value: value * 57.29577951308232, (DOUBLE,), DOUBLE)
    | row_function("radians", lambda value: value * 0.017453292519943295, (DOUBLE,), DOUBLE)
    | row_function("sign signum", _sign, (DOUBLE,), DOUBLE)
    | row_function("rint", _rint, (DOUBLE,), DOUBLE)
    | row_function("exp", strict_math.exp, (DOUBLE,), DOUBLE)
    | row_function("ln", _logarithm(strict_math.log), (DOUBLE,), DOUBLE)
    | row_function("log2", _logarithm(_log2), (DOUBLE,), DOUBLE)
    | row_function("log10", _logarithm(strict_math.log10), (DOUBLE,), DOUBLE)
    | row_function("log1p", _logarithm(strict_math.log1p, -1.0), (DOUBLE,), DOUBLE)
    | row_function("log", _log_to, (DOUBLE, DOUBLE), DOUBLE, least=1)
    | row_function("pow power", strict_math.power, (DOUBLE, DOUBLE), DOUBLE)
    | row_function("nanvl", _nan_or, (DOUBLE, DOUBLE), DOUBLE, with_nulls=True)
    | row_function("factorial", _factorial, (INTEGER,), LONG)
    | row_function("bin", _bin, (LONG,), STRING)
    | row_function("conv", _conv, (STRING, INTEGER, INTEGER), STRING, raises=True)
    | row_function("width_bucket", _width_bucket, (DOUBLE, DOUBLE, DOUBLE, LONG), LONG)
)
"""Those that are bound by their types alone."""
