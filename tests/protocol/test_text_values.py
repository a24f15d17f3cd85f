from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import UnsupportedType
from lakeseal.protocol import schema as delta
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType
from lakeseal.protocol.text_values import format_day, format_micros, format_text, parse_day, parse_micros, parse_text

SECOND = 1_000_000
TEN = 1_704_103_200 * SECOND  # 2024-01-01T10:00:00Z

values: dict[DataType, st.SearchStrategy[Any]] = {
    delta.STRING: st.text(),
    delta.BINARY: st.binary() | st.text().map(str.encode) | st.just(rb"\u0041"),
    delta.BOOLEAN: st.booleans(),
    delta.BYTE: st.integers(-(2**7), 2**7 - 1),
    delta.SHORT: st.integers(-(2**15), 2**15 - 1),
    delta.INTEGER: st.integers(-(2**31), 2**31 - 1),
    delta.LONG: st.integers(-(2**63), 2**63 - 1),
    delta.FLOAT: st.floats(width=32),
    delta.DOUBLE: st.floats(),
    delta.DATE: st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 3_000_000),
    delta.TIMESTAMP: st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**56), 2**56),
    delta.TIMESTAMP_NTZ: st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**56), 2**56),
    DecimalType(38, 18): st.decimals(-(10**20) + 1, 10**20 - 1, places=18),
    DecimalType(5, 0): st.integers(-99999, 99999).map(Decimal),
}


def parsed(data_type: DataType, *texts: str | None) -> list[Any]:
    found = parse_text(pa.array(texts, pa.string()), data_type)
    assert found.type == to_arrow_type(data_type)
    return found.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(found.type) else found.to_pylist()


def numbers(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()
    return array.cast(pa.int32()).to_pylist() if pa.types.is_date(array.type) else array.to_pylist()


@pytest.mark.parametrize("data_type", values, ids=str)
@given(data=st.data())
def test_every_value_comes_back_from_its_text(data_type: DataType, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(values[data_type] | st.none(), max_size=6))
    arrow = to_arrow_type(data_type)
    storage = pa.int64() if pa.types.is_timestamp(arrow) else pa.int32() if pa.types.is_date(arrow) else arrow
    array = pa.array(drawn, storage).cast(arrow)
    back = parse_text(format_text(array, data_type), data_type)
    assert back.type == arrow
    for before, after in zip(numbers(array), numbers(back), strict=True):
        if isinstance(before, float):
            assert after is not None
            assert (
                math.isnan(after)
                if math.isnan(before)
                else (before, math.copysign(1, before))
                == (
                    after,
                    math.copysign(1, after),
                )
            )
        else:
            assert before == after


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2024-01-01 10:00:00", TEN),
        ("2024-01-01T10:00:00", TEN),
        ("2024-01-01T10:00:00Z", TEN),
        ("2024-01-01T10:00:00.000Z", TEN),
        ("2024-01-01T10:00:00.123456Z", TEN + 123_456),
        ("2024-01-01 10:00:00.123456", TEN + 123_456),
        ("2024-01-01 10:00:00.5", TEN + 500_000),
        ("2024-01-01 10:00:00.123456789", TEN + 123_456),
        ("2024-01-01 10:00", TEN),
        ("2024-1-1 10:0:0", TEN),
        (" 2024-01-01 10:00:00 ", TEN),
        ("2024-01-01T11:00:00+01:00", TEN),
        ("2024-01-01T11:00:00+0100", TEN),
        ("2024-01-01T02:00:00.000-08:00", TEN),
        ("2024-01-01 10:00:00 UTC", TEN),
        ("2024-01-01 12:30:00 GMT+2:30", TEN),
        ("2024-01-01 11:00:00 Europe/Berlin", TEN),
        ("2024-01-01 11:00:00Europe/Berlin", TEN),
        ("2024-01-01", TEN - 36_000 * SECOND),
        ("2024-01", TEN - 36_000 * SECOND),
        ("0001-01-01 00:00:00", -62_135_596_800 * SECOND),
        ("10000-01-01 00:00:00", 253_402_300_800 * SECOND),
        ("+10000-01-01T00:00:00.000000Z", 253_402_300_800 * SECOND),
        ("-0001-12-31 00:00:00", -62_167_305_600 * SECOND),
        ("1883-11-18 12:00:00", -2_717_668_800 * SECOND),
    ],
)
def test_every_spelling_of_a_timestamp_is_its_instant(text: str, micros: int) -> None:
    assert parsed(delta.TIMESTAMP, text) == [micros]
    assert parsed(delta.TIMESTAMP, text, "2024-01-01T10:00:00Z", "2024-01-01 10:00:00", None) == [
        micros,
        TEN,
        TEN,
        None,
    ]


@pytest.mark.parametrize("text", ["2024-01-01T10:00:00+05:00", "2024-01-01 10:00:00", "2024-01-01T10:00:00.000000Z"])
def test_a_local_timestamp_keeps_its_clock_whatever_zone_is_behind_it(text: str) -> None:
    assert parsed(delta.TIMESTAMP_NTZ, text) == [TEN]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "2024", "2024-13-01", "2024-02-30", "2023-02-29", "2024-01-01 24:00:00", "2024-01-01 10:60:00",
        "2024-01-01 10:00:61", "2024-01-01 10:00:00 Nowhere/City", "2024-01-01 10:00:00 ../../etc/passwd",
        "2024-01-01 10:00:00+19:00", "9999999-01-01 00:00:00", "24-01-01 10:00:00", "٢٠٢٤-01-01 10:00:00",
        "2024-01-01 10:00:00 /etc/localtime", "2024-01-01 10:00:00 Europe",
    ],
)  # fmt: skip
def test_text_that_is_no_timestamp_is_null(text: str) -> None:
    assert parsed(delta.TIMESTAMP, text, "2024-01-01 10:00:00") == [None, TEN]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-01-01", date(2024, 1, 1)),
        ("2024-1-1", date(2024, 1, 1)),
        ("2024-02-29", date(2024, 2, 29)),
        ("1582-10-10", date(1582, 10, 10)),
        ("0001-01-01", date(1, 1, 1)),
        ("9999-12-31", date(9999, 12, 31)),
        ("2024-01-01 00:00:00", date(2024, 1, 1)),
        ("2024-01-01T00:00:00.000Z", date(2024, 1, 1)),
        ("2024-01", date(2024, 1, 1)),
        ("2024-02-30", None),
        ("5881580-07-12", None),
        ("-5877641-06-22", None),
        ("9999999-12-31", None),
        ("20240101", None),
        ("", None),
    ],
)
def test_every_spelling_of_a_date_is_its_day(text: str, day: date | None) -> None:
    assert parsed(delta.DATE, text) == [day]
    assert parsed(delta.DATE, "1970-01-02", text) == [date(1970, 1, 2), day]


@given(st.dates())
def test_days_agree_with_the_standard_library(day: date) -> None:
    number = (day - date(1970, 1, 1)).days
    assert parse_day(day.isoformat()) == number
    assert format_day(number) == day.isoformat()


@given(st.datetimes())
def test_microseconds_agree_with_the_standard_library(at: datetime) -> None:
    difference = at.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    number = (difference.days * 86_400 + difference.seconds) * SECOND + difference.microseconds
    assert parse_micros(at.isoformat(), zoned=True) == number
    assert format_micros(number) == at.isoformat(" ", "microseconds")


@pytest.mark.parametrize(
    ("data_type", "text", "value"),
    [
        (delta.BYTE, "127", 127),
        (delta.BYTE, "128", None),
        (delta.BYTE, "-128", -128),
        (delta.LONG, "+5", 5),
        (delta.LONG, " 5 ", 5),
        (delta.LONG, "007", 7),
        (delta.LONG, "0x10", None),
        (delta.LONG, "5.0", None),
        (delta.LONG, "9" * 5000, None),
        (delta.LONG, "٥", None),
        (delta.BOOLEAN, "TRUE", True),
        (delta.BOOLEAN, "False", False),
        (delta.BOOLEAN, "0", False),
        (delta.BOOLEAN, "maybe", None),
        (delta.DOUBLE, "Infinity", math.inf),
        (delta.DOUBLE, "-Infinity", -math.inf),
        (delta.DOUBLE, "1.0E10", 1e10),
        (delta.DOUBLE, "1.5d", 1.5),
        (delta.DOUBLE, " .5 ", 0.5),
        (delta.DOUBLE, "1_0", None),
        (delta.FLOAT, "3.4028235E38", 3.4028234663852886e38),
        (DecimalType(10, 2), "1.5", Decimal("1.50")),
        (DecimalType(10, 2), "1E+3", Decimal("1000.00")),
        (DecimalType(38, 18), "0E-18", Decimal(0)),
        (DecimalType(10, 2), " 1.5 ", Decimal("1.50")),
        (DecimalType(10, 2), "1.555", None),
        (DecimalType(10, 2), "123456789.00", None),
        (DecimalType(10, 2), "1E999999999", None),
        (DecimalType(10, 2), "1e-999999999", None),
        (DecimalType(10, 2), "1e-999", None),
        (DecimalType(38, 18), "1e30", None),
        (DecimalType(38, 18), "1" + "0" * 30, None),
        (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
        (DecimalType(38, 0), "9" * 39, None),
        (DecimalType(38, 0), "0" * 39 + "7", Decimal(7)),
        (DecimalType(5, 2), "9" * 400, None),
        (DecimalType(38, 38), "0." + "9" * 38, Decimal("0." + "9" * 38)),
        (DecimalType(38, 38), "1", None),
        (DecimalType(10, 2), "NaN", None),
        (delta.BINARY, "\x01\x02\x03", b"\x01\x02\x03"),
        (delta.BINARY, "\\u0001\\u00fF", b"\x01\xff"),
        (delta.BINARY, "é", "é".encode()),
        (delta.VOID, "anything", None),
    ],
)
def test_text_of_other_clients_is_read_or_null(data_type: DataType, text: str, value: Any) -> None:
    assert parsed(data_type, text) == [value]
    assert parsed(data_type, None, text, None) == [None, value, None]


@pytest.mark.parametrize("text", ["NaN", "nan"])
def test_not_a_number_is_read(text: str) -> None:
    assert math.isnan(parsed(delta.DOUBLE, text)[0])


@pytest.mark.parametrize(
    ("data_type", "value", "text"),
    [
        (delta.TIMESTAMP, TEN, "2024-01-01T10:00:00.000000Z"),
        (delta.TIMESTAMP, TEN + 1, "2024-01-01T10:00:00.000001Z"),
        (delta.TIMESTAMP_NTZ, TEN, "2024-01-01 10:00:00"),
        (delta.TIMESTAMP_NTZ, TEN + 1, "2024-01-01 10:00:00.000001"),
        (delta.DATE, 19_723, "2024-01-01"),
        (delta.BOOLEAN, True, "true"),
        (delta.LONG, -5, "-5"),
        (delta.DOUBLE, math.inf, "Infinity"),
        (delta.FLOAT, -math.inf, "-Infinity"),
        (delta.DOUBLE, math.nan, "NaN"),
        (DecimalType(38, 18), Decimal("1E-18"), "0.000000000000000001"),
        (delta.BINARY, b"abc", "abc"),
        (delta.BINARY, b"\xff\x00", "\\u00ff\\u0000"),
    ],
)
def test_values_are_written_the_one_way_that_clients_write_today(data_type: DataType, value: Any, text: str) -> None:
    arrow = to_arrow_type(data_type)
    storage = pa.int64() if pa.types.is_timestamp(arrow) else pa.int32() if pa.types.is_date(arrow) else arrow
    assert format_text(pa.array([value, None], storage).cast(arrow), data_type).to_pylist() == [text, None]


def test_types_without_a_text_are_refused() -> None:
    for data_type in (ArrayType(delta.LONG), delta.VARIANT):
        with pytest.raises(UnsupportedType):
            parse_text(pa.array(["x"]), data_type)
        with pytest.raises(UnsupportedType):
            format_text(pa.nulls(1), data_type)
