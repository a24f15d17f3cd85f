from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from lakeseal.errors import InvalidArgument, InvalidExpression
from lakeseal.expr import BoundExpression, bind, bind_predicate, parse, prune, split, stats_columns
from lakeseal.protocol.arrow import from_arrow

ARROW = pa.schema(
    {
        "i": pa.int32(),
        "j": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "d": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "b": pa.bool_(),
        "c": pa.decimal128(10, 2),
        "n": pa.struct([("x", pa.int32()), ("y", pa.string())]),
        "l": pa.list_(pa.int32()),
        "p": pa.string(),
        "q": pa.date32(),
    }
)
SCHEMA = from_arrow(ARROW)
DATA = [field for field in ARROW if field.name not in ("p", "q", "l")]
COUNTS = [
    *(pa.field(field.name, pa.int64()) for field in DATA if field.name != "n"),
    pa.field("n", pa.struct([("x", pa.int64()), ("y", pa.int64())])),
]
STATS = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", pa.struct(DATA)),
        ("maxValues", pa.struct(DATA)),
        ("nullCount", pa.struct(COUNTS)),
    ]
)
PARTITIONS = pa.struct([("p", pa.string()), ("q", pa.date32())])


def bound(text: str) -> BoundExpression:
    return bind_predicate(parse(text), SCHEMA)


def stats(low: dict[str, Any], high: dict[str, Any], nulls: dict[str, Any] | None = None, rows: int = 10) -> pa.Array:
    zero = {field.name: 0 for field in COUNTS if field.name != "n"} | {"n": {"x": 0, "y": 0}}
    file = {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": zero | (nulls or {})}
    return pa.array([file], STATS)


def verdict(text: str, *, file: pa.Array | None = None, partition: dict[str, Any] | None = None) -> str:
    """What pruning says of one file: "none", "some" or "all" of its rows."""
    partitions = None if partition is None else pa.array([{"p": None, "q": None} | partition], PARTITIONS)
    match = prune(bound(text), partitions=partitions, stats=file)
    return "all" if match.all[0].as_py() else "some" if match.may[0].as_py() else "none"


NUMBERS = stats({"i": 10, "j": 100}, {"i": 20, "j": 200})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 15", "some"),
        ("i = 9", "none"),
        ("i = 21", "none"),
        ("i <> 9", "all"),
        ("i <> 15", "some"),
        ("i < 10", "none"),
        ("i <= 10", "some"),
        ("i < 21", "all"),
        ("i > 20", "none"),
        ("i >= 10", "all"),
        ("9 < i", "all"),
        ("20 < i", "none"),
        ("i between 12 and 14", "some"),
        ("i between 10 and 20", "all"),
        ("i between 21 and 30", "none"),
        ("i in (1, 2, 30)", "none"),
        ("i in (1, 12)", "some"),
        ("i not in (1, 2)", "all"),
        ("i not in (1, null)", "none"),
        ("i in (null)", "none"),
        ("not (i < 10)", "all"),
        ("not (i > 5)", "none"),
        ("i < 10 or j > 200", "none"),
        ("i < 10 or j > 150", "some"),
        ("i < 10 or j > 50", "all"),
        ("i > 5 and j > 50", "all"),
        ("i > 5 and j > 200", "none"),
        ("i < j", "all"),
        ("i = j", "none"),
        ("i > 1000000000000", "none"),
        ("i > 5.5", "all"),
        ("i = 15.5", "some"),
        ("i > '5'", "all"),
        ("i + 10 > 30", "none"),
        ("i + 10 > 5", "all"),
        ("100 - i < 80", "none"),
        ("-i < -20", "none"),
        ("-i <= -10", "all"),
        ("i + 2147483647 > 0", "some"),
        ("cast(i as double) > 9.5", "all"),
        ("cast(j as tinyint) = 5", "none"),
        ("i <=> 5", "none"),
        ("i <=> null", "none"),
        ("not (i <=> null)", "all"),
        ("i is null", "none"),
        ("i is not null", "all"),
        ("coalesce(i, 0) > 5", "some"),
        ("coalesce(i, 11) > 5", "all"),
        ("case when j > 0 then i else 12 end >= 10", "all"),
        ("if(j > 0, i > 30, i < 5)", "none"),
        ("i % 2 = 0", "some"),
        ("true", "all"),
        ("false", "none"),
        ("null", "none"),
        ("i > 5 or null", "all"),
        ("(i > 5) is true", "all"),
        ("(i > 30) is not true", "all"),
        ("size(l) > 0", "some"),
        ("b", "some"),
        ("b = true and i > 30", "none"),
    ],
)
def test_numbers_are_pruned_by_their_bounds(text: str, expected: str) -> None:
    assert verdict(text, file=NUMBERS) == expected


@pytest.mark.parametrize(
    ("text", "nulls", "expected"),
    [
        ("i > 5", 1, "some"),
        ("i > 5", 10, "none"),
        ("i > 30 or i is null", 10, "all"),
        ("i is null", 0, "none"),
        ("i is null", 3, "some"),
        ("i is null", 10, "all"),
        ("i is not null", 10, "none"),
        ("not (i > 5)", 1, "none"),
        ("i <=> null", 10, "all"),
        ("i <=> 15", 10, "none"),
        ("i is null", None, "some"),
        ("i > 5", None, "some"),
    ],
)
def test_nulls_are_told_by_their_count(text: str, nulls: int | None, expected: str) -> None:
    assert verdict(text, file=stats({"i": 10}, {"i": 20}, {"i": nulls})) == expected


def test_nan_may_hide_above_the_bounds_of_floating_point_columns() -> None:
    file = stats({"f": 1.0}, {"f": 2.0})
    assert verdict("f > 5", file=file) == "some"
    assert verdict("f < 5", file=file) == "some"
    assert verdict("f < 1", file=file) == "none"
    assert verdict("f = 5", file=file) == "none"
    assert verdict("f = double('NaN')", file=file) == "some"
    assert verdict("f >= 1", file=file) == "all"
    assert verdict("f in (3, 4)", file=file) == "none"
    assert verdict("f in (3, double('NaN'))", file=file) == "some"
    odd = stats({"f": float("nan")}, {"f": float("nan")})
    assert verdict("f = 5", file=odd) == "some"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s like 'ab%'", "all"),
        ("s like 'a%'", "all"),
        ("s like 'b%'", "none"),
        ("s like 'A%'", "none"),
        ("s like 'abz%'", "none"),
        ("s like 'abd%'", "some"),
        ("s like 'abc'", "some"),
        ("s like 'x'", "none"),
        ("s like 'b%c'", "none"),
        ("s like 'a%c'", "some"),
        ("s like '%x%'", "some"),
        ("s not like 'b%'", "all"),
        ("startswith(s, 'b')", "none"),
        ("startswith(s, 'a')", "all"),
        ("startswith(s, '')", "all"),
        ("left(s, 2) = 'ab'", "all"),
        ("left(s, 2) = 'ac'", "none"),
        ("upper(s) = 'X'", "some"),
        ("s = 'abcx'", "some"),
        ("s > 'abd'", "none"),
        ("s in ('a', 'b', 'abcd')", "some"),
        ("s in ('a', 'b')", "none"),
    ],
)
def test_strings_are_pruned_by_prefix(text: str, expected: str) -> None:
    assert verdict(text, file=stats({"s": "abc"}, {"s": "abd"})) == expected


@pytest.mark.parametrize("mark", ["", "\U0010ffff", "\uffff", "\ufffd"])
def test_string_bounds_that_were_cut_off_stay_bounds(mark: str) -> None:
    prefix = "x" * 32
    file = stats({"s": prefix}, {"s": prefix + mark})
    assert verdict(f"s = '{prefix}abc'", file=file) == "some"
    assert verdict(f"s = '{prefix}😀'", file=file) == "some"
    assert verdict(f"s like '{prefix}%'", file=file) == "all"
    assert verdict(f"s like '{prefix}a%'", file=file) == "some"
    assert verdict("s > 'y'", file=file) == "none"


def test_the_bound_itself_counts_as_a_prefix() -> None:
    assert verdict("s like 'abd%'", file=stats({"s": "abc"}, {"s": "abd"})) == "some"
    assert verdict("s like 'abd%'", file=stats({"s": "abd"}, {"s": "abd"})) == "all"


def test_timestamps_are_cut_to_milliseconds_by_writers() -> None:
    moment = dt.datetime(2024, 5, 1, 23, 59, 59, 999_000, dt.UTC)
    file = stats({"ts": moment}, {"ts": moment})
    assert verdict("ts > timestamp '2024-05-01 23:59:59.9995'", file=file) == "some"
    assert verdict("ts < '2024-05-02'", file=file) == "all"
    assert verdict("ts >= '2024-05-02'", file=file) == "none"
    assert verdict("date(ts) = '2024-05-01'", file=file) == "all"
    assert verdict("cast(ts as date) > '2024-05-01'", file=file) == "none"
    assert verdict("year(ts) = 2024 and date_trunc('month', ts) = '2024-05-01'", file=file) == "all"
    assert verdict("ts + interval 1 day < '2024-05-02'", file=file) == "none"
    assert verdict("hour(ts) = 5", file=file) == "some"


def test_partition_values_are_exact_whatever_the_function() -> None:
    eu = {"p": "eu-west", "q": dt.date(2024, 5, 1)}
    assert verdict("p = 'eu-west'", partition=eu) == "all"
    assert verdict("upper(substring(p, 1, 2)) = 'EU' and day(q) = 1", partition=eu) == "all"
    assert verdict("p rlike '^us'", partition=eu) == "none"
    assert verdict("q >= current_date()", partition=eu) == "some"
    assert verdict("p is null", partition={"p": None}) == "all"
    assert verdict("p = 'x'", partition={"p": None}) == "none"
    assert verdict("p <> 'x'", partition={"p": None}) == "none"
    assert verdict("cast(p as int) = 5", partition=eu) == "some"
    assert verdict("q = date '2024-05-01' and i > 30", partition=eu, file=NUMBERS) == "none"
    assert verdict("q = date '2024-05-01' and i > 5", partition=eu, file=NUMBERS) == "all"
    assert verdict("q = date '2024-05-02' or i > 5", partition=eu, file=NUMBERS) == "all"
    assert verdict("date(ts) = q", partition=eu, file=NUMBERS) == "some"


def test_a_file_whose_partition_values_are_unknown_may_match() -> None:
    partitions = pa.array([{"p": "a", "q": None}, None], PARTITIONS)
    match = prune(bound("p = 'x'"), partitions=partitions)
    assert match.may.to_pylist() == [False, True]
    match = prune(bound("p = 'a' and length(p) = 1"), partitions=partitions)
    assert (match.may.to_pylist(), match.all.to_pylist()) == ([True, True], [True, False])


def test_now_can_be_passed_in() -> None:
    partitions = pa.array([{"p": None, "q": dt.date(2024, 5, 1)}], PARTITIONS)
    condition = bound("q > current_date() - 7")
    for day, expected in ((2, True), (20, False)):
        now = dt.datetime(2024, 5, day, tzinfo=dt.UTC)
        assert prune(condition, partitions=partitions, now=now).may.to_pylist() == [expected]
    assert prune(condition, partitions=partitions).may.to_pylist() == [True]
    recent = bound("ts > current_timestamp()")
    old = stats({"ts": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, {"ts": dt.datetime(2020, 1, 2, tzinfo=dt.UTC)})
    assert prune(recent, stats=old, now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC)).may.to_pylist() == [False]


def test_nested_fields_have_statistics_too() -> None:
    file = stats({"n": {"x": 1, "y": "a"}}, {"n": {"x": 5, "y": "b"}})
    assert verdict("n.x > 5", file=file) == "none"
    assert verdict("N.X >= 1 and n.y < 'c'", file=file) == "all"
    assert verdict("n is null", file=file) == "some"


@pytest.mark.parametrize(
    "file",
    [
        pa.array([None], STATS),
        pa.array([{"numRecords": 5}], pa.struct([("numRecords", pa.int64())])),
        pa.array([{"minValues": {"z": 1}}], pa.struct([("minValues", pa.struct([("z", pa.int64())]))])),
        pa.array([{"minValues": {"i": "x"}}], pa.struct([("minValues", pa.struct([("i", pa.string())]))])),
        pa.array(
            [{"minValues": 5, "maxValues": None}], pa.struct([("minValues", pa.int64()), ("maxValues", pa.null())])
        ),
    ],
    ids=["null", "no bounds", "other columns", "wrong type", "wrong shape"],
)
def test_statistics_that_are_missing_or_odd_are_unknown(file: pa.Array) -> None:
    assert verdict("i > 5 and s like 'a%' and n.x is null", file=file) == "some"


def test_bounds_of_other_types_are_read_as_the_columns_type() -> None:
    odd = pa.struct([("i", pa.int64()), ("c", pa.decimal128(5, 1))])
    bounds = {"minValues": {"i": 10, "c": 1}, "maxValues": {"i": 20, "c": 2}}
    file = pa.array([bounds], pa.struct([("minValues", odd), ("maxValues", odd)]))
    assert verdict("i > 20 or c > 2", file=file) == "none"


def test_a_file_without_rows_matches_nothing() -> None:
    assert verdict("i is null or true", file=stats({}, {}, {"i": None}, rows=0)) in ("all", "none")
    match = prune(bound("i > 5"), stats=stats({}, {}, rows=0))
    assert match.may.to_pylist() == [False]


def test_many_files_and_long_lists_at_once() -> None:
    count = 10_000
    low = pa.StructArray.from_arrays([pa.array(range(0, count * 10, 10), pa.int32())], ["i"])
    high = pa.StructArray.from_arrays([pa.array(range(5, count * 10, 10), pa.int32())], ["i"])
    files = pa.StructArray.from_arrays([low, high], ["minValues", "maxValues"])
    wanted = [n * 10 + 7 for n in range(1000)] + [52, 75_003]
    text = f"i in ({', '.join(map(str, wanted))})"
    assert pa.compute.indices_nonzero(prune(bound(text), stats=files).may).to_pylist() == [5, 7500]
    same = " or ".join(f"i = {n}" for n in wanted)
    assert prune(bound(same), stats=files).may.equals(prune(bound(text), stats=files).may)


def test_long_lists_of_strings_prune_files_out_of_their_range() -> None:
    text = f"s in ({', '.join(repr(f'k{n:04d}') for n in range(0, 1000, 2))})"
    assert verdict(text, file=stats({"s": "a"}, {"s": "b"})) == "none"
    assert verdict(text, file=stats({"s": "k0500"}, {"s": "k0501"})) == "some"
    assert verdict(text, file=stats({"s": "k0500"}, {"s": "k0500"})) == "all"


def test_a_condition_splits_into_partition_and_data_parts() -> None:
    parts = split(bound("p = 'x' and i > 5 and (q > '2024-01-01' or p is null) and length(s) > i"), ["P", "q"])
    assert parts.partition is not None
    assert parts.data is not None
    assert parts.partition.columns == {("p",), ("q",)}
    assert parts.data.columns == {("i",), ("s",)}
    assert len(parts.partition.conjuncts()) == len(parts.data.conjuncts()) == 2
    assert split(bound("p = 'x'"), ["p"]).data is None
    assert split(bound("i = 1 or p = 'x'"), ["p"]).partition is None
    assert split(bound("true"), []).data is None


def test_the_columns_to_load_are_those_with_statistics() -> None:
    assert stats_columns(bound("i > 5 and n.x = 1 and size(l) > 2 and n is null and p = 'x'")) == {
        ("i",),
        ("n", "x"),
        ("p",),
    }


def test_pruning_needs_a_condition_and_something_to_prune_by() -> None:
    with pytest.raises(InvalidArgument, match="one row per file"):
        prune(bound("i > 5"))
    with pytest.raises(InvalidArgument, match="one row per file"):
        prune(bound("i > 5"), partitions=pa.array([], PARTITIONS), stats=NUMBERS)
    with pytest.raises(InvalidExpression, match="not boolean"):
        prune(bind(parse("i"), SCHEMA), stats=NUMBERS)
    empty = prune(bound("i > 5 and p = 'x'"), partitions=pa.array([], PARTITIONS), stats=pa.array([], STATS))
    assert len(empty.may) == len(empty.all) == 0
