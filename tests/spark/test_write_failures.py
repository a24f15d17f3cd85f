"""Writes that fail for good, and stores that only tasks reach."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.errors import InvalidArgument, OutOfSpace, UnsupportedType
from lakeseal.spark.failures import find, noted, recovered
from lakeseal.testing.s3 import s3_server

pytestmark = pytest.mark.spark


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("making a small disk takes the right to mount one")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_changes_nothing_and_is_named(spark: Any, small_disk: Path) -> None:
    table = Table(small_disk / "t")
    table.write(spark.range(10))
    with pytest.raises(OutOfSpace) as caught:
        table.write(spark.range(0, 2_000_000, 1, 2).selectExpr("id", "uuid() AS text"), merge_schema=True)
    assert caught.value.table == table.uri
    assert "Free space" in caught.value.hint
    assert (table.version(), table.to_arrow().num_rows) == (0, 10)
    table.write(spark.range(10, 12))
    assert table.to_arrow().num_rows == 12


def test_tables_on_an_object_store_are_written_by_tasks_and_by_the_data_source(spark: Any) -> None:
    lakeseal.register(spark)
    with s3_server() as s3:
        table = Table(s3.uri("deep/t"), storage_options=s3.storage_options)
        table.write(spark.range(0, 10, 1, 2).selectExpr("id", "id % 2 AS k"), partition_by="k")
        table.write(spark.range(10, 11).selectExpr("id", "1L AS k"), mode="overwrite", replace_where="id > 7")
        options = {f"storage.{name}": value for name, value in s3.storage_options.items()}
        writer = spark.range(20, 22).selectExpr("id", "0L AS k").write.format("lakeseal").mode("append")
        writer.options(**options).save(s3.uri("deep/t"))
        assert sorted(table.to_arrow()["id"].to_pylist()) == [*range(8), 10, 20, 21]


def test_a_stream_is_not_a_frame_to_write_at_once(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InvalidArgument, match="stream"):
        Table(tmp_path / "t").write(stream)
    assert not Table(tmp_path / "t").exists()


def test_a_type_that_tables_lack_is_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedType, match="interval day") as caught:
        Table(tmp_path / "t").write(spark.sql("SELECT named_struct('i', INTERVAL '1' DAY) AS s"))
    assert caught.value.column == "s.i"
    assert not (tmp_path / "t").exists()


def test_an_error_of_ours_is_found_in_the_text_that_spark_makes_of_it() -> None:
    error = UnsupportedType("A 'quoted'\nmessage", column="a.b", hint="Do so", table="file:///t")
    with pytest.raises(UnsupportedType) as raised, noted():
        raise error
    text = f"[SPARK] Traceback …\n{raised.value}\n{raised.value.__notes__[0]}\n SQLSTATE: 38000"
    found = find(text)
    assert type(found) is UnsupportedType
    assert found.to_json() == error.to_json()
    with pytest.raises(UnsupportedType), recovered():
        raise RuntimeError(text)
    assert find("nothing of ours") is None
    assert find("lakeseal-error: {broken") is None
    with pytest.raises(KeyError), recovered():
        raise KeyError("lakeseal-error: [1]")


@pytest.mark.field_bug(38)
def test_a_stream_that_starts_anew_under_the_same_name_loses_no_row(spark: Any, tmp_path: Path) -> None:
    """Its batches count from 0 again, in the same folder and into the same table, and are other batches."""
    lakeseal.register(spark)
    source, checkpoint, uri = tmp_path / "source", tmp_path / "checkpoint", str(tmp_path / "t")

    def run(name: str, *ids: int) -> None:
        source.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), source / f"{name}.parquet")
        stream = spark.readStream.schema("id long").parquet(str(source))
        writer = stream.writeStream.format("lakeseal").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(uri).awaitTermination()

    run("first", 1, 2)
    shutil.rmtree(checkpoint)
    shutil.rmtree(source)
    run("second", 3, 4)
    assert sorted(Table(uri).to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
