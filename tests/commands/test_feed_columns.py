"""Columns that are called as the change feed's own: any column where the feed is off, refused where it is on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table, errors
from lakeseal.spark.failures import recovered

ON = {"delta.enableChangeDataFeed": "true"}
NAMES = ["_change_type", "_commit_version", "_commit_timestamp", "_Change_Type"]
KINDS = pa.table({"id": [1, 2, 3], "_change_type": ["insert", None, "delete"]})


def kinds(table: Table) -> dict[int, Any]:
    return {row["id"]: row["_change_type"] for row in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("through", ["arrow", pytest.param("spark", marks=pytest.mark.spark)])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_where_the_feed_is_off_the_column_is_one_like_any_other(
    tmp_path: Path, through: str, vectors: str, request: pytest.FixtureRequest
) -> None:
    spark = request.getfixturevalue("spark") if through == "spark" else None
    table = Table(tmp_path / "table")
    table.write(KINDS.slice(0, 0), properties={"delta.enableDeletionVectors": vectors})
    table.write(KINDS if spark is None else spark.createDataFrame(KINDS))
    assert kinds(table) == {1: "insert", 2: None, 3: "delete"}
    table.update({"id": "id + 10"}, "id < 3", spark=spark)
    table.delete("id = 3", spark=spark)
    assert kinds(table) == {11: "insert", 12: None}
    news = pa.table({"id": pa.array([11, 4], pa.int64()), "_change_type": ["m", "n"]})
    merge = table.merge(news if spark is None else spark.createDataFrame(news), "t.id = s.id")
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    table.optimize()
    assert kinds(table) == {11: "m", 12: None, 4: "n"}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_cannot_have_the_column_and_the_feed(tmp_path: Path, name: str) -> None:
    data = pa.table({"id": [1], name: ["x"]})
    with pytest.raises(errors.SchemaMismatch) as caught:
        lakeseal.create(tmp_path / "created", data.schema, properties=ON)
    assert caught.value.column == name
    with pytest.raises(errors.SchemaMismatch):
        Table(tmp_path / "written").write(data, properties=ON)
    off = Table(tmp_path / "off")
    off.write(data)
    with pytest.raises(errors.SchemaMismatch):
        off.set_properties(ON)
    on = Table(tmp_path / "on")
    on.write(data.select(["id"]), properties=ON | {"delta.columnMapping.mode": "name"})
    for wrong in (
        lambda: on.add_columns(data.schema.remove(0)),
        lambda: on.rename_column("id", name),
        lambda: on.write(data),
        lambda: on.write(data, merge_schema=True),
        lambda: on.write(data, mode="overwrite", overwrite_schema=True),
        lambda: on.merge(data, "t.id = s.id", merge_schema=True).when_matched_update("*").execute(),
    ):
        with pytest.raises(errors.SchemaMismatch):
            wrong()
    assert (off.version(), on.version()) == (0, 0)
    assert [path.name for path in (tmp_path / "on").glob("*.parquet")] == [on.files()["path"][0].as_py()]


@pytest.mark.spark
@pytest.mark.parametrize("merge_schema", [False, True])
def test_a_table_with_the_feed_refuses_the_column_from_spark(spark: Any, tmp_path: Path, merge_schema: bool) -> None:
    lakeseal.register(spark)
    on = Table(tmp_path / "on")
    on.write(KINDS.select(["id"]), properties=ON)
    place = f"delta.`{on.uri}`"
    frame = spark.createDataFrame(KINDS)
    writer = frame.write.format("lakeseal").option("mergeSchema", merge_schema)
    merge = on.merge(frame, "t.id = s.id", merge_schema=merge_schema)
    wrong: list[Callable[[], object]] = [
        lambda: on.write(frame, merge_schema=merge_schema),
        lambda: on.write(frame, mode="overwrite", overwrite_schema=True),
        lambda: writer.mode("append").save(on.uri),
        lambda: writer.mode("overwrite").option("overwriteSchema", True).save(on.uri),
        lambda: lakeseal.sql(f"ALTER TABLE {place} ADD COLUMN (_change_type STRING)", spark),
        lambda: stream_into(on, frame, tmp_path, mergeSchema=merge_schema),
    ]
    if merge_schema:
        wrong += [
            lambda: merge.when_matched_update("*").execute(),
            lambda: merge.when_not_matched_insert("*").execute(),
            lambda: merge.when_matched_update({"_change_type": "s._change_type"}).execute(),
        ]
    for number, does in enumerate(wrong):
        with pytest.raises(errors.SchemaMismatch) as caught, recovered():
            does()
        assert "_change_type" in f"{caught.value} {caught.value.column}", number
    assert on.version() == 0
    off = Table(tmp_path / "off")
    off.write(KINDS)
    with pytest.raises(errors.SchemaMismatch):
        lakeseal.sql(f"ALTER TABLE delta.`{off.uri}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", spark)


@pytest.mark.spark
@pytest.mark.parametrize("way", ["batch", "stream"])
def test_a_plain_table_keeps_the_column_by_format(spark: Any, tmp_path: Path, way: str) -> None:
    lakeseal.register(spark)
    table, frame = Table(tmp_path / "plain"), spark.createDataFrame(KINDS)
    for _ in range(2):  # creates the table, then appends to it
        if way == "batch":
            frame.write.format("lakeseal").mode("append").save(table.uri)
        else:
            stream_into(table, frame, tmp_path)
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [row for row in KINDS.to_pylist() for _ in range(2)]


def stream_into(table: Table, frame: Any, place: Path, **options: Any) -> None:
    """The rows once more, by a stream."""
    frame.write.mode("append").parquet(str(place / "rows"))
    stream = frame.sparkSession.readStream.schema(frame.schema).parquet(str(place / "rows"))
    writer = stream.writeStream.format("lakeseal").option("checkpointLocation", str(place / "checkpoint"))
    assert writer.options(**options).trigger(availableNow=True).start(table.uri).awaitTermination(120)


def test_in_a_struct_the_name_is_free(tmp_path: Path) -> None:
    table = Table(tmp_path / "table")
    table.write(pa.table({"id": [1], "s": [{"_change_type": "x"}]}), properties=ON)
    table.update({"id": "2"})
    assert table.to_arrow().to_pylist() == [{"id": 2, "s": {"_change_type": "x"}}]
    assert len(table.changes(1)) == 2


@pytest.fixture
def both(tmp_path: Path) -> Table:
    """A table that another writer gave the column and the feed."""
    table = Table(tmp_path / "table")
    table.write(KINDS)
    table.set_properties({"a": "b"})
    commit = tmp_path / "table" / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= ON
    feature = {"minReaderVersion": 1, "minWriterVersion": 4}
    commit.write_text("\n".join(json.dumps(line) for line in [*lines, {"protocol": feature}]) + "\n")
    return Table(tmp_path / "table")


def test_a_table_that_has_both_is_read_and_its_feed_is_refused_by_name(both: Table) -> None:
    assert kinds(both) == {1: "insert", 2: None, 3: "delete"}
    with pytest.raises(errors.SchemaMismatch) as caught:
        both.changes(1)
    assert caught.value.column == "_change_type"


def test_a_table_that_has_both_takes_no_rows_until_one_of_them_goes(both: Table) -> None:
    for wrong in (lambda: both.write(KINDS), lambda: both.update({"id": "9"}, "id = 1"), lambda: both.delete("id = 1")):
        with pytest.raises(errors.SchemaMismatch):
            wrong()
    both.set_properties({"delta.enableChangeDataFeed": "false"})
    both.delete("id = 1")
    assert kinds(both) == {2: None, 3: "delete"}


@pytest.mark.spark
def test_spark_reads_a_table_that_has_both_and_is_refused_its_feed(spark: Any, both: Table) -> None:
    assert both.to_spark(spark).count() == 3
    with pytest.raises(errors.SchemaMismatch):
        both.changes_spark(spark, 1).collect()
