"""Numbers as they are written in SQL, to literals of Spark's types.

`1` is an int, a bigint or a decimal, the smallest that holds it; `1.5` is a decimal of just its digits; `1e3` is a
double; suffixes `Y S L F D BD` name the type. A number that its type cannot hold is an error.
"""

from __future__ import annotations

import math
import struct
from decimal import Context, Decimal

from lakeseal.errors import InvalidExpression
from lakeseal.expr.lexer import Token, place
from lakeseal.expr.syntax import Literal
from lakeseal.protocol.schema import BYTE, DOUBLE, FLOAT, INTEGER, LONG, MAX_PRECISION, SHORT, DataType, DecimalType

RANGES: dict[DataType, int] = {BYTE: 1 << 7, SHORT: 1 << 15, INTEGER: 1 << 31, LONG: 1 << 63}
_SUFFIXES: dict[str, DataType] = {"Y": BYTE, "S": SHORT, "L": LONG}
_EXACT = Context(prec=10_000)


def number_literal(token: Token, text: str, *, negative: bool) -> Literal:
    written = ("-" if negative else "") + token.text.upper()
    if len(written) > 4_000:
        raise _out_of_range(token, text)
    if written.endswith("BD"):
        return _decimal(written[:-2], token, text)
    if written[-1] in _SUFFIXES:
        return _integer(written[:-1], _SUFFIXES[written[-1]], token, text)
    if written[-1] in "DF":
        return _floating(written[:-1], DOUBLE if written[-1] == "D" else FLOAT, token, text)
    if "E" in written:
        return _floating(written, DOUBLE, token, text)
    if "." in written:
        return _decimal(written, token, text)
    value = int(written)
    for data_type in (INTEGER, LONG):
        if fits(value, data_type):
            return Literal(value, data_type, token.start)
    return _decimal(written, token, text)


def fits(value: int, data_type: DataType) -> bool:
    return -RANGES[data_type] <= value < RANGES[data_type]


def decimal_type(value: Decimal) -> DecimalType | None:
    """The smallest decimal type that holds a value with all digits behind the point that it has."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return DecimalType(precision, scale) if precision <= MAX_PRECISION else None


def _integer(written: str, data_type: DataType, token: Token, text: str) -> Literal:
    value = int(written)
    if not fits(value, data_type):
        raise _out_of_range(token, text)
    return Literal(value, data_type, token.start)


def _floating(written: str, data_type: DataType, token: Token, text: str) -> Literal:
    value = float(written)
    if data_type == FLOAT and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.inf
    if math.isinf(value):
        raise _out_of_range(token, text)
    return Literal(value, data_type, token.start)


def _decimal(written: str, token: Token, text: str) -> Literal:
    value = Decimal(written)
    data_type = None if abs(value.adjusted()) > 2 * MAX_PRECISION else decimal_type(value)
    if data_type is None:
        raise _out_of_range(token, text)
    return Literal(value.quantize(Decimal(1).scaleb(-data_type.scale), context=_EXACT), data_type, token.start)


def _out_of_range(token: Token, text: str) -> InvalidExpression:
    return InvalidExpression(
        f"The number {token.text[:40]} does not fit its type, at {place(text, token.start)}",
        hint=f"A decimal has at most {MAX_PRECISION} digits",
    )
