"""What writing through Spark must do, wherever Spark runs.

Every function in `SUITE` takes a session and an empty directory, and asserts. pytest runs them on the shared session;
as a script this module runs them on a session of its own and prints one JSON object: what became of each. Those in
`ON_A_CLUSTER` need executors that are processes.

    python suite.py '{"root": "/tmp/x", "remote": "local[2]", "conf": {…}, "names": […]}'
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import logging
import math
import os
import signal
import sys
import time
import traceback
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's users know
from pyspark.sql.types import CharType, StructField, StructType, VarcharType

import lakeseal
from lakeseal import Repository, Table
from lakeseal.commands import branch_write
from lakeseal.commands.branch_write import BranchWriteCommand
from lakeseal.commands.running import run
from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.commands.write import Write, WriteCommand
from lakeseal.commit.filesystem_owner import FilesystemOwner
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import (
    AlreadyExists,
    ConstraintViolation,
    InvalidArgument,
    LakesealError,
    SchemaMismatch,
    UnsupportedExpression,
)
from lakeseal.files.file_format import FORMATS
from lakeseal.ingest import Check, Dataset, DirectoryTarget, FilesSource, Pipeline, TableTarget
from lakeseal.ingest.spark_jobs import SparkJobs
from lakeseal.log.delta_log import DeltaLog
from lakeseal.spark.arrow_batches import cut_by_rows
from lakeseal.spark.engine import SparkEngine
from lakeseal.spark.failures import recovered
from lakeseal.spark.scan import to_spark
from lakeseal.spark.schema import data_schema
from lakeseal.steps.context import StepSettings
from lakeseal.storage import StoreSpec
from lakeseal.testing.cluster import parent_of

Scenario = Callable[[SparkSession, Path], None]
SUITE: dict[str, Scenario] = {}
ON_A_CLUSTER: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SUITE[function.__name__] = function
    return function


def numbers(spark: SparkSession, start: int, end: int, tasks: int = 2) -> DataFrame:
    return spark.range(start, end, 1, tasks).selectExpr("id", "id % 3 AS k", "concat('row ', id) AS s")


def ids(table: Table, where: str | None = None) -> list[int]:
    return sorted(table.to_arrow(columns=["id"], where=where)["id"].to_pylist())


def state(table: Table) -> tuple[int, list[str]]:
    """What readers can see of a table."""
    return table.version(), sorted(map(str, table.to_arrow().to_pylist()))


def data_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts]


@scenario
def appends_add_rows_and_overwrites_replace_them(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 10))
    table.write(numbers(spark, 10, 15), user_metadata="five more")
    assert ids(table) == list(range(15))
    table.write(numbers(spark, 3, 5), mode="overwrite")
    assert ids(table) == [3, 4]
    assert ids(Table(root / "t")) == [3, 4]
    newest, before, _ = table.history()
    assert (newest["operation"], newest["operationParameters"]["mode"]) == ("WRITE", "Overwrite")
    assert (before["userMetadata"], before["operationMetrics"]["numOutputRows"]) == ("five more", "5")
    assert set(table.to_arrow(version=1)["id"].to_pylist()) == set(range(15))


@scenario
def error_and_ignore_leave_a_table_that_is_there_alone(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 4), mode="error")
    before = state(table)
    with pytest.raises(AlreadyExists):
        table.write(numbers(spark, 4, 8), mode="error")
    table.write(numbers(spark, 4, 8), mode="ignore")
    assert state(table) == before


@scenario
def replace_where_replaces_matching_rows_and_keeps_the_others_of_their_files(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 30), partition_by=["k"])
    files = table.files().num_rows
    new = numbers(spark, 0, 30).where("id BETWEEN 10 AND 14").withColumn("s", F.lit("new"))
    table.write(new, mode="overwrite", replace_where="id >= 10 AND id < 20")
    assert ids(table) == [*range(15), *range(20, 30)]
    assert ids(table, "s = 'new'") == list(range(10, 15))
    table.write(new.where("k = 1"), mode="overwrite", replace_where="k = 1")
    assert ids(table, "k = 1") == [10, 13]
    assert ids(table, "k <> 1") == [n for n in [*range(15), *range(20, 30)] if n % 3 != 1]
    assert files


@scenario
def replace_where_refuses_rows_outside_and_changes_nothing(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 10))
    before = state(table)
    with pytest.raises(ConstraintViolation, match=r"id: 7\b"):
        table.write(numbers(spark, 7, 8), mode="overwrite", replace_where="id < 5")
    assert state(table) == before


@scenario
def dynamic_partition_overwrite_replaces_the_partitions_of_its_rows(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 12), partition_by=["k"])
    table.write(numbers(spark, 100, 101), mode="overwrite", partition_overwrite="dynamic")
    assert ids(table) == sorted([n for n in range(12) if n % 3 != 1] + [100])


@scenario
def schemas_merge_or_are_replaced_when_asked_for(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 2))
    wider = numbers(spark, 2, 4).withColumn("extra", F.struct(F.lit(1).alias("a")))
    with pytest.raises(SchemaMismatch) as caught:
        table.write(wider)
    assert caught.value.column == "extra"
    table.write(wider, merge_schema=True)
    assert table.to_arrow(where="id < 2")["extra"].null_count == 2
    assert table.to_arrow(where="id = 2")["extra"].to_pylist() == [{"a": 1}]
    table.write(spark.range(1).selectExpr("cast(id AS string) AS id"), mode="overwrite", overwrite_schema=True)
    assert table.to_arrow().to_pylist() == [{"id": "0"}]


@scenario
def columns_match_by_name_in_any_case_and_are_cast_as_spark_would(spark: SparkSession, root: Path) -> None:
    lakeseal.create(root / "t", pa.schema({"id": pa.int32(), "price": pa.decimal128(10, 2), "text": pa.string()}))
    table = Table(root / "t")
    table.write(spark.sql("SELECT 7 AS PRICE, CAST(1 AS BIGINT) AS Id, 2.5D AS text"))
    table.write(spark.sql("SELECT 2 AS id"))
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "price": Decimal("7.00"), "text": "2.5"},
        {"id": 2, "price": None, "text": None},
    ]
    before = state(table)
    with pytest.raises(SchemaMismatch) as caught:
        table.write(spark.sql("SELECT 'x' AS id"))
    assert caught.value.column == "id"
    with pytest.raises(LakesealError) as overflow:
        table.write(spark.sql("SELECT 3000000000 AS id"))
    assert overflow.value.column == "id"
    assert state(table) == before


@scenario
def a_transaction_that_the_table_has_seen_is_not_written_again(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    for version in (1, 1, 2, 1):
        table.write(numbers(spark, version * 10, version * 10 + 2), txn=("nightly", version))
    assert ids(table) == [10, 11, 20, 21]
    assert table.version() == 1


@scenario
def every_type_comes_back_as_it_was(spark: SparkSession, root: Path) -> None:
    one = spark.sql(
        """SELECT 1L AS l, 2 AS i, 3S AS s, 4Y AS b, 1.5F AS f, CAST('NaN' AS DOUBLE) AS d,
        CAST('-12345678901234567890.123456789' AS DECIMAL(38,9)) AS big, CAST(-0.05 AS DECIMAL(5,2)) AS small,
        'né' AS t, X'00FF' AS bin, true AS yes, DATE'1582-10-15' AS day, TIMESTAMP'1969-12-31 23:59:59.999999Z' AS ts,
        TIMESTAMP_NTZ'9999-12-31 23:59:59.999999' AS ntz, array(array(1, NULL), NULL, array()) AS nested,
        map('a', named_struct('x', 1.5BD, 'y', array(true))) AS m, named_struct('a b', NULL, 'c.d', X'') AS st,
        CAST(NULL AS STRING) AS nothing"""
    )
    table = Table(root / "t")
    table.write(one)
    table.write(one.select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in one.schema.fields)))
    (row,) = table.to_arrow(where="l IS NOT NULL").to_pylist()
    assert math.isnan(row.pop("d"))
    wanted = {
        "l": 1,
        "i": 2,
        "s": 3,
        "b": 4,
        "f": 1.5,
        "big": Decimal("-12345678901234567890.123456789"),
        "small": Decimal("-0.05"),
        "t": "né",
        "bin": b"\x00\xff",
        "yes": True,
        "day": datetime.date(1582, 10, 15),
        "ts": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, datetime.UTC),
        "ntz": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "nested": [[1, None], None, []],
        "m": [("a", {"x": Decimal("1.5"), "y": [True]})],
        "st": {"a b": None, "c.d": b""},
        "nothing": None,
    }
    assert {name: row[name] for name in wanted if row[name] != wanted[name]} == {}, f"{row} is not {wanted}"
    (nulls,) = table.to_arrow(where="l IS NULL").to_pylist()
    assert set(nulls.values()) == {None}


@scenario
def batches_are_cut_by_rows_while_a_job_runs_unless_the_user_says_otherwise(spark: SparkSession, root: Path) -> None:
    settings = ("spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch")
    narrow = data_schema(numbers(spark, 0, 1).schema)
    wide = data_schema(spark.sql("SELECT array(X'00') AS blobs").schema)

    def now() -> list[str | None]:
        return [spark.conf.get(name, None) for name in settings]

    before = now()
    assert before == [None, None]
    with cut_by_rows(spark, narrow):
        assert now() == ["2147483647", "4096"]
        with cut_by_rows(spark, narrow):
            pass
        assert now() == ["2147483647", "4096"], "another job is still running"
    assert now() == before
    with cut_by_rows(spark, wide):
        assert now() == before
    spark.conf.set(settings[1], "77")
    try:
        with cut_by_rows(spark, narrow):
            assert now() == [None, "77"]
    finally:
        spark.conf.unset(settings[1])


@scenario
def strings_of_limited_length_are_padded_and_measured(spark: SparkSession, root: Path) -> None:
    lakeseal.create(root / "t", StructType([StructField("c", CharType(5)), StructField("v", VarcharType(3))]))
    table = Table(root / "t")
    table.write(spark.sql("SELECT 'né' AS c, 'abc  ' AS v"))
    assert table.to_arrow().to_pylist() == [{"c": "né   ", "v": "abc"}]
    with pytest.raises(ConstraintViolation, match="'abcd'") as caught:
        table.write(spark.sql("SELECT 'x' AS c, 'abcd' AS v"))
    assert caught.value.column == "v"
    assert table.version() == 1


AWKWARD = ["a/b", "a?b", "100%", "%3A", "10:30", "a=b", "#", "é", " ", "x y ", "", None, "z" * 256, "{'\"}", "..", "~"]


@scenario
def partition_values_may_hold_anything(spark: SparkSession, root: Path) -> None:
    rows = [(n, text, datetime.datetime(2024, 1, 1, 10, n)) for n, text in enumerate(AWKWARD)]
    table = Table(root / "t")
    table.write(
        spark.createDataFrame(rows, "id int, p string, at timestamp_ntz").repartition(1), partition_by=["p", "at"]
    )
    found = {row["id"]: (row["p"], row["at"]) for row in table.to_arrow().to_pylist()}
    # The format cannot tell an empty string from null.
    assert found == {n: (text or None, at) for n, text, at in rows}
    assert ids(table, "p = 'a/b' OR p = '%3A'") == [0, 3]


@scenario
def a_constraint_is_checked_in_the_task_and_the_error_shows_the_row(spark: SparkSession, root: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("k", pa.int64()), pa.field("s", pa.string())]
    )
    lakeseal.create(root / "t", schema, properties={"delta.constraints.small": "k < 2"})
    table = Table(root / "t")
    table.write(numbers(spark, 0, 2))
    before = state(table)
    with pytest.raises(ConstraintViolation, match=r"CHECK constraint small \(k < 2\).*id: 2, k: 2, s: 'row 2'"):
        table.write(numbers(spark, 0, 10, tasks=4))
    with pytest.raises(ConstraintViolation, match="NOT NULL") as caught:
        table.write(spark.sql("SELECT CAST(NULL AS BIGINT) AS id, 1L AS k, '' AS s"))
    assert caught.value.column == "id"
    assert state(table) == before


@scenario
def what_only_spark_can_evaluate_is_evaluated_in_its_plan(spark: SparkSession, root: Path) -> None:
    generated = {"delta.generationExpression": "to_json(named_struct('n', name))"}
    schema = pa.schema(
        [
            pa.field("name", pa.string()),
            pa.field("shown", pa.string(), metadata=generated),
            pa.field("score", pa.string()),
            pa.field("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ]
    )
    lakeseal.create(
        root / "t", schema, properties={"delta.constraints.near": "length(to_json(named_struct('n', name))) < 15"}
    )
    table = Table(root / "t")
    # A double as a string has the digits of Java, and the fields of a struct come in another order.
    table.write(spark.sql("SELECT 'Rupert' AS name, 1e21D AS score, named_struct('b', 0.1F, 'A', 2L) AS inner"))
    assert table.to_arrow().to_pylist() == [
        {"name": "Rupert", "shown": '{"n":"Rupert"}', "score": "1.0E21", "inner": {"a": 2, "b": "0.1"}}
    ]
    before = state(table)
    with pytest.raises(ConstraintViolation, match=r"CHECK constraint near .*name: 'somebody else'"):
        table.write(spark.sql("SELECT explode(array('Robert', 'somebody else')) AS name, 'x' AS score"))
    assert state(table) == before


@scenario
def a_task_that_raises_changes_nothing(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 4))
    before, files = state(table), data_files(root)

    def fails(value):  # type: ignore[no-untyped-def]  # Spark takes hints for a choice of kinds of functions
        if value == 77:
            raise ValueError("no such number as 77")
        return value

    bad = numbers(spark, 0, 100, tasks=4).withColumn("id", F.udf(fails, "long")("id"))
    with pytest.raises(PySparkException, match="no such number as 77"):
        table.write(bad)
    assert state(table) == before
    table.write(numbers(spark, 4, 6))
    assert ids(table) == list(range(6))
    assert set(files) <= set(data_files(root))


@scenario
def an_empty_frame_makes_a_table_without_files(spark: SparkSession, root: Path) -> None:
    table = Table(root / "t")
    table.write(numbers(spark, 0, 0), partition_by=["k"])
    assert table.to_arrow().num_rows == table.files().num_rows == 0
    assert table.snapshot().partition_columns == ("k",)
    assert [field.nullable for field in table.schema()] == [True, True, True]


@scenario
def the_data_source_appends_and_overwrites(spark: SparkSession, root: Path) -> None:
    lakeseal.register(spark)
    uri = str(root / "t")
    numbers(spark, 0, 6).write.format("lakeseal").mode("append").option("partitionBy", "k").option(
        "delta.columnMapping.mode", "name"
    ).save(uri)
    table = Table(uri)
    assert table.snapshot().partition_columns == ("k",)
    assert table.snapshot().properties.column_mapping_mode == "name"
    for _ in range(2):
        numbers(spark, 6, 9).write.format("lakeseal").mode("append").option("txnAppId", "job").option(
            "txnVersion", 4
        ).option("userMetadata", "more").save(uri)
    assert (ids(table), table.version()) == (list(range(9)), 1)
    assert table.history()[0]["userMetadata"] == "more"
    new = numbers(spark, 0, 4).withColumn("s", F.lit("new"))
    new.write.format("lakeseal").mode("overwrite").option("replaceWhere", "id < 5").save(uri)
    assert (ids(table), ids(table, "s = 'new'")) == ([0, 1, 2, 3, 5, 6, 7, 8], [0, 1, 2, 3])
    numbers(spark, 30, 31).write.format("lakeseal").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(
        uri
    )
    assert ids(table) == [1, 2, 5, 7, 8, 30]
    wider = numbers(spark, 31, 32).withColumn("extra", F.lit(1))
    wider.write.format("lakeseal").mode("append").option("mergeSchema", "true").save(uri)
    assert table.to_arrow(where="id = 31")["extra"].to_pylist() == [1]
    numbers(spark, 0, 1).select("id").write.format("lakeseal").mode("overwrite").option(
        "overwriteSchema", "true"
    ).option("partitionBy", "").save(uri)
    assert table.to_arrow().to_pylist() == [{"id": 0}]


@scenario
def the_data_source_refuses_with_errors_of_ours(spark: SparkSession, root: Path) -> None:
    lakeseal.register(spark)
    uri = str(root / "t")
    writer = numbers(spark, 0, 3).write.format("lakeseal").mode("append")
    with pytest.raises(InvalidArgument, match="Did you mean mergeSchema"), recovered():
        writer.option("mergeShema", "true").save(uri)
    assert not Table(uri).exists()
    lakeseal.create(uri, pa.schema({"id": pa.int64(), "k": pa.int64(), "s": pa.string()}))
    table = Table(uri)
    table.set_properties({"delta.constraints.small": "k < 2"})
    before = state(table)
    with pytest.raises(PySparkException, match=r"CHECK constraint small .*id: 2, k: 2") as caught:
        numbers(spark, 0, 3).write.format("lakeseal").mode("append").save(uri)
    assert "Traceback" in str(caught.value)
    with pytest.raises(ConstraintViolation, match="id: 2, k: 2"), recovered():
        numbers(spark, 0, 3).write.format("lakeseal").mode("append").save(uri)
    with pytest.raises(SchemaMismatch) as mismatch, recovered():
        numbers(spark, 0, 1).withColumn("x", F.lit(1)).write.format("lakeseal").mode("append").save(uri)
    assert mismatch.value.column == "x"
    table.set_properties({"delta.constraints.near": "cos(length(s)) >= -1"})
    with pytest.raises(UnsupportedExpression, match="cos"), recovered():
        numbers(spark, 0, 1).write.format("lakeseal").mode("append").save(uri)
    assert state(table)[1] == before[1]


@scenario
def a_table_is_read_by_spark_by_tasks_and_by_the_format(spark: SparkSession, root: Path) -> None:
    lakeseal.register(spark)
    table = Table(root / "t")
    for n in range(3):
        data = pa.table({"id": range(n * 10, n * 10 + 10), "p": [f"p{n}"] * 10})
        table.write(data, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    in_tasks = partial(to_spark, spark, table.snapshot(), table.spec, in_tasks=True)
    assert table.to_spark(spark, where="id > 5").count() == 24
    assert in_tasks(where="id > 5").count() == 24
    assert in_tasks(columns=[]).count() == 30
    assert spark.read.format("lakeseal").load(table.uri).where("id > 5").count() == 24
    assert table.changes_spark(spark, 1).count() == 20


@scenario
def a_stream_writes_every_row_once_however_often_it_is_started(spark: SparkSession, root: Path) -> None:
    lakeseal.register(spark)
    source, checkpoint, uri = root / "source", root / "checkpoint", str(root / "t")

    def run(**options: str) -> None:
        stream = (
            spark.readStream.schema("id long, k long, s string").option("maxFilesPerTrigger", 1).parquet(str(source))
        )
        writer = stream.writeStream.format("lakeseal").option("checkpointLocation", str(checkpoint)).options(**options)
        writer.trigger(availableNow=True).start(uri).awaitTermination()

    numbers(spark, 0, 10, tasks=2).write.parquet(str(source))
    run(partitionBy="k")
    run()
    table = Table(uri)
    assert (ids(table), table.version()) == (list(range(10)), 1)
    numbers(spark, 10, 15, tasks=1).write.mode("append").parquet(str(source))
    run()
    assert ids(table) == list(range(15))
    assert [entry["operation"] for entry in table.history()] == ["STREAMING UPDATE"] * 3
    (seen,) = table.snapshot().txns.values()
    assert seen.version == 2
    # As if the machine had stopped after our commit and before Spark's own.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run()
    assert (ids(table), table.version()) == (list(range(15)), 2)


@scenario
def a_stream_in_complete_mode_replaces_all_rows(spark: SparkSession, root: Path) -> None:
    lakeseal.register(spark)
    source, uri = root / "source", str(root / "t")
    numbers(spark, 0, 9, tasks=2).write.parquet(str(source))
    stream = spark.readStream.schema("id long, k long, s string").option("maxFilesPerTrigger", 1).parquet(str(source))
    counts = stream.groupBy("k").count()
    counts.writeStream.format("lakeseal").outputMode("complete").option(
        "checkpointLocation", str(root / "checkpoint")
    ).option("txnAppId", "counts").trigger(availableNow=True).start(uri).awaitTermination()
    table = Table(uri)
    assert Counter(map(tuple, (row.values() for row in table.to_arrow().to_pylist()))) == Counter(
        [(0, 3), (1, 3), (2, 3)]
    )
    assert table.snapshot().txns["counts"].version == table.version() == 1


@scenario
def jobs_on_branches_write_in_every_format_and_mode(spark: SparkSession, root: Path) -> None:
    repo = Repository.create(root / "repo")
    for format, partition_by in zip(FORMATS, cycle([("k", "s"), ()]), strict=False):
        place = f"out/{format}"
        write = partial(repo.write, branch="main", path=place, format=format, partition_by=partition_by)
        write(numbers(spark, 0, 10), mode="error")
        write(numbers(spark, 10, 15), mode="append")
        assert sorted(row.id for row in repo.to_spark(spark, "main", place).collect()) == list(range(15))
        with pytest.raises(AlreadyExists):
            write(numbers(spark, 0, 1), mode="error")
        assert write(numbers(spark, 0, 1), mode="ignore").skipped
        done = write(numbers(spark, 3, 5), mode="overwrite")
        rows = repo.to_spark(spark, "main", place).orderBy("id").collect()
        assert [(row.id, row.k, row.s) for row in rows] == [(3, 0, "row 3"), (4, 1, "row 4")]
        assert repo.to_arrow("main", place).num_rows == done.rows == 2
        assert repo.to_spark(spark, "main~1", place).count() == 15
    told = repo.log("main")[0].metadata
    assert (told["lakeseal.rows"], told["lakeseal.application"]) == ("2", spark.conf.get("spark.app.id"))
    assert repo.jobs() == []


@scenario
def the_data_source_reads_refs_and_writes_to_branches(spark: SparkSession, root: Path) -> None:
    repo = Repository.create(root / "repo")
    lakeseal.register(spark)

    def write(mode: str, data: DataFrame, **options: str) -> None:
        place = {"branch": "main", "directory": "out dir/x", **options}
        data.write.format("lakeseal").mode(mode).options(**place).save(str(root / "repo"))

    def read(ref: str, **options: str) -> list[int]:
        reader = spark.read.format("lakeseal").options(ref=ref, directory="out dir/x", **options)
        return sorted(row.id for row in reader.load(str(root / "repo")).where("k >= 0").collect())

    write("append", numbers(spark, 0, 10), partitionBy="k")
    write("append", numbers(spark, 10, 12), partitionBy="k", message="two more")
    assert read("main") == list(range(12))
    repo.tag("v1", "main")
    write("overwrite", numbers(spark, 20, 22), fileFormat="csv")
    assert (read("main"), read("v1"), read("main~2")) == ([20, 21], list(range(12)), list(range(10)))
    assert repo.log("main~1")[0].message == "two more"
    with pytest.raises(LakesealError, match="no branch"), recovered():
        write("append", numbers(spark, 0, 1), branch="nope")
    with pytest.raises(LakesealError, match="go together"), recovered():
        numbers(spark, 0, 1).write.format("lakeseal").mode("append").option("branch", "main").save(str(root / "repo"))
    assert repo.jobs() == []


@scenario
def a_task_that_raises_leaves_the_branch_as_it_was(spark: SparkSession, root: Path) -> None:
    repo = Repository.create(root / "repo")
    repo.write(numbers(spark, 0, 4), "main", "out")
    head = repo.store.head("main")
    raising = numbers(spark, 0, 10).withColumn("s", F.expr("if(id = 7, raise_error('no seven'), s)"))
    with pytest.raises(Exception, match="no seven"):
        repo.write(raising, "main", "out", mode="overwrite")
    assert repo.store.head("main") == head
    assert repo.jobs() == []


def on_a_cluster(function: Scenario) -> Scenario:
    ON_A_CLUSTER[function.__name__] = function
    return function


def wait_for(found: Callable[[], Any], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return value


def write_small_files(spark: SparkSession, uri: Path, data: DataFrame) -> None:
    """So that tasks have written files long before they end."""
    store = StoreSpec(uri=str(uri))
    opened = store.open()
    txn = OptimisticTransaction.begin(DeltaLog(opened), FilesystemOwner(opened))
    options = WriteOptions(buffer_bytes=2**12, max_records_per_file=100)
    run(Write(asked=WriteCommand(options=options), data=data), txn, engine=SparkEngine(spark), store=store)


@on_a_cluster
def an_executor_that_dies_in_the_middle_costs_no_row_and_doubles_none(spark: SparkSession, root: Path) -> None:
    uri = root / "t"

    def write(data: DataFrame) -> None:
        write_small_files(spark, uri, data)

    killed_halfway(spark, root, write, lambda: list(uri.glob("part-00001-*")))
    table = Table(uri)
    assert ids(table) == list(range(80_000))
    assert len(data_files(uri)) > table.files().num_rows, "nothing that it wrote was left behind"


@on_a_cluster
def an_executor_that_dies_in_the_middle_of_a_job_on_a_branch_costs_no_row(spark: SparkSession, root: Path) -> None:
    repo = Repository.create(root / "repo")

    def write(data: DataFrame) -> None:
        command = BranchWriteCommand(branch="main", path="out", max_records_per_file=100, buffer_bytes=2**12)
        branch_write.run(repo.store, command, data, engine=SparkEngine(spark))

    killed_halfway(spark, root, write, lambda: list((root / "repo" / "data").glob("*/00001-0-*/*")))
    assert sorted(repo.to_arrow("main", "out")["id"].to_pylist()) == list(range(80_000))
    written = len(list((root / "repo" / "data").glob("*/*/*.parquet")))
    assert written > len(repo.list("main", "out")), "nothing that it wrote was left behind"
    assert repo.gc(job_grace_hours=0).objects > 0
    assert repo.to_arrow("main", "out").num_rows == 80_000


def killed_halfway(
    spark: SparkSession, root: Path, write: Callable[[DataFrame], None], has_files: Callable[[], Any]
) -> None:
    """Writes 80,000 ids while an executor dies that has written files."""
    running, killed = root / "running", root / "killed"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)

    def stops_halfway(batches):  # type: ignore[no-untyped-def]  # Spark takes hints for a choice of kinds
        here = pyspark.TaskContext.get()
        for number, batch in enumerate(batches):
            yield batch
            if here.partitionId() == 1 and here.attemptNumber() == 0 and number == 150:
                running.write_text(str(os.getpid()))
                deadline = time.monotonic() + 60
                while not killed.exists() and time.monotonic() < deadline:
                    time.sleep(0.05)

    def kill() -> None:
        pid = int(wait_for(lambda: running.exists() and running.read_text()))
        wait_for(has_files)
        daemon = parent_of(pid)
        executor = daemon and parent_of(daemon)
        assert executor
        os.kill(executor, signal.SIGKILL)
        killed.touch()

    data = spark.range(0, 80_000, 1, 4).mapInArrow(stops_halfway, "id long")
    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill)
        write(data)
        killing.result()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@on_a_cluster
def a_task_that_runs_twice_at_a_time_counts_once(spark: SparkSession, root: Path) -> None:
    uri = root / "t"

    def slow_at_first(batches):  # type: ignore[no-untyped-def]  # Spark takes hints for a choice of kinds
        here = pyspark.TaskContext.get()
        (root / f"attempt-{here.partitionId()}-{here.attemptNumber()}").touch()
        yield from batches
        deadline = time.monotonic() + 120
        while here.partitionId() == 3 and here.attemptNumber() == 0 and time.monotonic() < deadline:
            # Until the other attempt is about to end as well.
            if (root / "attempt-3-1").exists():
                break
            time.sleep(0.05)

    repo = Repository.create(root / "repo")
    write_small_files(spark, uri, spark.range(0, 4_000, 1, 4).mapInArrow(slow_at_first, "id long"))
    assert (root / "attempt-3-1").exists(), "Spark started no second attempt"
    assert ids(Table(uri)) == list(range(4_000))
    (root / "attempt-3-1").unlink()
    repo.write(spark.range(0, 4_000, 1, 4).mapInArrow(slow_at_first, "id long"), "main", "out")
    assert (root / "attempt-3-1").exists(), "Spark started no second attempt"
    assert sorted(repo.to_arrow("main", "out")["id"].to_pylist()) == list(range(4_000))


@on_a_cluster
def the_web_pages_show_the_job_as_a_write_to_the_table(spark: SparkSession, root: Path) -> None:
    Table(root / "a table").write(numbers(spark, 0, 2))
    place = f"write to file://{root}/a%20table"
    context = spark.sparkContext
    api = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"

    def shown(what: str) -> Any:
        with urllib.request.urlopen(f"{api}/{what}") as answer:
            return json.load(answer)

    (query,) = (q for q in shown("sql?details=true&planDescription=true&length=1000") if place in q["description"])
    assert query["description"].startswith(f"collect at Lakeseal, {place}")
    assert f"Arguments: {place}(" in query["planDescription"]
    assert any(node["nodeName"] == "MapInArrow" and place in node.get("desc", place) for node in query["nodes"])
    (job,) = (job for job in shown("jobs") if place in job["name"])
    assert any(tag.endswith(f"Lakeseal  {place}") for tag in job["jobTags"])


@on_a_cluster
def executors_log_what_happens_in_tasks_when_the_driver_asks_for_it(spark: SparkSession, root: Path) -> None:
    work = Path(os.environ["LAKESEAL_CLUSTER_WORK"])
    logger = logging.getLogger("lakeseal.write.DelayedCommitProtocol")

    def logged() -> list[str]:
        logs = (path.read_text(errors="replace") for path in work.glob("*/*/*/stderr"))
        return [line for log in logs for line in log.splitlines() if "DelayedCommitProtocol" in line]

    Table(root / "t").write(numbers(spark, 0, 2))
    assert not logged()
    logger.setLevel(logging.DEBUG)
    try:
        Table(root / "t").write(numbers(spark, 0, 2))
        lines = wait_for(logged)
    finally:
        logger.setLevel(logging.NOTSET)
    assert any(" DEBUG " in line for line in lines)


@scenario
def pipelines_transform_judge_and_publish_through_spark(spark: SparkSession, root: Path) -> None:
    (root / "in").mkdir()
    (root / "in" / "1.json").write_text('{"id": 1}\n{"id": 2}\n{"id": null}\n')
    source = FilesSource(path=str(root / "in"), format="json", schema="id long")
    rule = Check(rule="id IS NOT NULL", on_fail="error_table")
    query = "SELECT id, id % 2 AS odd FROM input"
    table, plain = TableTarget(uri=str(root / "t"), partition_by=("odd",)), DirectoryTarget(path=str(root / "d"))
    pipeline = Pipeline(
        name="suite",
        ledger=f"sqlite:///{root}/ledger.db",
        datasets=[
            Dataset(name="t", source=source, target=table, transform=query, quality=(rule,)),
            Dataset(name="d", source=source, target=plain),
        ],
    )
    assert [one.rows for one in pipeline.run(spark).datasets] == [2, 3]
    (root / "in" / "2.json").write_text('{"id": 3}\n')
    assert [one.rows for one in pipeline.run(spark).datasets] == [1, 1]
    assert pipeline.run(spark).state == "nothing_new"
    assert ids(Table(root / "t", owner=pipeline.config.ledger)) == [1, 2, 3]
    assert sum(spark.read.parquet(str(root / "d")).toPandas()["id"].isna()) == 1
    # Shares of steps: what is secret in their settings reaches the tasks, and is nowhere in the job's plan.
    settings, jobs = StepSettings(storage_options={"key": "geheim"}), SparkJobs(spark)

    def say_option(settings: StepSettings, request: str) -> str:
        return f"{request} {settings.storage_options['key']}"

    assert sorted(jobs.in_shares("say", say_option, settings, ["a", "b"])) == ["a geheim", "b geheim"]
    frame = jobs.shares("say", say_option, settings, ["a", "b"])
    assert "geheim" not in plan_of(frame)
    assert "geheim" not in str(frame.schema)


def plan_of(frame: DataFrame) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        frame.explain("extended")
        frame.explain("formatted")
    assert "say" in said.getvalue()
    return said.getvalue()


def new_session(remote: str | None, conf: dict[str, str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("lakeseal suite")
    if remote is not None:
        builder = builder.remote(remote)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(asked: dict[str, Any]) -> dict[str, str]:
    warnings.simplefilter("ignore")
    spark = new_session(asked.get("remote"), asked.get("conf", {}))
    outcomes: dict[str, str] = {}
    for name in asked.get("names") or SUITE:
        root = Path(asked["root"]) / name
        root.mkdir(parents=True)
        started = time.perf_counter()
        try:
            {**SUITE, **ON_A_CLUSTER}[name](spark, root)
            outcomes[name] = "passed"
        except BaseException:
            outcomes[name] = traceback.format_exc()
        print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
    spark.stop()
    return outcomes


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
