"""Decimals out of text, and out of other decimals: exactly the number that was there, or none.

Arrow's own way is not taken at its word. It multiplies and divides by powers of ten in 128 bits without a look at
what no longer fits: 1e30 becomes 18960114910927365649.47… of decimal(38,18), thirty-nine nines become negative, and
1e-999999999 ends the process. Texts of a `plain_pattern` it reads right. JSON it reads right in twice the bits
(`wide`), as long as no number is among it that `STRANGE_NUMBERS` finds.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.protocol.schema import DecimalType

STRANGE_NUMBERS = r"[0-9.][eE]-[0-9]{2}|[0-9.]{40}"
"""In JSON: numbers that are not right in twice the bits either, and much else that is no number."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_MOST_DIGITS = 1000
_WIDEST = 38
_TWICE = 2 * _WIDEST


def parse_decimal(text: str, data_type: DecimalType) -> Decimal | None:
    """The number, if the type holds every digit of it."""
    if len(text) > _MOST_DIGITS or _NUMBER.fullmatch(text) is None:
        return None
    return fitting(Decimal(text), data_type)


def fitting(value: Decimal, data_type: DecimalType) -> Decimal | None:
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or value.adjusted() >= data_type.precision - data_type.scale:
        return None
    # Zeros at the end are no digits that could get lost.
    end = len(digits)
    while digits[end - 1] == 0:
        end -= 1
    exponent += len(digits) - end
    return None if exponent < -data_type.scale else Decimal((sign, digits[:end], exponent))


def plain_pattern(data_type: DecimalType) -> str:
    """Texts with no more digits on either side of the point than the type has."""
    whole = data_type.precision - data_type.scale
    fraction = rf"(?:\.[0-9]{{1,{data_type.scale}}})?" if data_type.scale else ""
    return rf"^[+-]?{f'[0-9]{{1,{whole}}}' if whole else '0'}{fraction}$"


def wide(arrow: pa.DataType) -> pa.DataType:
    """As what a decimal is to be read from JSON; `narrow` makes of it what was wanted."""
    return pa.decimal256(_WIDEST, arrow.scale)


def narrow(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Null where a number does not fit."""
    limit = pa.scalar(Decimal(10) ** (arrow.precision - arrow.scale), pa.decimal256(_WIDEST + 1, arrow.scale))
    return pc.if_else(pc.less(pc.abs(array), limit), array, None).cast(arrow)


def recast(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """`array.cast(arrow)`, which of decimals gives the same numbers; `ArrowInvalid` where one does not fit. Arrow would
    not take a 7 out of a column of integers whose largest does not fit."""
    if (pa.types.is_decimal(array.type) or pa.types.is_integer(array.type)) and pa.types.is_decimal(arrow):
        return array.cast(pa.decimal256(_TWICE, arrow.scale)).cast(arrow)
    return array.cast(arrow)
