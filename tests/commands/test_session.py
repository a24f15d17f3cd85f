"""Whatever runs with a Spark session follows it: zone, mode, quotes, case, store assignment. Judged by Spark itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import Table
from lakeseal.errors import (
    ConstraintViolation,
    EvaluationError,
    InvalidExpression,
    SchemaMismatch,
    UnsupportedExpression,
)
from lakeseal.spark.failures import recovered
from oracles.rows import same_rows
from oracles.sessions import SESSIONS, with_settings

pytestmark = pytest.mark.spark

NEW_YORK = SESSIONS["new-york"]
ANSI_OFF = SESSIONS["ansi-off"]
ANSI_ON = {"spark.sql.ansi.enabled": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def moments() -> pa.Table:
    """Two rows a day around midnight, by UTC and by New York's clock."""
    first = dt.datetime(2023, 12, 30, 1, tzinfo=dt.UTC)
    times = [first + dt.timedelta(hours=6 * n) for n in range(16)]
    return pa.table(
        {
            "id": pa.array(range(16), pa.int64()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "d": pa.array([t.date() for t in times], pa.date32()),
            "s": pa.array([f"v{n % 3}" for n in range(16)]),
            "n": pa.array([n % 4 for n in range(16)], pa.int32()),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Table]:
    def make(properties: dict[str, str] | None = None, name: str = "t") -> Table:
        made = Table(tmp_path / name)
        made.write(moments().slice(0, 8), properties=properties or {})
        made.write(moments().slice(8))
        return made

    return make


CONDITIONS = (
    "ts < '2024-01-01'",
    "ts < TIMESTAMP'2024-01-01 00:00:00' AND n < 3",
    "CAST(ts AS DATE) = DATE'2023-12-31'",
    "hour(ts) >= 19 OR ts IS NULL",
    "date_format(ts, 'yyyy-MM-dd') = '2023-12-31'",
    "d < ts AND n = 1",
)


@pytest.mark.parametrize(("kind", "properties"), [("plain", {}), ("vectors", VECTORS), ("feed", FEED)])
def test_the_rows_that_a_condition_selects_are_those_that_are_deleted(
    spark: Any, table: Callable[..., Table], kind: str, properties: dict[str, str]
) -> None:
    with with_settings(spark, NEW_YORK):
        # What a condition selects and how rows are deleted do not depend on each other: one kind of table has all.
        asked = {"vectors": CONDITIONS[::2], "feed": CONDITIONS[1::2]}
        for number, where in enumerate(asked.get(kind, CONDITIONS)):
            changed = table(properties, f"t{number}")
            rows = changed.to_spark(spark)
            stay = rows.where(f"NOT coalesce({where}, false)").collect()
            gone = rows.where(where).collect()
            assert gone, where
            assert stay, where
            changed.delete(where, spark=spark)
            same_rows(changed.to_spark(spark).collect(), stay, where)
            if properties == FEED:
                told = changed.changes(changed.version()).to_pylist()
                assert {row["_change_type"] for row in told} == {"delete"}
                assert sorted(row["id"] for row in told) == sorted(row.id for row in gone)


@pytest.mark.parametrize("properties", [{}, VECTORS, FEED], ids=["plain", "vectors", "feed"])
def test_new_values_are_what_spark_says_in_the_sessions_zone(
    spark: Any, table: Callable[..., Table], properties: dict[str, str]
) -> None:
    with with_settings(spark, NEW_YORK):
        changed = table(properties)
        where, values = "hour(ts) < 12", {"s": "CAST(ts AS STRING)", "d": "ts", "ts": "d"}
        expected = changed.to_spark(spark).selectExpr(
            "id",
            f"IF({where}, CAST(d AS TIMESTAMP), ts) AS ts",
            f"IF({where}, CAST(ts AS DATE), d) AS d",
            f"IF({where}, CAST(ts AS STRING), s) AS s",
            "n",
        )
        wanted = expected.collect()
        changed.update(values, where, spark=spark)
        same_rows(changed.to_spark(spark).collect(), wanted)
        if properties == FEED:
            kinds = [row["_change_type"] for row in changed.changes(changed.version()).to_pylist()]
            assert kinds.count("update_preimage") == kinds.count("update_postimage") == 8


def test_a_value_that_is_cast_into_its_column_is_cast_in_the_sessions_zone(
    spark: Any, table: Callable[..., Table]
) -> None:
    with with_settings(spark, NEW_YORK):
        changed = table()
        changed.update({"ts": "d"}, "id = 3", spark=spark)
        (row,) = changed.to_arrow(where="id = 3").to_pylist()
        assert row["ts"] == dt.datetime(2023, 12, 30, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize("where", ["hour(ts) >= 19", "ts < '2024-01-01'"])
@pytest.mark.parametrize("properties", [{}, FEED], ids=["plain", "feed"])
def test_replace_where_replaces_what_the_session_selects(
    spark: Any, table: Callable[..., Table], properties: dict[str, str], where: str
) -> None:
    with with_settings(spark, NEW_YORK):
        changed = table(properties)
        rows = changed.to_spark(spark)
        new = rows.where(where).selectExpr("id + 100 AS id", "ts", "d", "s", "n")
        wanted = rows.where(f"NOT ({where})").unionByName(new).collect()
        fresh = spark.createDataFrame(new.collect(), new.schema)
        changed.write(fresh, mode="overwrite", replace_where=where)
        same_rows(changed.to_spark(spark).collect(), wanted)
        with pytest.raises(ConstraintViolation, match="replace_where"):
            changed.write(rows.where("id = 0").selectExpr("*"), mode="overwrite", replace_where="hour(ts) = 3")


def test_values_of_a_dataframe_become_others_in_the_sessions_zone(spark: Any, tmp_path: Path) -> None:
    target = lakeseal.create(
        tmp_path / "t",
        pa.schema(
            [("a", pa.string()), ("b", pa.date32()), ("c", pa.timestamp("us")), ("e", pa.timestamp("us", "UTC"))]
        ),
    )
    with with_settings(spark, NEW_YORK):
        ts = "TIMESTAMP'2024-01-01 03:00:00Z'"
        target.write(spark.sql(f"SELECT {ts} a, {ts} b, {ts} c, DATE'2024-01-01' e"))
    assert target.to_arrow().to_pylist() == [
        {
            "a": "2023-12-31 22:00:00",
            "b": dt.date(2023, 12, 31),
            "c": dt.datetime(2023, 12, 31, 22),
            "e": dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC),
        }
    ]


def generated(tmp_path: Path, spark: Any) -> Table:
    from pyspark.sql.types import DateType, LongType, StructField, StructType, TimestampType

    day = StructField("day", DateType(), True, {"delta.generationExpression": "CAST(ts AS DATE)"})
    schema = StructType([StructField("id", LongType()), StructField("ts", TimestampType()), day])
    return lakeseal.create(tmp_path / "generated", schema)


def test_generated_columns_are_made_in_the_sessions_zone(spark: Any, tmp_path: Path) -> None:
    target = generated(tmp_path, spark)
    with with_settings(spark, NEW_YORK):
        target.write(spark.sql("SELECT 1L id, TIMESTAMP'2024-01-01 03:00:00Z' ts"))
        assert target.to_arrow()["day"].to_pylist() == [dt.date(2023, 12, 31)]
        with pytest.raises(ConstraintViolation, match="day"):
            target.write(spark.sql("SELECT 2L id, TIMESTAMP'2024-01-01 03:00:00Z' ts, DATE'2024-01-01' day"))
        target.update({"ts": "TIMESTAMP'2024-06-01 02:00:00Z'"}, "id = 1", spark=spark)
        assert target.to_arrow()["day"].to_pylist() == [dt.date(2024, 5, 31)]


def test_a_constraint_is_judged_by_the_session(spark: Any, table: Callable[..., Table]) -> None:
    changed = table()
    condition = "CAST(ts AS DATE) >= DATE'2023-12-30'"
    with with_settings(spark, NEW_YORK):
        with pytest.raises(ConstraintViolation):
            changed.add_constraint("recent", condition, spark=spark)
        changed.delete("NOT (" + condition + ")", spark=spark)
        changed.add_constraint("recent", condition, spark=spark)
        early = (
            changed.to_spark(spark).limit(1).selectExpr("id", "TIMESTAMP'2023-12-30 03:00:00Z' AS ts", "d", "s", "n")
        )
        with pytest.raises(ConstraintViolation, match="recent"):
            changed.write(early)
        with pytest.raises(ConstraintViolation, match="recent"):
            changed.update({"ts": "TIMESTAMP'2023-12-30 03:00:00Z'"}, "id = 9", spark=spark)


def test_a_row_that_breaks_a_constraint_can_be_mended_where_there_is_a_feed(
    spark: Any, table: Callable[..., Table]
) -> None:
    changed = table(FEED)
    changed.set_properties({"delta.constraints.late": "hour(ts) < 24 AND id < 15"})
    with with_settings(spark, NEW_YORK):
        changed.update({"id": "id - 1"}, "id = 15", spark=spark)
    assert max(changed.to_arrow()["id"].to_pylist()) == 14


def test_double_quotes_name_columns_where_the_session_says_so(spark: Any, table: Callable[..., Table]) -> None:
    changed = table()
    with with_settings(spark, SESSIONS["double-quotes"]):
        changed.delete("\"s\" <> 'v1'", spark=spark)
        assert set(changed.to_arrow()["s"].to_pylist()) == {"v1"}
        changed.update({"s": "concat(\"s\", '!')"}, '"n" = 0', spark=spark)
        assert set(changed.to_arrow()["s"].to_pylist()) == {"v1", "v1!"}
        merge = changed.merge(spark.range(100).toDF("id"), 't."id" = s."id"')
        merge.when_matched_delete('"t"."s" = \'v1!\'').execute()
        assert set(changed.to_arrow()["s"].to_pylist()) == {"v1"}


def test_backslashes_are_themselves_where_the_session_says_so(spark: Any, tmp_path: Path) -> None:
    changed = Table(tmp_path / "t")
    changed.write(pa.table({"s": [r"a\nb", "a\nb"]}))
    with with_settings(spark, SESSIONS["escaped-literals"]):
        changed.delete(r"s = 'a\nb'", spark=spark)
    assert changed.to_arrow()["s"].to_pylist() == ["a\nb"]


@pytest.mark.parametrize("session", [SESSIONS["escaped-literals"], {**SESSIONS["escaped-literals"], **NEW_YORK}])
def test_two_quotes_within_a_text_are_two_where_backslashes_are_themselves(
    spark: Any, tmp_path: Path, session: dict[str, str]
) -> None:
    rows = pa.table({"id": [1, 2, 3], "s": ["it's", "it''s", ""]})
    changed = Table(tmp_path / "t")
    changed.write(rows)
    with with_settings(spark, session):
        spark.createDataFrame(rows).createOrReplaceTempView("bare")
        for where in ("s = 'it''s'", "s = ''", "s <> 'it''s' AND id < 3"):
            kept = [row.id for row in spark.sql(f"SELECT id FROM bare WHERE NOT ({where}) ORDER BY id").collect()]
            assert sorted({1, 2, 3} - {row.id for row in changed.to_spark(spark, where=where).collect()}) == kept
            for way in ("table", "sql"):
                if way == "table":
                    changed.delete(where, spark=spark)
                else:
                    lakeseal.sql(f"DELETE FROM delta.`{changed.uri}` WHERE {where}", spark)
                assert sorted(changed.to_arrow()["id"].to_pylist()) == kept, (where, way)
                changed.restore(version=0)
        changed.update({"s": "'x''y'"}, "id = 2", spark=spark)
        assert changed.to_arrow(where="id = 2")["s"].to_pylist() == [spark.sql("SELECT 'x''y'").collect()[0][0]]


def test_names_are_found_as_the_session_finds_them(spark: Any, table: Callable[..., Table]) -> None:
    changed = table()
    with with_settings(spark, SESSIONS["case-sensitive"]):
        with pytest.raises(InvalidExpression):
            changed.delete("ID = 1", spark=spark)
        with pytest.raises(InvalidExpression):
            changed.update({"N": "1"}, "id = 1", spark=spark)
        changed.delete("id = 1", spark=spark)
    with with_settings(spark, {"spark.sql.caseSensitive": "false"}):
        changed.delete("ID = 2", spark=spark)
    assert len(changed.to_arrow()) == 14


def test_where_case_counts_a_column_of_the_source_in_another_case_is_not_passed_over(
    spark: Any, tmp_path: Path
) -> None:
    changed = Table(tmp_path / "t")
    changed.write(pa.table({"id": [1, 2], "s": ["a", "b"]}))
    source = spark.sql("SELECT * FROM VALUES (1, 'X'), (3, 'Y') AS q(id, S)")
    merge = (
        changed.merge(source, "t.id = s.id", merge_schema=True).when_matched_update("*").when_not_matched_insert("*")
    )
    with with_settings(spark, SESSIONS["case-sensitive"]), pytest.raises(SchemaMismatch, match="caseSensitive"):
        merge.execute()
    assert changed.version() == 0
    with with_settings(spark, {"spark.sql.caseSensitive": "false"}):
        merge.execute()
    assert dict(zip(*changed.to_arrow().to_pydict().values(), strict=True)) == {1: "X", 2: "b", 3: "Y"}


def test_without_ansi_mode_what_does_not_fit_is_null(spark: Any, tmp_path: Path) -> None:
    changed = Table(tmp_path / "t")
    rows = {"s": ["1", "x", "2"], "n": [2147483647, 1, 0]}
    changed.write(pa.table(rows, schema=pa.schema([("s", pa.string()), ("n", pa.int32())])))
    with with_settings(spark, ANSI_ON), pytest.raises(EvaluationError, match="CAST_INVALID_INPUT"):
        changed.delete("CAST(s AS INT) = 1 AND cos(length(s)) >= -1", spark=spark)
    with with_settings(spark, ANSI_OFF):
        changed.update({"n": "n + 1"}, "CAST(s AS INT) = 1", spark=spark)
        assert changed.to_arrow()["n"].to_pylist() == [-2147483648, 1, 0]
        changed.update({"n": "10 / n"}, "s = '2'", spark=spark)
        assert sorted(changed.to_arrow()["n"].to_pylist(), key=str) == [-2147483648, 1, None]
        changed.delete("CAST(s AS INT) = 1", spark=spark)
        assert changed.to_arrow()["s"].to_pylist() == ["x", "2"]


ONE_INT = pa.schema([("v", pa.int32())])


@pytest.mark.parametrize("session", ["default", "ansi-off"])
def test_a_value_that_does_not_fit_is_refused_by_the_ansi_policy_in_either_mode(
    spark: Any, tmp_path: Path, session: str
) -> None:
    target = lakeseal.create(tmp_path / "t", ONE_INT)
    with with_settings(spark, SESSIONS[session]):
        target.write(spark.sql("SELECT 7L v"))
        with pytest.raises(EvaluationError):
            target.write(spark.sql("SELECT 3000000000L v"))
        with pytest.raises(EvaluationError):
            target.update({"v": "bigint(v) * 3000000000L + length(CAST(sin(v) AS STRING))"}, spark=spark)
        with pytest.raises(EvaluationError):
            target.merge(spark.sql("SELECT 3000000000L v"), "t.v = s.v").when_not_matched_insert("*").execute()
        with pytest.raises(SchemaMismatch):
            target.write(spark.sql("SELECT '7' v"))
    assert target.to_arrow()["v"].to_pylist() == [7]


def test_the_legacy_policy_stores_whatever_a_cast_makes_of_it(spark: Any, tmp_path: Path) -> None:
    target = lakeseal.create(tmp_path / "t", ONE_INT)
    with with_settings(spark, SESSIONS["legacy-store"]):
        target.write(spark.sql("SELECT 3000000000L v"))
        target.write(spark.sql("SELECT 'x' v"))
        target.merge(spark.sql("SELECT '12' v"), "false").when_not_matched_insert("*").execute()
        assert sorted(target.to_arrow()["v"].to_pylist(), key=str) == [-1294967296, 12, None]
        target.update({"v": "'5'"}, "v = 12", spark=spark)
        assert 5 in target.to_arrow()["v"].to_pylist()
    half = {"spark.sql.storeAssignmentPolicy": "LEGACY", "spark.sql.ansi.enabled": "true"}
    with with_settings(spark, half), pytest.raises(SchemaMismatch, match="ANSI"):
        target.write(spark.sql("SELECT 3000000000L v"))


def test_a_condition_may_name_columns_that_decide_nothing(spark: Any, table: Callable[..., Table]) -> None:
    changed = table()
    with with_settings(spark, NEW_YORK):
        changed.delete("(n = NULL) IS NULL OR CAST(ts AS DATE) > d", spark=spark)
    assert changed.to_arrow().num_rows == 0


def test_a_value_that_cannot_go_in_is_refused_where_no_row_matches(spark: Any, table: Callable[..., Table]) -> None:
    changed = table()
    with with_settings(spark, SESSIONS["strict-store"]):
        for where in ("id = -1", "id + sin(id) IS NULL"):
            with pytest.raises(SchemaMismatch, match="cannot safely go") as raised:
                changed.update({"n": "s"}, where, spark=spark)
            assert raised.value.column == "n"


def test_the_strict_policy_takes_only_what_always_fits(spark: Any, tmp_path: Path) -> None:
    target = lakeseal.create(tmp_path / "t", pa.schema([("v", pa.int32()), ("w", pa.int64())]))
    with with_settings(spark, SESSIONS["strict-store"]):
        target.write(spark.sql("SELECT 1 v, 2 w"))
        for wrong in ("SELECT 1L v, 2 w", "SELECT 1.5D v, 2 w", "SELECT '1' v, 2 w"):
            with pytest.raises(SchemaMismatch, match="v"):
                target.write(spark.sql(wrong))
        with pytest.raises(SchemaMismatch):
            target.update({"v": "w"}, spark=spark)
    assert target.to_arrow().to_pylist() == [{"v": 1, "w": 2}]


def test_a_decimal_is_written_out_as_the_ansi_policy_has_it(spark: Any, tmp_path: Path) -> None:
    target = lakeseal.create(tmp_path / "t", pa.schema([("v", pa.string())]))
    for session in ("default", "ansi-off"):
        with with_settings(spark, SESSIONS[session]):
            target.write(spark.sql("SELECT CAST('0.0000001' AS DECIMAL(10, 7)) v"))
    assert target.to_arrow()["v"].to_pylist() == ["0.0000001", "0.0000001"]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["plain", "vectors"])
def test_conditions_may_have_subqueries(spark: Any, table: Callable[..., Table], properties: dict[str, str]) -> None:
    changed = table(properties)
    spark.sql("SELECT * FROM VALUES (1L), (2L), (NULL) AS t(x)").createOrReplaceTempView("some_ids")
    changed.delete("id IN (SELECT x FROM some_ids)", spark=spark)
    assert len(changed.to_arrow()) == 14
    changed.delete("id NOT IN (SELECT x FROM some_ids)", spark=spark)  # which a null in it makes null
    assert len(changed.to_arrow()) == 14
    changed.update(
        {"s": "(SELECT max(x) FROM some_ids)"}, "EXISTS (SELECT 1 FROM some_ids WHERE x + 2 = id)", spark=spark
    )
    assert changed.to_arrow(where="s = '2'")["id"].to_pylist() == [3, 4]
    changed.delete("id > (SELECT max(x) + 2 FROM some_ids)", spark=spark)
    assert sorted(changed.to_arrow()["id"].to_pylist()) == [0, 3, 4]
    lakeseal.sql(f"DELETE FROM delta.`{changed.uri}` WHERE id = (SELECT min(x) - 1 FROM some_ids)", spark)
    assert sorted(changed.to_arrow()["id"].to_pylist()) == [3, 4]
    with pytest.raises(EvaluationError, match="More than one row"):
        changed.delete("id = (SELECT x FROM some_ids)", spark=spark)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("CAST(s AS INT)", "CAST_INVALID_INPUT"),
        ("n + 2147483647", "ARITHMETIC_OVERFLOW"),
        ("CAST(1 / (n - n) AS INT)", "DIVIDE_BY_ZERO"),
        ("raise_error(concat('no ', s))", "no v"),
    ],
)
def test_what_spark_says_of_values_is_a_typed_error(
    spark: Any, table: Callable[..., Table], expression: str, says: str
) -> None:
    changed = table()
    forced = f"IF(cos(length(s)) >= -1, {expression}, 0)"  # no expression of ours
    with with_settings(spark, ANSI_ON):
        with pytest.raises(EvaluationError, match=says) as failure:
            changed.update({"n": forced}, spark=spark)
        assert failure.value.table == changed.uri
        with pytest.raises(EvaluationError, match=says):
            changed.delete(f"{forced} = 5", spark=spark)
        merge = changed.merge(spark.range(20).toDF("id"), "t.id = s.id")
        with pytest.raises(EvaluationError, match=says):
            merge.when_matched_update({"n": forced.replace("(s", "(t.s").replace("n -", "t.n -")}).execute()
    assert changed.version() == 1


_OVERFLOWS = "int(id) + 2147483647 + length(repeat('x', 3)) AS n"


def _too_much(s: str, n: str) -> str:
    return f"IF(cos(length({s})) >= -1, {n} + 2147483647, 0)"  # no expression of ours


_OF_TARGET = _too_much("t.s", "t.n")
_OF_ROW = f"{_too_much('s', 'n')} > 0"
_OVERFLOWING: dict[str, Callable[[Table, Any], object]] = {
    "an insert's value": lambda t, rows: (
        t.merge(rows, "t.id = s.id")
        .when_not_matched_insert({"id": "s.id", "n": _too_much("s.s", "int(s.id)")})
        .execute()
    ),
    "a merge's condition": lambda t, rows: (
        t.merge(rows, f"t.id = s.id AND {_OF_TARGET} > 0").when_matched_delete().execute()
    ),
    "a value by source": lambda t, rows: (
        t.merge(rows, "t.id = s.id - 100").when_not_matched_by_source_update({"n": _OF_TARGET}).execute()
    ),
    "a condition by source": lambda t, rows: (
        t.merge(rows, "t.id = s.id - 100").when_not_matched_by_source_delete(f"{_OF_TARGET} > 0").execute()
    ),
    "a clause's condition": lambda t, rows: (
        t.merge(rows, "t.id = s.id").when_matched_delete(f"{_OF_TARGET} > 0").execute()
    ),
    "a merge's source": lambda t, rows: (
        t.merge(rows.selectExpr("id", _OVERFLOWS), "t.id = s.id").when_matched_update({"n": "s.n"}).execute()
    ),
    "write": lambda t, rows: t.write(rows.selectExpr("id", _OVERFLOWS)),
    "rows that replace": lambda t, rows: t.write(
        rows.selectExpr("id", _OVERFLOWS), mode="overwrite", replace_where="id >= 0"
    ),
    "replace_where": lambda t, rows: t.write(rows.where("id < 0"), mode="overwrite", replace_where=_OF_ROW),
    "add_constraint": lambda t, rows: t.add_constraint("c", _OF_ROW, spark=rows.sparkSession),
}


@pytest.mark.parametrize("where", _OVERFLOWING)
def test_an_overflow_anywhere_is_a_typed_error_and_changes_nothing(
    spark: Any, table: Callable[..., Table], where: str
) -> None:
    changed = table()
    with with_settings(spark, ANSI_ON):
        rows = spark.range(1, 20).selectExpr("id", "'a' AS s")
        with pytest.raises(EvaluationError, match="OVERFLOW"):
            _OVERFLOWING[where](changed, rows)
    assert changed.version() == 1


def test_names_with_dots_and_backticks_are_written_changed_and_merged(spark: Any, tmp_path: Path) -> None:
    changed = Table(tmp_path / "t")
    frame = spark.sql("SELECT 1L AS `a.b`, 'x' AS `c``d`, named_struct('e.f', 1, 'g`h', 2) AS `s.t`")
    changed.write(frame)
    changed.write(spark.sql("SELECT 2 AS `a.b`, 'y' AS `c``d`, named_struct('g`h', 4L, 'e.f', 3L) AS `s.t`"))
    assert changed.to_arrow().to_pylist() == [
        {"a.b": 1, "c`d": "x", "s.t": {"e.f": 1, "g`h": 2}},
        {"a.b": 2, "c`d": "y", "s.t": {"e.f": 3, "g`h": 4}},
    ]
    changed.update({"`c``d`": "reverse(concat(`c``d`, '.'))"}, "`a.b` = 1", spark=spark)
    changed.update({"`s.t`.`g``h`": "char_length(repeat('ab', 3))"}, "`a.b` = 1", spark=spark)
    changed.merge(frame, "t.`a.b` = s.`a.b`").when_matched_update({"`c``d`": "concat(t.`c``d`, s.`c``d`)"}).execute()
    lakeseal.register(spark)
    frame.write.format("lakeseal").mode("append").save(changed.uri)
    same_rows(
        changed.to_spark(spark).collect(),
        [
            {"a.b": 1, "c`d": ".xx", "s.t": {"e.f": 1, "g`h": 6}},
            {"a.b": 2, "c`d": "y", "s.t": {"e.f": 3, "g`h": 4}},
            {"a.b": 1, "c`d": "x", "s.t": {"e.f": 1, "g`h": 2}},
        ],
    )


class TestFormat:
    """`format("lakeseal")` is not told of the session, so what depends on it is refused."""

    def test_what_depends_on_the_zone_is_taken_in_utc_and_refused_elsewhere(self, spark: Any, tmp_path: Path) -> None:
        lakeseal.register(spark)
        target = generated(tmp_path, spark)
        rows = "SELECT 1L id, TIMESTAMP'2024-01-01 03:00:00Z' ts"
        # The zone is what this is about, whatever the other tests run in.
        with with_settings(spark, {"spark.sql.session.timeZone": "UTC"}), recovered():
            spark.sql(rows).write.format("lakeseal").mode("append").save(target.uri)
        with with_settings(spark, NEW_YORK), pytest.raises(UnsupportedExpression, match="New_York"), recovered():
            spark.sql(rows).write.format("lakeseal").mode("append").save(target.uri)
        with pytest.raises(UnsupportedExpression, match="zone"), recovered():
            spark.sql("SELECT 1L id, DATE'2024-01-01' ts").write.format("lakeseal").mode("append").save(target.uri)
        assert target.to_arrow()["day"].to_pylist() == [dt.date(2024, 1, 1)]

    @pytest.mark.parametrize("way", ["batch", "stream"])
    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            ("TIMESTAMP'2024-01-01 03:00:00Z'", pa.string()),
            ("TIMESTAMP'2024-01-01 03:00:00Z'", pa.date32()),
            ("TIMESTAMP'2024-01-01 03:00:00Z'", pa.timestamp("us")),
            ("DATE'2024-01-01'", pa.timestamp("us", "UTC")),
            ("TIMESTAMP_NTZ'2024-01-01 03:00:00'", pa.timestamp("us", "UTC")),
        ],
        ids=[
            "moment as text",
            "moment as day",
            "moment as a clock's time",
            "day as moment",
            "a clock's time as moment",
        ],
    )
    def test_a_cast_in_the_sessions_zone_is_refused_by_name_or_right(
        self, spark: Any, tmp_path: Path, way: str, value: str, kind: pa.DataType
    ) -> None:
        lakeseal.register(spark)
        target = lakeseal.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("x", kind)]))
        by_session = lakeseal.create(tmp_path / "by_session", pa.schema([("id", pa.int64()), ("x", kind)]))
        with with_settings(spark, NEW_YORK):
            frame = spark.sql(f"SELECT 1L AS id, {value} AS x")
            by_session.write(frame)
            try:
                with recovered():
                    if way == "batch":
                        frame.write.format("lakeseal").mode("append").save(target.uri)
                    else:
                        frame.write.parquet(str(tmp_path / "rows"))
                        stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "rows"))
                        writer = stream.writeStream.format("lakeseal").trigger(availableNow=True)
                        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
                        assert writer.start(target.uri).awaitTermination(120)
            except UnsupportedExpression as refused:
                assert "zone" in str(refused) or "New_York" in str(refused)
                assert target.version() == 0
            else:
                assert target.to_arrow() == by_session.to_arrow()

    def test_a_condition_that_sessions_read_differently_is_refused(
        self, spark: Any, table: Callable[..., Table]
    ) -> None:
        lakeseal.register(spark)
        changed = table()
        writer = changed.to_spark(spark).where("d = '2024-01-01'").write.format("lakeseal").mode("overwrite")
        for where in ('s = "v1"', "S = 'v1'", "s = 1"):
            with pytest.raises(UnsupportedExpression, match="session"), recovered():
                writer.option("replaceWhere", where).save(changed.uri)
        with with_settings(spark, NEW_YORK), pytest.raises(UnsupportedExpression, match="New_York"), recovered():
            writer.option("replaceWhere", "ts >= '2024-01-01'").save(changed.uri)
        assert changed.version() == 1
        with recovered():
            writer.option("replaceWhere", "d = '2024-01-01'").save(changed.uri)
        assert len(changed.to_arrow()) == 16


@pytest.mark.parametrize("how", ["write", "format", "branch", "format of a branch"])
def test_an_overwrite_replaces_the_partitions_that_get_rows_where_the_session_says_so(
    spark: Any, tmp_path: Path, how: str
) -> None:
    before = spark.range(6).selectExpr("id", "id % 3 AS p")
    news = spark.sql("SELECT 10L AS id, 1L AS p")
    with with_settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        for frame in (before, news):
            frame.write.partitionBy("p").mode("overwrite").parquet(str(tmp_path / "plain"))
            rows = _overwritten(spark, tmp_path, how, frame)
    same_rows(rows, (row.asDict() for row in spark.read.parquet(str(tmp_path / "plain")).collect()), how)


def _overwritten(spark: Any, root: Path, how: str, frame: Any) -> Any:
    table = Table(root / "t")
    if how == "write":
        table.write(frame, mode="overwrite", partition_by="p")
        return table.to_arrow().to_pylist()
    lakeseal.register(spark)
    writer = frame.write.format("lakeseal").mode("overwrite").option("partitionBy", "p")
    if how == "format":
        writer.save(table.uri)
        return table.to_arrow().to_pylist()
    place = root / "repo"
    repo = lakeseal.Repository.open(place) if place.exists() else lakeseal.Repository.create(place)
    if how == "branch":
        repo.write(frame, "main", "t", mode="overwrite", partition_by="p")
    else:
        writer.options(branch="main", directory="t").save(str(place))
    return repo.to_arrow("main", "t").to_pylist()


def test_what_an_overwrite_says_by_itself_goes_before_the_session(spark: Any, tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    lakeseal.register(spark)
    news = spark.sql("SELECT 10L AS id, 1L AS p")
    ways: list[Callable[[], Any]] = [
        lambda: table.write(news, mode="overwrite", partition_overwrite="static"),
        lambda: table.write(news, mode="overwrite", overwrite_schema=True),
        lambda: table.write(news, mode="overwrite", replace_where="true"),
        lambda: table.write(news.toArrow(), mode="overwrite"),
        lambda: news.write.format("lakeseal").mode("overwrite").option("overwriteSchema", True).save(table.uri),
        lambda: news.write.format("lakeseal").mode("overwrite").option("replaceWhere", "p >= 0").save(table.uri),
    ]
    with with_settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        for overwrite in ways:
            table.write(spark.range(6).selectExpr("id", "id % 3 AS p"), partition_by="p")
            overwrite()
            assert table.to_arrow().to_pylist() == [{"id": 10, "p": 1}]


RARE = [
    ({"spark.sql.legacy.consecutiveStringLiterals.enabled": "true"}, "s = 'v''1'"),
    ({"spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true"}, "typeof(1e3) = 'double'"),
    ({"spark.sql.legacy.literal.pickMinimumPrecision": "false"}, "CAST(n AS DECIMAL(20, 2)) / 3 = 0.333333"),
    (
        {"spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "true"},
        "coalesce(CAST(n AS DECIMAL(38, 10)), CAST(1 AS DECIMAL(38, 20))) >= 0 AND "
        "typeof(coalesce(CAST(n AS DECIMAL(38, 10)), CAST(1 AS DECIMAL(38, 20)))) = 'decimal(38,10)'",
    ),
    (
        {"spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true", "spark.sql.ansi.enabled": "false"},
        "d > '2023-9-1'",
    ),
    (
        {"spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true", **ANSI_OFF, **NEW_YORK},
        "d BETWEEN '2023-12-31' AND '2024-1-1'",
    ),
    (
        {"spark.sql.legacy.codingErrorAction": "true", "spark.sql.legacy.javaCharsets": "true"},
        "length(decode(unhex(concat('ff', '6', n)), 'UTF-8')) = 2",
    ),
    ({"spark.sql.mapKeyDedupPolicy": "LAST_WIN"}, "map_concat(map('a', 1), map('a', n))['a'] = 2"),
    ({"spark.sql.jsonGenerator.ignoreNullFields": "false"}, "to_json(named_struct('n', nullif(n, 1))) = '{}'"),
    ({"spark.sql.legacy.interval.enabled": "true"}, "typeof(d + INTERVAL 1 HOUR) = 'date'"),
    ({}, "length(base64(CAST(repeat(s, 40) AS BINARY))) = 110 AND n > 1"),
    ({"spark.sql.chunkBase64String.enabled": "false"}, "length(base64(CAST(repeat(s, 40) AS BINARY))) = 108 AND n > 1"),
    (
        {"spark.sql.chunkBase64String.enabled": "false", **NEW_YORK},
        "length(base64(CAST(repeat(s, 40) AS BINARY))) = 108 AND n > 1",
    ),
]


@pytest.mark.parametrize(("settings", "where"), RARE)
def test_settings_that_change_what_a_text_means_are_followed(
    spark: Any, table: Callable[..., Table], settings: dict[str, str], where: str
) -> None:
    changed = table()
    with with_settings(spark, settings):
        chosen = sorted(row.id for row in spark.createDataFrame(moments()).where(where).collect())
        changed.delete(where, spark=spark)
    assert sorted(changed.to_arrow()["id"].to_pylist()) == [n for n in range(16) if n not in chosen]


def test_a_function_of_the_session_that_goes_before_sparks_is_called(spark: Any, table: Callable[..., Table]) -> None:
    changed = table()
    spark.udf.register("upper", lambda text: f"{text}!", "string")
    try:
        with with_settings(spark, {"spark.sql.functionResolution.sessionOrder": "first"}):
            changed.update({"s": "upper(s)"}, "upper(s) = 'v1!'", spark=spark)
        changed.delete("upper(s) = 'V2'", spark=spark)
    finally:
        spark.sql("DROP TEMPORARY FUNCTION upper")
    assert set(changed.to_arrow()["s"].to_pylist()) == {"v0", "v1!"}
