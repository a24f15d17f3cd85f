from __future__ import annotations

import io
import math
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.protocol import schema as delta
from lakeseal.protocol.arrow import from_arrow, to_arrow, to_arrow_type
from lakeseal.protocol.file_stats import (
    ColumnStats,
    FileStats,
    StatsCollector,
    stats_from_parquet_metadata,
)
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, StructField, StructType
from lakeseal.protocol.stats import parse_stats, stats_schema


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, data_type) for name, data_type in fields.items()))


def written(table: pa.Table, **options: Any) -> pq.FileMetaData:
    footers: list[pq.FileMetaData] = []
    with pq.ParquetWriter(io.BytesIO(), table.schema, metadata_collector=footers, **options) as writer:
        writer.write_table(table, row_group_size=3)
    return footers[0]


def collected(table: pa.Table, schema: StructType | None = None) -> dict[str, Any]:
    collector = StatsCollector(schema or from_arrow(table.schema))
    for batch in table.to_batches(max_chunksize=2):
        collector.update(batch)
    found: dict[str, Any] = msgspec.json.decode(collector.finish(written(table)).to_json())
    return found


def one(values: list[Any], data_type: DataType) -> tuple[Any, Any]:
    """Minimum and maximum that a column of these values gets."""
    arrow = to_arrow_type(data_type)
    storage = pa.int64() if pa.types.is_timestamp(arrow) else pa.int32() if pa.types.is_date(arrow) else arrow
    found = collected(pa.table({"c": pa.array(values, storage).cast(arrow)}))
    return found["minValues"].get("c"), found["maxValues"].get("c")


columns: dict[DataType, st.SearchStrategy[Any]] = {
    delta.STRING: st.text() | st.text("a\x7f\U0010ffffé", min_size=28, max_size=80),
    delta.BYTE: st.integers(-(2**7), 2**7 - 1),
    delta.LONG: st.integers(-(2**63), 2**63 - 1),
    delta.FLOAT: st.floats(width=32),
    delta.DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    delta.DATE: st.integers(-(2**31), 2**31 - 1) | st.integers(-800_000, 3_000_000),
    delta.TIMESTAMP: st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**50), 2**50),
    delta.TIMESTAMP_NTZ: st.integers(-(2**50), 2**50),
    DecimalType(5, 2): st.decimals(-999, 999, places=2),
    DecimalType(18, 4): st.decimals(-(10**13), 10**13, places=4),
    DecimalType(38, 18): st.decimals(-(10**19), 10**19, places=18),
}


def sortable(value: Any) -> Any:
    """Spark's order: NaN above all, zeros equal, strings by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def numbers(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64()).to_pylist()
    return array.cast(pa.int32()).to_pylist() if pa.types.is_date(array.type) else array.to_pylist()


@pytest.mark.parametrize("data_type", columns, ids=str)
@given(data=st.data())
def test_what_is_written_and_read_back_bounds_every_value(data_type: DataType, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(columns[data_type] | st.none(), max_size=9))
    arrow = to_arrow_type(data_type)
    storage = pa.int64() if pa.types.is_timestamp(arrow) else pa.int32() if pa.types.is_date(arrow) else arrow
    leaf = pa.array(drawn, storage).cast(arrow)
    parents = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    nested = pa.StructArray.from_arrays([leaf], ["x"], mask=pa.array(parents, pa.bool_()))
    table = pa.table({"c": leaf, "s": nested})
    schema = struct(c=data_type, s=struct(x=data_type))
    collector = StatsCollector(schema)
    for batch in table.to_batches(max_chunksize=4):
        collector.update(batch)
    text = collector.finish(written(table)).to_json()
    stats = parse_stats(pa.array([text]), stats_schema(schema))
    values = numbers(leaf)
    for path, present in (
        (["c"], values),
        (["s", "x"], [None if gone else v for v, gone in zip(values, parents, strict=True)]),
    ):
        low, high = (numbers(pa.compute.struct_field(stats, [part, *path]))[0] for part in ("minValues", "maxValues"))
        known = [sortable(v) for v in present if v is not None]
        assert low is None or all(sortable(low) <= v for v in known)
        assert high is None or all(v <= sortable(high) for v in known)
        assert pa.compute.struct_field(stats, ["nullCount", *path])[0].as_py() == len(present) - len(known)
    assert pa.compute.struct_field(stats, "numRecords")[0].as_py() == len(drawn)


def test_statistics_have_the_shape_of_the_format() -> None:
    table = pa.table(
        {
            "id": pa.array([3, None, 1]),
            "s": pa.array([{"x": "b", "l": [1]}, None, {"x": None, "l": None}]),
            "flag": pa.array([True, None, False]),
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        }
    )
    assert collected(table) == {
        "numRecords": 3,
        "minValues": {"id": 1, "s": {"x": "b"}},
        "maxValues": {"id": 3, "s": {"x": "b"}},
        "nullCount": {"id": 1, "s": {"x": 2, "l": 2}, "flag": 1, "m": 1},
        "tightBounds": True,
    }


def test_columns_that_the_file_lacks_are_all_null() -> None:
    schema = struct(a=delta.LONG, gone=delta.STRING, s=struct(gone=delta.LONG), l=ArrayType(delta.LONG))
    found = collected(pa.table({"a": [1, 2]}), schema)
    assert found["nullCount"] == {"a": 0, "gone": 2, "s": {"gone": 2}, "l": 2}
    assert found["minValues"] == {"a": 1}


def test_columns_that_are_not_indexed_are_left_out() -> None:
    found = collected(pa.table({"a": [1, 2], "b": [1, 2], "c.d": [5, 6]}), struct(**{"c.d": delta.LONG}))
    assert (found["minValues"], found["nullCount"]) == ({"c.d": 5}, {"c.d": 0})


def test_a_name_with_a_dot_is_not_taken_for_a_field_of_a_struct() -> None:
    table = pa.table({"s": pa.array([{"x": 1}]), "s.x": pa.array([9])})
    assert collected(table)["minValues"] == {"s": {"x": 1}, "s.x": 9}


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.5, 2.5], 1.5, 2.5),
        ([1.0, math.nan], 1.0, None),
        ([math.nan, math.nan], None, None),
        ([math.inf, 1.0], 1.0, None),
        ([-math.inf, 1.0], None, 1.0),
        ([None], None, None),
    ],
)
def test_floats_have_bounds_only_where_numbers_bound_them(values: list[Any], low: Any, high: Any) -> None:
    assert one(values, delta.DOUBLE) == (low, high)


def test_a_nan_in_a_later_row_group_takes_the_maximum_away() -> None:
    assert one([1.0, 2.0, 3.0, 4.0, math.nan], delta.FLOAT) == (1.0, None)


def test_zeros_bound_zeros_of_either_sign() -> None:
    for values in ([0.0], [-0.0], [0.0, -0.0]):
        low, high = one(values, delta.DOUBLE)
        assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)


def test_a_float_keeps_its_bound_when_read_as_a_double() -> None:
    low, high = one([0.1], delta.FLOAT)
    exact = pa.scalar(0.1, pa.float32()).as_py()
    assert low == high == exact


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("a" * 32, "a" * 32, "a" * 32),
        ("a" * 33, "a" * 32, "a" * 32 + "\x7f"),
        ("a" * 32 + "é", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\x7f", "a" * 32, "a" * 32 + "\U0010ffff"),
        ("😀" * 40, "😀" * 32, "😀" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffff" * 2 + "b", "a" * 32, "a" * 32 + "\U0010ffff" * 2 + "\x7f"),
        ("\U0010ffff" * 64, "\U0010ffff" * 32, "\U0010ffff" * 64),
        ("\U0010ffff" * 65, "\U0010ffff" * 32, None),
    ],
)
def test_long_strings_are_cut_and_still_bound(value: str, low: str, high: str | None) -> None:
    assert one([value], delta.STRING) == (low, high)


@pytest.mark.parametrize(
    ("data_type", "micros", "low", "high"),
    [
        (delta.TIMESTAMP, 1_704_103_200_123_000, "2024-01-01T10:00:00.123Z", "2024-01-01T10:00:00.123Z"),
        (delta.TIMESTAMP, 1_704_103_200_123_456, "2024-01-01T10:00:00.123Z", "2024-01-01T10:00:00.124Z"),
        (delta.TIMESTAMP_NTZ, 1_704_103_200_123_456, "2024-01-01T10:00:00.123", "2024-01-01T10:00:00.124"),
        (delta.TIMESTAMP, -1, "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
        (delta.TIMESTAMP, 253_402_300_800_000_000, None, None),
        (delta.TIMESTAMP, 253_402_300_799_999_999, "9999-12-31T23:59:59.999Z", None),
        (delta.DATE, 19_723, "2024-01-01", "2024-01-01"),
        (delta.DATE, 2_932_897, None, None),
        (delta.DATE, -719_163, None, None),
    ],
)
def test_times_are_cut_outward_and_left_out_where_readers_stumble(
    data_type: DataType, micros: int, low: str | None, high: str | None
) -> None:
    assert one([micros], data_type) == (low, high)


def test_decimals_are_exact_numbers_without_exponents() -> None:
    low, high = Decimal("1E-18"), Decimal("12345678901234567890.5")
    column = ColumnStats(path=("d",), type=DecimalType(38, 18), minimum=low, maximum=high)
    stats = FileStats(num_records=1, columns=(column,))
    assert '"minValues":{"d":0.000000000000000001}' in stats.to_json()
    assert '"maxValues":{"d":12345678901234567890.5}' in stats.to_json()


def test_a_footer_of_unknown_origin_gives_no_maximum_to_floats_and_no_count_to_arrays() -> None:
    table = pa.table({"f": [1.0, 2.0], "l": [[1], [2]], "i": [1, 2], "v": [b"x", None]})
    found = msgspec.json.decode(stats_from_parquet_metadata(written(table), from_arrow(table.schema)).to_json())
    assert found["minValues"] == {"f": 1.0, "i": 1}
    assert found["maxValues"] == {"i": 2}
    assert found["nullCount"] == {"f": 0, "i": 0, "v": 1}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_footers_in_other_units_of_time_bound_their_instants(unit: str) -> None:
    table = pa.table({"t": pa.array([1_700_000_000], pa.int64()).cast(pa.timestamp("s")).cast(pa.timestamp(unit))})
    stats = stats_from_parquet_metadata(written(table), struct(t=delta.TIMESTAMP_NTZ))
    assert stats.columns[0].minimum == stats.columns[0].maximum == 1_700_000_000_000_000


def test_nanoseconds_are_rounded_outward() -> None:
    table = pa.table({"t": pa.array([1_001], pa.timestamp("ns"))})
    column = stats_from_parquet_metadata(written(table), struct(t=delta.TIMESTAMP_NTZ)).columns[0]
    assert (column.minimum, column.maximum) == (1, 2)


def test_a_footer_whose_types_do_not_go_with_the_table_gives_no_bounds() -> None:
    table = pa.table({"a": pa.array([2**32 - 1], pa.uint32()), "b": ["x"], "c": [5], "d": [True]})
    schema = struct(a=delta.LONG, b=delta.LONG, c=delta.STRING, d=delta.DATE)
    found = msgspec.json.decode(stats_from_parquet_metadata(written(table), schema).to_json())
    assert (found["minValues"], found["maxValues"]) == ({}, {})


def test_a_footer_without_statistics_gives_only_the_number_of_rows() -> None:
    table = pa.table({"a": [1, 2]})
    stats = stats_from_parquet_metadata(written(table, write_statistics=False), from_arrow(table.schema))
    assert msgspec.json.decode(stats.to_json()) == {
        "numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}, "tightBounds": True,
    }  # fmt: skip


def test_a_string_too_long_for_the_footer_is_unknown() -> None:
    assert one(["a", "x" * 5000], delta.STRING) == (None, None)


def test_an_empty_file_has_statistics() -> None:
    table = to_arrow(struct(a=delta.LONG, f=delta.DOUBLE)).empty_table()
    assert collected(table)["numRecords"] == 0
