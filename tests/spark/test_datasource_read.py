"""`spark.read.format("lakeseal")`: rows, versions, changes, conditions, options."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import lakeseal
from lakeseal import LakesealError, Table
from lakeseal.errors import InvalidArgument, TableNotFound, VersionNotFound
from lakeseal.spark.batch_read import BatchRead, BatchReader, declared
from lakeseal.spark.failures import recovered
from lakeseal.spark.options import GivenOptions, GivenTable
from lakeseal.spark.read_options import ReadOptions
from lakeseal.testing.s3 import s3_server
from oracles.sessions import with_settings
from support.rows import rows

UTC = datetime.UTC
PUSHING = "spark.sql.python.filterPushdown.enabled"


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
    assert (found.table.uri, found.version_as_of, found.max_bytes_per_trigger) == ("/t", 3, 10 * 2**20)
    assert found.table.storage_options == {"aws_region": "eu-1", "timeout": "5s"}
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
    assert BatchRead(ReadOptions(table=GivenTable(uri=table.uri))).options.version_as_of == 2
    assert BatchRead(ReadOptions(table=GivenTable(uri=table.uri), timestamp_as_of=moment)).options.version_as_of == 0
    feed = BatchRead(
        ReadOptions(table=GivenTable(uri=table.uri), read_change_feed=True, starting_timestamp=moment)
    ).options
    assert (feed.starting_version, feed.ending_version) == (0, 2)


def test_a_large_table_that_is_read_whole_says_once_that_there_is_a_faster_way(
    table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for commit in (tmp_path / "table" / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for add in (line["add"] for line in lines if "add" in line):
            add["size"] = 2**29
        commit.write_text("\n".join(map(json.dumps, lines)))
    for checksum in (tmp_path / "table" / "_delta_log").glob("*.crc"):
        checksum.unlink()

    def read(**how: Any) -> list[str]:
        caplog.clear()
        options = ReadOptions(table=GivenTable(uri=table.uri), **how)
        options, schema = declared(options)
        assert BatchReader(options, schema).partitions()
        return [record.getMessage() for record in caplog.records if "to_spark" in record.getMessage()]

    assert read(columns=("id", "v")) == []
    assert read(where="id > 3") == []
    (said,) = read()
    assert "1.6 GB" in said
    assert read() == []


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
        _ = load(session, table.uri, versionAsOf=9).schema  # over Connect nothing is looked at before


@pytest.mark.spark
def test_a_dataframe_keeps_its_version_whatever_is_written_later(session: Any, table: Table) -> None:
    # Over Connect a DataFrame is a text that each action reads anew, as for every other format: it says its version.
    said = {"versionAsOf": table.version()} if not hasattr(session, "_jvm") else {}
    before = load(session, table.uri, **said)
    table.write(pa.table({"id": [99], "p": ["x"], "v": [1.0]}))
    assert before.count() == 30
    assert before.join(before.select("id"), "id").count() == 30
    assert load(session, table.uri).count() == 31


@pytest.mark.spark
@pytest.mark.parametrize("pushing", ["true", "false", None])
def test_every_scan_of_a_dataframe_has_its_own_conditions_only(session: Any, table: Table, pushing: str | None) -> None:
    with with_settings(session, {} if pushing is None else {PUSHING: pushing}):
        df = load(session, table.uri)
        assert df.where("id > 15").count() == 14
        assert df.count() == 30
        assert df.where("id <= 15").count() == 16
        assert df.where("p = 'p0'").union(df.where("p = 'p1' AND id < 13")).count() == 13
        high, low = df.where("id >= 20").alias("high"), df.where("id < 20").alias("low")
        assert high.join(low, F.expr("high.id - 20 = low.id")).count() == 10
        assert df.where("id < 3").cache().count() == 3
        assert df.where("id < 4").count() == 4
        df.where("id < 3").unpersist()
        df.createOrReplaceTempView("seen")
        counts = "SELECT (SELECT count(*) FROM seen WHERE id > 15), (SELECT count(*) FROM seen WHERE id <= 15)"
        assert tuple(session.sql(counts).first()) == (14, 16)
        inside = "SELECT count(*) FROM seen WHERE v > (SELECT avg(v) FROM seen WHERE v > 1) AND id > 3"
        assert session.sql(inside).first()[0] == 10


@pytest.mark.spark
def test_making_the_name_known_leaves_the_sessions_settings_alone(spark: Any) -> None:
    for value in ("true", "false"):
        with with_settings(spark, {PUSHING: value}):
            before = settings(spark)
            lakeseal.register(spark)
            assert settings(spark) == before


def settings(spark: Any) -> dict[str, str]:
    return {row["key"]: row["value"] for row in spark.sql("SET -v").collect()}


@pytest.mark.spark
@pytest.mark.parametrize("pushing", ["true", "false"])
def test_scans_of_one_dataframe_agree_on_the_version_where_its_schema_was_given(
    session: Any, table: Table, pushing: str
) -> None:
    with with_settings(session, {PUSHING: pushing}):
        df = session.read.format("lakeseal").schema("id bigint").load(table.uri)
        assert df.where("id >= 0").count() == 30
        table.write(pa.table({"id": [99], "p": ["x"], "v": [1.0]}))
        assert df.where("id > 15").count() == 14
        assert df.where("id >= 0").union(df).count() == 60


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
        _ = load(session, str(tmp_path / "nothing")).schema
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
