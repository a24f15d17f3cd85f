"""Strings read as other types, as Spark's casts read them.

Blanks around a value do not count. Each reader returns the values and where the text could not be read (there the
value is null); None if it could be read everywhere. Forms that Spark reads and this module does not (times without a
date, names of time zones) raise `UnsupportedExpression`, so that no reader calls them unreadable.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import UnsupportedExpression
from lakeseal.expr.calendar import MICROS_PER_DAY, MICROS_PER_SECOND, civil_to_days, days_in_month
from lakeseal.expr.decimals import rescale
from lakeseal.expr.values import Bools, first_value, from_numpy
from lakeseal.protocol.schema import DecimalType

Reading = tuple[pa.Array, pa.Array | None]

_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_JAVA_BLANK = "".join(map(chr, range(0x21)))
# Made into Arrow's where they are used: the first array in a process loads pandas, if that is installed.
_TRUE = ("t", "true", "y", "yes", "1")
_FALSE = ("f", "false", "n", "no", "0")
_INFINITIES = ("inf", "+inf", "infinity", "+infinity")
_MINUS_INFINITIES = ("-inf", "-infinity")
_FLOAT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?$"
_HEX_FLOAT = r"^[+-]?0[xX]"
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_PLAIN_DECIMAL = r"^(?P<whole>[+-]?[0-9]*)\.?(?P<fraction>[0-9]*)$"
_DATE = r"^(?P<year>[+-]?[0-9]{4,7})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T](?s:.*))?)?)?$"
_TIMESTAMP = (
    r"^(?P<year>[+-]?[0-9]{4,6})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?:[ T](?P<hour>[0-9]{1,2})"
    r"(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]*))?(?P<zone>[^0-9.](?s:.*))?)?)?)?)?)?$"
)
_TIME_ONLY = r"^(?:T|[0-9]{1,2}:)"
_ZONE = r"^ *(?:(?P<name>Z|UTC|GMT)|(?P<sign>[+-])(?P<hours>[0-9]{1,2})(?::?(?P<minutes>[0-9]{2}))?) *$"
_LONG = 1 << 63
_EXACT = Context(prec=200, rounding=ROUND_HALF_UP)


def read_boolean(text: pa.Array) -> Reading:
    word = pc.ascii_lower(_trim(text))
    true = pc.is_in(word, value_set=pa.array(_TRUE))
    known = pc.or_(true, pc.is_in(word, value_set=pa.array(_FALSE)))
    return pc.if_else(known, true, pa.scalar(None, pa.bool_())), _bad(text, known)


def read_integer(text: pa.Array, arrow: pa.DataType) -> Reading:
    trimmed = _trim(text)
    digits = pc.match_substring_regex(trimmed, r"^[+-]?[0-9]+$")
    # Arrow reads no plus sign. Zeros in front must not count as digits.
    plain = pc.replace_substring_regex(trimmed, r"^\+?(-?)0*([0-9])", r"\1\2")
    limit = 1 << (arrow.bit_width - 1)
    short = pc.less_equal(pc.binary_length(plain), len(str(limit)) + 1)
    readable = pc.fill_null(pc.and_(digits, short), False)
    wide = pc.if_else(readable, plain, pa.scalar(None, pa.string())).cast(pa.decimal128(38, 0))
    inside = pc.and_(pc.greater_equal(wide, pa.scalar(-limit, wide.type)), pc.less(wide, pa.scalar(limit, wide.type)))
    inside = pc.fill_null(inside, False)
    return pc.if_else(inside, wide, pa.scalar(None, wide.type)).cast(arrow), _bad(text, inside)


def read_float(text: pa.Array, arrow: pa.DataType) -> Reading:
    trimmed = pc.utf8_trim(text, characters=_JAVA_BLANK)
    _refuse(text, pc.match_substring_regex(trimmed, _HEX_FLOAT), "a hexadecimal floating-point number")
    number = pc.match_substring_regex(trimmed, _FLOAT)
    word = pc.ascii_lower(trimmed)
    plain = pc.ascii_trim(pc.if_else(number, word, pa.scalar(None, pa.string())), characters="+df")
    values = plain.cast(arrow)
    for words, special in ((_INFINITIES, np.inf), (_MINUS_INFINITIES, -np.inf), (("nan",), np.nan)):
        values = pc.if_else(pc.is_in(word, value_set=pa.array(words)), pa.scalar(special, arrow), values)
    return values, _bad(text, pc.is_valid(values))


def read_decimal(text: pa.Array, target: DecimalType) -> Reading:
    trimmed = pc.utf8_trim(text, characters=_JAVA_BLANK)
    shaped = pc.fill_null(pc.match_substring_regex(trimmed, _DECIMAL), False)
    parts = pc.extract_regex(trimmed, _PLAIN_DECIMAL)
    plain = pc.fill_null(pc.and_(shaped, pc.is_valid(parts)), False)
    whole = pc.replace_substring_regex(pc.struct_field(parts, "whole"), r"^(?:\+|(-))?0*([0-9]*)$", r"\1\2")
    short = pc.less_equal(pc.binary_length(whole), target.precision - target.scale + 1)
    fraction = pc.utf8_rpad(
        pc.utf8_slice_codeunits(pc.struct_field(parts, "fraction"), start=0, stop=target.scale + 1),
        width=target.scale + 1,
        padding="0",
    )
    easy = pc.fill_null(pc.and_(plain, short), False)
    # One digit more than is kept decides how to round.
    arrow = pa.decimal256(target.precision + 3, target.scale + 1)
    joined = pc.binary_join_element_wise(whole, fraction, ".")
    wide = pc.if_else(easy, joined, pa.scalar(None, pa.string())).cast(arrow)
    values, _ = rescale(wide, target)
    odd = pc.and_(shaped, pc.invert(plain))
    if pc.any(odd).as_py():
        values = pc.coalesce(values, _with_exponents(pc.if_else(odd, trimmed, pa.scalar(None, pa.string())), target))
    return values, _bad(text, pc.is_valid(values))


def read_date(text: pa.Array) -> Reading:
    parts = pc.extract_regex(_trim(text), _DATE)
    year, month, day = (_number(parts, name, 1) for name in ("year", "month", "day"))
    good = _is_date(year, month, day) & _present(parts)
    days = civil_to_days(*(np.where(good, part, 1) for part in (year, month, day)))
    good &= (days >= -(1 << 31)) & (days < 1 << 31)
    return from_numpy(days.astype(np.int32), ~good, pa.date32()), _bad(text, pa.array(good))


def read_timestamp(text: pa.Array, arrow: pa.DataType) -> Reading:
    """Into UTC, or without a zone: then a zone in the text is left out."""
    trimmed = _trim(text)
    _refuse(text, pc.match_substring_regex(trimmed, _TIME_ONLY), "a time without a date")
    parts = pc.extract_regex(trimmed, _TIMESTAMP)
    year, month, day = (_number(parts, name, 1) for name in ("year", "month", "day"))
    hour, minute, second = (_number(parts, name, 0) for name in ("hour", "minute", "second"))
    fraction = pc.utf8_slice_codeunits(pc.struct_field(parts, "fraction"), start=0, stop=6)
    micros = _to_ints(pc.utf8_rpad(fraction, width=6, padding="0"), 0)
    good = _is_date(year, month, day) & _present(parts) & (hour < 24) & (minute < 60) & (second < 60)
    offset, known = _zone_offset(text, pc.struct_field(parts, "zone"), wanted=arrow.tz is not None)
    good &= known
    days = civil_to_days(*(np.where(good, part, 1) for part in (year, month, day)))
    good &= np.abs(days) < _LONG // MICROS_PER_DAY
    seconds = hour * 3600 + minute * 60 + second - offset
    total = np.where(good, days, 0) * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + micros
    return from_numpy(total, ~good, arrow), _bad(text, pa.array(good))


def _trim(text: pa.Array) -> pa.Array:
    return pc.utf8_trim(text, characters=_BLANK)


def _bad(text: pa.Array, good: pa.Array) -> pa.Array | None:
    bad = pc.and_(pc.is_valid(text), pc.invert(pc.fill_null(good, False)))
    return bad if pc.any(bad, min_count=0).as_py() else None


def _refuse(text: pa.Array, found: pa.Array, what: str) -> None:
    found = pc.fill_null(found, False)
    if pc.any(found, min_count=0).as_py():
        raise UnsupportedExpression(f"Reading {first_value(text, found)!r}, {what}, is not supported")


def _with_exponents(text: pa.Array, target: DecimalType) -> pa.Array:
    """Numbers such as 1.5e3, one by one: they are rare, and Arrow cannot round them."""
    return pa.array([_exact(item, target) for item in text.to_pylist()], pa.decimal128(target.precision, target.scale))


def _exact(text: str | None, target: DecimalType) -> Decimal | None:
    if text is None:
        return None
    try:
        value = Decimal(text)
        if value.is_zero():
            return Decimal(0)
        if value.adjusted() > target.precision:
            return None
        if value.adjusted() < -target.scale - 1:
            return Decimal(0)
        rounded = _EXACT.quantize(value, Decimal(1).scaleb(-target.scale))
    except InvalidOperation:
        return None
    return rounded if abs(rounded) < Decimal(10) ** (target.precision - target.scale) else None


def _to_ints(digits: pa.Array, missing: int) -> npt.NDArray[np.int64]:
    filled = pc.if_else(pc.equal(pc.binary_length(digits), 0), pa.scalar(None, pa.string()), digits)
    numbers: Any = pc.fill_null(pc.ascii_ltrim(filled, characters="+").cast(pa.int64()), missing)
    return numbers.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _number(parts: pa.Array, name: str, missing: int) -> npt.NDArray[np.int64]:
    return _to_ints(pc.struct_field(parts, name), missing)


def _present(parts: pa.Array) -> Bools:
    return pc.is_valid(parts).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _is_date(year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]) -> Bools:
    good = (month >= 1) & (month <= 12) & (day >= 1)
    result: Bools = good & (day <= days_in_month(year, np.where(good, month, 1)))
    return result


def _zone_offset(text: pa.Array, zone: pa.Array, *, wanted: bool) -> tuple[npt.NDArray[np.int64], Bools]:
    """Seconds east of Greenwich, and where that is known to be right."""
    zone = pc.if_else(pc.equal(pc.binary_length(zone), 0), pa.scalar(None, pa.string()), zone)
    if zone.null_count == len(zone):
        return np.zeros(len(zone), dtype=np.int64), np.ones(len(zone), dtype=np.bool_)
    parts = pc.extract_regex(zone, _ZONE)
    _refuse(text, pc.and_(pc.is_valid(zone), pc.is_null(parts)), "a time in a zone other than UTC or an offset")
    hours, minutes = _number(parts, "hours", 0), _number(parts, "minutes", 0)
    good = (minutes < 60) & (hours * 60 + minutes <= 18 * 60)
    sign = np.where(
        pc.fill_null(pc.equal(pc.struct_field(parts, "sign"), "-"), False).to_numpy(zero_copy_only=False), -1, 1
    )
    offset = sign * (hours * 3600 + minutes * 60)
    return offset if wanted else np.zeros_like(offset), good
