"""CSV, JSON and ORC files: what goes in comes out, and what would not is refused."""

from __future__ import annotations

import datetime
import io
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import BrokenDataFile, InvalidArgument, InvalidInput
from lakeseal.files import csv_text, json_lines, orc_stripes
from lakeseal.files.file_format import FORMATS, FileFormat, format_of
from lakeseal.files.shape import Shape, is_hidden, united
from lakeseal.protocol.arrow import from_arrow

TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
DAYS = st.one_of(st.none(), st.dates())
MOMENTS = st.one_of(st.none(), st.datetimes(timezones=st.just(datetime.UTC)))
DECIMALS = st.one_of(st.none(), st.decimals(min_value=-(10**10), max_value=10**10, places=4, allow_nan=False))
DOUBLES = st.one_of(st.none(), st.floats())
LONGS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
FLAGS = st.one_of(st.none(), st.booleans())


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = {
        "n": pa.int64(),
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "e": pa.decimal128(20, 4),
        "f": pa.float64(),
        "b": pa.bool_(),
    }
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
    return pa.table({name: pa.array(column, kind) for column, (name, kind) in zip(columns, kinds.items(), strict=True)})


ROWS = st.lists(st.tuples(LONGS, TEXTS, DAYS, MOMENTS, DECIMALS, DOUBLES, FLAGS), max_size=12)


def same(found: pa.Table, expected: pa.Table) -> None:
    # repr tells -0.0 from 0.0 and takes NaN for NaN.
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    assert found.schema.types == expected.schema.types


def csv_round_trip(rows: pa.Table, *, header: bool = False) -> pa.Table:
    fields = from_arrow(rows.schema).fields
    file = (csv_text.header(fields) if header else b"") + b"".join(map(bytes, csv_text.encoded(rows, fields)))
    batches = csv_text.decoded(io.BytesIO(file), fields, has_header=header) if file else []
    return pa.Table.from_batches(batches, schema=rows.schema)


def json_round_trip(rows: pa.Table) -> pa.Table:
    fields = from_arrow(rows.schema).fields
    batches = json_lines.decoded(io.BytesIO(b"".join(json_lines.encoded(rows, fields))), fields)
    return pa.Table.from_batches(batches, schema=rows.schema)


def orc_round_trip(rows: pa.Table) -> pa.Table:
    fields = from_arrow(rows.schema).fields
    out = io.BytesIO()
    encoder = orc_stripes.OrcEncoder(out, fields, "zstd")
    encoder.write(rows)
    encoder.close()
    return pa.Table.from_batches(orc_stripes.decoded(pa.BufferReader(out.getvalue()), fields), schema=rows.schema)


@given(ROWS, st.booleans())
def test_rows_come_back_from_csv(rows: list[tuple[Any, ...]], header: bool) -> None:
    expected = table(rows)
    same(csv_round_trip(expected, header=header), expected)


@given(ROWS)
def test_rows_come_back_from_json(rows: list[tuple[Any, ...]]) -> None:
    same(json_round_trip(table(rows)), table(rows))


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.dictionaries(st.text(max_size=3), LONGS))))))
def test_nested_values_come_back_from_json(values: list[Any]) -> None:
    kind = pa.list_(pa.map_(pa.string(), pa.int64()))
    pairs = [None if one is None else [None if m is None else list(m.items()) for m in one] for one in values]
    rows = pa.table({"v": pa.array(pairs, kind), "w": pa.array([{"x": one} for one in pairs], pa.struct({"x": kind}))})
    rows = rows.cast(pa.schema([pa.field(f.name, f.type) for f in rows.schema]))
    found = json_round_trip(rows)
    assert found.to_pylist() == rows.to_pylist()
    assert json_round_trip(rows.slice(1)).to_pylist() == rows.slice(1).to_pylist()


def test_rows_come_back_from_orc() -> None:
    rows = pa.table(
        {
            "n": pa.array([1, None], pa.int64()),
            "s": ["", None],
            "t": pa.array([datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC), None], pa.timestamp("us", "UTC")),
            "z": pa.array([datetime.datetime(1500, 1, 1), None], pa.timestamp("us")),
            "e": pa.array([Decimal("-1.50"), None], pa.decimal128(20, 2)),
            "l": pa.array([[1, None], None], pa.list_(pa.field("element", pa.int32()))),
        }
    )
    assert orc_round_trip(rows).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("start", range(6))
def test_slices_of_nested_values_come_back_from_every_format(start: int) -> None:
    structs = [{"a": 1, "b": None}, None, {"a": None, "b": "x"}, {"a": 5, "b": "y"}, None, {"a": 7, "b": "z"}]
    rows = pa.table(
        {
            "s": pa.array(structs, pa.struct({"a": pa.int32(), "b": pa.string()})),
            "d": pa.array([one and {"x": one} for one in structs], pa.struct({"x": pa.struct({"a": pa.int32()})})),
            "l": pa.array([[one] for one in structs], pa.list_(pa.struct({"b": pa.string()}))),
            "m": pa.array([[("k", 1)], [], None, [("z", None)], None, []], pa.map_(pa.string(), pa.int32())),
        }
    ).slice(start, 2)
    assert orc_round_trip(rows).to_pylist() == json_round_trip(rows).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    "value",
    [
        pa.array([datetime.date(1582, 10, 14)]),
        pa.array([datetime.datetime(1899, 12, 31, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC")),
        pa.array([datetime.datetime(2300, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC")),
        pa.array([{"x": datetime.date(1, 1, 1)}]),
        pa.array([{"x": None}, {"x": {"a": 7}}]),
        pa.array([[{"x": None}, {"x": {"a": 7}}]]),
        pa.array([[datetime.date(1, 1, 1)]], pa.list_(pa.date32())),
    ],
)
def test_what_orc_would_give_back_as_something_else_is_refused(value: pa.Array) -> None:
    with pytest.raises(InvalidInput, match="ORC"):
        orc_round_trip(pa.table({"v": value}))


def test_moments_beyond_what_python_knows_are_written_and_read() -> None:
    days = pa.array([-800_000, 3_000_000], pa.int32()).cast(pa.date32())
    moments = pa.array([-70_000_000_000_000_000, 260_000_000_000_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    rows = pa.table({"d": days, "t": moments})
    for found in (csv_round_trip(rows), json_round_trip(rows)):
        assert found["d"].cast(pa.int32()).equals(rows["d"].cast(pa.int32()))
        assert found["t"].cast(pa.int64()).equals(rows["t"].cast(pa.int64()))


def test_a_csv_column_that_is_alone_has_no_empty_lines() -> None:
    rows = pa.table({"n": pa.array([1, None, 3])})
    same(csv_round_trip(rows), rows)
    with pytest.raises(InvalidInput, match="null"):
        csv_round_trip(pa.table({"s": ["a", None]}))


@pytest.mark.parametrize("text", [b"{", b'{"n": 1} x', b"\xff\n"])
def test_what_is_no_json_is_a_broken_file(text: bytes) -> None:
    fields = from_arrow(pa.schema({"n": pa.int64()})).fields
    with pytest.raises(BrokenDataFile):
        list(json_lines.decoded(io.BytesIO(text), fields))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), '"1"'),
        (pa.int64(), "1.0"),
        (pa.int64(), "99999999999999999999"),
        (pa.float64(), '"x"'),
        (pa.float64(), "1e400"),
        (pa.float32(), "1e300"),
        (pa.bool_(), "1"),
        (pa.binary(), '"?"'),
        (pa.list_(pa.int64()), "{}"),
        (pa.decimal128(5, 2), "1.239"),
        (pa.decimal128(5, 2), "12345"),
        (pa.decimal128(5, 2), "1e-999"),
        (pa.decimal128(5, 2), "1e-999999999"),
        (pa.decimal128(5, 2), "9" * 400),
        (pa.decimal128(38, 0), "9" * 39),
        (pa.decimal128(38, 18), "1e30"),
        (pa.decimal128(38, 18), "1" + "0" * 30),
        (pa.date32(), '"5881580-07-12"'),
        (pa.date32(), '"-5877641-06-22"'),
        (pa.timestamp("us"), '"294247-01-10T04:00:54.775808"'),
        (pa.timestamp("us", "UTC"), '"294247-01-10T04:00:54.775807-00:01"'),
        (pa.timestamp("us", "UTC"), "5"),
        (pa.timestamp("us"), '"2024-01-01T00:00:00Z"'),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1, "a": 2}'),
        (pa.string(), '"\\ud800"'),
    ],
)
def test_json_values_of_another_type_are_refused_with_their_line(kind: pa.DataType, value: str) -> None:
    fields = from_arrow(pa.schema({"v": kind})).fields
    with pytest.raises(BrokenDataFile, match="line 2: v: "):
        list(json_lines.decoded(io.BytesIO(f'{{"v": null}}\n{{"v": {value}}}'.encode()), fields))


def test_a_string_column_takes_any_json_as_its_text() -> None:
    schema = pa.schema({"s": pa.string(), "t": pa.list_(pa.struct({"u": pa.string()}))})
    lines = b'{"s": {"a": [1, "x"]}}\n{"s": 1.50}\n{"s": true, "t": [{"u": [ 1]}]}'
    found = pa.Table.from_batches(json_lines.decoded(io.BytesIO(lines), from_arrow(schema).fields))
    assert found["s"].to_pylist() == ['{"a": [1, "x"]}', "1.50", "true"]
    assert found["t"].to_pylist()[2] == [{"u": "[ 1]"}]


def test_numbers_that_json_lacks_are_spelt_as_spark_spells_them() -> None:
    rows = pa.table({"f": [math.nan, math.inf, -math.inf]})
    text = b"".join(json_lines.encoded(rows, from_arrow(rows.schema).fields))
    assert text == b'{"f":"NaN"}\n{"f":"Infinity"}\n{"f":"-Infinity"}\n'


def test_formats_are_told_by_names() -> None:
    names = {"a/part-0.snappy.parquet": "parquet", "x.CSV.gz": "csv", "y.json": "json", "z.zstd.orc": "orc"}
    assert {name: format_of(name) for name in names} == names
    assert format_of("README") is None
    assert {FileFormat(name=name).extension for name in FORMATS} == {".snappy.parquet", ".csv", ".json", ".snappy.orc"}
    with pytest.raises(InvalidArgument, match="avro"):
        FileFormat(name="avro")


def test_shapes_are_named_by_their_content_and_unite() -> None:
    one = Shape.of(FileFormat(name="csv"), from_arrow(pa.schema({"a": pa.int64(), "void": pa.null()})))
    again = Shape.from_json(one.to_json(), file="x")
    assert (again, again.id, again.columns.names) == (one, one.id, ("a",))
    other = Shape.of(FileFormat(name="csv"), from_arrow(pa.schema({"A": pa.int64(), "b": pa.string()})))
    assert united([one, other]).names == ("a", "b")
    with pytest.raises(BrokenDataFile):
        Shape.from_json(b"{}", file="x")
    assert [is_hidden(path) for path in ("_x/a", "a/.b", "_p=1/a", "a/b", "_SUCCESS")] == [
        True,
        True,
        False,
        False,
        True,
    ]
