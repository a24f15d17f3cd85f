"""Functions of dates and timestamps, with the session's time zone being UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError
from lakeseal.expr.bound import Bound
from lakeseal.expr.calendar import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    add_months,
    civil_to_days,
    days_in_month,
    days_to_civil,
)
from lakeseal.expr.casts import check_years
from lakeseal.expr.values import Datum, either, from_numpy, on_arrays, to_numpy

Ints = npt.NDArray[np.int64]

_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}
_DATE_UNITS = ("year", "quarter", "month", "week")
_MICROS = {
    "day": MICROS_PER_DAY,
    "hour": 3600 * MICROS_PER_SECOND,
    "minute": 60 * MICROS_PER_SECOND,
    "second": MICROS_PER_SECOND,
    "millisecond": 1000,
    "microsecond": 1,
}
_FORMAT = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'\[\]{}#])")
_STRFTIME = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


def trunc_unit(text: str | None, *, of_date: bool) -> str | None:
    """The unit that TRUNC or DATE_TRUNC is asked for; None if it is none, which makes the result NULL."""
    unit = _UNITS.get((text or "").upper())
    return unit if not of_date or unit in _DATE_UNITS else None


def strftime_pattern(pattern: str) -> str | None:
    """Arrow's form of a Java date pattern; None if it uses more than whole, padded fields."""
    out = []
    index = 0
    while index < len(pattern):
        match = _FORMAT.match(pattern, index)
        if match is None:
            return None
        index = match.end()
        if match["letters"] is not None:
            if match["letters"] not in _STRFTIME:
                return None
            out.append(_STRFTIME[match["letters"]])
        else:
            text = match["other"] if match["quoted"] is None else match["quoted"] or "'"
            out.append(text.replace("%", "%%"))
    return "".join(out)


def field(node: Bound, args: Sequence[Datum]) -> Datum:
    """A calendar field as an int: of a date, or of a timestamp for hour, minute and second."""

    def kernel(array: pa.Array) -> pa.Array:
        values, nulls = to_numpy(array)
        return from_numpy(_FIELDS[node.op](values).astype(np.int32), nulls, pa.int32())

    return on_arrays(kernel, *args)


def _year(days: Ints) -> Ints:
    return days_to_civil(days)[0]


def _month(days: Ints) -> Ints:
    return days_to_civil(days)[1]


def _day_of_year(days: Ints) -> Ints:
    year = _year(days)
    return days - civil_to_days(year, np.ones_like(year), np.ones_like(year)) + 1


def _week_of_year(days: Ints) -> Ints:
    # A week belongs to the year of its Thursday.
    return (_day_of_year(days - (days + 3) % 7 + 3) - 1) // 7 + 1


def _in_day(unit: int, count: int) -> Callable[[Ints], Ints]:
    return lambda micros: micros // unit % count


_FIELDS: dict[str, Callable[[Ints], Ints]] = {
    "year": _year,
    "quarter": lambda days: (_month(days) - 1) // 3 + 1,
    "month": _month,
    "day": lambda days: days_to_civil(days)[2],
    "dayofyear": _day_of_year,
    "dayofweek": lambda days: (days + 4) % 7 + 1,
    "weekday": lambda days: (days + 3) % 7,
    "weekofyear": _week_of_year,
    "hour": _in_day(_MICROS["hour"], 24),
    "minute": _in_day(_MICROS["minute"], 60),
    "second": _in_day(_MICROS["second"], 60),
}
FIELDS_OF_TIME = ("hour", "minute", "second")
FIELDS_OF_DATE = tuple(name for name in _FIELDS if name not in FIELDS_OF_TIME)


def shift_days(node: Bound, args: Sequence[Datum]) -> Datum:
    """`date_add` and `date_sub`: a date and a number of days. Beyond the last date Spark starts at the first."""
    sign = 1 if node.op == "date_add" else -1
    return _on_int64(node, args, lambda date, days: (date + sign * days).astype(np.int32))


def date_diff(node: Bound, args: Sequence[Datum]) -> Datum:
    return _on_int64(node, args, lambda end, start: (end - start).astype(np.int32))


def shift_months(node: Bound, args: Sequence[Datum]) -> Datum:
    """A date or timestamp and a number of months; the time of the day stays."""
    per_day = MICROS_PER_DAY if pa.types.is_timestamp(node.arrow) else 1

    def kernel(moment: Ints, months: Ints) -> Ints:
        days = moment // per_day
        result: Ints = add_months(days, months) * per_day + (moment - days * per_day)
        return result

    return _on_int64(node, args, kernel)


def shift_micros(node: Bound, args: Sequence[Datum]) -> Datum:
    """A timestamp and a constant number of microseconds."""
    try:
        whole = args[0].cast(pa.int64())
        return pc.add_checked(whole, pa.scalar(node.option, pa.int64())).cast(node.arrow)
    except pa.ArrowInvalid:
        raise EvaluationError("A timestamp and an interval add up to more than a timestamp holds") from None


def last_day(node: Bound, args: Sequence[Datum]) -> Datum:
    def kernel(days: Ints) -> Ints:
        year, month, _ = days_to_civil(days)
        return civil_to_days(year, month, days_in_month(year, month))

    return _on_int64(node, args, kernel)


def truncate(node: Bound, args: Sequence[Datum]) -> Datum:
    """`trunc` of a date or `date_trunc` of a timestamp, to the unit that is the node's option."""
    per_day = MICROS_PER_DAY if pa.types.is_timestamp(node.arrow) else 1
    unit: str = node.option

    def kernel(moment: Ints) -> Ints:
        if unit in _MICROS:
            return moment // _MICROS[unit] * _MICROS[unit]
        return _first_day(moment // per_day, unit) * per_day

    return _on_int64(node, args, kernel)


def _first_day(days: Ints, unit: str) -> Ints:
    if unit == "week":
        return days - (days + 3) % 7
    year, month, _ = days_to_civil(days)
    first = np.ones_like(year)
    if unit == "year":
        return civil_to_days(year, first, first)
    return civil_to_days(year, (month - 1) // 3 * 3 + 1 if unit == "quarter" else month, first)


def date_format(node: Bound, args: Sequence[Datum]) -> Datum:
    def kernel(array: pa.Array) -> pa.Array:
        check_years(array)
        micros, nulls = to_numpy(array)
        seconds = from_numpy(micros // MICROS_PER_SECOND, nulls, pa.timestamp("s"))
        return pc.strftime(seconds, format=node.option, locale="C")

    return on_arrays(kernel, *args)


def _on_int64(node: Bound, args: Sequence[Datum], kernel: Callable[..., Ints]) -> Datum:
    """Runs a kernel on days, microseconds or numbers, and checks that its results fit the node's type."""

    def on_array(*arrays: pa.Array) -> pa.Array:
        nulls = None
        values = []
        for array in arrays:
            value, null = to_numpy(array)
            values.append(value.astype(np.int64))
            nulls = either(nulls, null)
        result = kernel(*values)
        limit = 1 << (node.arrow.bit_width - 1)
        if node.arrow.bit_width < 64:
            bad = (result < -limit) | (result >= limit)
            if (bad if nulls is None else bad & ~nulls).any():
                raise EvaluationError(f"The result of {node.op} does not fit {node.type}")
            result = result.astype(np.int32)
        return from_numpy(result, nulls, node.arrow)

    return on_arrays(on_array, *args)
