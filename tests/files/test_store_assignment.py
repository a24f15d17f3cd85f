from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeseal.errors import EvaluationError, SchemaMismatch, UnsupportedExpression
from lakeseal.files.store_assignment import assign, canonical, check_assignable, stored_type
from lakeseal.protocol.arrow import from_arrow_type
from lakeseal.protocol.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

DECIMAL = DecimalType(5, 2)
NUMBERS = (BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, DECIMAL)
MOMENTS = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
UTC = datetime.UTC


def stored(array: pa.Array, target: DataType) -> list[Any]:
    source = from_arrow_type(array.type)
    check_assignable(source, target, ("c",))
    result = assign(canonical(array), source, target)
    result.validate(full=True)
    assert result.type == stored_type(target)
    return result.to_pylist()  # type: ignore[no-any-return]


def test_what_is_assignable_is_what_spark_assigns_with_ansi_on() -> None:
    simple = (*NUMBERS, *MOMENTS, BOOLEAN, BINARY, STRING, VOID)
    allowed = set()
    for source in simple:
        for target in simple:
            try:
                check_assignable(source, target, ())
                allowed.add((source, target))
            except UnsupportedExpression:
                assert source in (FLOAT, DOUBLE)
                assert target == STRING
                allowed.add((source, target))
            except SchemaMismatch:
                pass
    expected = {(s, s) for s in simple} | {(VOID, t) for t in simple}
    expected |= {(s, t) for s in NUMBERS for t in NUMBERS} | {(s, t) for s in MOMENTS for t in MOMENTS}
    expected |= {(s, STRING) for s in (*NUMBERS, *MOMENTS, BOOLEAN, BINARY)}
    assert allowed == expected


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array([1, None], pa.uint8()), LONG, [1, None]),
        (pa.array([2.9, -2.9]), INTEGER, [2, -2]),
        (pa.array([1.005, 2.345]), DECIMAL, [Decimal("1.01"), Decimal("2.35")]),
        (pa.array([Decimal("1.235")], pa.decimal128(9, 3)), DECIMAL, [Decimal("1.24")]),
        (pa.array([3]), DOUBLE, [3.0]),
        (pa.array([True, None]), STRING, ["true", None]),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), STRING, ["1.50"]),
        (pa.array([datetime.date(2024, 1, 2)]), TIMESTAMP, [datetime.datetime(2024, 1, 2, tzinfo=UTC)]),
        (pa.array([datetime.datetime(2024, 1, 2, 3)]), DATE, [datetime.date(2024, 1, 2)]),
        (pa.nulls(2), ArrayType(LONG), [None, None]),
    ],
)
def test_values_are_converted_as_spark_does(array: pa.Array, target: DataType, expected: list[Any]) -> None:
    assert stored(array, target) == expected


@pytest.mark.parametrize(
    ("array", "target"),
    [
        (pa.array([300]), BYTE),
        (pa.array([2**40]), INTEGER),
        (pa.array([float("nan")]), LONG),
        (pa.array([1e30]), LONG),
        (pa.array([1000]), DECIMAL),
        (pa.array([Decimal("99999.99")], pa.decimal128(9, 2)), DECIMAL),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_shows_it(array: pa.Array, target: DataType) -> None:
    with pytest.raises(EvaluationError, match="cannot be cast"):
        stored(array, target)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "a"]).dictionary_encode(),
        pa.array(["a", None, "a"], pa.large_string()),
        pa.array(["a", None, "a"], pa.string_view()),
        pa.array(["a", None, "a"]),
    ],
    ids=lambda a: str(a.type),
)
def test_all_of_arrows_forms_of_text_are_strings(array: pa.Array) -> None:
    assert stored(array, STRING) == ["a", None, "a"]


def test_runs_and_extensions_are_what_they_hold() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8]))
    assert stored(runs, LONG) == [7, 7, 8]
    assert stored(pa.array([b"0123456789abcdef"], pa.uuid()), BINARY) == [b"0123456789abcdef"]


def test_categories_of_polars_and_views_of_lists_are_what_they_hold() -> None:
    texts = pa.array(["north", None, "a text that is longer than a view"], pa.string_view())
    categories = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1], pa.uint32()), texts)
    assert canonical(categories).equals(pa.array(["a text that is longer than a view", None, "north", None]))
    for view in (pa.list_view(pa.int64()), pa.large_list_view(pa.int64())):
        lists = pa.array([[9], [1], None, [], [2, None], [3]], view)
        assert canonical(lists.slice(1, 4)).equals(pa.array([[1], None, [], [2, None]]))


@pytest.mark.parametrize("inner", [pa.int64(), pa.uint16(), pa.float16()], ids=str)
def test_what_is_in_a_null_list_or_map_is_nobodys(inner: pa.DataType) -> None:
    numbers = pa.array([1, 2, 3, 4, 5], pa.int16()).cast(pa.float32() if inner == pa.float16() else inner).cast(inner)
    absent = pa.array([False, True, True, False])
    offsets = pa.array([0, 1, 3, 4, 5], pa.int32())
    keys = pa.array(list("abcde"))
    lists = pa.ListArray.from_arrays(offsets, numbers, mask=absent)
    maps = pa.MapArray.from_arrays(offsets, keys, numbers, mask=absent)
    # A struct that is null hides lists that are there.
    structs = pa.StructArray.from_arrays([pa.ListArray.from_arrays(offsets, numbers)], ["l"], mask=absent)
    for array, expected in [
        (lists, [[1], None, None, [5]]),
        (lists.cast(pa.large_list(inner)), [[1], None, None, [5]]),
        (pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), lists), [[[1], None], [None, [5]]]),
        (maps, [[("a", 1)], None, None, [("e", 5)]]),
        (structs, [{"l": [1]}, None, None, {"l": [5]}]),
        (pa.FixedSizeListArray.from_arrays(numbers[:4], 1, mask=absent), [[1], None, None, [4]]),
    ]:
        for start in range(len(array)):
            found = canonical(array.slice(start))
            found.validate(full=True)
            assert found.to_pylist() == expected[start:]
    assert canonical(lists).values.to_pylist() == [1, 5]
    assert pc.list_flatten(canonical(structs).field("l")).to_pylist() == [1, 5]
    target = ArrayType(DOUBLE)
    assert assign(canonical(lists), from_arrow_type(canonical(lists).type), target).values.to_pylist() == [1.0, 5.0]


def test_what_lies_before_1970_is_cut_downwards_at_every_depth() -> None:
    nanos = pa.array([-1, -1500, -2000, 1999, -(2**63), None]).cast(pa.timestamp("ns"))
    micros = [-1, -2, -2, 1, -9223372036854776, None]
    assert canonical(nanos).cast(pa.int64()).to_pylist() == micros
    offsets = pa.array([0, 2, 6])
    for kind in (pa.list_(nanos.type), pa.large_list(nanos.type)):
        deep = pa.ListArray.from_arrays(offsets.cast(pa.int32()), pa.StructArray.from_arrays([nanos], ["t"]))
        found = canonical(pa.StructArray.from_arrays([deep.cast(pa.list_(pa.struct({"t": nanos.type})))], ["l"]))
        assert found.field("l").values.field("t").cast(pa.int64()).to_pylist() == micros
        flat = pa.array([[-1, -1500], None], pa.list_(pa.int64())).cast(kind)
        assert canonical(flat).values.cast(pa.int64()).to_pylist() == [-1, -2]
    assert canonical(pa.array([-1, 86_400_000]).cast(pa.date64())).cast(pa.int32()).to_pylist() == [-1, 1]
    with pytest.raises(pa.ArrowInvalid):
        canonical(pa.array([2**62]).cast(pa.date64()))


def test_the_last_days_that_are_moments_are_and_others_are_told() -> None:
    days = pa.array([106_751_991, -106_751_991], pa.int32()).cast(pa.date32())
    assert assign(days, DATE, TIMESTAMP).cast(pa.int64()).to_pylist() == [9223372022400000000, -9223372022400000000]
    with pytest.raises(EvaluationError, match="294247-01-11"):
        assign(pa.array([106_751_992], pa.int32()).cast(pa.date32()), DATE, TIMESTAMP)


def test_nanoseconds_are_cut_to_microseconds_and_zones_become_utc() -> None:
    array = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "Europe/Berlin"))
    assert stored(array, TIMESTAMP)[0] == datetime.datetime.fromtimestamp(1_700_000_000, UTC).replace(
        microsecond=123456
    )


class TestNested:
    INNER = StructType((StructField("x", DOUBLE, False), StructField("y", STRING)))
    TARGET = StructType(
        (StructField("A", LONG), StructField("b", ArrayType(INNER)), StructField("m", MapType(STRING, LONG)))
    )

    def test_structs_match_by_name_at_every_depth(self) -> None:
        source = pa.struct(
            [
                ("M", pa.map_(pa.large_string(), pa.int8())),
                ("B", pa.large_list(pa.struct([("X", pa.float32())]))),
                ("a", pa.int16()),
            ]
        )
        rows = [{"M": [("k", 1)], "B": [{"X": 0.5}, None], "a": 3}, None, {"M": None, "B": None, "a": None}]
        expected = [
            {"A": 3, "b": [{"x": 0.5, "y": None}, None], "m": [("k", 1)]},
            None,
            {"A": None, "b": None, "m": None},
        ]
        array = pa.array(rows, source)
        assert stored(array, self.TARGET) == expected
        assert stored(array.slice(1), self.TARGET) == expected[1:]

    @pytest.mark.parametrize(
        ("source", "column"),
        [
            (pa.struct([("A", pa.string())]), "c.A"),
            (pa.struct([("A", pa.int64()), ("z", pa.int64())]), "c.z"),
            (pa.struct([("b", pa.list_(pa.struct([("y", pa.string())])))]), "c.b.element.x"),
            (pa.struct([("m", pa.map_(pa.string(), pa.bool_()))]), "c.m.value"),
            (pa.int64(), "c"),
        ],
    )
    def test_what_does_not_match_is_named_by_its_path(self, source: pa.DataType, column: str) -> None:
        with pytest.raises(SchemaMismatch) as caught:
            check_assignable(from_arrow_type(source), self.TARGET, ("c",))
        assert caught.value.column == column

    def test_a_nested_value_that_does_not_fit_names_its_field(self) -> None:
        array = pa.array([{"A": 1e30}])
        with pytest.raises(EvaluationError) as caught:
            stored(array, self.TARGET)
        assert caught.value.column == "A"
