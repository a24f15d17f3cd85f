"""`char(n)` as Delta Spark reads it: filled up with blanks where the session says so, compared as if it were always.

What is right here was asked of Delta Spark; `tests/peers/test_delta_spark_reads.py` asks it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyspark.sql.types as T  # noqa: N812  # as everybody calls it
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

import lakeseal
from lakeseal import Table
from lakeseal.errors import UnsupportedExpression
from lakeseal.spark.scan import to_spark
from oracles.sessions import with_settings

pytestmark = pytest.mark.spark

PADDING = "spark.sql.readSideCharPadding"
CHAR = T.CharType(3)
# A condition, and who meets it with and without padding.
ASKED = {
    "c = 'q'": ([1, 2], [1, 2]),
    "c = 'q '": ([1, 2], [1, 2]),
    "c IN ('q', 'z')": ([1, 2], [1, 2]),
    "c <=> 'q'": ([1, 2], [1, 2]),
    "c < 'qa'": ([1, 2, 4], [1, 2, 4]),
    "c = ''": ([4], [4]),
    "c LIKE 'q'": ([], [1]),
    "length(c) = 3": ([1, 2, 3, 4], [2, 3]),
    "v = 'q'": ([1], [1]),
    "s.c = 'q'": ([], [1]),
    "get(a, 0) = 'q'": ([], [1]),
    "upper(c) = 'Q'": ([], [1]),
    "c = v": ([2, 3], [1, 2, 3, 4]),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Values as Delta Spark stores them, which is as they were given."""
    schema = T.StructType(
        [
            T.StructField("id", T.LongType()),
            T.StructField("c", CHAR),
            T.StructField("v", T.VarcharType(3)),
            T.StructField("s", T.StructType([T.StructField("c", CHAR)])),
            T.StructField("a", T.ArrayType(CHAR)),
        ]
    )
    made = lakeseal.create(tmp_path / "table", schema)
    values = ["q", "q  ", "qqq", "", None]
    inner = [{"c": "q"}, None, None, None, None]
    rows = pa.table({"id": [1, 2, 3, 4, 5], "c": values, "v": values, "s": inner, "a": [["q"], None, None, [], None]})
    deltalake.write_deltalake(str(tmp_path / "table"), rows, mode="append")
    return made


def ways(spark: Any, table: Table) -> dict[str, DataFrame]:
    lakeseal.register(spark)
    return {
        "Spark's reader": to_spark(spark, table.snapshot(), table.spec),
        "tasks": to_spark(spark, table.snapshot(), table.spec, in_tasks=True),
        "format": spark.read.format("lakeseal").load(table.uri),
    }


@pytest.mark.parametrize("padding", [True, False])
def test_values_of_char_are_compared_and_filled_up_as_delta_does(spark: Any, table: Table, padding: bool) -> None:
    with with_settings(spark, {PADDING: str(padding).lower()}):
        for way, df in ways(spark, table).items():
            found = df.selectExpr("id", *(f"{text} AS `{n}`" for n, text in enumerate(ASKED))).collect()
            for n, (text, right) in enumerate(ASKED.items()):
                assert sorted(row["id"] for row in found if row[str(n)]) == right[not padding], (way, text)
            by_filter = df.where("c = 'q' AND length(c) >= 1").select("id").collect()
            assert sorted(row["id"] for row in by_filter) == [1, 2], way
            first = df.where("id = 1").first()
            assert first is not None
            blanks = "  " if padding else ""
            assert first[1:] == (f"q{blanks}", "q", (f"q{blanks}",), [f"q{blanks}"]), way


def test_a_value_that_we_wrote_with_its_blanks_is_found_without_them(spark: Any, tmp_path: Path) -> None:
    made = lakeseal.create(
        tmp_path / "table", T.StructType([T.StructField("c", CHAR), T.StructField("p", CHAR)]), ["p"]
    )
    made.write(pa.table({"c": ["q", "r"], "p": ["x", "y"]}))
    for way, df in ways(spark, made).items():
        assert df.where("c = 'q'").collect() == [("q  ", "x  ")], way
        assert df.where("p = 'y'").collect() == [("r  ", "y  ")], way
    assert made.to_spark(spark, where="c = 'q'").collect() == [("q  ", "x  ")]
    assert made.to_spark(spark, where="p = 'y'").collect() == [("r  ", "y  ")]


def test_without_spark_values_are_filled_up_and_conditions_on_them_refused(table: Table) -> None:
    assert table.to_arrow().sort_by("id")["c"].to_pylist() == ["q  ", "q  ", "qqq", "   ", None]
    assert table.to_arrow()["s"].to_pylist()[0] == {"c": "q  "}
    for where in ("c = 'q'", "s.c = 'q'", "a IS NULL"):
        with pytest.raises(UnsupportedExpression, match=r"char\(3\)"):
            table.to_arrow(where=where)
    assert table.to_arrow(where="v = 'q'").num_rows == 1


DECIDED = ["c = 'q'", "length(c) = 3", "c LIKE 'q'", "c = v"]


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("way", ["delete", "sql", "replace_where"])
def test_a_condition_on_char_changes_the_rows_that_it_finds(
    spark: Any, table: Table, tmp_path: Path, padding: bool, way: str
) -> None:
    """Values with their blanks and without, in files of ours and of others."""
    table.write(spark.sql("SELECT 6L AS id, 'q' AS c, 'w' AS v, named_struct('c', 'r') AS s, array('r') AS a"))
    with with_settings(spark, {PADDING: str(padding).lower()}):
        found = table.to_spark(spark).selectExpr("id", *(f"{text} AS `{n}`" for n, text in enumerate(DECIDED)))
        rows = found.collect()
        asked = DECIDED if way == "delete" else DECIDED[:2] if way == "sql" else DECIDED[1:3]
        for where in asked:
            ids = [row["id"] for row in rows if row[str(DECIDED.index(where))]]
            before = table.version()
            if way == "delete":
                table.delete(where, spark=spark)
            elif way == "sql":
                lakeseal.sql(f"DELETE FROM delta.`{table.uri}` WHERE {where}", spark)
            else:
                none = table.to_spark(spark).where("false")
                table.write(none, mode="overwrite", replace_where=where)
            left = table.to_spark(spark).selectExpr("id").collect()
            assert sorted(row.id for row in left) == sorted({1, 2, 3, 4, 5, 6} - set(ids)), where
            if table.version() > before:
                table.restore(version=before)
        if way == "delete":
            table.update({"v": "CAST(length(c) AS STRING)"}, "c = 'q'", spark=spark)
            told = table.to_spark(spark).selectExpr("id", "v").where("id IN (1, 2, 6)").collect()
            assert dict(told) == ({1: "3", 2: "3", 6: "3"} if padding else {1: "1", 2: "3", 6: "3"})


@pytest.mark.parametrize(
    ("way", "source", "padding"),
    [(way, source, way == "merge") for way in ("merge", "sql") for source in ("bare", "padded", "table")],
)
def test_a_merge_by_char_matches_the_rows_that_a_join_does(
    spark: Any, table: Table, tmp_path: Path, padding: bool, source: str, way: str
) -> None:
    on = "t.c = s.c"
    with with_settings(spark, {PADDING: str(padding).lower()}):
        if source == "table":
            other = lakeseal.create(tmp_path / "s", T.StructType([T.StructField("c", CHAR)]))
            other.write(pa.table({"c": ["q", "zz"]}))
            frame = other.to_spark(spark)
        else:
            frame = spark.sql("SELECT 'q' AS c" if source == "bare" else "SELECT 'q  ' AS c UNION ALL SELECT 'zz '")
        joined = table.to_spark(spark).alias("t").join(frame.alias("s"), expr(on))
        matched = sorted(row.id for row in joined.selectExpr("t.id").collect())
        alone = frame.alias("s").join(table.to_spark(spark).alias("t"), expr(on), "anti").count()
        if way == "merge":
            merge = table.merge(frame, on).when_matched_update({"v": "'new'"})
            merge.when_not_matched_insert({"id": "99", "c": "s.c"}).execute()
        else:
            frame.createOrReplaceTempView("chars")
            lakeseal.sql(
                f"MERGE INTO delta.`{table.uri}` t USING chars s ON {on} WHEN MATCHED THEN UPDATE SET v = 'new' "
                "WHEN NOT MATCHED THEN INSERT (id, c) VALUES (99, s.c)",
                spark,
            )
            spark.catalog.dropTempView("chars")
        after = table.to_spark(spark)
        assert sorted(row.id for row in after.where("v = 'new'").collect()) == matched
        assert after.where("id = 99").count() == alone
        if padding and source != "bare":
            assert matched == [1, 2]
