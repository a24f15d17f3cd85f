"""Values that the log holds as text, as Arrow values and back.

`parse_text` never raises on text: what stands for no value of the type is null, so a caller decides whether that is an
error (partition values) or merely unknown (statistics). It takes every spelling that Spark's casts take, years beyond
9999 and before 1 included; a timestamp without a zone is UTC, and one with a zone read as local time keeps its clock.

`format_text` writes the one spelling per type that today's clients write, and `parse_text` gives its values back
exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from lakeseal.errors import UnsupportedType
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.decimal_text import parse_decimal, plain_pattern
from lakeseal.protocol.schema import DataType, DecimalType, PrimitiveType

_DAY_MICROS = 86_400_000_000
# Years 1 to 9999: beyond them Arrow's own conversions refuse, or silently wrap around.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_MICROS, LAST_MICROS = FIRST_DAY * _DAY_MICROS, (LAST_DAY + 1) * _DAY_MICROS - 1

_INTEGER = re.compile(r"\s*[+-]?\d{1,30}\s*", re.ASCII)
_FLOAT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf(?:inity)?|nan)[fFdD]?\s*", re.I | re.ASCII)
_DATE = r"([+-]?\d{4,7})-(\d{1,2})(?:-(\d{1,2}))?"
_TIME = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?"
_DAY = re.compile(rf"\s*{_DATE}(?:[ T].*)?\s*", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(rf"\s*{_DATE}(?:[ T]{_TIME})?\s*(\S+)?\s*", re.ASCII)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?(?:([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?)?|[Zz]", re.ASCII)
_ZONED = r"(?:Z|[+-]\d\d:?\d\d)$"
_ESCAPED_BYTES = re.compile(r"(?:\\u00[0-9a-f]{2})+", re.I | re.ASCII)
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)


def parse_text(texts: pa.Array, data_type: DataType) -> pa.Array:
    """The values that the texts stand for; null for null and for what stands for no value."""
    arrow = to_arrow_type(data_type)
    match data_type:
        case PrimitiveType(name="string"):
            return texts.cast(arrow)
        case PrimitiveType(name="binary"):
            return _parse_each(texts, _bytes, arrow)
        case PrimitiveType(name="boolean"):
            return _parse_each(texts, lambda text: _BOOLEANS.get(text.strip().lower()), arrow)
        case PrimitiveType(name="void"):
            return pa.nulls(len(texts))
        case PrimitiveType(name="byte" | "short" | "integer" | "long"):
            hexadecimal = pc.match_substring(texts, "x", ignore_case=True)  # only Arrow takes these for numbers
            return _parse(texts, arrow, _integer(arrow.bit_width), fast=not _any(hexadecimal))
        case PrimitiveType(name="float" | "double"):
            return _parse(texts, arrow, _float)
        case PrimitiveType(name="date"):
            return _parse(texts, arrow, parse_day)
        case PrimitiveType(name="timestamp" | "timestamp_ntz" as name):
            return _parse_timestamps(texts, arrow, zoned=name == "timestamp")
        case DecimalType():
            plain = pc.fill_null(pc.match_substring_regex(texts, plain_pattern(data_type)), True)
            fast = bool(pc.all(plain).as_py())
            return _parse(texts, arrow, lambda text: parse_decimal(text.strip(), data_type), fast=fast)
        case _:
            raise UnsupportedType(f"Values of type {data_type} have no text")


def format_text(values: pa.Array, data_type: DataType) -> pa.Array:
    """One text per value; null stays null."""
    match data_type:
        case PrimitiveType(name="string"):
            return values.cast(pa.string())
        case PrimitiveType(name="binary"):
            return _format_each(values, _format_bytes)
        case PrimitiveType(name="float" | "double"):
            return _java_names(values.cast(pa.string()))
        case DecimalType():
            return _format_each(values, lambda value: format(value, "f"))
        case PrimitiveType(name="date"):
            days = values.cast(pa.int32())
            if _within(days, FIRST_DAY, LAST_DAY):
                return values.cast(pa.string())
            return _format_each(days, format_day)
        case PrimitiveType(name="timestamp" | "timestamp_ntz" as name):
            return _format_timestamps(values, zoned=name == "timestamp")
        case PrimitiveType():
            return values.cast(pa.string())
        case _:
            raise UnsupportedType(f"Values of type {data_type} have no text")


def parse_day(text: str) -> int | None:
    """Days since 1970-01-01."""
    found = _DAY.fullmatch(text)
    day = None if found is None else _day(found[1], found[2], found[3])
    return day if day is not None and -(2**31) <= day < 2**31 else None


def parse_micros(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970-01-01; without `zoned` a zone in the text is not applied."""
    found = _TIMESTAMP.fullmatch(text)
    day = None if found is None else _day(found[1], found[2], found[3])
    if found is None or day is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.group(4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int(f"{found[7] or '':0<6.6}")
    local = day * _DAY_MICROS + (hour * 3600 + minute * 60 + second) * 1_000_000 + fraction
    offset = zone_offset(found[8], local) if found[8] else 0
    if offset is None:
        return None
    micros = local - offset if zoned else local
    return micros if -(2**63) <= micros < 2**63 else None


def format_day(day: int) -> str:
    year, month, dom = _civil(day)
    return f"{_format_year(year)}-{month:02d}-{dom:02d}"


def format_micros(micros: int) -> str:
    """Date and time with six digits behind the point and a blank between them."""
    day, time = divmod(micros, _DAY_MICROS)
    seconds, fraction = divmod(time, 1_000_000)
    return f"{format_day(day)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def _parse(texts: pa.Array, arrow: pa.DataType, one: Callable[[str], Any], *, fast: bool = True) -> pa.Array:
    if fast:
        try:
            return texts.cast(arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    return _parse_each(texts, one, arrow)


def _parse_each(texts: pa.Array, one: Callable[[str], Any], arrow: pa.DataType) -> pa.Array:
    storage = pa.int32() if pa.types.is_date(arrow) else pa.int64() if pa.types.is_timestamp(arrow) else arrow
    return pa.array([None if text is None else one(text) for text in texts.to_pylist()], storage).cast(arrow)


def _parse_timestamps(texts: pa.Array, arrow: pa.DataType, *, zoned: bool) -> pa.Array:
    with_zone = pc.match_substring_regex(texts, _ZONED)
    if not _any(with_zone):
        naive = _parse(texts, pa.timestamp("us"), lambda text: parse_micros(text, zoned=zoned))
        return naive.cast(pa.int64()).cast(arrow)
    fast = zoned and bool(pc.all(with_zone).as_py())
    return _parse(texts, arrow, lambda text: parse_micros(text, zoned=zoned), fast=fast)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())


def _integer(bits: int) -> Callable[[str], int | None]:
    limit = 2 ** (bits - 1)

    def parse(text: str) -> int | None:
        value = int(text) if _INTEGER.fullmatch(text) else limit
        return value if -limit <= value < limit else None

    return parse


def _float(text: str) -> float | None:
    found = _FLOAT.fullmatch(text)
    return None if found is None else float(found[1])


def _bytes(text: str) -> bytes:
    # Spark writes the bytes as if they were UTF-8, others escape each byte; text that is escapes only is the latter.
    if _ESCAPED_BYTES.fullmatch(text):
        return bytes.fromhex(text.replace("\\u00", "").replace("\\U00", ""))
    return text.encode()


def _format_bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "".join(f"\\u00{byte:02x}" for byte in value)
    return "".join(f"\\u00{byte:02x}" for byte in value) if _ESCAPED_BYTES.fullmatch(text) else text


def _format_each(values: pa.Array, one: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else one(value) for value in values.to_pylist()], pa.string())


def _java_names(texts: pa.Array) -> pa.Array:
    for arrow, java in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, arrow), java, texts)
    return texts


def _format_timestamps(values: pa.Array, *, zoned: bool) -> pa.Array:
    micros = values.cast(pa.int64())
    if _within(micros, FIRST_MICROS, LAST_MICROS):
        texts = micros.cast(pa.timestamp("us")).cast(pa.string())
    else:
        texts = _format_each(micros, format_micros)
    if zoned:
        return pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T"), "Z", "")
    return pc.replace_substring_regex(texts, r"\.000000$", "")


def _within(numbers: pa.Array, first: int, last: int) -> bool:
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    return low is None or (low >= first and high <= last)


def _day(year: str, month: str, dom: str | None) -> int | None:
    y, m, d = int(year), int(month), int(dom or 1)
    if not (1 <= m <= 12 and 1 <= d <= 31):
        return None
    day = _days_from_civil(y, m, d)
    return day if _civil(day) == (y, m, d) else None


def _days_from_civil(year: int, month: int, dom: int) -> int:
    # Years are counted from March, so that the leap day is the last of its year; 400 years have 146,097 days.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + dom - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _civil(day: int) -> tuple[int, int, int]:
    era, of_era = divmod(day + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    dom = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, dom


def _format_year(year: int) -> str:
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}"


def zone_offset(zone: str, local: int) -> int | None:
    """How far a zone's clock is ahead of UTC at a local time, in microseconds."""
    found = _OFFSET.fullmatch(zone)
    if found is not None:
        hours, minutes, seconds = (int(part or 0) for part in found.group(2, 3, 4))
        if hours > 18 or minutes > 59 or seconds > 59:
            return None
        return (-1 if found[1] == "-" else 1) * (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=local)
        offset = at.replace(tzinfo=ZoneInfo(zone)).utcoffset()
    except (OverflowError, ValueError, KeyError, OSError):
        return None
    return None if offset is None else offset // timedelta(microseconds=1)
