"""Texts of CSV fields and JSON strings as values: the ones that Spark's readers would give, or none at all.

`parse` gives null for a text that stands for no value of the type; what is to be done about it is the caller's. Nothing
is rounded, cut or wrapped around to make it fit: a number with more digits than its decimal, or beyond its float, is
none. Of Spark's spellings only those are taken that every reader of Spark takes alike:

- whole numbers by their digits, with a sign; no `0x1F`, no `1.0`
- fractions with or without an exponent, `NaN` and `Infinity`
- `true` and `false`, in any case
- `2026-01-31`; and `2026-01-31 10:00:00.123456+01:00` with `T` or a blank, where the parts from the time on may be left
  out, digits beyond microseconds are cut as Spark cuts them, and a moment without a zone is in the reader's, which is
  UTC unless a session has another
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import UnsupportedType
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.decimal_text import parse_decimal, plain_pattern
from lakeseal.protocol.schema import DataType, DecimalType, PrimitiveType
from lakeseal.protocol.text_values import parse_day, parse_micros

Parse = Callable[[str], Any]

_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_MOST_DIGITS = 1000
_DAY = re.compile(r"[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}")
_CLOCK = r"[ T][0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]*)?)?"
_LOCAL = re.compile(rf"{_DAY.pattern}(?:{_CLOCK})?")
_MOMENT = re.compile(rf"{_DAY.pattern}(?:{_CLOCK} ?(?:Z|UTC|[+-][0-9]{{1,2}}:[0-9]{{2}}|[A-Z][a-z]+/[A-Za-z_/]+)?)?")
# What Arrow reads as Spark does; it is only for speed.
_PLAIN_NUMBER = r"^[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?$"
_PLAIN_WHOLE = r"^-?[0-9]{1,19}$"
_PLAIN_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_LOCAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?$"
_PLAIN_MOMENT = _PLAIN_LOCAL[:-1] + r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])$"
_BOOLEANS = {"true": True, "false": False}

CSV_NAMES: Mapping[str, float] = {
    "NaN": math.nan,
    "Inf": math.inf,
    "-Inf": -math.inf,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
JSON_NAMES: Mapping[str, float] = {
    "NaN": math.nan,
    "INF": math.inf,
    "+INF": math.inf,
    "-INF": -math.inf,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}
XML_NAMES: Mapping[str, float] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}


def parse(
    texts: pa.Array, data_type: DataType, names: Mapping[str, float] = CSV_NAMES, *, zone: str = "UTC"
) -> pa.Array:
    """The values of texts; null where a text is null or stands for none. `names` are numbers that have no digits."""
    arrow = to_arrow_type(data_type)
    if pa.types.is_string(arrow):
        return texts.cast(arrow)
    found = _quickly(texts, data_type, arrow, zone)
    if found is not None:
        return found
    one = scalar(data_type, names, zone=zone)
    return pa.array([None if text is None else one(text) for text in texts.to_pylist()], arrow)


def scalar(data_type: DataType, names: Mapping[str, float] = CSV_NAMES, *, zone: str = "UTC") -> Parse:
    """The same for one text. Moments are microseconds, and days are days, since 1970."""
    match data_type:
        case PrimitiveType(name="string"):
            return str
        case PrimitiveType(name="boolean"):
            return lambda text: _BOOLEANS.get(text.lower())
        case PrimitiveType(name="byte" | "short" | "integer" | "long"):
            return _whole(to_arrow_type(data_type).bit_width)
        case PrimitiveType(name="double"):
            return lambda text: names.get(text, _double(text))
        case PrimitiveType(name="float"):
            return lambda text: names.get(text, _float(text))
        case DecimalType():
            return lambda text: parse_decimal(text, data_type)
        case PrimitiveType(name="date"):
            return lambda text: parse_day(text) if _DAY.fullmatch(text) else None
        case PrimitiveType(name="timestamp"):
            return _moment(zone)
        case PrimitiveType(name="timestamp_ntz"):
            return lambda text: parse_micros(text, zoned=False) if _LOCAL.fullmatch(text) else None
        case PrimitiveType(name="binary"):
            return _bytes
        case _:
            raise UnsupportedType(f"Values of type {data_type} have no text")


def unfit(text: Any, data_type: DataType) -> str:
    """What is wrong with a text that stands for no value."""
    shown = text if len(text) <= 100 else f"{text[:100]}…"
    return f"{shown!r} is no {data_type}"


def _quickly(texts: pa.Array, data_type: DataType, arrow: pa.DataType, zone: str) -> pa.Array | None:
    """By Arrow, where all texts are of a kind that it reads as Spark does; None where that is not so."""
    t = pa.types
    try:
        if t.is_integer(arrow):
            return texts.cast(arrow) if _all_match(texts, _PLAIN_WHOLE) else None
        if t.is_floating(arrow):
            found = texts.cast(arrow) if _all_match(texts, _PLAIN_NUMBER) else None
            return found if found is not None and pc.all(pc.is_finite(found)).as_py() is not False else None
        if isinstance(data_type, DecimalType):
            return texts.cast(arrow) if _all_match(texts, plain_pattern(data_type)) else None
        if t.is_date(arrow):
            return texts.cast(arrow) if _all_match(texts, _PLAIN_DAY) else None
        if t.is_timestamp(arrow):
            if arrow.tz is not None and _all_match(texts, _PLAIN_MOMENT):
                return texts.cast(arrow)
            if (arrow.tz is None or zone == "UTC") and _all_match(texts, _PLAIN_LOCAL):
                return texts.cast(pa.timestamp("us")).cast(pa.int64()).cast(arrow)
    except pa.ArrowInvalid:
        pass
    return None


def _all_match(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _moment(zone: str) -> Parse:
    def parse(text: str) -> int | None:
        if _LOCAL.fullmatch(text):
            return parse_micros(f"{text} {zone}", zoned=True)
        return parse_micros(text, zoned=True) if _MOMENT.fullmatch(text) else None

    return parse


def _whole(bits: int) -> Parse:
    limit = 2 ** (bits - 1)

    def parse(text: str) -> int | None:
        value = int(text) if _WHOLE.fullmatch(text) else limit
        return value if -limit <= value < limit else None

    return parse


def _double(text: str) -> float | None:
    if len(text) > _MOST_DIGITS or _NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _float(text: str) -> float | None:
    if _double(text) is None:
        return None
    # Read as what it is to be: by way of a double it would be rounded twice.
    value: float = pa.scalar(text).cast(pa.float32()).as_py()
    return value if math.isfinite(value) else None


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
