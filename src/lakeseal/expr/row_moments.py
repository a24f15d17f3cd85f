"""Functions of dates (days since 1970) and timestamps (microseconds since then), one row at a time, in UTC."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from lakeseal.errors import EvaluationError, UnsupportedExpression
from lakeseal.expr.calendar import MICROS_PER_DAY, MICROS_PER_SECOND, add_months, civil_to_days, days_in_month
from lakeseal.expr.calendar import days_to_civil as _days_to_civil
from lakeseal.expr.row_function import RowFunction, row_function
from lakeseal.protocol.schema import (
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
)

_LONG = 1 << 63
_WEEKDAYS = {
    name: n
    for n, names in enumerate(
        (
            *("MO MON MONDAY", "TU TUE TUESDAY", "WE WED WEDNESDAY", "TH THU THURSDAY", "FR FRI FRIDAY"),
            *("SA SAT SATURDAY", "SU SUN SUNDAY"),
        )
    )
    for name in names.split()
}
_MONTH_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAY_NAMES = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of whichever zone is being looked at
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MICROS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": MICROS_PER_SECOND,
    "minute": 60 * MICROS_PER_SECOND,
    "hour": 3600 * MICROS_PER_SECOND,
    "day": MICROS_PER_DAY,
    "dayofyear": MICROS_PER_DAY,
    "week": 7 * MICROS_PER_DAY,
}
UNITS = (*_MONTHS, *_MICROS)


def days_to_civil(days: int) -> tuple[int, int, int]:
    year, month, day = _days_to_civil(np.array([days]))
    return int(year[0]), int(month[0]), int(day[0])


def _days(year: int, month: int, day: int) -> int:
    return int(civil_to_days(np.array([year]), np.array([month]), np.array([day]))[0])


def _in_month(year: int, month: int) -> int:
    return int(days_in_month(np.array([year]), np.array([month]))[0])


def _checked(micros: int) -> int:
    if not -_LONG <= micros < _LONG:
        raise EvaluationError("A timestamp is beyond what a timestamp holds")
    return micros


def make_date(year: int, month: int, day: int) -> int:
    if not (-999_999_999 <= year <= 999_999_999 and 1 <= month <= 12 and 1 <= day <= _in_month(year, month)):
        raise EvaluationError(f"There is no date {year}-{month}-{day}")
    return _days(year, month, day)


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: Decimal) -> int:
    micros = int(seconds * MICROS_PER_SECOND)
    carried = 0
    if micros == 60 * MICROS_PER_SECOND:
        micros, carried = 0, 60 * MICROS_PER_SECOND
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= micros < 60 * MICROS_PER_SECOND):
        raise EvaluationError(f"There is no time {hour}:{minute}:{seconds}")
    whole = make_date(year, month, day) * MICROS_PER_DAY
    return _checked(whole + (hour * 60 + minute) * 60 * MICROS_PER_SECOND + micros + carried)


def make_timestamp_in(
    year: int, month: int, day: int, hour: int, minute: int, seconds: Decimal, name: str | None = None
) -> int:
    local = _make_timestamp(year, month, day, hour, minute, seconds)
    return local if name is None else _to_utc(local, name)


def _from_seconds(seconds: int) -> int:
    return _checked(seconds * MICROS_PER_SECOND)


def _from_millis(millis: int) -> int:
    return _checked(millis * 1000)


def _last_of_month(year: int, month: int, day: int) -> bool:
    return day == _in_month(year, month)


def _months_between(end: int, start: int, rounded: bool = True) -> float:
    days = (end // MICROS_PER_DAY, start // MICROS_PER_DAY)
    (year1, month1, day1), (year2, month2, day2) = days_to_civil(days[0]), days_to_civil(days[1])
    months = (year1 * 12 + month1) - (year2 * 12 + month2)
    if day1 == day2 or (_last_of_month(year1, month1, day1) and _last_of_month(year2, month2, day2)):
        return float(months)
    per_month = 31 * 86_400
    in_day = (end - days[0] * MICROS_PER_DAY) // MICROS_PER_SECOND - (
        start - days[1] * MICROS_PER_DAY
    ) // MICROS_PER_SECOND
    seconds = (day1 - day2) * 86_400 + in_day
    value = months + seconds / float(per_month)
    if not rounded:
        return value
    scaled = value * 1e8
    return np.floor(scaled + 0.5) / 1e8  # type: ignore[no-any-return]


def _next_day(days: int, name: str) -> int:
    wanted = _WEEKDAYS.get(name.strip().upper())
    if wanted is None:
        raise EvaluationError(f"{name[:50]!r} is no day of the week")
    return days + 1 + (wanted - day_of_week(days + 1)) % 7


def day_of_week(days: int) -> int:
    """From 0, a Monday."""
    return (days + 3) % 7


def _day_name(days: int) -> str:
    return _DAY_NAMES[day_of_week(days)]


def _month_name(days: int) -> str:
    return _MONTH_NAMES[days_to_civil(days)[1] - 1]


def zone(name: str) -> ZoneInfo:
    known = re.fullmatch(r"UTC|[A-Za-z_]+/[A-Za-z_\-/]+", name) is not None
    try:
        if known:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise UnsupportedExpression(f"The time zone {name[:50]!r} is not supported")


def _moment(micros: int) -> dt.datetime:
    try:
        return _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise UnsupportedExpression("Timestamps beyond the years 1 to 9999 in a time zone are not supported") from None


def _micros(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def _from_utc(micros: int, name: str) -> int:
    local = _moment(micros).replace(tzinfo=dt.UTC).astimezone(zone(name))
    return _micros(local.replace(tzinfo=None))


def _to_utc(micros: int, name: str) -> int:
    """In a gap, Java goes forward by its length, as Python does with the offset from before it."""
    utc = _moment(micros).replace(tzinfo=zone(name)).astimezone(dt.UTC)
    return _micros(utc.replace(tzinfo=None))


def shift(unit: str, amount: int, micros: int) -> int:
    """`timestampadd`."""
    if unit in _MONTHS:
        days = micros // MICROS_PER_DAY
        moved = int(add_months(np.array([days]), np.array([amount * _MONTHS[unit]]))[0])
        return _checked(moved * MICROS_PER_DAY + (micros - days * MICROS_PER_DAY))
    return _checked(micros + amount * _MICROS[unit])


def distance(unit: str, start: int, end: int) -> int:
    """`timestampdiff`: whole units, cut towards zero."""
    if unit in _MONTHS:
        return _whole(_months(start, end), _MONTHS[unit])
    return _whole(end - start, _MICROS[unit])


def _whole(count: int, unit: int) -> int:
    return count // unit if count >= 0 else -(-count // unit)


def whole_seconds(micros: int) -> int:
    """`unix_timestamp`: cut towards 1970."""
    return _whole(micros, MICROS_PER_SECOND)


def _months(start: int, end: int) -> int:
    """Whole months between two moments, as Java counts them."""
    if end < start:
        return -_months_forward(end, start, backward=True)
    return _months_forward(start, end, backward=False)


def _months_forward(low: int, high: int, *, backward: bool) -> int:
    (year1, month1, day1), (year2, month2, day2) = (days_to_civil(m // MICROS_PER_DAY) for m in (low, high))
    months = (year2 * 12 + month2) - (year1 * 12 + month1)
    before = (day2, high % MICROS_PER_DAY) < (day1, low % MICROS_PER_DAY)
    return months - before


def _seconds_of_minute(micros: int) -> Decimal:
    return Decimal(micros % (60 * MICROS_PER_SECOND)).scaleb(-6)


MOMENT_FUNCTIONS: dict[str, RowFunction] = (
    row_function("make_date", make_date, (INTEGER, INTEGER, INTEGER), DATE, raises=True)
    | row_function(
        "make_timestamp_ntz",
        _make_timestamp,
        (INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, DecimalType(16, 6)),
        TIMESTAMP_NTZ,
        raises=True,
    )
    | row_function("date_from_unix_date", lambda days: days, (INTEGER,), DATE)
    | row_function("unix_date", lambda days: days, (DATE,), INTEGER, exact=True)
    | row_function("unix_seconds", lambda micros: micros // MICROS_PER_SECOND, (TIMESTAMP,), LONG, exact=True)
    | row_function("unix_millis", lambda micros: micros // 1000, (TIMESTAMP,), LONG, exact=True)
    | row_function("unix_micros", lambda micros: micros, (TIMESTAMP,), LONG, exact=True)
    | row_function("timestamp_seconds", _from_seconds, (LONG,), TIMESTAMP, raises=True, exact=True)
    | row_function("timestamp_millis", _from_millis, (LONG,), TIMESTAMP, raises=True, exact=True)
    | row_function("timestamp_micros", lambda micros: micros, (LONG,), TIMESTAMP, exact=True)
    | row_function("months_between", _months_between, (TIMESTAMP, TIMESTAMP), DOUBLE)
    | row_function("next_day", _next_day, (DATE, STRING), DATE, raises=True)
    | row_function("dayname", _day_name, (DATE,), STRING)
    | row_function("monthname", _month_name, (DATE,), STRING)
    | row_function("from_utc_timestamp", _from_utc, (TIMESTAMP, STRING), TIMESTAMP, raises=True)
    | row_function("to_utc_timestamp", _to_utc, (TIMESTAMP, STRING), TIMESTAMP, raises=True)
)
"""Those that are bound by their types alone."""

seconds_of_minute = _seconds_of_minute
