"""How long something took: the difference of two moments, in microseconds, and what is asked of it.

No column of a table is of this type. It stands between moments and what is asked of them: `shipped - ordered >
INTERVAL 2 DAYS`, `extract(HOUR FROM until - since)`. Where Spark would tell days from seconds in its name, it is one
type here, so it is no result, no part of another value, and no argument but of the functions below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import EvaluationError
from lakeseal.expr.bound import Bound
from lakeseal.expr.calendar import MICROS_PER_DAY, MICROS_PER_SECOND
from lakeseal.expr.values import Datum

_HOUR, _MINUTE = 3600 * MICROS_PER_SECOND, 60 * MICROS_PER_SECOND


TAKE_INTERVALS = frozenset(
    (
        *("coalesce", "nvl", "ifnull", "nvl2", "nullif", "if", "isnull", "isnotnull", "date_part", "datepart"),
        *("day", "dayofmonth", "hour", "minute", "second", "negative", "positive"),
    )
)


def _in_micros(datum: Datum) -> Datum:
    if pa.types.is_date(datum.type):
        return pc.multiply_checked(datum.cast(pa.int32()).cast(pa.int64()), MICROS_PER_DAY)
    return datum.cast(pa.int64())


def calculate(node: Bound, args: Sequence[Datum]) -> Datum:
    """Sums and differences, of moments as of intervals."""
    numbers = [_in_micros(arg) for arg in args]
    compute = {"interval +": pc.add_checked, "interval -": pc.subtract_checked, "interval neg": pc.negate_checked}
    try:
        return compute[node.op](*numbers).cast(node.arrow)
    except pa.ArrowInvalid:
        raise EvaluationError("An interval is beyond 64 bits of microseconds") from None


def _cut(value: int, unit: int) -> int:
    return value // unit if value >= 0 else -(-value // unit)


def days(micros: int) -> int:
    return _cut(micros, MICROS_PER_DAY)


def hours(micros: int) -> int:
    return _cut(micros - days(micros) * MICROS_PER_DAY, _HOUR)


def minutes(micros: int) -> int:
    return _cut(micros - _cut(micros, _HOUR) * _HOUR, _MINUTE)


def seconds(micros: int) -> Decimal:
    return Decimal(micros - _cut(micros, _MINUTE) * _MINUTE).scaleb(-6)


PARTS: dict[str, Callable[[int], int | Decimal]] = {"day": days, "hour": hours, "minute": minutes, "second": seconds}
