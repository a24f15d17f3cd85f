"""Files of ORC and Avro, and directories whose names only grow."""

from __future__ import annotations

import datetime as dt
import io
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from lakeseal.errors import RunFailed
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
