"""Files of ORC and Avro, and directories whose names only grow."""

from __future__ import annotations

import datetime as dt
import io
import random
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from lakeseal.errors import LakesealError, RunFailed, SchemaMismatch
from lakeseal.ingest import Dataset

AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def _rows(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": rng.randrange(2**40),
            "name": rng.choice([None, "", "é", "name"]),
            "price": rng.choice([None, Decimal("1.50"), Decimal("-9999999.99")]),
            "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=rng.randrange(10**12)),
            "tags": [str(n) for n in range(rng.randrange(3))],
        }
        for _ in range(count)
    ]


def _avro(rows: list[dict[str, Any]], codec: str = "deflate") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, AVRO, rows, codec=codec)
    return out.getvalue()


def _orc(table: pa.Table) -> bytes:
    out = io.BytesIO()
    orc.write_table(table, out)
    return out.getvalue()


def _pipeline(lake: Any, **source: Any) -> Any:
    options = {"schema": None, **source}
    return lake.pipeline(Dataset(name="t", source=lake.files(**options), target=lake.to_table()))


def _found(lake: Any) -> list[dict[str, Any]]:
    return sorted(lake.table().to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_rows_of_random_files_arrive_as_they_were_written(lake: Any, form: str) -> None:
    rng = random.Random(form)
    pipeline, written = _pipeline(lake, format=form), []
    for run in range(3):
        rows = _rows(rng, rng.randrange(1, 200))
        written += rows
        schema = pa.schema(
            [
                ("id", pa.int64()),
                ("name", pa.string()),
                ("price", pa.decimal128(9, 2)),
                ("at", pa.timestamp("us", "UTC")),
                ("tags", pa.list_(pa.string())),
            ]
        )
        data = _avro(rows) if form == "avro" else _orc(pa.Table.from_pylist(rows, schema=schema))
        lake.store("landing").put(f"{run}.{form}", data)
        pipeline.run()
    assert _found(lake) == sorted(written, key=lambda row: row["id"])


def test_columns_that_a_file_lacks_are_null_and_others_are_left_out(lake: Any) -> None:
    pipeline = _pipeline(lake, format="orc", schema="id long, more string")
    lake.store("landing").put("1.orc", _orc(pa.table({"id": [1], "name": ["x"]})))
    pipeline.run()
    assert _found(lake) == [{"id": 1, "more": None}]


@pytest.mark.parametrize("form", ["avro", "orc"])
def test_a_file_that_is_cut_off_is_told_by_its_name(lake: Any, form: str) -> None:
    data = _avro(_rows(random.Random(1), 500)) if form == "avro" else _orc(pa.table({"id": [1, 2]}))
    pipeline = _pipeline(lake, format=form, schema="id long")
    lake.store("landing").put(f"1.{form}", data[: len(data) // 2])
    result = pipeline.run(check=False)
    assert result.state == "failed"
    assert result.dataset("t").error["file"] == f"1.{form}"
    assert pipeline.watermarks() == []


def test_a_value_of_avro_that_is_none_of_the_column_is_set_aside(lake: Any) -> None:
    source = lake.files(format="avro", schema="id long, name long")
    pipeline = lake.pipeline(Dataset(name="t", source=source, target=lake.to_table(), on_bad_record="error_table"))
    rows = _rows(random.Random(2), 3)
    for row, name in zip(rows, (None, "x", None), strict=True):
        row["name"] = name
    lake.store("landing").put("1.avro", _avro(rows))
    pipeline.run()
    assert len(_found(lake)) == 2
    (error,) = lake.table("t_errors").to_arrow().to_pylist()
    assert (error["partition"], error["position"]) == ("1.avro", "row 2")


def test_a_value_of_orc_that_its_column_cannot_have_is_set_aside(lake: Any) -> None:
    """One of them failed the whole file, and with it all others of the run."""
    source = lake.files(format="orc", schema="id int, price decimal(9, 2), name string")
    pipeline = lake.pipeline(Dataset(name="t", source=source, target=lake.to_table(), on_bad_record="error_table"))
    prices = pa.array([Decimal("1.50"), Decimal("1.505"), Decimal("2.25"), Decimal("3.00")], pa.decimal128(12, 3))
    names = pa.array([b"a", b"b", b"c", b"\xff"], pa.binary()).view(pa.string())
    lake.store("landing").put("1.orc", _orc(pa.table({"id": [1, 2, 2**40, 4], "price": prices, "name": names})))
    pipeline.run()
    assert _found(lake) == [{"id": 1, "price": Decimal("1.50"), "name": "a"}]
    told = lake.table("t_errors").to_arrow().sort_by("position").to_pylist()
    assert [one["position"] for one in told] == ["row 2", "row 3", "row 4"]
    assert "UTF-8" in told[2]["reason"]


def test_where_names_only_grow_one_watermark_is_all_that_is_kept(lake: Any) -> None:
    pipeline = _pipeline(lake, ordered=True, schema="id long")
    for n in range(5):
        lake.land(f"2026/{n:03}.json", [{"id": n}])
    assert pipeline.run().rows == 5
    (mark,) = pipeline.watermarks()
    assert (mark.partition, mark.value) == ("", {"key": "2026/004.json"})
    assert pipeline.run().state == "nothing_new"
    lake.land("2026/005.json", [{"id": 5}])
    lake.land("2026/000-late.json", [{"id": 100}])
    lake.land("2026/001.json", [{"id": 101}])
    assert pipeline.run().rows == 1, "what comes with a smaller name is not looked at"
    assert sorted(lake.ids().elements()) == [0, 1, 2, 3, 4, 5]


def test_a_bad_record_of_an_ordered_directory_names_its_file(lake: Any) -> None:
    pipeline = _pipeline(lake, ordered=True, schema="id long")
    lake.land("1.json", [{"id": 1}])
    lake.land("2.json", ["torn"])
    with pytest.raises(RunFailed, match=r"2\.json, line 1"):
        pipeline.run()
    assert pipeline.watermarks() == []
    lake.land("2.json", [{"id": 2}])
    assert pipeline.run().rows == 2


def test_a_file_that_may_still_grow_holds_up_what_comes_behind_it(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    pipeline = _pipeline(lake, ordered=True, schema="id long", settle_seconds=3600)
    assert pipeline.run().state == "nothing_new"


def test_ordered_files_may_be_inferred(lake: Any) -> None:
    pipeline = lake.pipeline(
        Dataset(
            name="t", source=lake.files(schema=None, infer=True, ordered=True), target=lake.to_table(merge_schema=True)
        )
    )
    for n in range(3):
        lake.land(f"{n}.json", [{"id": n, f"c{n}": n}])
        assert pipeline.run().rows == 1
    assert _found(lake)[2] == {"id": 2, "_rescued": None, "c0": None, "c1": None, "c2": 2}
    assert {mark.partition for mark in pipeline.watermarks()} == {"", "_schema"}


def _avro_file(lake: Any, name: str, fields: list[tuple[str, Any]], rows: list[dict[str, Any]]) -> None:
    out = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    fastavro.writer(out, fastavro.parse_schema(schema), rows)
    lake.store("landing").put(name, out.getvalue())


def _read(source: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    chunks = [chunk for unit in source.plan({}).units for chunk in source.read(unit)]
    return [row for chunk in chunks for row in chunk.rows.to_pylist()], [bad for chunk in chunks for bad in chunk.bad]


def _logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


_DATE, _DECIMAL = _logical("int", "date"), _logical("bytes", "decimal", precision=9, scale=3)
_MICROS, _NANOS = _logical("long", "timestamp-micros"), _logical("long", "timestamp-nanos")
_NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

OF_ANOTHER_KIND = [
    ("double", 9.99, "long"),
    ("double", 9.0, "int"),
    ("double", 1e300, "float"),
    ("double", 0.1, "float"),
    ("double", 1.0, "date"),
    ("double", 1.5, "decimal(5,2)"),
    ("long", 2**53 + 1, "double"),
    ("long", 2**24 + 1, "float"),
    ("long", 2**40, "int"),
    ("int", 7, "date"),
    ("int", 7, "timestamp"),
    ("int", 1, "boolean"),
    ("long", 7, "timestamp_ntz"),
    ("boolean", True, "double"),
    ("boolean", True, "long"),
    ("boolean", True, "string"),
    ("string", "7", "long"),
    ("string", "2026-01-01", "date"),
    ("bytes", b"x", "array<long>"),
    ("bytes", b"\xff", "string"),
    (_DECIMAL, Decimal("1.234"), "int"),
    (_DECIMAL, Decimal("1.234"), "decimal(5,2)"),
    (_DECIMAL, Decimal("1.500"), "double"),
    (_DATE, dt.date(2026, 1, 1), "timestamp"),
    (_MICROS, _NOON, "date"),
    (_MICROS, _NOON, "long"),
    (_logical("string", "uuid"), uuid.UUID(int=5), "long"),
    (_logical("int", "time-millis"), dt.time(1), "timestamp"),
    ({"type": "array", "items": "double"}, [1.0, 9.99], "array<long>"),
    ({"type": "map", "values": "double"}, {"a": 9.99}, "map<string, long>"),
    (["null", "int", "string"], "7", "long"),
]


@pytest.mark.parametrize(("stored", "value", "kind"), OF_ANOTHER_KIND)
def test_a_value_of_avro_that_is_another_one_in_its_column_is_set_aside(
    lake: Any, stored: Any, value: Any, kind: str
) -> None:
    """Arrow makes Python's objects fit: 9.99 was 9."""
    fields = [("id", "long"), ("v", stored if isinstance(stored, list) else ["null", stored])]
    _avro_file(lake, "1.avro", fields, [{"id": 1, "v": value}, {"id": 2, "v": None}])
    rows, bad = _read(lake.files(format="avro", schema=f"id long, v {kind}"))
    assert (rows, [one.position for one in bad]) == ([{"id": 2, "v": None}], ["row 1"])


THE_SAME = [
    ("int", 7, "long", 7),
    ("long", 7, "byte", 7),
    ("int", 7, "double", 7.0),
    ("long", 2**53, "double", 2.0**53),
    ("long", 7, "decimal(20,3)", Decimal("7.000")),
    ("float", 1.5, "double", 1.5),
    ("string", "é", "binary", "é".encode()),
    ("bytes", "é".encode(), "string", "é"),
    (_DECIMAL, Decimal("-1.230"), "decimal(5,2)", Decimal("-1.23")),
    (_DATE, dt.date(2026, 1, 1), "timestamp_ntz", dt.datetime(2026, 1, 1)),
    (_logical("long", "timestamp-millis"), _NOON, "timestamp", _NOON),
    (_logical("long", "local-timestamp-micros"), dt.datetime(1900, 1, 1), "timestamp_ntz", dt.datetime(1900, 1, 1)),
    (_NANOS, 1_001, "timestamp", dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)),
    (_NANOS, -1, "timestamp_ntz", dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    (_NANOS, 1_001, "long", 1_001),
    (_logical("string", "uuid"), uuid.UUID(int=5), "string", str(uuid.UUID(int=5))),
    ({"type": "fixed", "name": "f", "size": 2}, b"ab", "binary", b"ab"),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, "A", "string", "A"),
    ({"type": "array", "items": ["null", "int"]}, [1, None], "array<long>", [1, None]),
    ({"type": "map", "values": "int"}, {"a": 1, "b": 2}, "map<string, long>", [("a", 1), ("b", 2)]),
    (["null", "int", "string"], 7, "long", 7),
    (["null", "int", "long"], 2**40, "long", 2**40),
]


@pytest.mark.parametrize(("stored", "value", "kind", "found"), THE_SAME)
def test_a_value_of_avro_is_the_same_one_in_a_wider_column(
    lake: Any, stored: Any, value: Any, kind: str, found: Any
) -> None:
    fields = [("id", "long"), ("v", stored if isinstance(stored, list) else ["null", stored])]
    _avro_file(lake, "1.avro", fields, [{"id": 1, "v": value}, {"id": 2, "v": None}])
    rows, bad = _read(lake.files(format="avro", schema=f"id long, v {kind}"))
    assert (rows, bad) == ([{"id": 1, "v": found}, {"id": 2, "v": None}], [])


def test_columns_that_the_first_avro_file_taught_take_no_other_values_from_the_next(lake: Any) -> None:
    pipeline = lake.pipeline(
        Dataset(
            name="t",
            source=lake.files(format="avro", schema=None),
            target=lake.to_table(),
            on_bad_record="error_table",
        )
    )
    _avro_file(lake, "1.avro", [("id", "long"), ("price", "long")], [{"id": 1, "price": 9}])
    _avro_file(lake, "2.avro", [("id", "long"), ("price", _DECIMAL)], [{"id": 2, "price": Decimal("9.990")}])
    pipeline.run()
    assert _found(lake) == [{"id": 1, "price": 9}]
    (error,) = lake.table("t_errors").to_arrow().to_pylist()
    assert (error["partition"], error["position"]) == ("2.avro", "row 1")
    assert "9.990" in error["record"]


def test_moments_of_avro_that_python_does_not_have_are_read(lake: Any) -> None:
    lake.store("landing").put("1.avro", _avro_of_numbers("timestamp-micros", [2**58, -(2**58)]))
    source = lake.files(format="avro", schema="at timestamp")
    chunks = [chunk for unit in source.plan({}).units for chunk in source.read(unit)]
    assert chunks[0].rows["at"].cast(pa.int64()).to_pylist() == [2**58, -(2**58)]


def _avro_of_numbers(meaning: str, numbers: list[int]) -> bytes:
    """Fastavro writes the numbers, and takes the meaning from the header."""
    out = io.BytesIO()
    kind = {"type": "long", "logicalType": meaning}
    fastavro.writer(
        out,
        {"type": "record", "name": "r", "fields": [{"name": "at", "type": kind}]},
        [{"at": number} for number in numbers],
    )
    return out.getvalue()


def test_fields_of_avro_are_found_in_any_case_and_first_as_they_are_spelt(lake: Any) -> None:
    inner = {"type": "record", "name": "s", "fields": [{"name": "Aa", "type": "long"}, {"name": "b", "type": "string"}]}
    _avro_file(lake, "1.avro", [("Id", "long"), ("S", inner)], [{"Id": 1, "S": {"Aa": 5, "b": "x"}}])
    source = lake.files(format="avro", schema="id long, s struct<aa: long, B: string>")
    assert _read(source) == ([{"id": 1, "s": {"aa": 5, "B": "x"}}], [])
    _avro_file(lake, "1.avro", [("ID", "long"), ("id", "long")], [{"ID": 1, "id": 2}])
    assert _read(lake.files(format="avro", schema="id long")) == ([{"id": 2}], [])
    with pytest.raises(SchemaMismatch, match="differ in case"):
        _read(lake.files(format="avro", schema="Id long"))
    inner = {"type": "record", "name": "s", "fields": [{"name": "Aa", "type": "long"}, {"name": "aA", "type": "long"}]}
    _avro_file(lake, "1.avro", [("s", inner)], [{"s": {"Aa": 5, "aA": 6}}])
    with pytest.raises(SchemaMismatch, match="differ in case"):
        _read(lake.files(format="avro", schema="s struct<aa: long>"))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_a_damaged_file_of_avro_is_told_as_one(lake: Any, codec: str) -> None:
    """Or read: Avro has no checksums."""
    whole, chance = _avro(_rows(random.Random(codec), 20), codec), random.Random(codec)
    source, refused = lake.files(format="avro", schema="id long, name string, price decimal(9, 2), at timestamp"), 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        lake.store("landing").put("1.avro", bytes(data))
        try:
            _read(source)
        except LakesealError:
            refused += 1
    assert refused > 50
