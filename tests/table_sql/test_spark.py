"""`lakeseal.sql` in a session of Spark: Spark is the judge of every query, over the same rows as a view of its own."""

from __future__ import annotations

import os
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import errors
from lakeseal.engines import moment_by
from lakeseal.log.timestamps import to_ms
from lakeseal.table_sql.context import SqlContext
from oracles.sessions import with_settings

pytestmark = pytest.mark.spark

PEOPLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "name": ["a", None, "c -- c", "d's"],
        "part": pa.array([0, 1, 1, 0], pa.int32()),
        "order": pa.array([4, 3, 2, 1], pa.int64()),
        "m": pa.array([[("x", 1)], [], [("y", 2), ("z", 3)], None], pa.map_(pa.string(), pa.int32())),
    }
)
ORDERS = pa.table({"id": pa.array([1, 1, 3, 9], pa.int64()), "total": [1.5, 2.5, None, 4.0]})
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def two(spark: Any, tmp_path: Path) -> Any:
    """Two tables by their paths, and the same rows as views of Spark's."""
    for name, rows in (("people", PEOPLE), ("orders", ORDERS)):
        lakeseal.Table(tmp_path / name).write(rows, properties=FEED)
        spark.createDataFrame(rows).createOrReplaceTempView(f"spark_{name}")
    yield {name: f"delta.`{tmp_path / name}`" for name in ("people", "orders")}
    for name in ("people", "orders"):
        spark.catalog.dropTempView(f"spark_{name}")


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {people}",
        "SELECT p.name, sum(o.total) AS t FROM {people} p LEFT JOIN {orders} AS o ON p.id = o.id GROUP BY ALL",
        "SELECT p.id FROM {people} p, {orders} o WHERE p.id = o.id",
        "SELECT id FROM {people} WHERE id NOT IN (SELECT id FROM {orders}) ORDER BY id DESC LIMIT 2",
        "SELECT p.id, (SELECT count(*) FROM {orders} o WHERE o.id = p.id) FROM {people} AS p",
        "WITH x AS (SELECT * FROM {people}), y (a, b) AS (TABLE {orders}) SELECT * FROM x JOIN y ON a = id",
        "SELECT id, k, v FROM {people} LATERAL VIEW explode(m) t AS k, v",
        "SELECT id FROM {people} UNION ALL SELECT id FROM {orders}",
        "SELECT id FROM {people} INTERSECT SELECT id FROM {orders}",
        "SELECT * FROM (SELECT part, id FROM {people}) PIVOT (count(id) FOR part IN (0, 1))",
        "SELECT `order`, extract(DAY FROM date'2024-01-02'), trim(BOTH ' ' FROM name) FROM {people}",
        "SELECT name IS DISTINCT FROM 'a', '{{x}}', \"-- FROM no\" /* FROM no */ FROM {people} -- FROM no",
        "SELECT rank() OVER (PARTITION BY part ORDER BY id) FROM {people} WINDOW w AS (ORDER BY id)",
        "FROM {people} SELECT id, part",
        "FROM {people} |> WHERE id > 1 |> JOIN {orders} USING (id) |> AGGREGATE count(*) AS n",
        "SELECT * FROM {orders} TABLESAMPLE (100 PERCENT)",
        "SELECT count(*) FROM (({people} JOIN {orders} USING (id)))",
        "VALUES (1), (2)",
        "SELECT transform(array(1, 2), x -> x + 1), map('a', 1)['a'] FROM {orders}",
        "SELECT CASE WHEN id > 1 THEN 'FROM' ELSE total::STRING END FROM {orders}",
    ],
)
def test_a_query_gives_what_it_gives_over_views_of_spark(spark: Any, two: Any, query: str) -> None:
    ours = lakeseal.sql(query.format(**two), spark)
    theirs = spark.sql(query.format(people="spark_people", orders="spark_orders"))
    assert rows(ours) == rows(theirs)
    assert ours.columns == theirs.columns


def test_versions_moments_and_changes(spark: Any, two: Any, tmp_path: Path) -> None:
    people = two["people"]
    lakeseal.sql(f"DELETE FROM {people} WHERE id = 1", spark)
    for old in (f"{people} VERSION AS OF 0", f"{people}@v0", f"delta.`{tmp_path / 'people'}@v0`"):
        assert lakeseal.sql(f"SELECT count(*) AS n FROM {old} t", spark).first().n == 4
    (moment,) = lakeseal.sql(f"SELECT _commit_timestamp AS at FROM table_changes('{people}', 1)", spark).collect()
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in ("Asia/Tokyo", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", other)
            text = (
                spark.sql(f"SELECT CAST(timestamp_micros({int(moment.at.timestamp() * 1e6)}) AS STRING) AS t").first().t
            )
            count = f"SELECT count(*) AS n FROM {people} TIMESTAMP AS OF"
            assert lakeseal.sql(f"{count} '{text}'", spark).first().n == 3
            earlier = f"{count} to_timestamp('{text}') - INTERVAL 1 MICROSECOND"
            assert lakeseal.sql(earlier, spark).first().n == 4
            ours = lakeseal.Table(tmp_path / "people")
            assert ours.to_spark(spark, timestamp=text).count() == 3
            before = (
                spark.sql(f"SELECT CAST(CAST('{text}' AS TIMESTAMP) - INTERVAL 1 MICROSECOND AS STRING) AS t").first().t
            )
            assert ours.to_spark(spark, timestamp=before).count() == 4
            assert ours.changes_spark(spark, text).count() == 1
            assert ours.changes_spark(spark, 1, text).count() == 1
            with pytest.raises(errors.InvalidArgument):
                ours.changes_spark(spark, 1, before)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    feed = lakeseal.sql(f"SELECT id, _change_type FROM table_changes('{people}', 1, 1) AS c WHERE c.id > 0", spark)
    assert rows(feed) == [(1, "delete")]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
@pytest.mark.parametrize(
    "text",
    [
        "2024-03-10 02:30:00",  # was skipped in New York
        "2024-11-03 01:30:00",  # was there twice
        "2024-11-03 01:30:00-05:00",
        "2024-11-03T01:30:00Z",
        "2024-11-03",
        "2024-3-1 4:5:6",
        " 2024-11 ",
        "2024-11-03 01:30:00 Europe/Berlin",
        "no moment",
    ],
)
def test_a_moment_in_a_call_is_the_one_that_a_statement_means(spark: Any, tmp_path: Path, zone: str, text: str) -> None:
    with with_settings(spark, {"spark.sql.session.timeZone": zone}):
        found = SqlContext(spark, None, None, None)
        try:
            stated = found.timestamp(f"'{text}'")
        except errors.LakesealError:
            with pytest.raises(errors.InvalidArgument, match="is not a timestamp"):
                moment_by(spark, text)
        else:
            assert to_ms(moment_by(spark, text)) == to_ms(stated)
        day = date(2024, 3, 10)
        assert to_ms(moment_by(spark, day)) == to_ms(found.timestamp("DATE'2024-03-10'"))
        for fixed in (datetime(2024, 3, 10, 2, 30), 7, None):
            assert moment_by(spark, fixed) == fixed


def test_a_day_without_a_zone_is_the_sessions_where_one_is_given(spark: Any, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path / "t", PEOPLE.schema, properties=FEED)
    table.write(PEOPLE)
    for version, moment in enumerate(("2024-01-01T20:00:00+00:00", "2024-01-02T03:00:00+00:00")):
        seconds = datetime.fromisoformat(moment).timestamp()
        os.utime(tmp_path / "t" / "_delta_log" / f"{version:020}.json", (seconds, seconds))
    for zone, rows_by_then in {"America/New_York": 4, "UTC": 0}.items():
        with with_settings(spark, {"spark.sql.session.timeZone": zone}):
            for day in (date(2024, 1, 2), "2024-01-02"):
                assert table.to_spark(spark, timestamp=day).count() == rows_by_then
                stated = f"SELECT count(*) AS n FROM delta.`{table.uri}` TIMESTAMP AS OF '2024-01-02'"
                assert lakeseal.sql(stated, spark).first().n == rows_by_then
                assert table.changes_spark(spark, "2024-01-01", day).count() == rows_by_then
            plain = datetime(2024, 1, 2, 4)
            assert table.to_spark(spark, timestamp=plain).count() == 4


def test_subqueries_of_changes_read_tables_of_ours(spark: Any, two: Any) -> None:
    people, orders = two["people"], two["orders"]
    before = {table.name for table in spark.catalog.listTables()}
    lakeseal.sql(f"DELETE FROM {people} WHERE id IN (SELECT o.id FROM {orders} o WHERE o.total > 2)", spark)
    assert rows(lakeseal.sql(f"SELECT id FROM {people}", spark)) == [(2,), (3,), (4,)]
    lakeseal.sql(f"UPDATE {people} SET name = (SELECT max(name) FROM {people} VERSION AS OF 0) WHERE id = 2", spark)
    assert lakeseal.sql(f"SELECT name FROM {people} WHERE id = 2", spark).first().name == "d's"
    lakeseal.sql(
        f"MERGE INTO {people} t USING {orders} s ON t.id = s.id "
        f"WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, part) VALUES (s.id + 100, 7)",
        spark,
    )
    found = lakeseal.sql(f"SELECT id FROM {people}", spark)
    assert rows(found) == [(101,), (101,), (109,), (2,), (4,)]
    assert {table.name for table in spark.catalog.listTables()} == before


def test_rows_are_inserted_as_the_session_assigns_them(spark: Any, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 'x'}`"
    lakeseal.sql(
        f"CREATE TABLE {name} (a INT, b STRING, twice INT GENERATED ALWAYS AS (a * 2), p DATE) PARTITIONED BY (p)",
        spark,
    )
    lakeseal.sql(f"INSERT INTO {name} VALUES (1L, 2, 2, date'2024-01-01')", spark)
    lakeseal.sql(f"INSERT INTO {name} (b, a, p) SELECT CAST(id AS STRING), id, date'2024-01-02' FROM range(2)", spark)
    lakeseal.sql(
        f"INSERT INTO {name} VALUES (5, md5('x'), DEFAULT, current_date()), (6, DEFAULT, DEFAULT, NULL)", spark
    )
    assert lakeseal.sql(f"SELECT count(*) AS n, sum(twice) AS t, sum(a) AS a FROM {name}", spark).first()[:] == (
        5,
        26,
        13,
    )
    for wrong in (
        "VALUES (1)",
        "(a, a) VALUES (1, 2)",
        "(a) VALUES ('x')",
        "SELECT nothing",
        "(a) VALUES (3000000000)",
    ):
        with pytest.raises(errors.LakesealError):
            lakeseal.sql(f"INSERT INTO {name} {wrong}", spark)
    assert lakeseal.Table(tmp_path / "x").version() == 3
    lakeseal.sql(f"INSERT OVERWRITE {name} PARTITION (p = '2024-01-02') (a) VALUES (9)", spark)
    assert lakeseal.sql(f"SELECT count(*) AS n FROM {name}", spark).first().n == 4
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        lakeseal.sql(f"INSERT OVERWRITE {name} BY NAME SELECT 10 AS a, date'2024-01-01' AS p", spark)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert lakeseal.sql(f"SELECT count(*) AS n FROM {name}", spark).first().n == 4
    lakeseal.sql(f"INSERT OVERWRITE {name} (a, b) SELECT 1, 'x'", spark)
    assert rows(lakeseal.sql(f"SELECT * FROM {name}", spark)) == [(1, "x", 2, None)]


def test_a_table_and_a_view_are_made_of_queries(spark: Any, two: Any, tmp_path: Path) -> None:
    name = f"lakeseal.`{tmp_path / 'new'}`"
    lakeseal.sql(f"CREATE TABLE {name} PARTITIONED BY (part) AS SELECT id, part FROM {two['people']}", spark)
    lakeseal.sql(f"CREATE OR REPLACE TEMP VIEW of_ours (a, b) AS SELECT id, part FROM {name} WHERE part = 1", spark)
    assert rows(spark.sql("SELECT a FROM of_ours")) == [(2,), (3,)]
    spark.catalog.dropTempView("of_ours")
    described = lakeseal.sql(f"DESCRIBE DETAIL {name}", spark).first()
    assert (described.partitionColumns, described.numFiles) == (["part"], 2)
    assert lakeseal.sql(f"DESCRIBE HISTORY {name}", spark).first().operation == "WRITE"


def test_what_is_not_ours_goes_to_spark_untouched(spark: Any, two: Any) -> None:
    assert lakeseal.sql("SELECT 1 AS `a; b`", spark).columns == ["a; b"]
    assert lakeseal.sql("SHOW TABLES", spark).columns == spark.sql("SHOW TABLES").columns
    lakeseal.sql(f"CREATE TABLE theirs USING parquet AS SELECT id FROM {two['people']}", spark)
    try:
        lakeseal.sql(f"INSERT INTO theirs SELECT id FROM {two['orders']} WHERE id = 9", spark)
        assert rows(spark.table("theirs")) == [(1,), (2,), (3,), (4,), (9,)]
        assert rows(lakeseal.sql(f"SELECT id FROM theirs EXCEPT SELECT id FROM {two['people']}", spark)) == [(9,)]
        assert [row.col_name for row in lakeseal.sql("DESCRIBE theirs", spark).collect()] == ["id"]
    finally:
        lakeseal.sql("DROP TABLE theirs", spark)
    for text in ("SELEC 1", "SELECT * FROM nothing_at_all", "DELETE FROM nothing_at_all WHERE (", "SELECT 1; SELECT 2"):
        with pytest.raises(Exception, match=r"PARSE_SYNTAX_ERROR|TABLE_OR_VIEW_NOT_FOUND"):
            lakeseal.sql(text, spark)


def test_timestamps_are_what_they_are_where_the_session_has_plain_ones(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("ts", pa.timestamp("us", "UTC"))])
    made = lakeseal.create(tmp_path / "t", schema, partition_by=["ts"])
    place = f"delta.`{made.uri}`"
    settings = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "America/New_York"}
    with with_settings(spark, settings):
        lakeseal.sql(f"INSERT INTO {place} PARTITION (ts = '2024-01-01 00:00:00Z') VALUES (1)", spark)
        now = f"SELECT count(*) AS n FROM {place} TIMESTAMP AS OF current_timestamp()"
        assert lakeseal.sql(now, spark).first().n == 1
        for text in (
            f"CREATE TABLE delta.`{tmp_path}/new` (id INT, ts ARRAY<TIMESTAMP>)",
            f"ALTER TABLE {place} ADD COLUMNS (other TIMESTAMP)",
        ):
            with pytest.raises(errors.UnsupportedExpression, match="without a zone"):
                lakeseal.sql(text, spark)
        lakeseal.sql(f"CREATE TABLE delta.`{tmp_path}/new` (l TIMESTAMP_LTZ, n TIMESTAMP_NTZ)", spark)
    new = lakeseal.Table(tmp_path / "new").schema()
    assert new.types == [pa.timestamp("us", "UTC"), pa.timestamp("us")]
    moment = made.to_arrow()["ts"].to_pylist()[0]
    assert moment.isoformat() == "2024-01-01T00:00:00+00:00"


def test_a_query_that_means_nothing_is_an_error_of_ours_in_every_statement_of_ours(spark: Any, two: Any) -> None:
    people, new = two["people"], f"{two['people'][:-1]}-new`"
    before = lakeseal.sql(f"SELECT * FROM {people}", spark)
    wrong = "SELECT nothing AS id, 'x' AS name FROM VALUES (1) AS y(x)"
    for text in (
        f"INSERT INTO {people} BY NAME {wrong}",
        f"MERGE INTO {people} t USING ({wrong}) q ON t.id = q.id WHEN MATCHED THEN DELETE",
        f"MERGE INTO {people} t USING nothing_at_all q ON t.id = q.id WHEN MATCHED THEN DELETE",
        f"CREATE TABLE {new} AS {wrong}",
        f"VACUUM {people} USING INVENTORY ({wrong})",
        f"VACUUM {people} USING INVENTORY nothing_at_all",
    ):
        with pytest.raises(errors.InvalidExpression, match=r"nothing"):
            lakeseal.sql(text, spark)
    assert rows(lakeseal.sql(f"SELECT * FROM {people}", spark)) == rows(before)
