from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import InvalidMetadata
from lakeseal.protocol import schema as delta
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructField, StructType
from lakeseal.protocol.stats import (
    has_bounds,
    indexed_columns,
    parse_column_list,
    parse_stats,
    stats_schema,
    widen,
)

TEN = 1_704_103_200_000_000  # 2024-01-01T10:00:00Z


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, data_type) for name, data_type in fields.items()))


def parsed(schema: StructType, *texts: str | None) -> list[Any]:
    return parse_stats(pa.array(texts, pa.string()), stats_schema(schema)).to_pylist()


def bounds(data_type: DataType, *values: str) -> list[tuple[Any, Any]]:
    """Minimum and maximum that come of one JSON value each."""
    texts = [f'{{"minValues":{{"c":{value}}},"maxValues":{{"c":{value}}}}}' for value in values]
    return [(row["minValues"]["c"], row["maxValues"]["c"]) for row in parsed(struct(c=data_type), *texts)]


def test_the_first_32_leaves_are_indexed_and_partition_columns_do_not_count() -> None:
    wide = StructType(tuple(StructField(f"c{n}", delta.LONG) for n in range(40)))
    indexed = indexed_columns(wide, partition_columns=["C3"])
    assert indexed.names == tuple(f"c{n}" for n in range(33) if n != 3)


def test_leaves_of_structs_count_and_a_struct_may_be_cut_in_the_middle() -> None:
    schema = struct(a=delta.LONG, s=struct(x=delta.LONG, y=ArrayType(delta.LONG), z=delta.LONG), b=delta.LONG)
    assert str(indexed_columns(schema, num_indexed_cols=3)) == "struct<a:bigint,s:struct<x:bigint,y:array<bigint>>>"
    assert indexed_columns(schema, num_indexed_cols=0).fields == ()
    assert indexed_columns(schema, num_indexed_cols=-1) == schema


def test_columns_that_are_listed_are_indexed_instead_of_the_first() -> None:
    schema = struct(a=delta.LONG, s=struct(x=delta.LONG, y=delta.LONG), b=delta.LONG, t=struct(q=delta.LONG))
    indexed = indexed_columns(schema, num_indexed_cols=1, stats_columns="B, s.Y,t,missing, a.q")
    assert str(indexed) == "struct<s:struct<y:bigint>,b:bigint,t:struct<q:bigint>>"
    assert indexed_columns(schema, stats_columns="").fields == ()


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a, b.c ,`d.e`,`f``g`.`h,i`", [("a",), ("b", "c"), ("d.e",), ("f`g", "h,i")]),
        ("", []),
        ("  ", []),
        ("a b", [("a b",)]),
    ],
)
def test_lists_of_columns_are_read_with_their_quotes(text: str, paths: list[tuple[str, ...]]) -> None:
    assert parse_column_list(text) == paths


@pytest.mark.parametrize("text", ["a,,b", "`a", "a..b", ".a", ","])
def test_a_list_of_columns_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidMetadata):
        parse_column_list(text)


def test_only_ordered_simple_types_have_bounds_and_everything_has_a_null_count() -> None:
    schema = struct(
        l=delta.LONG, b=delta.BOOLEAN, x=delta.BINARY, a=ArrayType(delta.LONG), m=MapType(delta.LONG, delta.LONG),
        v=delta.VARIANT, s=struct(d=DecimalType(5, 2), b=delta.BOOLEAN), o=struct(b=delta.BOOLEAN),
    )  # fmt: skip
    found = stats_schema(schema)
    assert str(found.field("minValues").type) == "struct<l: int64, s: struct<d: decimal128(5, 2)>>"
    assert found.field("maxValues").type == found.field("minValues").type
    counts = found.field("nullCount").type
    assert [f.name for f in counts] == ["l", "b", "x", "a", "m", "v", "s", "o"]
    assert str(counts.field("s").type) == "struct<d: int64, b: int64>"
    assert not has_bounds(delta.VOID)


def test_a_double_that_was_a_float_has_no_bounds_because_old_ones_were_rounded() -> None:
    changes = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    schema = StructType((StructField("was", delta.DOUBLE, True, changes), StructField("is", delta.DOUBLE)))
    assert [f.name for f in stats_schema(schema).field("maxValues").type] == ["is"]


def test_statistics_are_read_with_what_is_not_asked_for_ignored() -> None:
    text = (
        '{"numRecords":3,"minValues":{"a":1,"zz":5,"s":{"x":"a"}},"maxValues":{"a":3,"s":{"x":"b","y":[{}]}},'
        '"nullCount":{"a":0,"s":{"x":1}},"tightBounds":false,"future":{"a":[1,{"b":2}]}}'
    )
    assert parsed(struct(a=delta.LONG, s=struct(x=delta.STRING)), text) == [
        {
            "numRecords": 3,
            "minValues": {"a": 1, "s": {"x": "a"}},
            "maxValues": {"a": 3, "s": {"x": "b"}},
            "nullCount": {"a": 0, "s": {"x": 1}},
            "tightBounds": False,
        }
    ]


def test_a_part_of_the_statistics_can_be_asked_for() -> None:
    wanted = pa.struct([("numRecords", pa.int64())])
    assert parse_stats(pa.array(['{"numRecords":3,"minValues":{}}', None]), wanted).to_pylist() == [
        {"numRecords": 3},
        None,
    ]


@pytest.mark.parametrize("text", [None, "", " ", "garbage", "[]", "5", "{", '{"numRecords":', '{"a":1}{"a":2}', "null"])
def test_a_row_that_is_no_statistics_is_unknown_and_its_neighbours_are_not(text: str | None) -> None:
    good = '{"numRecords":1,"minValues":{"a":1}}'
    rows = parsed(struct(a=delta.LONG), good, text, good)
    assert rows[1] is None
    assert [row["minValues"] for row in (rows[0], rows[2])] == [{"a": 1}, {"a": 1}]


def test_objects_split_over_rows_or_doubled_in_a_row_never_shift_their_neighbours() -> None:
    rows = parsed(struct(a=delta.LONG), "{", "}", '{"numRecords":1}{"numRecords":2}', '{"numRecords":3}')
    assert rows[:3] == [None, None, None]
    assert rows[3]["numRecords"] == 3


def test_line_breaks_between_tokens_are_fine() -> None:
    assert parsed(struct(a=delta.LONG), '{\n "numRecords" : 7,\r\n\t"minValues":{"a":1}\n}')[0]["numRecords"] == 7


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (delta.LONG, "1", 1),
        (delta.LONG, "1.0", 1),
        (delta.LONG, "1.5", None),
        (delta.LONG, '"1"', None),
        (delta.LONG, "true", None),
        (delta.LONG, "9223372036854775807", 2**63 - 1),
        (delta.LONG, "9223372036854775808", None),
        (delta.LONG, "1e999999999", None),
        (delta.BYTE, "127", 127),
        (delta.BYTE, "128", None),
        (delta.INTEGER, "-2147483648", -(2**31)),
        (delta.DOUBLE, "0.1", 0.1),
        (delta.DOUBLE, "7", 7.0),
        (delta.DOUBLE, '"NaN"', None),
        (delta.DOUBLE, '"Infinity"', None),
        (delta.DOUBLE, '"-Infinity"', None),
        (delta.DOUBLE, "1e999", None),
        (delta.FLOAT, "0.5", 0.5),
        (delta.STRING, '"a\\u00e9\\n\\"}"', 'aé\n"}'),
        (delta.STRING, "5", None),
        (delta.STRING, '{"a":1}', None),
        (DecimalType(15, 3), "123456789012.345", Decimal("123456789012.345")),
        (DecimalType(38, 3), '"-123456789012.345"', Decimal("-123456789012.345")),
        (DecimalType(15, 2), '"1.5"', Decimal("1.5")),
        (DecimalType(5, 2), "1.555", None),
        (DecimalType(5, 2), "123456", None),
        (DecimalType(5, 2), "1E+1", Decimal(10)),
        (DecimalType(5, 2), '"x"', None),
        (DecimalType(5, 2), "[1]", None),
        (delta.DATE, '"2024-02-29"', date(2024, 2, 29)),
        (delta.DATE, '"2024-02-30"', None),
        (delta.DATE, "19000", None),
        (delta.TIMESTAMP, '"nonsense"', None),
        (delta.TIMESTAMP, "1704103200000", None),
    ],
)  # fmt: skip
def test_a_value_is_read_exactly_or_is_unknown(data_type: DataType, value: str, expected: Any) -> None:
    other = {delta.STRING: '"x"', delta.DATE: '"2000-01-01"', delta.TIMESTAMP: '"2000-01-01T00:00:00.000Z"'}
    good = other.get(data_type, "2")
    assert bounds(data_type, value) == [(expected, expected)]
    found = bounds(data_type, good, value, good)
    assert found[1] == (expected, expected)
    assert found[0] == found[2]
    assert None not in found[0]


@pytest.mark.parametrize(
    ("data_type", "text", "low", "high"),
    [
        (delta.TIMESTAMP, "2024-01-01T10:00:00.123Z", TEN + 123_000, TEN + 123_999),
        (delta.TIMESTAMP, "2024-01-01T02:00:00.000-08:00", TEN, TEN + 999),
        (delta.TIMESTAMP, "1969-12-31T23:59:59.999Z", -1000, -1),
        (delta.TIMESTAMP, "2024-01-01T10:00:00.123456Z", TEN + 123_456, TEN + 123_456),
        (delta.TIMESTAMP_NTZ, "2024-01-01T10:00:00.123", TEN + 123_000, TEN + 123_999),
    ],
)
def test_a_timestamp_cut_to_milliseconds_is_a_bound_on_both_sides(
    data_type: DataType, text: str, low: int, high: int
) -> None:
    assert bounds(data_type, f'"{text}"') == [
        tuple(pa.scalar(v, to_arrow_type(data_type)).as_py() for v in (low, high))
    ]


@pytest.mark.parametrize(
    ("data_type", "written"),
    [
        (DecimalType(38, 18), "123456789012345678.12345678901234567"),
        (DecimalType(38, 3), "-12345678901234567.891"),
        (DecimalType(38, 38), "0.1000000000000000055511151231257827"),
        (DecimalType(16, 0), "9007199254740993"),
        (DecimalType(20, 0), "18446744073709551615"),
    ],
)
def test_a_decimal_rounded_to_a_double_is_a_bound_on_both_sides(data_type: DataType, written: str) -> None:
    exact = Decimal(written)
    for text in (written, repr(float(exact)), str(min(int(float(exact)), 2**63 - 1)) if exact % 1 == 0 else written):
        ((low, high),) = bounds(data_type, text)
        assert low <= exact
        assert high is None or exact <= high
    assert bounds(data_type, "2.5e99") == [(None, None)]


def test_the_ends_of_longs_are_no_bounds_of_decimals_beyond_them() -> None:
    most, least = 2**63 - 1, -(2**63)
    ((low, high),) = bounds(DecimalType(38, 0), str(most))
    assert low < most
    assert high is None
    ((low, high),) = bounds(DecimalType(38, 0), str(least))
    assert low is None
    assert high > least


def test_the_greatest_timestamps_do_not_wrap_around() -> None:
    stats = pa.array([{"maxValues": {"s": {"t": 2**63 - 1}}}, {"maxValues": {"s": {"t": 2**63 - 808}}}, None]).cast(
        pa.struct([("maxValues", pa.struct([("s", pa.struct([("t", pa.timestamp("us"))]))]))])
    )
    widened = pa.compute.struct_field(widen(stats), ["maxValues", "s", "t"]).cast(pa.int64()).to_pylist()
    assert widened[0] >= 2**63 - 1
    assert widened[1] >= 2**63 - 808
    assert widened[2] is None


def test_values_named_nan_in_string_columns_stay_what_they_are_when_all_is_well() -> None:
    assert bounds(delta.STRING, '"NaN"') == [("NaN", "NaN")]


def test_many_rows_with_a_few_bad_ones_keep_all_the_good_ones() -> None:
    texts: list[str | None] = [f'{{"numRecords":{n},"minValues":{{"a":{n}}}}}' for n in range(70_000)]
    texts[5] = "garbage"
    texts[40_000] = None
    texts[69_999] = '{"numRecords":69999,"minValues":{"a":"x"}}'
    column = pa.chunked_array([texts[:10], texts[10:50_000], texts[50_000:]], pa.string())
    found = parse_stats(column, pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("a", pa.int64())]))]))
    records = pa.compute.struct_field(found, "numRecords").to_pylist()
    assert records == [None if n in (5, 40_000) else n for n in range(70_000)]
    assert pa.compute.struct_field(found, ["minValues", "a"]).null_count == 3


def test_no_rows_give_no_statistics() -> None:
    wanted = stats_schema(struct(a=delta.LONG))
    assert len(parse_stats(pa.chunked_array([], pa.string()), wanted)) == 0
    assert parse_stats(pa.array([], pa.string()), wanted).type == wanted


def test_a_schema_without_bounds_is_read() -> None:
    row = parsed(struct(b=delta.BOOLEAN), '{"numRecords":1,"minValues":{"b":true},"nullCount":{"b":0}}')[0]
    assert (row["numRecords"], row["minValues"], row["nullCount"]) == (1, {}, {"b": 0})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcs"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.none()
        | st.text(max_size=20)
        | st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("numRecords", "minValues", "maxValues", "nullCount", "tightBounds"), json_values),
        ).map(lambda value: msgspec.json.encode(value).decode()),
        max_size=5,
    )
)
def test_no_text_makes_reading_fail(texts: list[str | None]) -> None:
    schema = struct(a=delta.LONG, b=delta.STRING, c=DecimalType(20, 3), s=struct(a=delta.DOUBLE, b=delta.TIMESTAMP))
    assert len(parsed(schema, *texts)) == len(texts)


def test_statistics_of_other_clients_are_read_as_they_stand(shared_tables: Path) -> None:
    read = 0
    for log in shared_tables.rglob("_delta_log"):
        schema, texts = None, []
        for commit in sorted(log.glob("*.json")):
            for line in commit.read_bytes().splitlines():
                action = msgspec.json.decode(line)
                if action.get("metaData", {}).get("schemaString"):
                    schema = StructType.from_json(action["metaData"]["schemaString"])
                    partitions = action["metaData"]["partitionColumns"]
                if action.get("add") and action["add"].get("stats"):
                    texts.append(action["add"]["stats"])
        if schema is None or not texts:
            continue
        wanted = stats_schema(indexed_columns(schema, partition_columns=partitions).to_physical())
        found = parse_stats(pa.array(texts, pa.string()), wanted).to_pylist()
        for text, row in zip(texts, found, strict=True):
            assert row["numRecords"] == msgspec.json.decode(text)["numRecords"]
            read += 1
    assert read > 100
