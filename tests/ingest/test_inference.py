"""Columns that files have where nobody says so: as Spark learns them, and what becomes of them as files come."""

from __future__ import annotations

import io
import json
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import InvalidArgument, RunFailed
from lakeseal.ingest import Dataset, FilesSource
from lakeseal.ingest.sources.inference import Inference

WIDENING = {"delta.enableTypeWidening": "true"}


def _files(lake: Any, form: str = "json", **options: Any) -> FilesSource:
    return lake.files(**{"format": form, "schema": None, "infer": True, **options})  # type: ignore[no-any-return]


def _pipeline(lake: Any, source: FilesSource, **target: Any) -> Any:
    return lake.pipeline(
        Dataset(name="t", source=source, target=lake.to_table(merge_schema=True, **target), on_bad_record="error_table")
    )


def _types(lake: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in lake.table().snapshot().schema.fields}


def _rows(lake: Any) -> list[dict[str, Any]]:
    return lake.table().to_arrow().sort_by("id").to_pylist()  # type: ignore[no-any-return]


def test_new_columns_come_behind_and_what_does_not_fit_is_rescued(lake: Any) -> None:
    pipeline = _pipeline(lake, _files(lake))
    lake.land("1.json", [{"id": 1, "n": 5, "who": {"name": "Ada"}}])
    pipeline.run()
    assert _types(lake) == {"id": "bigint", "n": "bigint", "who": "struct<name:string>", "_rescued": "string"}
    lake.land(
        "2.json",
        [
            {"id": 2, "n": 1.5, "who": {"name": "Bo", "age": 7}, "more": True},
            {"id": 3, "n": "six", "who": "Cy"},
            {"id": 4, "n": None, "who": None},
        ],
    )
    assert pipeline.run().rows == 3
    assert _types(lake)["who"] == "struct<name:string,age:bigint>"
    assert _types(lake)["more"] == "boolean"
    assert _rows(lake) == [
        {"id": 1, "n": 5, "who": {"name": "Ada", "age": None}, "_rescued": None, "more": None},
        {"id": 2, "n": None, "who": {"name": "Bo", "age": 7}, "_rescued": '{"n":1.5}', "more": True},
        {"id": 3, "n": None, "who": None, "_rescued": '{"n":"six","who":"Cy"}', "more": None},
        {"id": 4, "n": None, "who": None, "_rescued": None, "more": None},
    ]
    lake.land("3.json", [{"id": 5, "n": 7}])
    pipeline.run()
    assert _rows(lake)[-1] == {"id": 5, "n": 7, "who": None, "_rescued": None, "more": None}, "what is known stays"


def test_new_columns_are_rescued_where_the_pipeline_says_so(lake: Any) -> None:
    pipeline = _pipeline(lake, _files(lake, infer=Inference(new_columns="rescue", rescued="rest")))
    lake.land("1.json", [{"id": 1, "s": {"a": 1}}])
    pipeline.run()
    lake.land("2.json", [{"id": 2, "s": {"a": 1, "b": 2}, "x": [1]}, {"id": 3, "s": {"a": 2}}])
    pipeline.run()
    assert [(row["s"], row["rest"]) for row in _rows(lake)] == [
        ({"a": 1}, None),
        ({"a": 1}, '{"s":{"a": 1, "b": 2},"x":[1]}'),
        ({"a": 2}, None),
    ]


def test_a_record_that_is_none_teaches_nothing_and_is_set_aside(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}, "{torn", '{"id": 2, "id": 3}'])
    result = _pipeline(lake, _files(lake)).run()
    assert (result.rows, result.dataset("t").bad_records) == (1, 2)


def test_a_column_of_csv_comes_and_a_text_that_is_no_number_is_rescued(lake: Any) -> None:
    pipeline = _pipeline(lake, _files(lake, "csv"))
    lake.land("1.csv", ["id,n,day", "1,5,2026-01-01"])
    pipeline.run()
    lake.land("2.csv", ["day,id,more", "2026-01-02,2,x", "soon,3,"])
    pipeline.run()
    assert _types(lake) == {"id": "bigint", "n": "bigint", "day": "date", "_rescued": "string", "more": "string"}
    assert [(row["id"], row["n"], str(row["day"]), row["more"], row["_rescued"]) for row in _rows(lake)] == [
        (1, 5, "2026-01-01", None, None),
        (2, None, "2026-01-02", "x", None),
        (3, None, "None", None, '{"day":"soon"}'),
    ]


def _parquet(lake: Any, name: str, **columns: pa.Array) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    lake.store("landing").put(name, sink.getvalue())


def test_parquet_columns_grow_where_the_table_may_and_are_rescued_where_not(lake: Any) -> None:
    pipeline = _pipeline(lake, _files(lake, "parquet", infer=Inference(widen=True)), properties=WIDENING)
    _parquet(lake, "1.parquet", id=pa.array([1]), n=pa.array([5], pa.int32()), s=pa.array(["a"]))
    pipeline.run()
    _parquet(lake, "2.parquet", id=pa.array([2]), n=pa.array([2**40]), s=pa.array([7]), x=pa.array([Decimal("1.5")]))
    pipeline.run()
    assert _types(lake)["n"] == "bigint"
    assert _rows(lake) == [
        {"id": 1, "n": 5, "s": "a", "_rescued": None, "x": None},
        {"id": 2, "n": 2**40, "s": None, "_rescued": '{"s":7}', "x": Decimal("1.5")},
    ]


def test_a_schema_that_is_given_is_what_is_known_first(lake: Any) -> None:
    lake.land("1.json", [{"id": 1, "at": "2026-01-01T00:00:00Z"}, {"id": 2, "at": "later", "n": 1}])
    _pipeline(lake, _files(lake, schema="id int, at timestamp")).run()
    assert _types(lake) == {"id": "int", "at": "timestamp", "n": "bigint", "_rescued": "string"}
    assert [row["_rescued"] for row in _rows(lake)] == [None, '{"at":"later"}']


def test_numbers_that_json_does_not_have_are_rescued_as_texts(lake: Any) -> None:
    pipeline = _pipeline(lake, _files(lake, "parquet"))
    for name, values in (("1", [1]), ("2", [math.nan, -math.inf, 0.5])):
        _parquet(lake, f"{name}.parquet", id=pa.array(range(int(name), int(name) + len(values))), x=pa.array(values))
        pipeline.run()
    assert [row["_rescued"] for row in _rows(lake)] == [None, '{"x":"NaN"}', '{"x":"-Infinity"}', '{"x":0.5}']


def test_names_that_differ_in_case_and_keys_that_are_there_twice_are_not_lost(lake: Any) -> None:
    pipeline = _pipeline(lake, _files(lake))
    lake.land("1.json", [{"id": 1, "s": {"a": 1}}])
    pipeline.run()
    lake.land("2.json", [{"id": 2, "s": {"A": 2}}, '{"new":{"c":1,"c":2}}'])
    pipeline.run()
    assert _rows(lake) == [
        {"id": 1, "s": {"a": 1}, "_rescued": None},
        {"id": 2, "s": {"a": None}, "_rescued": '{"s":{"A": 2}}'},
    ]
    assert lake.table("t_errors").to_arrow()["record"].to_pylist() == ['{"new":{"c":1,"c":2}}']


def test_what_is_known_moves_with_the_rows_only(lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    lake.pipeline(Dataset(name="t", source=_files(lake), target=lake.to_table())).run()
    lake.land("2.json", [{"id": 2, "more": 1}])
    closed = lake.pipeline(Dataset(name="t", source=_files(lake), target=lake.to_table()))
    before = closed.watermarks()
    with pytest.raises(RunFailed, match="a column that the table does not have"):
        closed.run()
    assert closed.watermarks() == before
    assert _pipeline(lake, _files(lake)).run().rows == 1


def test_formats_with_columns_of_their_own_and_names_that_are_taken_are_refused(lake: Any) -> None:
    with pytest.raises(InvalidArgument, match="not inferred"):
        _files(lake, "text")
    lake.land("1.json", [{"id": 1, "_rescued": 1}])
    with pytest.raises(RunFailed, match="of their own"):
        _pipeline(lake, _files(lake)).run()


def _value(rng: random.Random, kind: str) -> Any:
    match kind:
        case "long":
            return rng.randrange(-(2**40), 2**40)
        case "double":
            return rng.choice([0.5, -1.25, 1e10])
        case "string":
            return rng.choice(["", "a", "é", "2026-01-01"])
        case "boolean":
            return rng.random() < 0.5
        case "struct":
            return {name: _value(rng, "long") for name in rng.sample("xyz", rng.randrange(1, 4))}
        case _:
            return [_value(rng, "long") for _ in range(rng.randrange(3))]


KINDS = ("long", "double", "string", "boolean", "struct", "array")


@pytest.mark.parametrize("seed", range(8))
def test_no_value_of_random_files_is_lost(lake: Any, seed: int) -> None:
    rng = random.Random(seed)
    pipeline = _pipeline(lake, _files(lake, infer=Inference(new_columns=rng.choice(["add", "rescue"]))))  # type: ignore[arg-type]
    landed: dict[int, dict[str, Any]] = {}
    for run in range(4):
        rows = []
        for _ in range(20):
            columns = rng.sample("abcdef", rng.randrange(1, 5))
            row = {name: _value(rng, rng.choice(KINDS[: 2 + run])) for name in columns}
            rows.append({"id": len(landed), **row})
            landed[len(landed)] = row
        lake.land(f"{run}.json", rows)
        pipeline.run()
    found = _rows(lake)
    assert len(found) == len(landed)
    for row in found:
        rescued = json.loads(row.pop("_rescued") or "{}")
        for name, value in landed[row["id"]].items():
            kept = row.get(name)
            if isinstance(kept, dict):
                kept = {key: one for key, one in kept.items() if one is not None}
            spelt = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            assert rescued.get(name) == value or kept == value or kept in (value, spelt), (name, value, row, rescued)


@pytest.mark.spark
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_columns_of_random_files_are_those_that_spark_infers(lake: Any, spark: Any, form: str) -> None:
    rng = random.Random(form)
    for case in range(4):
        folder = f"{form}{case}"
        source = _files(lake, form, folder=folder)
        for number in range(3):
            names = rng.sample("abcde", rng.randrange(2, 6)) if form != "csv" else list("abcde")
            rows = [_spark_row(rng, form, case, names) for _ in range(6)]
            if form == "json":
                lake.land(f"{number}.json", rows, folder)
            elif form == "csv":
                lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
                lake.land(f"{number}.csv", lines, folder)
            else:
                sink = io.BytesIO()
                pq.write_table(pa.table({name: pa.array([row.get(name) for row in rows]) for name in names}), sink)
                lake.store(folder).put(f"{number}.parquet", sink.getvalue())
        read = spark.read.option("header", True).option("inferSchema", True).option("mergeSchema", True)
        wanted = {one.name: one.dataType.simpleString() for one in read.format(form).load(source.path).schema}
        if form == "csv":  # a number that fits an int is a long here
            wanted = {name: "bigint" if kind == "int" else kind for name, kind in wanted.items()}
        found = {field.name: str(field.type) for field in source.row_schema().fields if field.name != "_rescued"}
        assert found == wanted


def _spark_row(rng: random.Random, form: str, case: int, names: list[str]) -> dict[str, Any]:
    kinds = dict(zip("abcde", random.Random(case).sample([*KINDS[:4], "long"], 5), strict=True))
    if form == "parquet":
        return {name: _value(rng, kinds[name]) for name in names}
    mixed = {name: rng.choice([kinds[name], kinds[name], "long"]) for name in names}
    return {name: _value(rng, kind) if rng.random() < 0.9 or form == "csv" else None for name, kind in mixed.items()}
