"""`spark.read.format("lakeseal")`: rows, versions, changes, filters, options."""

from __future__ import annotations

import datetime
import json
import math
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import datasource as filters

import lakeseal
from lakeseal import LakesealError, Table
from lakeseal.errors import InvalidArgument, TableNotFound, VersionNotFound
from lakeseal.protocol.arrow import from_arrow
from lakeseal.spark.batch_read import BatchRead, BatchReader
from lakeseal.spark.failures import recovered
from lakeseal.spark.filters import pushed
from lakeseal.spark.options import GivenOptions
from lakeseal.spark.read_options import ReadOptions
from lakeseal.testing.rows import rows
from lakeseal.testing.s3 import s3_server

UTC = datetime.UTC


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = Table(tmp_path / "table")
    for n in range(3):
        data = pa.table({"id": range(n * 10, n * 10 + 10), "p": [f"p{n}"] * 10, "v": [n + 0.5] * 10})
        found.write(data, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    return found


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    lakeseal.register(spark)
    return spark


def load(spark: Any, uri: str, **options: Any) -> DataFrame:
    reader = spark.read.format("lakeseal")
    for name, value in options.items():
        reader = reader.option(name, value)
    found: DataFrame = reader.load(uri)
    return found


# Options


def test_options_become_one_value_and_storage_options_are_told_apart() -> None:
    found = ReadOptions.from_options(
        {"path": "/t", "versionasof": "3", "AWS_REGION": "eu-1", "storage.timeout": "5s", "MaxBytesPerTrigger": "10 MB"}
    )
    assert (found.uri, found.version_as_of, found.max_bytes_per_trigger) == ("/t", 3, 10 * 2**20)
    assert found.storage_options == {"aws_region": "eu-1", "timeout": "5s"}
    assert found.fail_on_data_loss


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "location is missing"),
        ({"path": "/t", "versionAs": "1"}, "Did you mean versionAsOf"),
        ({"path": "/t", "versionAsOf": "-1"}, "whole number"),
        ({"path": "/t", "versionAsOf": "x"}, "versionAsOf cannot be 'x'"),
        ({"path": "/t", "readChangeFeed": "maybe"}, "true or false"),
        ({"path": "/t", "versionAsOf": "1", "timestampAsOf": "2024-01-01"}, "not both"),
        ({"path": "/t", "startingVersion": "latest", "startingTimestamp": "2024-01-01"}, "not both"),
        ({"path": "/t", "maxFilesPerTrigger": "0"}, "from 1 on"),
        ({"path": "/t", "maxBytesPerTrigger": "much"}, "For instance 500m"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ReadOptions.from_options(options)
    assert message in str(caught.value)


def test_an_unknown_option_without_a_close_one_is_told_what_there_is() -> None:
    with pytest.raises(InvalidArgument, match="There are a, b"):
        GivenOptions.of({"zzz": "1"}, ("b", "a"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": 1}, "readChangeFeed"),
        ({"endingTimestamp": "2024-01-01"}, "readChangeFeed"),
        ({"readChangeFeed": "true"}, "needs a start"),
        ({"readChangeFeed": "true", "startingVersion": "latest"}, "for streams"),
        ({"readChangeFeed": "true", "versionAsOf": 1}, "startingVersion"),
        ({"readChangeFeed": "true", "startingVersion": 2, "endingVersion": 1}, "no changes from version 2 to 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(table: Table, options: dict[str, Any], message: str) -> None:
    given = ReadOptions.from_options({"path": table.uri, **{name: str(value) for name, value in options.items()}})
    with pytest.raises(InvalidArgument) as caught:
        BatchRead(given)
    assert message in str(caught.value)


def test_a_batch_is_pinned_to_versions(table: Table) -> None:
    moment = table.history()[-1]["timestamp"]
    assert BatchRead(ReadOptions(uri=table.uri)).options.version_as_of == 2
    assert BatchRead(ReadOptions(uri=table.uri, timestamp_as_of=moment)).options.version_as_of == 0
    feed = BatchRead(ReadOptions(uri=table.uri, read_change_feed=True, starting_timestamp=moment)).options
    assert (feed.starting_version, feed.ending_version) == (0, 2)


# Filters


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (filters.EqualTo(("a",), 1), "a = 1"),
        (filters.EqualNullSafe(("a",), 1), "a <=> 1"),
        (filters.GreaterThan(("s", "b c"), "it's"), "s.`b c` > 'it\\'s'"),
        (filters.GreaterThanOrEqual(("d",), Decimal("1.50")), "d >= 1.50BD"),
        (filters.LessThan(("day",), datetime.date(2024, 2, 29)), "day < DATE '2024-02-29'"),
        (filters.LessThanOrEqual(("ts",), datetime.datetime(2024, 1, 1, tzinfo=UTC)),
         "ts <= TIMESTAMP '2024-01-01 00:00:00Z'"),
        (filters.In(("a",), (1, 2)), "a IN (1, 2)"),
        (filters.IsNull(("a",)), "a IS NULL"),
        (filters.IsNotNull(("a",)), "NOT a IS NULL"),
        (filters.Not(filters.EqualTo(("a",), 1)), "NOT a = 1"),
        (filters.StringStartsWith(("s2",), "x%"), "startswith(s2, 'x%')"),
        (filters.StringEndsWith(("s2",), "x"), "endswith(s2, 'x')"),
        (filters.StringContains(("s2",), "x"), "contains(s2, 'x')"),
        (filters.EqualTo(("f",), True), "f = TRUE"),
        (filters.EqualTo(("x",), b"\x00"), "x = X'00'"),
        (filters.EqualTo(("a",), [1, 2]), None),
        (filters.EqualTo(("a",), math.nan), "a = cast('nan' AS double)"),
        (filters.EqualTo(("nope",), 1), None),
    ],
)  # fmt: skip
def test_filters_that_spark_pushes_become_conditions(one: filters.Filter, text: str | None) -> None:
    schema = lakeseal_schema()
    found = pushed([one], schema)
    assert found == text


def lakeseal_schema() -> Any:
    return from_arrow(
        pa.schema(
            {
                "a": pa.int64(), "d": pa.decimal128(10, 2), "day": pa.date32(), "ts": pa.timestamp("us", "UTC"),
                "s": pa.struct([("b c", pa.string())]), "s2": pa.string(), "f": pa.bool_(), "x": pa.binary(),
            }
        )
    )  # fmt: skip


def test_pushed_filters_leave_out_files_and_go_back_to_spark(table: Table) -> None:
    batch = BatchRead(ReadOptions(uri=table.uri))
    reader = BatchReader(batch.options, batch.task().schema)
    given: list[filters.Filter] = [filters.EqualTo(("p",), "p1"), filters.GreaterThan(("id",), 15)]
    assert reader.pushFilters(given) == given
    found = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    assert [row["id"] for row in found] == [16, 17, 18, 19]


# With Spark


@pytest.mark.spark
def test_rows_and_schema_are_the_tables(session: Any, table: Table) -> None:
    found = load(session, table.uri)
    assert found.dtypes == [("id", "bigint"), ("p", "string"), ("v", "double")]
    assert rows(found.toArrow()) == rows(table.to_arrow())
    assert load(session, table.uri).where("id % 7 = 0 AND v > 1").count() == 3
    assert load(session, table.uri).select("v").distinct().count() == 3


@pytest.mark.spark
def test_every_type_comes_through(session: Any, tmp_path: Path) -> None:
    data = pa.table(
        {
            "i": pa.array([1, None], pa.int8()), "d": pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
            "ts": pa.array([datetime.datetime(1500, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "tn": pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("us")), "x": [b"\xff", None],
            "l": pa.array([[{"a": 1}], None], pa.list_(pa.struct([("a", pa.int32())]))), "n": pa.nulls(2),
            "m": pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int64()))),
        }
    )  # fmt: skip
    table = Table(tmp_path / "table")
    table.write(data)
    assert rows(load(session, table.uri).toArrow()) == rows(table.to_arrow())


@pytest.mark.spark
def test_earlier_versions_by_number_and_moment(session: Any, table: Table) -> None:
    moment = table.history()[-1]["timestamp"]
    assert load(session, table.uri, versionAsOf=1).count() == 20
    assert load(session, table.uri, timestampAsOf=moment).count() == 10
    with pytest.raises(VersionNotFound), recovered():
        load(session, table.uri, versionAsOf=9)


@pytest.mark.spark
def test_a_dataframe_keeps_its_version_whatever_is_written_later(session: Any, table: Table) -> None:
    before = load(session, table.uri)
    table.write(pa.table({"id": [99], "p": ["x"], "v": [1.0]}))
    assert before.count() == 30
    assert before.join(before.select("id"), "id").count() == 30
    assert load(session, table.uri).count() == 31


@pytest.mark.spark
def test_filters_are_pushed_where_the_session_allows_it_and_never_missed_elsewhere(session: Any, table: Table) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    before = session.conf.get(name)
    try:
        for enabled in ("false", "true"):
            session.conf.set(name, enabled)
            assert load(session, table.uri).where("p = 'p1' AND id > 15").count() == 4
        root = Path(table.uri.removeprefix("file://"))
        for path in table.files()["path"].to_pylist():
            if not path.startswith("p=p1/"):
                (root / path).unlink()
        assert load(session, table.uri).where("p = 'p1' AND id > 15").count() == 4
    finally:
        session.conf.set(name, before)


@pytest.mark.spark
def test_the_change_feed_is_a_dataframe(session: Any, table: Table) -> None:
    table.write(pa.table({"id": [5], "p": ["p9"], "v": [0.5]}), mode="overwrite")
    found = load(session, table.uri, readChangeFeed="true", startingVersion=1)
    assert rows(found.toArrow()) == rows(table.changes(1))
    one = load(session, table.uri, readChangeFeed="true", startingVersion=1, endingVersion=1)
    assert rows(one.toArrow()) == rows(table.changes(1, 1))


@pytest.mark.spark
def test_a_schema_of_the_users_selects_columns_and_one_that_is_not_the_tables_is_refused(
    session: Any, table: Table
) -> None:
    found = session.read.format("lakeseal").schema("v double, id bigint").load(table.uri)
    assert sorted(found.collect())[:1] == [(0.5, 0)]
    with pytest.raises(InvalidArgument, match="is not the table's"), recovered():
        session.read.format("lakeseal").schema("id string").load(table.uri).count()


@pytest.mark.spark
def test_a_table_without_files_has_no_rows(session: Any, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "table", pa.schema({"id": pa.int64()}))
    assert load(session, table.uri).collect() == []
    assert load(session, table.uri).count() == 0


@pytest.mark.spark
def test_errors_name_the_table_and_come_back_as_ours(session: Any, table: Table, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound), recovered():
        load(session, str(tmp_path / "nothing"))
    (Path(table.uri.removeprefix("file://")) / table.files()["path"][0].as_py()).unlink()
    with pytest.raises(LakesealError) as caught, recovered():
        load(session, table.uri).count()
    assert (caught.value.kind, caught.value.table) == ("data-file-missing", table.uri)


@pytest.mark.spark
def test_a_table_on_s3_is_read_with_storage_options(session: Any) -> None:
    with s3_server() as s3:
        Table(s3.uri("table"), storage_options=s3.storage_options).write(pa.table({"id": range(5)}))
        options = {name if name.startswith("aws_") else f"storage.{name}": v for name, v in s3.storage_options.items()}
        assert load(session, s3.uri("table"), **options).count() == 5


@pytest.mark.spark
def test_a_managed_table_is_read_through_its_owner(session: Any, tmp_path: Path) -> None:
    owner = f"sqlite:///{tmp_path}/ledger.db"
    table = Table(tmp_path / "table", owner=owner)
    for n in range(3):
        table.write(pa.table({"id": [n]}))
    assert load(session, table.uri, owner=owner).count() == 3


CONNECT = """
import json, sys
from pyspark.sql import SparkSession
import lakeseal
from lakeseal.spark.scan import to_spark

uri = sys.argv[1]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
lakeseal.register(spark)
table = lakeseal.Table(uri)
print(json.dumps({
    "spark": table.to_spark(spark, where="id > 5").count(),
    "tasks": to_spark(spark, table.snapshot(), table.spec, where="id > 5", in_tasks=True).count(),
    "none": to_spark(spark, table.snapshot(), table.spec, columns=[], in_tasks=True).count(),
    "format": spark.read.format("lakeseal").load(uri).where("id > 5").count(),
    "changes": table.changes_spark(spark, 1).count(),
    "kind": type(spark).__module__,
}))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.own_spark
def test_everything_also_runs_over_spark_connect(table: Table, tmp_path: Path) -> None:
    script = tmp_path / "connect.py"
    script.write_text(CONNECT)
    ended = subprocess.run(
        [sys.executable, str(script), table.uri],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**_environment(), "PYSPARK_PYTHON": sys.executable},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    assert found == {
        "spark": 24, "tasks": 24, "none": 30, "format": 24, "changes": 20, "kind": "pyspark.sql.connect.session",
    }  # fmt: skip


def _environment() -> dict[str, str]:
    # A session of this process would be taken for the one to use.
    return {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
