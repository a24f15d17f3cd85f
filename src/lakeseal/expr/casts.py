"""CAST between types without parts, as Spark does it with ANSI on and the session in UTC.

A value that does not fit its target raises `EvaluationError` and is named; `try_cast` gives NULL instead. Casts whose
result depends on the Java version (floating-point numbers to strings) are refused when they are bound, by `refusal`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.expr import reading
from lakeseal.expr.calendar import MICROS_PER_DAY, MICROS_PER_SECOND
from lakeseal.expr.coercion import FLOATING, INTEGRAL, TIMESTAMPS, can_cast, decimal_of, is_numeric
from lakeseal.expr.decimals import rescale, to_text
from lakeseal.expr.reading import Reading
from lakeseal.expr.values import Bools, Datum, either, first_value, from_numpy, on_arrays, to_numpy
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    VOID,
    DataType,
    DecimalType,
)

_LONG = np.iinfo(np.int64)
_YEARS = (-719_162, 2_932_896)
"""The days of 0001-01-01 and 9999-12-31, which text shows with four digits."""


def refusal(source: DataType, target: DataType) -> str | None:
    """Why a cast that Spark allows is not done here."""
    if isinstance(source, DecimalType) and target == TIMESTAMP:
        return "Spark does not notice what is too large"
    if source in FLOATING and target == STRING:
        return "Spark writes floating-point numbers as the Java version at hand does"
    return None


def never_fails(source: DataType, target: DataType) -> bool:
    """Whether every value of the source has one in the target."""
    if source in (target, VOID) or (target == BOOLEAN and source != STRING):
        return True
    if target == BINARY:
        return True
    if target == STRING:
        # Dates beyond the year 9999 are refused, bytes may not be text.
        return source in INTEGRAL or source == BOOLEAN or isinstance(source, DecimalType)
    if source in INTEGRAL and target in INTEGRAL:
        return INTEGRAL.index(source) <= INTEGRAL.index(target)
    if target in FLOATING:
        return source != STRING
    if isinstance(target, DecimalType):
        if source == BOOLEAN:
            return target.precision > target.scale
        if source in INTEGRAL or isinstance(source, DecimalType):
            whole = decimal_of(source)
            return target.precision - target.scale >= whole.precision - whole.scale and target.scale >= whole.scale
        return False
    if source == BOOLEAN:
        return True
    if target == TIMESTAMP and source in INTEGRAL:
        return True
    return source in TIMESTAMPS and target in (DATE, *TIMESTAMPS)


def cast(value: Datum, source: DataType, target: DataType, *, attempt: bool = False) -> Datum:
    if source == target:
        return value
    return on_arrays(lambda array: _cast_array(array, source, target, attempt), value)


def _cast_array(array: pa.Array, source: DataType, target: DataType, attempt: bool) -> pa.Array:
    result, bad = _convert(array, source, target)
    if bad is not None and not attempt and pc.any(bad, min_count=0).as_py():
        value = first_value(array, bad)
        raise EvaluationError(f"The value {value!r} cannot be cast from {source} to {target}")
    return result


def _convert(array: pa.Array, source: DataType, target: DataType) -> Reading:
    arrow = to_arrow_type(target)
    if source == VOID:
        return pa.nulls(len(array), arrow), None
    assert can_cast(source, target), (source, target)
    if source == STRING:
        return _from_string(array, target, arrow)
    if target == STRING:
        return _to_string(array, source), None
    if target == BOOLEAN:
        return pc.not_equal(array, pa.scalar(0, array.type)), None
    if target == DATE or target in TIMESTAMPS:
        return _to_moment(array, source, target, arrow)
    if source == TIMESTAMP:
        return _from_timestamp(array, target)
    if source == BOOLEAN:
        return _convert(array.cast(pa.int8()), INTEGRAL[0], target)
    return _to_number(array, source, target, arrow)


def _from_string(array: pa.Array, target: DataType, arrow: pa.DataType) -> Reading:
    if isinstance(target, DecimalType):
        return reading.read_decimal(array, target)
    if target in INTEGRAL:
        return reading.read_integer(array, arrow)
    if target in FLOATING:
        return reading.read_float(array, arrow)
    if target == BOOLEAN:
        return reading.read_boolean(array)
    if target == DATE:
        return reading.read_date(array)
    if target in TIMESTAMPS:
        return reading.read_timestamp(array, arrow)
    return array.cast(pa.binary()), None


def _to_string(array: pa.Array, source: DataType) -> pa.Array:
    if isinstance(source, DecimalType):
        return to_text(array)
    if source == DATE:
        check_years(array)
        return array.cast(pa.string())
    if source in TIMESTAMPS:
        check_years(array)
        text = array.cast(pa.timestamp("us")).cast(pa.string())
        return pc.ascii_rtrim(pc.ascii_rtrim(text, characters="0"), characters=".")
    if source == BINARY:
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            raise UnsupportedExpression("Reading bytes that are no UTF-8 text as a string is not supported") from None
    return array.cast(pa.string())


def check_years(array: pa.Array) -> None:
    """Refuses dates and timestamps beyond the years 1 to 9999, which Java writes otherwise than Arrow."""
    bounds = pc.min_max(array.cast(pa.int32()) if array.type == pa.date32() else array.cast(pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    unit = 1 if array.type == pa.date32() else MICROS_PER_DAY
    if low is not None and (low // unit < _YEARS[0] or high // unit > _YEARS[1]):
        raise UnsupportedExpression("A date beyond the years 1 to 9999 as text is not supported")


def _to_moment(array: pa.Array, source: DataType, target: DataType, arrow: pa.DataType) -> Reading:
    if is_numeric(source):
        return _number_to_timestamp(array, source)
    values, nulls = to_numpy(array)
    if source in TIMESTAMPS and target in TIMESTAMPS:
        return from_numpy(values, nulls, arrow), None
    if target == DATE:
        return from_numpy((values // MICROS_PER_DAY).astype(np.int32), nulls, arrow), None
    days = values.astype(np.int64)
    limit = (1 << 63) // MICROS_PER_DAY
    bad = np.abs(days) > limit
    return from_numpy(np.where(bad, 0, days) * MICROS_PER_DAY, either(nulls, bad), arrow), _marked(bad, nulls)


def _number_to_timestamp(array: pa.Array, source: DataType) -> Reading:
    """Seconds since 1970. A whole number that is too large becomes the last or first timestamp, as in Spark."""
    arrow = pa.timestamp("us", "UTC")
    values, nulls = to_numpy(array)
    if source in INTEGRAL:
        most = _LONG.max // MICROS_PER_SECOND
        seconds = values.astype(np.int64)
        micros = np.where(
            (seconds > most) | (seconds < -most),
            np.where(seconds > 0, _LONG.max, _LONG.min),
            seconds * MICROS_PER_SECOND,
        )
        return from_numpy(micros, nulls, arrow), None
    with np.errstate(all="ignore"):
        scaled = values.astype(np.float64) * MICROS_PER_SECOND
        bad = ~(np.abs(scaled) < 2.0**63)
    return from_numpy(_to_longs(np.where(bad, 0, scaled)), either(nulls, bad), arrow), _marked(bad, nulls)


def _from_timestamp(array: pa.Array, target: DataType) -> Reading:
    if isinstance(target, DecimalType):
        micros = array.cast(pa.int64()).cast(pa.decimal128(19, 0))
        return rescale(
            pa.Array.from_buffers(pa.decimal128(19, 6), len(micros), micros.buffers(), offset=micros.offset), target
        )
    values, nulls = to_numpy(array)
    if target in FLOATING:
        seconds = from_numpy(values / float(MICROS_PER_SECOND), nulls, pa.float64())
        return _convert(seconds, DOUBLE, target) if target != DOUBLE else (seconds, None)
    whole = from_numpy(values // MICROS_PER_SECOND, nulls, pa.int64())
    return _to_number(whole, INTEGRAL[3], target, to_arrow_type(target))


def _to_number(array: pa.Array, source: DataType, target: DataType, arrow: pa.DataType) -> Reading:
    if isinstance(target, DecimalType):
        return _to_decimal(array, source, target)
    if isinstance(source, DecimalType):
        if target in FLOATING:
            # Through text, because Arrow's own way may round twice.
            return to_text(array).cast(arrow), None
        wide = pc.trunc(array.cast(pa.decimal256(38, source.scale))).cast(pa.decimal256(38, 0))
        limit = pa.scalar(1 << (arrow.bit_width - 1), wide.type)
        bad = pc.or_(pc.greater_equal(wide, limit), pc.less(wide, pc.negate(limit)))
        return pc.if_else(bad, pa.scalar(None, wide.type), wide).cast(arrow), pc.fill_null(bad, False)
    values, nulls = to_numpy(array)
    if target in FLOATING:
        with np.errstate(all="ignore"):
            return from_numpy(values.astype(arrow.to_pandas_dtype()), nulls, arrow), None
    limit = 1 << (arrow.bit_width - 1)
    if source in INTEGRAL:
        if array.type.bit_width <= arrow.bit_width:
            return array.cast(arrow), None
        bad = (values < -limit) | (values >= limit)
        whole = values
    else:
        bad, whole = _truncate(values, limit)
    return from_numpy(np.where(bad, 0, whole).astype(arrow.to_pandas_dtype()), either(nulls, bad), arrow), _marked(
        bad, nulls
    )


def _truncate(values: npt.NDArray[Any], limit: int) -> tuple[Bools, npt.NDArray[np.int64]]:
    """Floating-point numbers cut to integers as Java does, and where they are too large."""
    wide = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        # Spark compares with the largest long as a double, which is one too many, and then stays below it.
        bad = ~((np.floor(wide) <= float(limit - 1)) & (np.ceil(wide) >= -float(limit)))
    return bad, _to_longs(np.where(bad, 0, wide))


def _to_longs(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Cut off behind the point; beyond the longs the nearest one."""
    inside = np.clip(values, -(2.0**63), np.nextafter(2.0**63, 0)).astype(np.int64)
    return np.where(values >= 2.0**63, _LONG.max, inside)


def _to_decimal(array: pa.Array, source: DataType, target: DecimalType) -> Reading:
    if isinstance(source, DecimalType):
        return rescale(array, target)
    if source in INTEGRAL:
        return rescale(array.cast(pa.decimal128(19, 0)), target)
    refuse_java_digits(array, limit=10.0 ** (target.precision - target.scale))
    finite = pc.is_finite(array)
    text = pc.if_else(finite, array, pa.scalar(None, array.type)).cast(pa.float64()).cast(pa.string())
    return reading.read_decimal(text, target)


def refuse_java_digits(array: pa.Array, *, limit: float = np.inf) -> None:
    """Refuses floats below a limit that some versions of Java write with other digits than others."""
    size = np.abs(to_numpy(array)[0].astype(np.float64))
    if ((size >= 2.0**54) & (size < limit)).any():
        raise UnsupportedExpression("A floating-point number above 2^54 as a decimal is not supported")


def _marked(bad: Bools, nulls: Bools | None) -> pa.Array | None:
    marked = bad if nulls is None else bad & ~nulls
    return pa.array(marked) if marked.any() else None
